//! Map of registered handlers. The registry replaces it as a whole.

use super::{AddError, Registration, registration::registrations};
use crate::extension_config::{ExtensionConfig, catalog::GroupHook};
use kube::ResourceExt;
use std::{collections::BTreeMap, sync::Arc};

/// Registered handlers by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Handlers(BTreeMap<String, Arc<Registration>>);

impl Handlers {
    /// Replaces the handlers of an `ExtensionConfig`. If one is invalid, none is added.
    pub(super) fn replace(&mut self, config: &ExtensionConfig) -> Result<(), AddError> {
        self.remove(&config.name_any());
        for registration in registrations(config)? {
            self.0
                .insert(registration.name.clone(), Arc::new(registration));
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, config_name: &str) {
        self.0
            .retain(|_, registration| registration.extension_config_name != config_name);
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Registration>> {
        self.0.get(name)
    }

    /// Returns the handlers of a hook in any version, sorted by name.
    pub(super) fn of_hook(&self, hook: &GroupHook) -> impl Iterator<Item = &Arc<Registration>> {
        self.0.values().filter(|registration| {
            registration.hook.group == hook.group && registration.hook.hook == hook.hook
        })
    }
}
