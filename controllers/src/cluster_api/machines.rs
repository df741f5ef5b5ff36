//! The kinds `Machine`, `MachineSet`, `MachineDeployment` and `MachinePool`.
//!
//! Most controllers need only their metadata: watch them as `Metadata<Machine>`.

use super::ContractVersionedObjectReference;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Desired state of a `Machine`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Machine",
    namespaced,
    status = "MachineStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// Name of the Cluster that the Machine belongs to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_name: String,
    /// Configuration with which the Machine joins the cluster.
    pub bootstrap: Bootstrap,
    /// Infrastructure of the Machine.
    pub infrastructure_ref: ContractVersionedObjectReference,
    /// Identity of the instance at the infrastructure provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
}

/// Configuration with which a Machine joins the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bootstrap {
    /// Object of a bootstrap provider that creates the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<ContractVersionedObjectReference>,
    /// Name of the Secret with the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
}

/// Observed state of a `Machine`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// Node that the Machine became.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<NodeReference>,
}

impl MachineStatus {
    /// Returns whether the Machine became a node.
    pub fn has_node(&self) -> bool {
        self.node_ref
            .as_ref()
            .is_some_and(|node| !node.name.is_empty())
    }
}

/// Reference to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReference {
    /// Name of the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Desired state of a `MachineSet`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineSet",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSetSpec {
    /// Name of the Cluster that the `MachineSet` belongs to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_name: String,
}

/// Desired state of a `MachineDeployment`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineDeployment",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentSpec {
    /// Name of the Cluster that the `MachineDeployment` belongs to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_name: String,
}

/// Desired state of a `MachinePool`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachinePool",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachinePoolSpec {
    /// Name of the Cluster that the `MachinePool` belongs to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_name: String,
}
