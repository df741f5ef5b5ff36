//! Hooks of Cluster API.

mod common;
mod discovery;
mod lifecycle;

pub use self::{
    common::{ResponseStatus, Settings},
    discovery::{Discovery, DiscoveryHandler, DiscoveryRequest, DiscoveryResponse},
    lifecycle::{BeforeClusterCreate, BeforeClusterCreateRequest, BeforeClusterCreateResponse},
};

/// Group of Cluster API's hooks.
pub const HOOKS_GROUP: &str = "hooks.runtime.cluster.x-k8s.io";
/// Version of Cluster API's hooks.
pub const HOOKS_VERSION: &str = "v1alpha1";
/// [`HOOKS_GROUP`] and [`HOOKS_VERSION`], as in `apiVersion`.
pub const HOOKS_API_VERSION: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";
