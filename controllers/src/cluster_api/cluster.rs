//! The kind `Cluster`, with the fields that controllers of this package read or write.

use super::{Conditions, ContractVersionedObjectReference, DeprecatedCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fmt};

/// Desired state of a `Cluster`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    namespaced,
    status = "ClusterStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Stops the controllers of Cluster API from reconciling the Cluster and its objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Address of the API server of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ApiEndpoint>,
    /// Control plane of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ContractVersionedObjectReference>,
    /// Infrastructure of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ContractVersionedObjectReference>,
    /// Topology, if a `ClusterClass` manages the objects of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
}

impl ClusterSpec {
    /// Returns whether the Cluster is paused by its spec.
    ///
    /// An annotation can pause it as well.
    pub fn is_paused(&self) -> bool {
        self.paused == Some(true)
    }

    /// Returns whether a topology is defined.
    pub fn has_topology(&self) -> bool {
        self.topology.as_ref().is_some_and(Topology::is_defined)
    }
}

/// Host and port of an API server. Both can be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ApiEndpoint {
    /// Host name or IP address, without scheme and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Port of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

impl ApiEndpoint {
    /// Returns whether neither host nor port is set.
    pub fn is_empty(&self) -> bool {
        self.host().is_none() && self.port().is_none()
    }

    /// Returns whether host and port are both set.
    pub fn is_valid(&self) -> bool {
        self.host().is_some() && self.port().is_some()
    }

    /// Returns the host, unless it is empty.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref().filter(|host| !host.is_empty())
    }

    /// Returns the port, unless it is 0.
    pub fn port(&self) -> Option<i32> {
        self.port.filter(|port| *port != 0)
    }
}

/// Prints `host:port`, with an IPv6 address in brackets.
impl fmt::Display for ApiEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().unwrap_or_default();
        let port = self.port.unwrap_or_default();
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// Topology of a Cluster. Contains the version and all other fields as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Version of Kubernetes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The other fields.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Topology {
    /// Returns whether any field is set.
    pub fn is_defined(&self) -> bool {
        *self != Self::default()
    }
}

/// Observed state of a `Cluster`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Milestones of the creation of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ClusterInitialization>,
    /// Failure domains of the infrastructure, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<FailureDomain>,
    /// Phase of the lifecycle, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Generation that the status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Fields that later versions will not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<DeprecatedStatus>,
}

impl ClusterStatus {
    /// Returns whether the infrastructure was provisioned.
    pub fn is_infrastructure_provisioned(&self) -> bool {
        self.initialization
            .as_ref()
            .is_some_and(|it| it.infrastructure_provisioned == Some(true))
    }

    /// Returns whether the control plane was initialized.
    pub fn is_control_plane_initialized(&self) -> bool {
        self.initialization
            .as_ref()
            .is_some_and(|it| it.control_plane_initialized == Some(true))
    }
}

/// Milestones of the creation of a cluster. Once true, they stay true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInitialization {
    /// The infrastructure was provisioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// The control plane accepted requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

/// Failure domain of the infrastructure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// Name of the failure domain.
    pub name: String,
    /// Whether control plane machines can run in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    /// Attributes that the provider defines.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// Fields of a status that later API versions will not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeprecatedStatus {
    /// Fields from v1beta1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<DeprecatedV1Beta1Status>,
}

/// Status fields from v1beta1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeprecatedV1Beta1Status {
    /// Conditions in the format of v1beta1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<DeprecatedCondition>,
    /// Category of a failure that needs manual intervention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Description of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
}

impl Conditions for Cluster {
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
