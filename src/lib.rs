//! steersman: Kubernetes controllers in Rust, on the primitives of Go's controller-runtime, with the pains its users
//! report designed out.
//!
//! Data flows one way:
//!
//! * A [`source`] tells [`event`]s: of a kind in the cluster, or from elsewhere. [`predicate`]s drop some, a [`handler`] turns the rest into requests.
//! * A [`workqueue`] has them wait: one slot per request, priorities, delays, backoff, introspection.
//! * A [`controller`] runs your [`reconcile::Reconciler`] on each; a [`builder`] puts it together; a [`manager`] owns and runs all of it.
//! * The [`cache`] has objects in memory, kept up to date by list and watch, shared by everybody. The [`client`] reads from it and writes to the server.
//! * An [`object`] is its key, its metadata at hand, and its body on request.
//! * A [`recorder`] tells people about objects, as events of the cluster.
//! * `admin`, a feature that is on by default, serves metrics, health and debug pages; `logging` logs for people or as JSON.
//! * `testing`, with the feature of that name, runs one test on the embedded API server and on the real one.
//!
//! [`controller`] has a whole one as an example. The queue alone:
//!
//! ```
//! use steersman::prelude::*;
//!
//! let queue = WorkQueue::default();
//! queue.add(ObjectKey::new("default", "web"));
//! queue.add(ObjectKey::new("default", "web")); // the same key: still one
//! let item = queue.try_get().unwrap();
//! assert_eq!(item.name(), "web");
//! item.finish(Outcome::done());
//! assert!(queue.try_get().is_none());
//! ```

#[cfg(feature = "admin")]
pub mod admin;
pub mod builder;
pub mod cache;
mod caught;
mod causes;
pub mod client;
pub mod controller;
#[cfg(test)]
mod error_texts;
pub mod event;
mod fence;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod fuzz;
pub mod handler;
#[cfg(feature = "logging")]
pub mod logging;
pub mod manager;
pub mod object;
mod page;
pub mod predicate;
pub mod reconcile;
pub mod recorder;
pub mod source;
mod stamp;
mod sync;
#[cfg(all(feature = "testing", unix))]
pub mod testing;
#[cfg(feature = "admin")]
mod tls;
pub mod workqueue;

/// What most programs import.
pub mod prelude {
    pub use crate::cache::{Cache, CacheOptions, Informer, Query, Select};
    pub use crate::client::Client;
    pub use crate::controller::Controller;
    pub use crate::event::Event;
    pub use crate::manager::{Manager, signals};
    pub use crate::object::{KubeObject, Metadata, Object, ObjectKey};
    pub use crate::reconcile::{Context, Failure, Reconciler, Request, Result};
    pub use crate::source::Source;
    pub use crate::workqueue::{Add, Outcome, Priority, WorkQueue};
    pub use crate::{handler, predicate, reconcile, source};
    pub use kube_client::Config;
    pub use kube_core::GroupVersionKind;
}
