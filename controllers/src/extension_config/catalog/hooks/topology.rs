//! Hooks of the topology of a Cluster: patches and variables of a `ClusterClass`.

use super::{
    PatchType, ResponseStatus, Settings,
    common::{hook, is_default, null_default, plain_response, request, response},
};
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

hook! {
    /// Generates patches of the templates of a Cluster.
    GeneratePatches(GeneratePatchesRequest) -> GeneratePatchesResponse
}

/// Request of [`GeneratePatches`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratePatchesRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// Variables of all templates.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub variables: Vec<Variable>,
    /// Templates to patch.
    #[serde(default, deserialize_with = "null_default")]
    pub items: Vec<GeneratePatchesRequestItem>,
}

request!(GeneratePatchesRequest);

/// Template to patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GeneratePatchesRequestItem {
    /// Identifier, which the patches of this template repeat.
    #[serde(default, deserialize_with = "null_default")]
    pub uid: String,
    /// Object that uses the template.
    #[serde(default, deserialize_with = "null_default")]
    pub holder_reference: HolderReference,
    /// The template, with all of its fields.
    #[serde(default)]
    pub object: Value,
    /// Variables of this template.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub variables: Vec<Variable>,
}

/// Response of [`GeneratePatches`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratePatchesResponse {
    /// Status of the call.
    #[serde(default, deserialize_with = "null_default")]
    pub status: ResponseStatus,
    /// Message for people.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub message: String,
    /// Patches, in the order in which they are applied.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub items: Vec<GeneratePatchesResponseItem>,
}

response!(GeneratePatchesResponse);

/// Patch of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GeneratePatchesResponseItem {
    /// Identifier of the template in the request.
    #[serde(default, deserialize_with = "null_default")]
    pub uid: String,
    /// Format of the patch.
    #[serde(default, deserialize_with = "null_default")]
    pub patch_type: PatchType,
    /// The patch, as JSON.
    #[serde(default, deserialize_with = "null_default")]
    pub patch: ByteString,
}

hook! {
    /// Validates the templates of a Cluster after all patches.
    ValidateTopology(ValidateTopologyRequest) -> ValidateTopologyResponse
}

/// Request of [`ValidateTopology`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidateTopologyRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// Variables of all templates.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub variables: Vec<Variable>,
    /// Templates to validate.
    #[serde(default, deserialize_with = "null_default")]
    pub items: Vec<ValidateTopologyRequestItem>,
}

request!(ValidateTopologyRequest);

/// Template to validate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ValidateTopologyRequestItem {
    /// Object that uses the template.
    #[serde(default, deserialize_with = "null_default")]
    pub holder_reference: HolderReference,
    /// The template, with all of its fields.
    #[serde(default)]
    pub object: Value,
    /// Variables of this template.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub variables: Vec<Variable>,
}

plain_response! {
    /// Response of [`ValidateTopology`].
    ValidateTopologyResponse
}

/// Variable of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Name.
    #[serde(default, deserialize_with = "null_default")]
    pub name: String,
    /// Value.
    #[serde(default)]
    pub value: Value,
}

/// Reference to an object that uses a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderReference {
    /// API version of the object.
    #[serde(default, deserialize_with = "null_default")]
    pub api_version: String,
    /// Kind of the object.
    #[serde(default, deserialize_with = "null_default")]
    pub kind: String,
    /// Namespace of the object.
    #[serde(default, deserialize_with = "null_default")]
    pub namespace: String,
    /// Name of the object.
    #[serde(default, deserialize_with = "null_default")]
    pub name: String,
    /// Path of the field that refers to the template.
    #[serde(default, deserialize_with = "null_default")]
    pub field_path: String,
}

hook! {
    /// Lists the variables that an extension defines for a `ClusterClass`.
    DiscoverVariables(DiscoverVariablesRequest) -> DiscoverVariablesResponse
}

/// Request of [`DiscoverVariables`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoverVariablesRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
}

request!(DiscoverVariablesRequest);

/// Response of [`DiscoverVariables`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoverVariablesResponse {
    /// Status of the call.
    #[serde(default, deserialize_with = "null_default")]
    pub status: ResponseStatus,
    /// Message for people.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub message: String,
    /// Definitions of the variables.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub variables: Vec<ClusterClassVariable>,
}

response!(DiscoverVariablesResponse);

/// Definition of a variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterClassVariable {
    /// Name.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// Whether Clusters must set the variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Metadata that v1beta1 had.
    #[serde(
        default,
        rename = "deprecatedV1Beta1Metadata",
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub deprecated_v1beta1_metadata: ClusterClassVariableMetadata,
    /// Schema of the value.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub schema: VariableSchema,
}

/// Metadata of a variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterClassVariableMetadata {
    /// Labels.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
}

/// Schema of a variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariableSchema {
    /// `OpenAPI` v3 schema, with all of its fields.
    #[serde(
        default,
        rename = "openAPIV3Schema",
        skip_serializing_if = "Value::is_null"
    )]
    pub open_api_v3_schema: Value,
}
