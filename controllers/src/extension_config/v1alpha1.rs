//! API version `v1alpha1` of the kind `ExtensionConfig`, with conversions to and from `v1beta2`.
//!
//! It is deprecated in Cluster API, and the CRD of this package does not serve it. Use the
//! conversions in a conversion webhook, or to read manifests.
//!
//! The two versions have the same spec. In the status, `v1alpha1` has the conditions of v1beta1 in
//! `conditions` and those of v1beta2 in `v1beta2.conditions`. A conversion moves the conditions and
//! never translates one format into the other. Empty texts, an empty Service and a timeout of 0
//! become absent, because Cluster API treats them as absent.
//!
//! ```
//! use steersman_controllers::extension_config::{ExtensionConfig, v1alpha1};
//!
//! let old: v1alpha1::ExtensionConfig = serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "quota"},
//!     "spec": {"clientConfig": {"url": "https://quota.example.com"}},
//!     "status": {"conditions": [{"type": "Discovered", "status": "True"}]},
//! }))?;
//! let new = ExtensionConfig::from(old.clone());
//! assert!(new.status.as_ref().is_some_and(|status| status.conditions.is_empty()));
//! assert_eq!(v1alpha1::ExtensionConfig::from(new), old);
//! # Ok::<_, serde_json::Error>(())
//! ```

use super::{
    ClientConfig, ExtensionConfigSpec as SpecV1Beta2, ExtensionConfigStatus as StatusV1Beta2,
    ExtensionHandler, ServiceReference,
};
use crate::cluster_api::{DeprecatedCondition, DeprecatedStatus, DeprecatedV1Beta1Status};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Desired state of an `ExtensionConfig`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "runtime.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ExtensionConfig",
    plural = "extensionconfigs",
    shortname = "ext",
    category = "cluster-api",
    status = "ExtensionConfigStatus",
    schema = "disabled",
    derive = "PartialEq",
    doc = "A runtime extension of Cluster API, in the API version `v1alpha1`."
)]
#[serde(rename_all = "camelCase")]
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

/// Observed state of an `ExtensionConfig`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExtensionConfigStatus {
    /// Handlers that the last successful discovery returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<ExtensionHandler>,
    /// Conditions in the format of v1beta1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<DeprecatedCondition>,
    /// Fields from v1beta2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<ExtensionConfigV1Beta2Status>,
}

/// Status fields from v1beta2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExtensionConfigV1Beta2Status {
    /// Conditions `Discovered` and `Paused`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl From<ExtensionConfig> for super::ExtensionConfig {
    fn from(config: ExtensionConfig) -> Self {
        let spec = SpecV1Beta2 {
            client_config: without_empty(config.spec.client_config),
            namespace_selector: config.spec.namespace_selector,
            settings: config.spec.settings,
        };
        Self {
            metadata: config.metadata,
            spec,
            status: config.status.map(Into::into),
        }
    }
}

impl From<super::ExtensionConfig> for ExtensionConfig {
    fn from(config: super::ExtensionConfig) -> Self {
        let spec = ExtensionConfigSpec {
            client_config: without_empty(config.spec.client_config),
            namespace_selector: config.spec.namespace_selector,
            settings: config.spec.settings,
        };
        Self {
            metadata: config.metadata,
            spec,
            status: config.status.map(Into::into),
        }
    }
}

impl From<ExtensionConfigStatus> for StatusV1Beta2 {
    fn from(status: ExtensionConfigStatus) -> Self {
        let deprecated = (!status.conditions.is_empty()).then(|| DeprecatedStatus {
            v1beta1: Some(DeprecatedV1Beta1Status {
                conditions: status.conditions,
                ..Default::default()
            }),
        });
        Self {
            conditions: status.v1beta2.unwrap_or_default().conditions,
            handlers: status.handlers.into_iter().map(without_zero).collect(),
            deprecated,
        }
    }
}

impl From<StatusV1Beta2> for ExtensionConfigStatus {
    fn from(status: StatusV1Beta2) -> Self {
        let deprecated = status.deprecated.and_then(|deprecated| deprecated.v1beta1);
        let v1beta2 = (!status.conditions.is_empty()).then_some(ExtensionConfigV1Beta2Status {
            conditions: status.conditions,
        });
        Self {
            handlers: status.handlers.into_iter().map(without_zero).collect(),
            conditions: deprecated.unwrap_or_default().conditions,
            v1beta2,
        }
    }
}

fn without_empty(config: ClientConfig) -> ClientConfig {
    let not_empty = |text: &String| !text.is_empty();
    let service = config.service.map(|service| ServiceReference {
        path: service.path.filter(not_empty),
        ..service
    });
    ClientConfig {
        url: config.url.filter(not_empty),
        service: service.filter(|service| *service != ServiceReference::default()),
        ca_bundle: config.ca_bundle.filter(|bundle| !bundle.0.is_empty()),
    }
}

fn without_zero(handler: ExtensionHandler) -> ExtensionHandler {
    ExtensionHandler {
        timeout_seconds: handler.timeout_seconds.filter(|seconds| *seconds != 0),
        ..handler
    }
}
