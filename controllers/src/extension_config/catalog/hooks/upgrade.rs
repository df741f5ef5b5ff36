//! Hooks of the upgrade of a Cluster.

use super::common::{hook, request, response, retry_response, wire};
use serde_json::Value;

wire! {
    /// Step of an upgrade.
    pub struct UpgradeStep {
        /// Kubernetes version after the step.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub version: String,
    }
}

hook! {
    /// Called once before an upgrade of a Cluster. It can delay the upgrade.
    BeforeClusterUpgrade(BeforeClusterUpgradeRequest) -> BeforeClusterUpgradeResponse
}

request! {
    /// Request of [`BeforeClusterUpgrade`].
    pub struct BeforeClusterUpgradeRequest {
        /// The Cluster, with all of its fields.
        pub cluster: Value,
        /// Kubernetes version before the upgrade.
        pub from_kubernetes_version: String,
        /// Kubernetes version after the upgrade.
        pub to_kubernetes_version: String,
        /// Steps of the control plane.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub control_plane_upgrades: Vec<UpgradeStep>,
        /// Steps of the workers.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub workers_upgrades: Vec<UpgradeStep>,
    }
}

retry_response! {
    /// Response of [`BeforeClusterUpgrade`].
    pub struct BeforeClusterUpgradeResponse {}
}

hook! {
    /// Called before each step of the control plane. It can delay the step.
    BeforeControlPlaneUpgrade(BeforeControlPlaneUpgradeRequest) -> BeforeControlPlaneUpgradeResponse
}

request! {
    /// Request of [`BeforeControlPlaneUpgrade`].
    pub struct BeforeControlPlaneUpgradeRequest {
        /// The Cluster, with all of its fields.
        pub cluster: Value,
        /// Kubernetes version before the next step.
        pub from_kubernetes_version: String,
        /// Kubernetes version after the next step.
        pub to_kubernetes_version: String,
        /// Remaining steps of the control plane.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub control_plane_upgrades: Vec<UpgradeStep>,
        /// Remaining steps of the workers.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub workers_upgrades: Vec<UpgradeStep>,
    }
}

retry_response! {
    /// Response of [`BeforeControlPlaneUpgrade`].
    pub struct BeforeControlPlaneUpgradeResponse {}
}

hook! {
    /// Called after each step of the control plane. It can delay the next step.
    AfterControlPlaneUpgrade(AfterControlPlaneUpgradeRequest) -> AfterControlPlaneUpgradeResponse
}

request! {
    /// Request of [`AfterControlPlaneUpgrade`].
    pub struct AfterControlPlaneUpgradeRequest {
        /// The Cluster, with all of its fields.
        pub cluster: Value,
        /// Kubernetes version after the step.
        pub kubernetes_version: String,
        /// Remaining steps of the control plane.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub control_plane_upgrades: Vec<UpgradeStep>,
        /// Remaining steps of the workers.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub workers_upgrades: Vec<UpgradeStep>,
    }
}

retry_response! {
    /// Response of [`AfterControlPlaneUpgrade`].
    pub struct AfterControlPlaneUpgradeResponse {}
}

hook! {
    /// Called before each step of the workers. It can delay the step.
    BeforeWorkersUpgrade(BeforeWorkersUpgradeRequest) -> BeforeWorkersUpgradeResponse
}

request! {
    /// Request of [`BeforeWorkersUpgrade`].
    pub struct BeforeWorkersUpgradeRequest {
        /// The Cluster, with all of its fields.
        pub cluster: Value,
        /// Kubernetes version before the next step.
        pub from_kubernetes_version: String,
        /// Kubernetes version after the next step.
        pub to_kubernetes_version: String,
        /// Remaining steps of the control plane.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub control_plane_upgrades: Vec<UpgradeStep>,
        /// Remaining steps of the workers.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub workers_upgrades: Vec<UpgradeStep>,
    }
}

retry_response! {
    /// Response of [`BeforeWorkersUpgrade`].
    pub struct BeforeWorkersUpgradeResponse {}
}

hook! {
    /// Called after each step of the workers. It can delay the next step.
    AfterWorkersUpgrade(AfterWorkersUpgradeRequest) -> AfterWorkersUpgradeResponse
}

request! {
    /// Request of [`AfterWorkersUpgrade`].
    pub struct AfterWorkersUpgradeRequest {
        /// The Cluster, with all of its fields.
        pub cluster: Value,
        /// Kubernetes version after the step.
        pub kubernetes_version: String,
        /// Remaining steps of the control plane.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub control_plane_upgrades: Vec<UpgradeStep>,
        /// Remaining steps of the workers.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub workers_upgrades: Vec<UpgradeStep>,
    }
}

retry_response! {
    /// Response of [`AfterWorkersUpgrade`].
    pub struct AfterWorkersUpgradeResponse {}
}

hook! {
    /// Called once after an upgrade of a Cluster. It can delay the next upgrade.
    AfterClusterUpgrade(AfterClusterUpgradeRequest) -> AfterClusterUpgradeResponse
}

request! {
    /// Request of [`AfterClusterUpgrade`].
    pub struct AfterClusterUpgradeRequest {
        /// The Cluster, with all of its fields.
        pub cluster: Value,
        /// Kubernetes version after the upgrade.
        pub kubernetes_version: String,
    }
}

retry_response! {
    /// Response of [`AfterClusterUpgrade`].
    pub struct AfterClusterUpgradeResponse {}
}

hook! {
    /// Chooses the steps of an upgrade.
    GenerateUpgradePlan(GenerateUpgradePlanRequest) -> GenerateUpgradePlanResponse
}

request! {
    /// Request of [`GenerateUpgradePlan`].
    pub struct GenerateUpgradePlanRequest {
        /// The Cluster, with all of its fields.
        #[serde(skip_serializing_if = "Value::is_null")]
        pub cluster: Value,
        /// Kubernetes version of the control plane.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub from_control_plane_kubernetes_version: String,
        /// Lowest Kubernetes version of the workers.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub from_workers_kubernetes_version: String,
        /// Kubernetes version after the upgrade.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub to_kubernetes_version: String,
    }
}

response! {
    /// Response of [`GenerateUpgradePlan`].
    pub struct GenerateUpgradePlanResponse {
        /// Steps of the control plane, in order. The last one is the version after the upgrade.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub control_plane_upgrades: Vec<UpgradeStep>,
        /// Steps of the workers, in order. Empty: Cluster API chooses as few as possible.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub workers_upgrades: Vec<UpgradeStep>,
    }
}
