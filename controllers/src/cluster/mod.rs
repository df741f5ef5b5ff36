//! Controller that follows the two references of a Cluster API `Cluster`.
//!
//! It does the part of Cluster API's own cluster controller that concerns `spec.infrastructureRef`
//! and `spec.controlPlaneRef`: it copies the state of the objects of providers to the Cluster, and
//! deletes them with it.
//!
//! **Do not run it beside Cluster API's own controllers.** Both would write the same fields.
//!
//! ```text
//!             +-> infrastructure  (any kind of a provider)
//! Cluster ----+
//!             +-> control plane   (any kind of a provider)
//! ```
//!
//! For each reference the controller
//!
//! 1. reads the object, in the version that the contract labels of its CRD name, and watches its
//!    kind,
//! 2. makes the Cluster an owner of the object, and sets the label
//!    `cluster.x-k8s.io/cluster-name`,
//! 3. copies whether the object is ready to `status.initialization`, its endpoint to
//!    `spec.controlPlaneEndpoint` unless that is complete, and the failure domains of the
//!    infrastructure.
//!
//! A deleted Cluster keeps its finalizer [`FINALIZER`] until the objects that belong to it are gone:
//! first its Machines and the objects that create them, then the control plane, then the
//! infrastructure. A paused Cluster is neither reconciled nor deleted.
//!
//! # Conditions
//!
//! | type | reports |
//! |---|---|
//! | `Paused` | `spec.paused`, or the annotation `cluster.x-k8s.io/paused` |
//! | `InfrastructureReady` | `Ready` of the infrastructure |
//! | `ControlPlaneAvailable` | `Available` of the control plane |
//! | `ControlPlaneInitialized` | whether the control plane was ready once |
//! | `Deleting` | what a deletion waits for |
//!
//! Reasons and messages are those of Cluster API v1.14, as are the conditions in
//! `status.deprecated.v1beta1`. `Available`, `RemoteConnectionProbe` and the conditions that
//! summarize Machines are not written.
//!
//! # Differences from Cluster API
//!
//! - A half-set `spec.controlPlaneEndpoint` is not emptied by a provider without an endpoint.
//! - A new object of a provider is found by its own event, and not only after 30 seconds. A missing
//!   CRD is found when it is installed.
//! - A deletion waits with watches, and also sees the deletion of paused objects. The kinds
//!   `MachinePool`, `MachineDeployment`, `MachineSet` and `Machine` do not have to be installed.
//! - `ControlPlaneInitialized` reports `ObjectDoesNotExist` if the control plane is missing, whether
//!   or not the infrastructure exists.
//! - The `ClusterClass` of a topology is not read, and no kubeconfig is created.

mod adoption;
mod clusters;
mod deletion;
mod descendants;
mod phase;
mod provisioning;
mod reconcile_state;
mod reconciler;
mod references;
mod role;
mod roles;
mod status;

pub use self::{reconciler::FINALIZER, roles::roles};

use self::{
    clusters::Clusters, descendants::DescendantIndex, reconciler::ClusterReconciler,
    references::References,
};
use crate::{
    cluster_api::{
        Cluster, Machine, MachineDeployment, MachinePool, MachineSet, predicates::Changed,
    },
    external::{TrackerError, contract::CrdMetadata},
};
use std::time::Duration;
use steersman::{
    builder::BuildError,
    cache::CacheError,
    controller,
    manager::{ManagerError, ManagerHandle},
    prelude::*,
};

/// Settings of the controller.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Number of Clusters reconciled concurrently. Default: that of the manager.
    pub workers: Option<usize>,
    /// Waits with the deletion of a Cluster with a topology until it has the annotation
    /// `runtime.cluster.x-k8s.io/ok-to-delete`. Default: false.
    ///
    /// Set it if Cluster API's topology controller runs with the feature gate `RuntimeSDK`. It sets
    /// the annotation after the hook `BeforeClusterDelete`.
    pub before_delete_hook: bool,
}

/// Error of [`add_to`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An informer could not be declared.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The informer of CRDs could not be declared.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    /// The controller cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The manager rejected the controller.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

/// A reconcile that takes longer is an error.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Adds the controller to a manager, under the name `cluster`.
///
/// The CRD of `Cluster` must be installed. Those of Machines and of providers can be installed
/// later.
pub fn add_to(manager: &ManagerHandle, options: &Options) -> Result<Controller, Error> {
    let clusters = Clusters::new(&manager.cache())?;
    let client = manager.client();
    let builder = manager
        .controller("cluster")
        .for_::<Cluster>()
        .watches_with(
            Select::<CrdMetadata>::new().filter(Changed),
            clusters.of_definitions(),
        )
        .watches_with(
            Select::<Metadata<MachinePool>>::new().optional(),
            clusters.of_descendants(),
        )
        .watches_with(
            Select::<Metadata<MachineDeployment>>::new().optional(),
            clusters.of_descendants(),
        )
        .watches_with(
            Select::<Metadata<MachineSet>>::new().optional(),
            clusters.of_descendants(),
        )
        .watches_with(
            Select::<Machine>::new().optional(),
            clusters.of_descendants(),
        )
        .options(controller::Options {
            max_concurrent: options.workers,
            reconcile_timeout: Some(TIMEOUT),
            ..controller::Options::default()
        });
    let reconciler = ClusterReconciler {
        references: References::new(&client, &manager.cache(), &builder.handle(), clusters)?,
        descendants: DescendantIndex::new(&manager.cache())?,
        recorder: manager.recorder("steersman.dev/cluster")?,
        awaits_hook: options.before_delete_hook,
        client,
    };
    Ok(builder.reconcile(reconciler)?)
}
