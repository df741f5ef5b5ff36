//! Types of the kinds that the controller reads and writes.
//!
//! The CRD of `CAPTControlPlane` is generated from its type. The types of other projects' kinds have
//! only the fields that are read. They are written by patches, so their other fields do not change.

use crate::cluster_api::ApiEndpoint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use steersman::prelude::GroupVersionKind;

/// Desired state of a control plane.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "controlplane.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "CAPTControlPlane",
    plural = "captcontrolplanes",
    namespaced,
    status = "CAPTControlPlaneStatus",
    category = "cluster-api",
    label("cluster.x-k8s.io/v1beta1", "v1beta1"),
    printcolumn = r#"{"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".spec.version"}"#,
    printcolumn = r#"{"name": "Endpoint", "type": "string", "jsonPath": ".spec.controlPlaneEndpoint.host"}"#,
    doc = "A control plane that Terraform creates from a workspace template."
)]
#[serde(rename_all = "camelCase")]
pub struct CAPTControlPlaneSpec {
    /// Kubernetes version.
    pub version: String,
    /// Template of the workspace.
    pub workspace_template_ref: TemplateReference,
    /// Settings of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_config: Option<ControlPlaneConfig>,
    /// Tags of the created cloud resources.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_tags: BTreeMap<String, String>,
    /// Endpoint of the API server. Written by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// Name of the `WorkspaceTemplateApply`. Default: `<name>-eks-controlplane-apply`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_template_apply_name: Option<String>,
}

/// Reference to a template.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TemplateReference {
    /// Name.
    pub name: String,
    /// Namespace. Default: the namespace of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Settings of a control plane, which are passed to Terraform.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneConfig {
    /// Cloud region.
    #[schemars(regex(pattern = r"^[a-z]{2}-[a-z]+-[0-9]$"))]
    pub region: String,
    /// Networks that can reach the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_access: Option<EndpointAccess>,
    /// Addons to install.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addons: Vec<Addon>,
    /// Time limits of the creation, in minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
}

/// Networks that can reach the endpoint of a control plane.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointAccess {
    /// Whether the endpoint is reachable from the internet.
    #[serde(default)]
    pub public: bool,
    /// Whether the endpoint is reachable from its own network.
    #[serde(default)]
    pub private: bool,
    /// CIDR blocks from which the public endpoint is reachable.
    #[serde(default, rename = "publicCIDRs", skip_serializing_if = "Vec::is_empty")]
    pub public_cidrs: Vec<String>,
}

/// Addon of a control plane.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Addon {
    /// Name.
    pub name: String,
    /// Version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Settings, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_values: Option<String>,
}

/// Time limits of the creation, in minutes.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Time until the control plane exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<i32>,
    /// Time until the network is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vpc_ready: Option<i32>,
}

/// Endpoint of an API server, as in the Cluster API.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// DNS name or IP address, without scheme and port.
    pub host: String,
    /// Port.
    pub port: i32,
}

/// Observed state of a control plane.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CAPTControlPlaneStatus {
    /// Whether the endpoint is known, so that the control plane can be used.
    #[serde(default)]
    pub ready: bool,
    /// Whether the control plane was ready at least once.
    #[serde(default)]
    pub initialized: bool,
    /// Whether the Secrets of the control plane exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets_ready: Option<bool>,
    /// Phase of the creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Reason of a failure, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Message of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// Conditions of the control plane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Status of the template. Written by other controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub workspace_template_status: Option<Value>,
    /// Status of the workspace. Written by other controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub workspace_status: Option<Value>,
}

/// Phase of the creation of a control plane.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The control plane is being created.
    Creating,
    /// The control plane can be used.
    Ready,
    /// A value has to be corrected by a user.
    Failed,
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Application of a template, which creates a workspace. Has only the fields that are read.
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

/// Observed state of a `WorkspaceTemplateApply`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceTemplateApplyStatus {
    /// Name of the created workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_name: Option<String>,
}

impl From<Endpoint> for ApiEndpoint {
    fn from(Endpoint { host, port }: Endpoint) -> Self {
        Self {
            host: Some(host),
            port: Some(port),
        }
    }
}

/// Converts an endpoint whose fields may be missing. They become empty and 0.
impl From<ApiEndpoint> for Endpoint {
    fn from(ApiEndpoint { host, port }: ApiEndpoint) -> Self {
        Self {
            host: host.unwrap_or_default(),
            port: port.unwrap_or_default(),
        }
    }
}

/// Returns the kind of Terraform workspaces. Its scope depends on the installed provider.
pub fn workspace_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("tf.upbound.io", "v1beta1", "Workspace")
}
