//! Hooks of the Runtime SDK, with their request and response types.
//!
//! A [`Hook`] binds a group, a version and a name to the two types. A [`Catalog`] is the set of
//! hooks that a client or an extension server knows. [`Catalog::cluster_api`] has those of Cluster
//! API, and [`Catalog::with`] adds hooks of your own.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use steersman_controllers::extension_config::catalog::{
//!     Catalog, Hook, Request, Response, hooks::{ResponseStatus, Settings},
//! };
//!
//! /// Chooses a zone for a Machine.
//! struct ChooseZone;
//!
//! impl Hook for ChooseZone {
//!     const GROUP: &'static str = "hooks.example.com";
//!     const VERSION: &'static str = "v1";
//!     const NAME: &'static str = "ChooseZone";
//!     type Request = ChooseZoneRequest;
//!     type Response = ChooseZoneResponse;
//! }
//!
//! #[derive(Clone, Default, Serialize, Deserialize)]
//! struct ChooseZoneRequest {
//!     #[serde(default)]
//!     settings: Settings,
//!     machine: String,
//! }
//!
//! impl Request for ChooseZoneRequest {
//!     fn settings_mut(&mut self) -> Option<&mut Settings> {
//!         Some(&mut self.settings)
//!     }
//! }
//!
//! #[derive(Clone, Default, Serialize, Deserialize)]
//! struct ChooseZoneResponse {
//!     #[serde(default)]
//!     status: ResponseStatus,
//!     #[serde(default)]
//!     message: String,
//!     #[serde(default)]
//!     zone: String,
//! }
//!
//! impl Response for ChooseZoneResponse {
//!     fn status(&self) -> &ResponseStatus {
//!         &self.status
//!     }
//!     fn message(&self) -> &str {
//!         &self.message
//!     }
//!     fn set_status(&mut self, status: ResponseStatus, message: String) {
//!         self.status = status;
//!         self.message = message;
//!     }
//! }
//!
//! let catalog = Catalog::cluster_api().with::<ChooseZone>();
//! let hook = ChooseZone::group_version_hook();
//! assert!(catalog.contains(&hook));
//! assert_eq!(hook.to_string(), "hooks.example.com/v1, Hook=ChooseZone");
//! ```

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

    /// Returns a catalog with all hooks of Cluster API.
    pub fn cluster_api() -> Self {
        Self::new()
            .with::<hooks::Discovery>()
            .with::<hooks::BeforeClusterCreate>()
            .with::<hooks::AfterControlPlaneInitialized>()
            .with::<hooks::BeforeClusterUpgrade>()
            .with::<hooks::BeforeControlPlaneUpgrade>()
            .with::<hooks::AfterControlPlaneUpgrade>()
            .with::<hooks::BeforeWorkersUpgrade>()
            .with::<hooks::AfterWorkersUpgrade>()
            .with::<hooks::AfterClusterUpgrade>()
            .with::<hooks::BeforeClusterDelete>()
            .with::<hooks::GeneratePatches>()
            .with::<hooks::ValidateTopology>()
            .with::<hooks::DiscoverVariables>()
            .with::<hooks::CanUpdateMachine>()
            .with::<hooks::CanUpdateMachineSet>()
            .with::<hooks::UpdateMachine>()
            .with::<hooks::GenerateUpgradePlan>()
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

    /// Returns the hooks, sorted by group, version and name.
    pub fn iter(&self) -> impl Iterator<Item = &GroupVersionHook> {
        self.hooks.iter()
    }
}
