//! Framework for Kubernetes controllers, modelled on Go's controller-runtime.
//!
//! A change in the cluster passes these modules on its way to a reconciler:
//!
//! | module | role |
//! |---|---|
//! | [`cache`] | informers: objects in memory, kept up to date by list and watch |
//! | [`source`] | delivers [`event`]s of a kind in the cluster, or of any other origin |
//! | [`predicate`] | drops events that do not matter |
//! | [`handler`] | maps events to requests |
//! | [`workqueue`] | queues requests, with deduplication, priorities, delays and backoff |
//! | [`controller`] | calls a [`reconcile::Reconciler`] for each request |
//! | [`client`] | reads from the cache and writes to the API server |
//!
//! A [`builder`] assembles a controller, and a [`manager`] runs several of them. [`object`] defines
//! how objects are represented, and a [`recorder`] writes Kubernetes events. The default feature
//! `admin` serves metrics, health checks and debug pages. It includes the feature `tls`, for serving
//! certificates that are reloaded. The feature `logging` sets up logs as text or JSON. The default
//! feature `kube-runtime` adds `source::stream`, for watchers and reflectors of kube-rs. The feature
//! `testing` runs tests against an embedded API server and a real one.
//!
//! See [`controller`] for a complete controller. The work queue also works alone:
//!
//! ```
//! use steersman::prelude::*;
//!
//! let queue = WorkQueue::default();
//! queue.add(ObjectKey::new("default", "web"));
//! queue.add(ObjectKey::new("default", "web")); // already queued
//! let item = queue.try_get().unwrap();
//! assert_eq!(item.name(), "web");
//! item.finish(Outcome::done());
//! assert!(queue.try_get().is_none());
//! ```

#[cfg(feature = "admin")]
pub mod admin;
pub mod builder;
pub mod cache;
pub mod client;
mod coarse_clock;
pub mod conditions;
pub mod controller;
mod error_chain;
#[cfg(test)]
mod error_texts;
pub mod event;
mod fencing;
#[cfg(feature = "__internals")]
#[doc(hidden)]
pub mod fuzz;
pub mod handler;
mod jitter;
#[cfg(feature = "logging")]
pub mod logging;
pub mod manager;
pub mod object;
mod panic_message;
pub mod predicate;
mod prometheus;
mod rate_limit;
pub mod reconcile;
pub mod recorder;
pub mod source;
mod sync;
#[cfg(all(feature = "testing", unix))]
pub mod testing;
#[cfg(feature = "tls")]
pub mod tls;
pub mod workqueue;

/// Commonly used items, for a glob import.
pub mod prelude {
    pub use crate::cache::{Cache, CacheOptions, Informer, Query, Select};
    pub use crate::client::Client;
    pub use crate::controller::Controller;
    pub use crate::event::Event;
    pub use crate::manager::{Manager, signals};
    pub use crate::object::{KubeObject, Metadata, Object, ObjectKey};
    pub use crate::reconcile::{Failure, Reconciler, Request};
    pub use crate::source::Source;
    pub use crate::workqueue::{Add, Outcome, Priority, WorkQueue};
    pub use crate::{handler, predicate, reconcile, source};
    pub use kube_client::Config;
    pub use kube_core::GroupVersionKind;
}

/// Compiles and runs the Rust blocks of the README and of `docs/`. The page about the endpoint
/// controller is tested in its package.
#[cfg(doctest)]
mod markdown {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/apiserver.md")]
    struct Apiserver;
    #[doc = include_str!("../docs/benchmarks.md")]
    struct Benchmarks;
    #[doc = include_str!("../docs/cache.md")]
    struct Cache;
    #[doc = include_str!("../docs/client.md")]
    struct Client;
    #[doc = include_str!("../docs/controllers.md")]
    struct Controllers;
    #[doc = include_str!("../docs/manager.md")]
    struct Manager;
    #[doc = include_str!("../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../docs/workqueue.md")]
    struct Workqueue;
}
