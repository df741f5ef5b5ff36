//! Predicates that controllers of Cluster API objects use.
//!
//! They read the new object of an update. Combine them with [`predicate::all`] and
//! [`predicate::any`].
//!
//! ```
//! use steersman::{event::Event, predicate::{self, Predicate}};
//! use steersman_controllers::cluster_api::{annotations, predicates::{Changed, NotPaused}, Machine};
//!
//! let mut machine: Machine = serde_json::from_value(serde_json::json!({"metadata": {}, "spec": {}}))?;
//! let wakes = predicate::And(Changed, NotPaused);
//! assert!(wakes.accepts(&Event::<Machine>::create(machine.clone())));
//! machine.metadata.annotations = Some([(annotations::PAUSED.to_owned(), String::new())].into());
//! assert!(!wakes.accepts(&Event::<Machine>::create(machine)));
//! # Ok::<_, serde_json::Error>(())
//! ```
//!
//! [`predicate::all`]: steersman::predicate::all
//! [`predicate::any`]: steersman::predicate::any

mod cluster;
mod resource;

pub use self::{
    cluster::{
        ClusterControlPlaneInitialized, ClusterCreateInfraProvisioned, ClusterCreateNotPaused,
        ClusterPausedTransitions, ClusterPausedTransitionsOrInfrastructureProvisioned,
        ClusterUnpaused, ClusterUnpausedAndInfrastructureProvisioned,
        ClusterUpdateInfraProvisioned, ClusterUpdateUnpaused,
    },
    resource::{
        Changed, HasFilterLabel, NotExternallyManaged, NotPaused, NotPausedAndHasFilterLabel,
    },
};
