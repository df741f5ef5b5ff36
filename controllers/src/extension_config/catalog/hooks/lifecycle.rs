//! Hooks of the creation and deletion of a Cluster.

use super::common::{hook, request, response, retry_response};
use serde_json::Value;

hook! {
    /// Called before the objects of a Cluster's topology are created. It can delay them.
    BeforeClusterCreate(BeforeClusterCreateRequest) -> BeforeClusterCreateResponse
}

request! {
    /// Request of [`BeforeClusterCreate`].
    pub struct BeforeClusterCreateRequest {
        /// The Cluster, with all of its fields.
        pub cluster: Value,
    }
}

retry_response! {
    /// Response of [`BeforeClusterCreate`].
    pub struct BeforeClusterCreateResponse {}
}

hook! {
    /// Called when the control plane of a Cluster can be reached for the first time.
    AfterControlPlaneInitialized(AfterControlPlaneInitializedRequest) -> AfterControlPlaneInitializedResponse
}

request! {
    /// Request of [`AfterControlPlaneInitialized`].
    pub struct AfterControlPlaneInitializedRequest {
        /// The Cluster, with all of its fields.
        pub cluster: Value,
    }
}

response! {
    /// Response of [`AfterControlPlaneInitialized`].
    pub struct AfterControlPlaneInitializedResponse {}
}

hook! {
    /// Called after a Cluster was deleted and before its objects are. It can delay them.
    BeforeClusterDelete(BeforeClusterDeleteRequest) -> BeforeClusterDeleteResponse
}

request! {
    /// Request of [`BeforeClusterDelete`].
    pub struct BeforeClusterDeleteRequest {
        /// The Cluster, with all of its fields.
        pub cluster: Value,
    }
}

retry_response! {
    /// Response of [`BeforeClusterDelete`].
    pub struct BeforeClusterDeleteResponse {}
}
