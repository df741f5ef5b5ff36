//! Registry of the handlers that the Runtime SDK calls.
//!
//! The registry starts empty and not ready. [`Registry::warm_up`] fills it once and makes it ready.
//! After that, the reconciler adds and removes `ExtensionConfig`s.
//!
//! Writers prepare a new immutable map and then replace the current one. Readers clone an `Arc` of
//! the current map. They never wait for a writer that prepares a map, and never see a partial
//! change.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | [`Registry`] |
//! | `handlers.rs` | the immutable map |
//! | `registration.rs` | [`Registration`], and its creation from an `ExtensionConfig` |
//! | `namespace_selector.rs` | [`NamespaceSelector`] |
//! | `error.rs` | [`RegistryError`], [`AddError`], [`HandlerError`] |

mod error;
mod handlers;
mod namespace_selector;
mod registration;

pub use self::{
    error::{AddError, HandlerError, RegistryError},
    namespace_selector::{NamespaceSelector, SelectorError},
    registration::{DEFAULT_TIMEOUT, Registration},
};

use self::handlers::Handlers;
use super::{ExtensionConfig, catalog::GroupHook};
use kube::ResourceExt;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;

/// Registry of handlers. Clones share the same handlers.
///
/// ```
/// use steersman_controllers::extension_config::{ExtensionConfig, Registry};
/// use steersman_controllers::extension_config::catalog::{Hook, hooks::BeforeClusterCreate};
///
/// let config: ExtensionConfig = serde_json::from_value(serde_json::json!({
///     "metadata": {"name": "quota"},
///     "spec": {"clientConfig": {"url": "https://quota.example.com"}, "namespaceSelector": {}},
///     "status": {"handlers": [{"name": "check.quota", "requestHook": {
///         "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": "BeforeClusterCreate",
///     }}]},
/// }))?;
///
/// let registry = Registry::new();
/// assert!(registry.get("check.quota").is_err(), "the registry is not ready");
/// registry.warm_up(&[config])?;
/// let hook = BeforeClusterCreate::group_version_hook().group_hook();
/// assert_eq!(registry.list(&hook)?[0].name, "check.quota");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Registry {
    /// `None` until the registry is ready.
    handlers: Arc<watch::Sender<Option<Arc<Handlers>>>>,
    /// Held by a writer from reading the current map to replacing it.
    writer: Arc<Mutex<()>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// Creates an empty registry, which is not ready.
    pub fn new() -> Self {
        Self {
            handlers: Arc::new(watch::Sender::new(None)),
            writer: Arc::default(),
        }
    }

    /// Adds the handlers of all `ExtensionConfig`s and makes the registry ready.
    ///
    /// Errors: the registry is ready, or an `ExtensionConfig` cannot be added. In the latter case
    /// the error has the reasons for all such objects, and the registry stays empty and not ready.
    pub fn warm_up(&self, configs: &[ExtensionConfig]) -> Result<(), RegistryError> {
        let _writer = self.writer.lock();
        if self.is_ready() {
            return Err(RegistryError::AlreadyWarmedUp);
        }
        let mut handlers = Handlers::default();
        let mut errors = Vec::new();
        for config in configs {
            if let Err(error) = handlers.replace(config) {
                errors.push(error);
            }
        }
        if !errors.is_empty() {
            return Err(RegistryError::WarmUp(errors));
        }
        self.handlers.send_replace(Some(Arc::new(handlers)));
        Ok(())
    }

    /// Replaces the handlers of an `ExtensionConfig` by those in its status.
    ///
    /// Errors: the registry is not ready, or the namespace selector or a handler is invalid. In the
    /// latter case the handlers of the `ExtensionConfig` are removed, as in Cluster API.
    pub fn add(&self, config: &ExtensionConfig) -> Result<(), RegistryError> {
        let _writer = self.writer.lock();
        let current = self.current().ok_or_else(|| RegistryError::AddNotReady {
            config: config.name_any(),
        })?;
        let mut handlers = Handlers::clone(&current);
        let result = handlers.replace(config);
        self.handlers.send_replace(Some(Arc::new(handlers)));
        Ok(result?)
    }

    /// Removes the handlers of an `ExtensionConfig`. Does nothing if there are none.
    ///
    /// Errors: the registry is not ready.
    pub fn remove(&self, config_name: &str) -> Result<(), RegistryError> {
        let _writer = self.writer.lock();
        let current = self
            .current()
            .ok_or_else(|| RegistryError::RemoveNotReady {
                config: config_name.into(),
            })?;
        let mut handlers = Handlers::clone(&current);
        handlers.remove(config_name);
        self.handlers.send_replace(Some(Arc::new(handlers)));
        Ok(())
    }

    /// Returns the handlers of a hook in any version, sorted by name.
    ///
    /// Errors: the group or the name of the hook is empty, or the registry is not ready.
    pub fn list(&self, hook: &GroupHook) -> Result<Vec<Arc<Registration>>, RegistryError> {
        if hook.group.is_empty() {
            return Err(RegistryError::EmptyGroup);
        }
        if hook.hook.is_empty() {
            return Err(RegistryError::EmptyHook);
        }
        let handlers = self
            .current()
            .ok_or_else(|| RegistryError::ListNotReady { hook: hook.clone() })?;
        Ok(handlers.of_hook(hook).cloned().collect())
    }

    /// Returns the handler with a registered name.
    ///
    /// Errors: the registry is not ready, or does not contain the handler.
    pub fn get(&self, name: &str) -> Result<Arc<Registration>, RegistryError> {
        let handlers = self
            .current()
            .ok_or_else(|| RegistryError::GetNotReady { name: name.into() })?;
        handlers
            .get(name)
            .cloned()
            .ok_or_else(|| RegistryError::NotRegistered { name: name.into() })
    }

    /// Returns whether the registry was warmed up. A ready registry stays ready.
    pub fn is_ready(&self) -> bool {
        self.handlers.borrow().is_some()
    }

    /// Waits until the registry is warmed up.
    ///
    /// Cancel safety: cancelling has no effect on the registry or on other waiters.
    pub async fn ready(&self) {
        let mut handlers = self.handlers.subscribe();
        // `self` owns the sender, so that the channel cannot be closed.
        let _ = handlers.wait_for(Option::is_some).await;
    }

    fn current(&self) -> Option<Arc<Handlers>> {
        self.handlers.borrow().clone()
    }
}
