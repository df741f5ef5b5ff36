//! Hook `Discovery`: which handlers an extension server has.

use super::{
    ResponseStatus, Settings,
    common::{hook, null_default, response},
};
use crate::extension_config::{catalog::Request, types::HookReference};
use serde::{Deserialize, Serialize};

hook! {
    /// Lists the handlers of an extension server.
    Discovery(DiscoveryRequest) -> DiscoveryResponse
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
    #[serde(default, deserialize_with = "null_default")]
    pub status: ResponseStatus,
    /// Message for people.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub message: String,
    /// Handlers of the server.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub handlers: Vec<DiscoveryHandler>,
}

response!(DiscoveryResponse);

/// Handler as an extension server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryHandler {
    /// Name, a DNS label.
    #[serde(default, deserialize_with = "null_default")]
    pub name: String,
    /// Hook that the handler serves.
    #[serde(default, deserialize_with = "null_default")]
    pub request_hook: HookReference,
    /// Time limit of a call in seconds. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// `Fail` or `Ignore`. Any other text makes the discovery fail. Default: `Fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<String>,
}
