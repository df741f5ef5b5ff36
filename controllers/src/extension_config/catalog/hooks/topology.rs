//! Hooks of the topology of a Cluster: patches and variables of a `ClusterClass`.

use super::{
    PatchType,
    common::{hook, is_default, request, response, wire},
};
use k8s_openapi::ByteString;
use serde_json::Value;
use std::collections::BTreeMap;

hook! {
    /// Generates patches of the templates of a Cluster.
    GeneratePatches(GeneratePatchesRequest) -> GeneratePatchesResponse
}

request! {
    /// Request of [`GeneratePatches`].
    pub struct GeneratePatchesRequest {
        /// Variables of all templates.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub variables: Vec<Variable>,
        /// Templates to patch.
        pub items: Vec<GeneratePatchesRequestItem>,
    }
}

wire! {
    /// Template to patch.
    pub struct GeneratePatchesRequestItem {
        /// Identifier, which the patches of this template repeat.
        pub uid: String,
        /// Object that uses the template.
        pub holder_reference: HolderReference,
        /// The template, with all of its fields.
        pub object: Value,
        /// Variables of this template.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub variables: Vec<Variable>,
    }
}

response! {
    /// Response of [`GeneratePatches`].
    pub struct GeneratePatchesResponse {
        /// Patches, in the order in which they are applied.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub items: Vec<GeneratePatchesResponseItem>,
    }
}

wire! {
    /// Patch of a template.
    pub struct GeneratePatchesResponseItem {
        /// Identifier of the template in the request.
        pub uid: String,
        /// Format of the patch.
        pub patch_type: PatchType,
        /// The patch, as JSON.
        pub patch: ByteString,
    }
}

hook! {
    /// Validates the templates of a Cluster after all patches.
    ValidateTopology(ValidateTopologyRequest) -> ValidateTopologyResponse
}

request! {
    /// Request of [`ValidateTopology`].
    pub struct ValidateTopologyRequest {
        /// Variables of all templates.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub variables: Vec<Variable>,
        /// Templates to validate.
        pub items: Vec<ValidateTopologyRequestItem>,
    }
}

wire! {
    /// Template to validate.
    pub struct ValidateTopologyRequestItem {
        /// Object that uses the template.
        pub holder_reference: HolderReference,
        /// The template, with all of its fields.
        pub object: Value,
        /// Variables of this template.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub variables: Vec<Variable>,
    }
}

response! {
    /// Response of [`ValidateTopology`].
    pub struct ValidateTopologyResponse {}
}

wire! {
    /// Variable of a template.
    pub struct Variable {
        /// Name.
        pub name: String,
        /// Value.
        pub value: Value,
    }
}

wire! {
    /// Reference to an object that uses a template.
    pub struct HolderReference {
        /// API version of the object.
        pub api_version: String,
        /// Kind of the object.
        pub kind: String,
        /// Namespace of the object.
        pub namespace: String,
        /// Name of the object.
        pub name: String,
        /// Path of the field that refers to the template.
        pub field_path: String,
    }
}

hook! {
    /// Lists the variables that an extension defines for a `ClusterClass`.
    DiscoverVariables(DiscoverVariablesRequest) -> DiscoverVariablesResponse
}

request! {
    /// Request of [`DiscoverVariables`].
    pub struct DiscoverVariablesRequest {}
}

response! {
    /// Response of [`DiscoverVariables`].
    pub struct DiscoverVariablesResponse {
        /// Definitions of the variables.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub variables: Vec<ClusterClassVariable>,
    }
}

wire! {
    /// Definition of a variable.
    pub struct ClusterClassVariable {
        /// Name.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub name: String,
        /// Whether Clusters must set the variable.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub required: Option<bool>,
        /// Metadata that v1beta1 had.
        #[serde(rename = "deprecatedV1Beta1Metadata", skip_serializing_if = "is_default")]
        pub deprecated_v1beta1_metadata: ClusterClassVariableMetadata,
        /// Schema of the value.
        #[serde(skip_serializing_if = "is_default")]
        pub schema: VariableSchema,
    }
}

wire! {
    /// Metadata of a variable.
    pub struct ClusterClassVariableMetadata {
        /// Labels.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub labels: BTreeMap<String, String>,
        /// Annotations.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub annotations: BTreeMap<String, String>,
    }
}

wire! {
    /// Schema of a variable.
    pub struct VariableSchema {
        /// `OpenAPI` v3 schema, with all of its fields.
        #[serde(rename = "openAPIV3Schema", skip_serializing_if = "Value::is_null")]
        pub open_api_v3_schema: Value,
    }
}
