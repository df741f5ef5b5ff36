//! Hook `Discovery`: which handlers an extension server has.

use super::{
    Settings,
    common::{hook, response, wire},
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

response! {
    /// Response of [`Discovery`].
    pub struct DiscoveryResponse {
        /// Handlers of the server.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub handlers: Vec<DiscoveryHandler>,
    }
}

wire! {
    /// Handler as an extension server describes it.
    pub struct DiscoveryHandler {
        /// Name, a DNS label.
        pub name: String,
        /// Hook that the handler serves.
        pub request_hook: HookReference,
        /// Time limit of a call in seconds. Default: 10.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub timeout_seconds: Option<i32>,
        /// `Fail` or `Ignore`. Any other text makes the discovery fail. Default: `Fail`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub failure_policy: Option<String>,
    }
}
