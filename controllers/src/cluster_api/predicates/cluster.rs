//! Predicates for watches of Clusters by controllers of other kinds.
//!
//! An object that cannot be decoded passes, because a superfluous reconcile is harmless. So does an
//! update whose objects have different uids if its new object would have passed: it stands for the
//! deletion and the creation of a Cluster.

use crate::cluster_api::{
    Cluster, ClusterStatus,
    conditions::{self, CONTROL_PLANE_INITIALIZED},
};
use steersman::{event::Event, predicate::Predicate};

/// Returns whether the event is a creation, of a Cluster for which `holds` is true.
fn created(event: &Event<Cluster>, holds: impl Fn(&Cluster) -> bool) -> bool {
    matches!(event, Event::Create { .. })
        && event
            .object()
            .decode()
            .map_or(true, |cluster| holds(&cluster))
}

/// Returns whether the event is an update, after which `holds` is true and was not before.
fn became(event: &Event<Cluster>, holds: impl Fn(&Cluster) -> bool) -> bool {
    let Event::Update { old, new } = event else {
        return false;
    };
    let Ok(after) = new.decode() else {
        return true;
    };
    let recreated = old.meta().uid() != new.meta().uid();
    holds(&after) && (recreated || old.decode().map_or(true, |before| !holds(&before)))
}

fn is_provisioned(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(ClusterStatus::is_infrastructure_provisioned)
}

fn is_paused(cluster: &Cluster) -> bool {
    cluster.spec.is_paused()
}

fn is_not_paused(cluster: &Cluster) -> bool {
    !cluster.spec.is_paused()
}

/// Declares predicates, each with the expression that accepts an event.
macro_rules! cluster_predicates {
    ($($(#[$doc:meta])* $name:ident: $accepts:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Predicate<Cluster> for $name {
            fn accepts(&self, event: &Event<Cluster>) -> bool {
                let accepts: fn(&Event<Cluster>) -> bool = $accepts;
                accepts(event)
            }
        }
    )+};
}

cluster_predicates! {
    /// Accepts the creation of a Cluster whose infrastructure is provisioned.
    ClusterCreateInfraProvisioned: |event| created(event, is_provisioned);

    /// Accepts the creation of a Cluster whose spec is not paused.
    ClusterCreateNotPaused: |event| created(event, is_not_paused);

    /// Accepts the update after which the infrastructure is provisioned.
    ClusterUpdateInfraProvisioned: |event| became(event, is_provisioned);

    /// Accepts the update after which the spec is no longer paused.
    ClusterUpdateUnpaused: |event| became(event, is_not_paused);

    /// Accepts the creation of a Cluster that is not paused, and the update that unpauses it.
    ///
    /// Use it to resume reconciliation when the Cluster is unpaused.
    ClusterUnpaused: |event| {
        ClusterCreateNotPaused.accepts(event) || ClusterUpdateUnpaused.accepts(event)
    };

    /// Accepts updates that pause or unpause the spec.
    ClusterPausedTransitions: |event| became(event, is_paused) || became(event, is_not_paused);

    /// Accepts the update after which the condition `ControlPlaneInitialized` is True.
    ClusterControlPlaneInitialized: |event| {
        became(event, |cluster| conditions::is_true(cluster, CONTROL_PLANE_INITIALIZED))
    };

    /// Accepts updates that pause or unpause the spec, or provision the infrastructure.
    ///
    /// Use it in controllers of Machines' infrastructure.
    ClusterPausedTransitionsOrInfrastructureProvisioned: |event| {
        ClusterPausedTransitions.accepts(event) || ClusterUpdateInfraProvisioned.accepts(event)
    };

    /// Accepts the creation of a Cluster that is not paused and whose infrastructure is
    /// provisioned, and the updates after which one of the two became so.
    ///
    /// Cluster API deprecates it for [`ClusterPausedTransitionsOrInfrastructureProvisioned`].
    ClusterUnpausedAndInfrastructureProvisioned: |event| {
        ClusterCreateNotPaused.accepts(event) && ClusterCreateInfraProvisioned.accepts(event)
            || ClusterUpdateUnpaused.accepts(event)
            || ClusterUpdateInfraProvisioned.accepts(event)
    };
}
