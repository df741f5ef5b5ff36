//! Hooks of the lifecycle of a Cluster.

use super::{
    ResponseStatus, Settings,
    common::{request, response},
};
use crate::extension_config::catalog::Hook;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Is called before the objects of a Cluster's topology are created. It can delay them.
#[derive(Debug)]
pub struct BeforeClusterCreate;

impl Hook for BeforeClusterCreate {
    const NAME: &'static str = "BeforeClusterCreate";
    type Request = BeforeClusterCreateRequest;
    type Response = BeforeClusterCreateResponse;
}

/// Request of [`BeforeClusterCreate`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BeforeClusterCreateRequest {
    /// Settings of the handler.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
    /// The Cluster, with all of its fields.
    #[serde(default)]
    pub cluster: Value,
}

request!(BeforeClusterCreateRequest);

/// Response of [`BeforeClusterCreate`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeClusterCreateResponse {
    /// Status of the call.
    #[serde(default)]
    pub status: ResponseStatus,
    /// Message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// After how many seconds the hook is called again. 0: the Cluster is not delayed.
    #[serde(default)]
    pub retry_after_seconds: i32,
}

response!(BeforeClusterCreateResponse, retry);
