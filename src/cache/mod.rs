//! In-memory cache of Kubernetes objects, kept up to date by list and watch.
//!
//! There is one informer per kind and scope, and all its users share it. Use the cache for objects
//! that are read often or whose changes matter. Thousands of reads cost the API server one watch.
//! Read objects that are needed once directly from the API server.
//!
//! * [`Cache::informer`] declares an informer of a kind. [`Cache::informer_of`] declares one for a
//!   [`Select`]: some namespaces or labels, a kind that is known at run time only, or a
//!   representation that takes less memory. Only declared kinds are watched, and an informer stops
//!   shortly after its last handle is dropped.
//! * [`CacheOptions`] hold the defaults of all declarations: namespaces by name or label,
//!   selectors, transforms. They apply to one kind or to all.
//! * [`Informer`] reads single objects, lists by [`Query`] or [`Index`], and returns a [`View`]
//!   that does not copy. Its [`Events`] report changes.
//! * [`Cache::run_until`] runs the informers. Reads fail with the reason until the first list has
//!   completed. A kind that the API server does not serve is waited for, also if its CRD is deleted
//!   later. [`Cache::remove`] stops the informers of a kind.
//!
//! Decoding a list yields to other tasks, but the store replaces the objects in one step, so that
//! readers never see part of a list. [`Informer::index`] describes the cost of an index in a
//! compact informer.
//!
//! | representation | declared by | reads | memory |
//! |---|---|---|---|
//! | [`Typed`](Representation::Typed) | `Select::<Pod>::new()` | `Pod` and its metadata, shared | whole object |
//! | [`Compact`](Representation::Compact) | `.compact()`, `Select::dynamic(…)` | any type, `DynamicObject` and metadata; decoded when read, shared while held | half of the JSON message |
//! | [`Metadata`](Representation::Metadata) | `Select::<Metadata<Pod>>::new()` | metadata | metadata |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube_client::{Api, api::PostParams};
//! use steersman::{prelude::*, testing::{Env, TestServer}};
//!
//! let client = Env::embedded()?.client()?; // or any other
//! let made = serde_json::from_value(serde_json::json!({"metadata": {"name": "colors"}, "data": {"door": "blue"}}))?;
//! Api::<ConfigMap>::default_namespaced(client.clone()).create(&PostParams::default(), &made).await?;
//!
//! let cache = Cache::new(client, CacheOptions::default())?;
//! let maps = cache.informer::<ConfigMap>()?;
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let running = tokio::spawn(cache.run_until(async { drop(stopped.await) }));
//! maps.await_synced().await?;
//!
//! let colors = maps.get(&ObjectKey::new("default", "colors"))?.expect("the object exists");
//! assert_eq!(colors.data.as_ref().unwrap()["door"], "blue");
//! assert_eq!(maps.list(&Query::default().namespace(Some("default")).labels("!app")?)?.len(), 1);
//!
//! drop(stop);
//! running.await??;
//! # Ok(())
//! # }
//! ```
//!
//! # Data flow
//!
//! `reflector` lists and watches, and passes objects to `core`. `core` writes them to the `store`
//! and publishes the changes to subscriptions through `fanout`. `erased` hides the representation
//! of a core from the public handles. `registry` holds the declared informers, `informer_task` runs
//! one of them, and `ledger` tracks the writes of clients that read from the cache.

// The API: the cache, declarations of informers, and their handles.
mod error;
mod events;
mod indexed;
mod informer;
mod lazy_reads;
mod namespaces;
mod options;
mod query;
mod registry;
mod select;
mod sync_wait;
mod view;

// Declarations resolved to the configuration of one informer.
mod declared;
mod fields;
mod list_params;
mod plan;
mod scope;
mod settings;

// The task of an informer, from discovery to its last handle.
mod crd_watch;
mod discover;
mod informer_task;
mod refcount;
mod reflector;
mod reflector_tasks;
mod resync;

// The objects of an informer, its handlers, and the reads that wait for own writes.
mod core;
mod erased;
mod fanout;
pub(crate) mod ledger;
mod namespace_core;
mod namespace_cores;
mod store;
mod undecoded;

// Reports and metrics.
mod metrics;
mod stats;

#[cfg(feature = "__internals")]
#[doc(hidden)]
pub mod bench;

pub(crate) use self::list_params::ListParams;
#[cfg(feature = "__internals")]
#[doc(hidden)]
pub use self::reflector::watch_lines;
pub use self::{
    error::CacheError,
    events::{Events, InformerEvent},
    indexed::Index,
    informer::{Informer, InformerState},
    ledger::OwnWrites,
    metrics::CacheMetrics,
    namespaces::{NamespaceScope, Namespaces},
    options::{CacheOptions, MetadataTransform},
    query::Query,
    registry::Cache,
    select::{Representation, Select},
    stats::{HandlerStats, InformerReport, InformerStats, ObjectSize},
    view::{DecodedRow, View, ViewRow},
};
