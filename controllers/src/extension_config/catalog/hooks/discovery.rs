//! Hook `Discovery`: which handlers an extension server has.

use super::{ResponseStatus, Settings, common::response};
use crate::extension_config::{
    catalog::{Hook, Request},
    types::HookReference,
};
use serde::{Deserialize, Serialize};

/// Lists the handlers of an extension server.
#[derive(Debug)]
pub struct Discovery;

impl Hook for Discovery {
    const NAME: &'static str = "Discovery";
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;
}

/// Request of [`Discovery`]. It has no fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryRequest {}

impl Request for DiscoveryRequest {
    fn settings_mut(&mut self) -> Option<&mut Settings> {
        None
    }
}

/// Response of [`Discovery`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryResponse {
    /// Status of the call.
    #[serde(default)]
    pub status: ResponseStatus,
    /// Message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Handlers of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<DiscoveryHandler>,
}

response!(DiscoveryResponse);

/// Handler as an extension server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryHandler {
    /// Name, a DNS label.
    pub name: String,
    /// Hook that the handler serves.
    pub request_hook: HookReference,
    /// Time limit of a call in seconds. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// `Fail` or `Ignore`. Any other text makes the discovery fail. Default: `Fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<String>,
}
