//! Traits of hooks, requests and responses.

use super::hooks::{HOOKS_GROUP, HOOKS_VERSION, ResponseStatus};
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, fmt};

/// Hook in a version.
///
/// Implement it for a type of your own to define a hook. The wire format has `apiVersion` and
/// `kind` beside the fields of the request and response types, which need not have them.
pub trait Hook: Send + Sync + 'static {
    /// Group. Default: that of Cluster API's hooks.
    const GROUP: &'static str = HOOKS_GROUP;
    /// Version. Default: `v1alpha1`.
    const VERSION: &'static str = HOOKS_VERSION;
    /// Name, in upper camel case.
    const NAME: &'static str;
    /// Body of a call.
    type Request: Request;
    /// Body of an answer.
    type Response: Response;

    /// Returns group, version and name.
    fn group_version_hook() -> GroupVersionHook {
        GroupVersionHook {
            group: Self::GROUP.into(),
            version: Self::VERSION.into(),
            hook: Self::NAME.into(),
        }
    }
}

/// Body of a call, without `apiVersion` and `kind`.
pub trait Request: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// Returns the settings, or `None` if requests of this type have none.
    fn settings_mut(&mut self) -> Option<&mut BTreeMap<String, String>>;
}

/// Body of an answer, without `apiVersion` and `kind`.
pub trait Response: Serialize + DeserializeOwned + Clone + Default + Send + Sync + 'static {
    /// Returns the status of the call.
    fn status(&self) -> &ResponseStatus;

    /// Returns the message for people.
    fn message(&self) -> &str;

    /// Sets status and message.
    fn set_status(&mut self, status: ResponseStatus, message: String);

    /// Returns after how many seconds the hook wants to be called again. Default: 0, not at all.
    fn retry_after_seconds(&self) -> i32 {
        0
    }

    /// Sets after how many seconds the hook wants to be called again. Default: no effect.
    fn set_retry_after_seconds(&mut self, _seconds: i32) {}
}

/// Group, version and name of a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionHook {
    /// Group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Name.
    pub hook: String,
}

impl GroupVersionHook {
    /// Returns group and version, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Returns the hook without its version.
    pub fn group_hook(&self) -> GroupHook {
        GroupHook {
            group: self.group.clone(),
            hook: self.hook.clone(),
        }
    }
}

/// Prints `<group>/<version>, Hook=<hook>`.
impl fmt::Display for GroupVersionHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Hook={}", self.group, self.version, self.hook)
    }
}

/// Group and name of a hook, in any version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupHook {
    /// Group.
    pub group: String,
    /// Name.
    pub hook: String,
}

/// Prints `<hook>.<group>`.
impl fmt::Display for GroupHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.hook, self.group)
    }
}
