//! steersman: Kubernetes controllers in Rust, on the primitives of Go's controller-runtime, with the pains its users
//! report designed out.
//!
//! Built so far:
//!
//! * [`cache`]: objects in memory, kept up to date by list and watch, shared by everybody.
//! * [`client`]: reads from the cache, writes to the server.
//! * [`object`]: objects as the framework sees them: [`ObjectKey`](object::ObjectKey) names one, [`Object`](object::Object) is
//!   one, with its metadata at hand and its body on request.
//! * [`event`]: what happened to an object.
//! * [`source`]: where events come from: kinds in the cluster, channels from outside, sources of your own.
//! * [`predicate`]: which events wake a controller.
//! * [`handler`]: events to requests.
//! * [`workqueue`]: requests waiting for a worker: one slot per key, priorities, delays, backoff, introspection.
//! * [`recorder`]: events of the cluster, told about objects.
//! * `logging`, with the feature of that name: logs for people or as JSON, with levels that change at run time.
//! * `testing`, with the feature of that name: one test on the embedded API server and on the real one.
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

pub mod builder;
pub mod cache;
mod caught;
pub mod client;
pub mod controller;
pub mod event;
pub mod handler;
mod host;
#[cfg(feature = "logging")]
pub mod logging;
pub mod object;
mod page;
pub mod predicate;
pub mod reconcile;
pub mod recorder;
pub mod source;
mod sync;
#[cfg(all(feature = "testing", unix))]
pub mod testing;
pub mod workqueue;

/// What most programs import.
pub mod prelude {
    pub use crate::cache::{Cache, CacheOptions, Informer, Query, Select};
    pub use crate::client::Client;
    pub use crate::controller::Controller;
    pub use crate::event::Event;
    pub use crate::object::{KubeObject, Metadata, Object, ObjectKey};
    pub use crate::reconcile::{Context, Failure, Reconciler, Request, Result};
    pub use crate::source::Source;
    pub use crate::workqueue::{Add, Outcome, Priority, WorkQueue};
    pub use crate::{handler, predicate, reconcile, source};
    pub use kube_client::Config;
    pub use kube_core::GroupVersionKind;
}
