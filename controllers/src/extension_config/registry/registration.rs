//! Registered handlers.

use super::{AddError, HandlerError, NamespaceSelector};
use crate::extension_config::{
    ClientConfig, ExtensionConfig, ExtensionHandler, FailurePolicy, catalog::GroupVersionHook,
};
use kube::ResourceExt;
use std::{collections::BTreeMap, time::Duration};

/// Time limit of a call of a handler without `timeoutSeconds`.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Registered handler, with everything that a call of it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Name of the handler, a dot, and the name of the `ExtensionConfig`.
    pub name: String,
    /// Name of the `ExtensionConfig`.
    pub extension_config_name: String,
    /// Resource version of the `ExtensionConfig`.
    pub extension_config_resource_version: String,
    /// Hook that the handler serves.
    pub hook: GroupVersionHook,
    /// Selector of the namespaces for whose objects the handler is called.
    pub namespace_selector: NamespaceSelector,
    /// Address and CA of the extension server.
    pub client_config: ClientConfig,
    /// Time limit of a call.
    pub timeout: Duration,
    /// Meaning of a failed call.
    pub failure_policy: FailurePolicy,
    /// Settings of the `ExtensionConfig`.
    pub settings: BTreeMap<String, String>,
}

/// Returns a registration for each handler in the status of an `ExtensionConfig`.
pub(super) fn registrations(config: &ExtensionConfig) -> Result<Vec<Registration>, AddError> {
    let name = config.name_any();
    let selector = config.spec.namespace_selector.as_ref();
    let selector = NamespaceSelector::try_from(selector).map_err(|error| AddError::Selector {
        config: name.clone(),
        error,
    })?;
    let handlers = config.status.iter().flat_map(|status| &status.handlers);
    let mut registrations = Vec::new();
    let mut errors = Vec::new();
    for handler in handlers {
        match hook(handler) {
            Ok(hook) => registrations.push(Registration {
                name: handler.name.clone(),
                extension_config_name: name.clone(),
                extension_config_resource_version: config.resource_version().unwrap_or_default(),
                hook,
                namespace_selector: selector.clone(),
                client_config: config.spec.client_config.clone(),
                timeout: timeout(handler.timeout_seconds),
                failure_policy: handler.failure_policy.unwrap_or_default(),
                settings: config.spec.settings.clone(),
            }),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        Ok(registrations)
    } else {
        Err(AddError::Handlers {
            config: name,
            errors,
        })
    }
}

/// Returns the hook of a handler.
///
/// Splits its API version as Kubernetes does: at most one slash, and a text without a slash is a
/// version.
fn hook(handler: &ExtensionHandler) -> Result<GroupVersionHook, HandlerError> {
    let reference = &handler.request_hook;
    let (group, version) = match &*reference.api_version {
        "" | "/" => ("", ""),
        text => text.split_once('/').unwrap_or(("", text)),
    };
    if version.contains('/') {
        return Err(HandlerError {
            handler: handler.name.clone(),
            api_version: reference.api_version.clone(),
        });
    }
    Ok(GroupVersionHook {
        group: group.into(),
        version: version.into(),
        hook: reference.hook.clone(),
    })
}

fn timeout(seconds: Option<i32>) -> Duration {
    match seconds.and_then(|seconds| u64::try_from(seconds).ok()) {
        None | Some(0) => DEFAULT_TIMEOUT,
        Some(seconds) => Duration::from_secs(seconds),
    }
}
