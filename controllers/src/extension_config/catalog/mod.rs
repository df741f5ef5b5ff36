//! Hooks of the Runtime SDK, with their request and response types.
//!
//! A [`Hook`] binds a group, a version and a name to the two types. A [`Catalog`] is the set of
//! hooks that a client or an extension server knows.

mod hook;
pub mod hooks;

pub use self::{
    hook::{GroupHook, GroupVersionHook, Hook, Request, Response},
    hooks::{HOOKS_API_VERSION, HOOKS_GROUP, HOOKS_VERSION},
};

use std::collections::BTreeSet;

/// Set of hooks.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    hooks: BTreeSet<GroupVersionHook>,
}

impl Catalog {
    /// Returns a catalog without hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook. Adding it again has no effect.
    #[must_use]
    pub fn with<H: Hook>(mut self) -> Self {
        self.hooks.insert(H::group_version_hook());
        self
    }

    /// Returns whether a hook was added.
    pub fn contains(&self, hook: &GroupVersionHook) -> bool {
        self.hooks.contains(hook)
    }
}
