//! Hooks of the creation and deletion of a Cluster.

use super::{
    Settings,
    common::{hook, null_default, plain_response, request},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

hook! {
    /// Called before the objects of a Cluster's topology are created. It can delay them.
    BeforeClusterCreate(BeforeClusterCreateRequest) -> BeforeClusterCreateResponse
}

/// Request of [`BeforeClusterCreate`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeforeClusterCreateRequest {
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
}

request!(BeforeClusterCreateRequest);

plain_response! {
    /// Response of [`BeforeClusterCreate`].
    BeforeClusterCreateResponse, retry
}

hook! {
    /// Called when the control plane of a Cluster can be reached for the first time.
    AfterControlPlaneInitialized(AfterControlPlaneInitializedRequest) -> AfterControlPlaneInitializedResponse
}

/// Request of [`AfterControlPlaneInitialized`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterControlPlaneInitializedRequest {
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
}

request!(AfterControlPlaneInitializedRequest);

plain_response! {
    /// Response of [`AfterControlPlaneInitialized`].
    AfterControlPlaneInitializedResponse
}

hook! {
    /// Called after a Cluster was deleted and before its objects are. It can delay them.
    BeforeClusterDelete(BeforeClusterDeleteRequest) -> BeforeClusterDeleteResponse
}

/// Request of [`BeforeClusterDelete`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeforeClusterDeleteRequest {
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
}

request!(BeforeClusterDeleteRequest);

plain_response! {
    /// Response of [`BeforeClusterDelete`].
    BeforeClusterDeleteResponse, retry
}
