//! Types of the kind `ExtensionConfig`.

use super::definition;
use crate::cluster_api::{Conditions, DeprecatedCondition, DeprecatedStatus};
use k8s_openapi::{
    ByteString,
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Desired state of an `ExtensionConfig`.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "runtime.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "ExtensionConfig",
    plural = "extensionconfigs",
    shortname = "ext",
    category = "cluster-api",
    status = "ExtensionConfigStatus",
    derive = "PartialEq",
    label("cluster.x-k8s.io/v1beta2", "v1beta2"),
    printcolumn = r#"{"name": "Paused", "type": "string", "priority": 10, "description": "Whether the reconciliation is paused", "jsonPath": ".status.conditions[?(@.type==\"Paused\")].status"}"#,
    printcolumn = r#"{"name": "Discovered", "type": "string", "description": "Whether the last discovery succeeded", "jsonPath": ".status.conditions[?(@.type==\"Discovered\")].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "description": "Time since the creation", "jsonPath": ".metadata.creationTimestamp"}"#,
    doc = "A runtime extension of Cluster API: its address, and the namespaces that it is called for."
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["clientConfig"]))]
pub struct ExtensionConfigSpec {
    /// Address and CA of the extension server.
    #[serde(default)]
    pub client_config: ClientConfig,
    /// Namespaces whose objects the handlers are called for. Absent: none. Empty: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Settings that are sent with each call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// Address and CA of an extension server. Either `url` or `service` is set.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClientConfig {
    /// Address of a server outside of the cluster, with the scheme `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub url: Option<String>,
    /// Service of a server in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReference>,
    /// Certificates of the accepted CAs, as PEM. Absent: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(min = 1, max = 51200), extend("format" = "byte"))]
    pub ca_bundle: Option<ByteString>,
}

/// Service of an extension server.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[schemars(extend("required" = ["name", "namespace"]))]
pub struct ServiceReference {
    /// Namespace of the Service.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the Service.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Prefix of the path of each hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub path: Option<String>,
    /// Port of the Service. Default: 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// Observed state of an `ExtensionConfig`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("minProperties" = 1))]
pub struct ExtensionConfigStatus {
    /// Conditions `Discovered` and `Paused`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "definition::conditions")]
    pub conditions: Vec<Condition>,
    /// Handlers that the last successful discovery returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 512),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub handlers: Vec<ExtensionHandler>,
    /// Fields that later API versions will not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "definition::deprecated")]
    pub deprecated: Option<DeprecatedStatus>,
}

/// Handler of an extension server.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionHandler {
    /// Name of the handler, a dot, and the name of the `ExtensionConfig`.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,
    /// Hook that the handler serves.
    pub request_hook: HookReference,
    /// Time limit of a call in seconds. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_seconds: Option<i32>,
    /// Meaning of a failed call. Default: `Fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
}

/// Hook in a version.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "hook"]))]
pub struct HookReference {
    /// Group and version, such as `hooks.runtime.cluster.x-k8s.io/v1alpha1`.
    #[schemars(length(min = 1, max = 512))]
    pub api_version: String,
    /// Name of the hook.
    #[schemars(length(min = 1, max = 256))]
    pub hook: String,
}

/// Meaning of a call that fails without a response.
///
/// A response with the status `Failure` is an error with both policies.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailurePolicy {
    /// The call counts as successful.
    Ignore,
    /// The call is an error.
    #[default]
    Fail,
}

impl Conditions for ExtensionConfig {
    fn conditions(&self) -> &[Condition] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.conditions)
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.status.get_or_insert_default().conditions
    }

    fn deprecated_conditions(&self) -> &[DeprecatedCondition] {
        self.status
            .as_ref()
            .and_then(|status| status.deprecated.as_ref()?.v1beta1.as_ref())
            .map_or(&[], |status| &status.conditions)
    }

    fn deprecated_conditions_mut(&mut self) -> Option<&mut Vec<DeprecatedCondition>> {
        let status = self.status.get_or_insert_default();
        let deprecated = status.deprecated.get_or_insert_default();
        Some(&mut deprecated.v1beta1.get_or_insert_default().conditions)
    }
}
