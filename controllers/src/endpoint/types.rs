//! The kinds that are read and written, as far as they are.
//!
//! Ours is `CAPTControlPlane`: its definition is made from the types here. Of the others only what is read is named; they belong to somebody else, and whatever else they
//! have stays as it is, since nothing is written but patches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use steersman::prelude::GroupVersionKind;

/// What is wanted of a control plane.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "controlplane.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "CAPTControlPlane",
    plural = "captcontrolplanes",
    namespaced,
    status = "CAPTControlPlaneStatus",
    category = "cluster-api",
    printcolumn = r#"{"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".spec.version"}"#,
    printcolumn = r#"{"name": "Endpoint", "type": "string", "jsonPath": ".spec.controlPlaneEndpoint.host"}"#,
    doc = "A control plane that Terraform makes, by a template of a workspace."
)]
#[serde(rename_all = "camelCase")]
pub struct CAPTControlPlaneSpec {
    /// The version of Kubernetes.
    pub version: String,
    /// The template of the workspace.
    pub workspace_template_ref: TemplateReference,
    /// How the control plane is set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_config: Option<ControlPlaneConfig>,
    /// Tags for what is made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_tags: BTreeMap<String, String>,
    /// Where it listens. Written by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// The `WorkspaceTemplateApply` that makes its workspace. Written by a controller; without it the name is `<name>-eks-controlplane-apply`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_template_apply_name: Option<String>,
}

/// A template, of its own namespace unless another one is named.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TemplateReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// How a control plane is set up. What is in it is Terraform's.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneConfig {
    /// Where.
    #[schemars(regex(pattern = r"^[a-z]{2}-[a-z]+-[0-9]$"))]
    pub region: String,
    /// Who may reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_access: Option<EndpointAccess>,
    /// What is installed into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addons: Vec<Addon>,
    /// How long its steps may take, in minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
}

/// Who may reach a control plane.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointAccess {
    /// Whoever is outside.
    #[serde(default)]
    pub public: bool,
    /// Whoever is inside.
    #[serde(default)]
    pub private: bool,
    /// From where outside.
    #[serde(default, rename = "publicCIDRs", skip_serializing_if = "Vec::is_empty")]
    pub public_cidrs: Vec<String>,
}

/// Something to be installed.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Addon {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its settings, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_values: Option<String>,
}

/// How long steps may take, in minutes.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Until the control plane is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<i32>,
    /// Until its network is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vpc_ready: Option<i32>,
}

/// A host and a port, as the Cluster API has them.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// A name or an address, without scheme and port.
    pub host: String,
    /// The port.
    pub port: i32,
}

/// What has become of a control plane.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CAPTControlPlaneStatus {
    /// It can be used: its endpoint is known.
    #[serde(default)]
    pub ready: bool,
    /// It could be used once.
    #[serde(default)]
    pub initialized: bool,
    /// Its secrets are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets_ready: Option<bool>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Why it failed, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// What else is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The template's state. Written by others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub workspace_template_status: Option<Value>,
    /// The workspace's state. Written by others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub workspace_status: Option<Value>,
}

/// How far a control plane is.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It is being made.
    Creating,
    /// It can be used.
    Ready,
    /// Something has to be mended by hand.
    Failed,
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Applies a template, by which a workspace comes to be. Only what is read.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "WorkspaceTemplateApply",
    plural = "workspacetemplateapplies",
    namespaced,
    status = "WorkspaceTemplateApplyStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceTemplateApplySpec {}

/// What has become of it.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceTemplateApplyStatus {
    /// The workspace, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_name: Option<String>,
}

/// A cluster of the Cluster API. Only what is read.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(group = "cluster.x-k8s.io", version = "v1beta1", kind = "Cluster", namespaced)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Where its control plane listens.
    #[serde(default, deserialize_with = "in_part", skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// Control plane of the cluster. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ControlPlaneReference>,
}

/// Reference from a `Cluster` to its control plane, in the shape of v1beta1 or of v1beta2.
///
/// All fields are optional because the two shapes differ: v1beta1 has `apiVersion` and `namespace`, v1beta2 has
/// `apiGroup`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneReference {
    /// Group and version of the control plane. Only in v1beta1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Group of the control plane. Only in v1beta2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the control plane. Only in v1beta1. Default: the namespace of the `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A cluster's endpoint may be there in part, or empty: v1beta1 writes an empty host and 0, v1beta2 leaves them out.
fn in_part<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Endpoint>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Part {
        host: String,
        port: i32,
    }
    let part = Option::<Part>::deserialize(deserializer)?;
    Ok(part.map(|Part { host, port }| Endpoint { host, port }))
}

/// What Terraform does: whether it has namespaces differs from one installation to the next.
pub fn workspace_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("tf.upbound.io", "v1beta1", "Workspace")
}
