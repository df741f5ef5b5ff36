//! Hooks of the upgrade of a Cluster.

use super::{
    ResponseStatus, Settings,
    common::{hook, null_default, plain_response, request, response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Step of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeStep {
    /// Kubernetes version after the step.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub version: String,
}

hook! {
    /// Called once before an upgrade of a Cluster. It can delay the upgrade.
    BeforeClusterUpgrade(BeforeClusterUpgradeRequest) -> BeforeClusterUpgradeResponse
}

/// Request of [`BeforeClusterUpgrade`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeClusterUpgradeRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// The Cluster, with all of its fields.
    #[serde(default)]
    pub cluster: Value,
    /// Kubernetes version before the upgrade.
    #[serde(default, deserialize_with = "null_default")]
    pub from_kubernetes_version: String,
    /// Kubernetes version after the upgrade.
    #[serde(default, deserialize_with = "null_default")]
    pub to_kubernetes_version: String,
    /// Steps of the control plane.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub control_plane_upgrades: Vec<UpgradeStep>,
    /// Steps of the workers.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub workers_upgrades: Vec<UpgradeStep>,
}

request!(BeforeClusterUpgradeRequest);

plain_response! {
    /// Response of [`BeforeClusterUpgrade`].
    BeforeClusterUpgradeResponse, retry
}

hook! {
    /// Called before each step of the control plane. It can delay the step.
    BeforeControlPlaneUpgrade(BeforeControlPlaneUpgradeRequest) -> BeforeControlPlaneUpgradeResponse
}

/// Request of [`BeforeControlPlaneUpgrade`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeControlPlaneUpgradeRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// The Cluster, with all of its fields.
    #[serde(default)]
    pub cluster: Value,
    /// Kubernetes version before the next step.
    #[serde(default, deserialize_with = "null_default")]
    pub from_kubernetes_version: String,
    /// Kubernetes version after the next step.
    #[serde(default, deserialize_with = "null_default")]
    pub to_kubernetes_version: String,
    /// Remaining steps of the control plane.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub control_plane_upgrades: Vec<UpgradeStep>,
    /// Remaining steps of the workers.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub workers_upgrades: Vec<UpgradeStep>,
}

request!(BeforeControlPlaneUpgradeRequest);

plain_response! {
    /// Response of [`BeforeControlPlaneUpgrade`].
    BeforeControlPlaneUpgradeResponse, retry
}

hook! {
    /// Called after each step of the control plane. It can delay the next step.
    AfterControlPlaneUpgrade(AfterControlPlaneUpgradeRequest) -> AfterControlPlaneUpgradeResponse
}

/// Request of [`AfterControlPlaneUpgrade`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AfterControlPlaneUpgradeRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// The Cluster, with all of its fields.
    #[serde(default)]
    pub cluster: Value,
    /// Kubernetes version after the step.
    #[serde(default, deserialize_with = "null_default")]
    pub kubernetes_version: String,
    /// Remaining steps of the control plane.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub control_plane_upgrades: Vec<UpgradeStep>,
    /// Remaining steps of the workers.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub workers_upgrades: Vec<UpgradeStep>,
}

request!(AfterControlPlaneUpgradeRequest);

plain_response! {
    /// Response of [`AfterControlPlaneUpgrade`].
    AfterControlPlaneUpgradeResponse, retry
}

hook! {
    /// Called before each step of the workers. It can delay the step.
    BeforeWorkersUpgrade(BeforeWorkersUpgradeRequest) -> BeforeWorkersUpgradeResponse
}

/// Request of [`BeforeWorkersUpgrade`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeWorkersUpgradeRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// The Cluster, with all of its fields.
    #[serde(default)]
    pub cluster: Value,
    /// Kubernetes version before the next step.
    #[serde(default, deserialize_with = "null_default")]
    pub from_kubernetes_version: String,
    /// Kubernetes version after the next step.
    #[serde(default, deserialize_with = "null_default")]
    pub to_kubernetes_version: String,
    /// Remaining steps of the control plane.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub control_plane_upgrades: Vec<UpgradeStep>,
    /// Remaining steps of the workers.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub workers_upgrades: Vec<UpgradeStep>,
}

request!(BeforeWorkersUpgradeRequest);

plain_response! {
    /// Response of [`BeforeWorkersUpgrade`].
    BeforeWorkersUpgradeResponse, retry
}

hook! {
    /// Called after each step of the workers. It can delay the next step.
    AfterWorkersUpgrade(AfterWorkersUpgradeRequest) -> AfterWorkersUpgradeResponse
}

/// Request of [`AfterWorkersUpgrade`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AfterWorkersUpgradeRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// The Cluster, with all of its fields.
    #[serde(default)]
    pub cluster: Value,
    /// Kubernetes version after the step.
    #[serde(default, deserialize_with = "null_default")]
    pub kubernetes_version: String,
    /// Remaining steps of the control plane.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub control_plane_upgrades: Vec<UpgradeStep>,
    /// Remaining steps of the workers.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub workers_upgrades: Vec<UpgradeStep>,
}

request!(AfterWorkersUpgradeRequest);

plain_response! {
    /// Response of [`AfterWorkersUpgrade`].
    AfterWorkersUpgradeResponse, retry
}

hook! {
    /// Called once after an upgrade of a Cluster. It can delay the next upgrade.
    AfterClusterUpgrade(AfterClusterUpgradeRequest) -> AfterClusterUpgradeResponse
}

/// Request of [`AfterClusterUpgrade`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AfterClusterUpgradeRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// The Cluster, with all of its fields.
    #[serde(default)]
    pub cluster: Value,
    /// Kubernetes version after the upgrade.
    #[serde(default, deserialize_with = "null_default")]
    pub kubernetes_version: String,
}

request!(AfterClusterUpgradeRequest);

plain_response! {
    /// Response of [`AfterClusterUpgrade`].
    AfterClusterUpgradeResponse, retry
}

hook! {
    /// Chooses the steps of an upgrade.
    GenerateUpgradePlan(GenerateUpgradePlanRequest) -> GenerateUpgradePlanResponse
}

/// Request of [`GenerateUpgradePlan`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerateUpgradePlanRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// The Cluster, with all of its fields.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub cluster: Value,
    /// Kubernetes version of the control plane.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub from_control_plane_kubernetes_version: String,
    /// Lowest Kubernetes version of the workers.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub from_workers_kubernetes_version: String,
    /// Kubernetes version after the upgrade.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub to_kubernetes_version: String,
}

request!(GenerateUpgradePlanRequest);

/// Response of [`GenerateUpgradePlan`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerateUpgradePlanResponse {
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
    /// Steps of the control plane, in order. The last one is the version after the upgrade.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub control_plane_upgrades: Vec<UpgradeStep>,
    /// Steps of the workers, in order. Empty: Cluster API chooses as few as possible.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub workers_upgrades: Vec<UpgradeStep>,
}

response!(GenerateUpgradePlanResponse);
