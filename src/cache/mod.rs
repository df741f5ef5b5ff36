//! Objects in memory: one informer per kind and selection, shared by everybody, kept up to date by list and watch.
//!
//! Use it for what is read often or has to be noticed when it changes; read what is needed once from the server. A controller reads nothing else:
//! thousands of reads cost the server one watch.
//!
//! * [`Cache::informer`] declares a kind, [`Cache::informer_of`] a [`Select`]ion of it: some namespaces or labels, a kind that is known at run time only,
//!   a form that takes less memory. Nothing is watched that was not declared, and nothing for long after its last user.
//! * [`CacheOptions`] say what is kept where a declaration does not: of which namespaces, also by their labels as they come and go, with which labels and
//!   fields; for one kind or for all.
//! * [`Informer`] reads: one object, or what a [`Query`] is about, or by an [`Index`], as objects or as a [`View`] of them; and tells [`Events`].
//! * A kind that the server does not have is waited for, and so is one that goes away; [`Cache::remove`] is for kinds that are not wanted any more.
//! * [`Cache::run_until`] does the work. Before the first list has come, reads fail and say why: an empty answer would be a lie.
//!   A list is read with pauses for other tasks, but put into memory in one go, so that readers see all of it or nothing: what an index of a compact
//!   informer costs there, [`Informer::index`] says.
//!
//! | kept as | declared by | reads | memory |
//! |---|---|---|---|
//! | [`Typed`](Representation::Typed) | `Select::<Pod>::new()` | `Pod` and its metadata, shared | all of it |
//! | [`Compact`](Representation::Compact) | `.compact()`, `Select::dynamic(…)` | any type, `DynamicObject` and metadata; decoded when read, shared while held | half of the message |
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
//! let colors = maps.get(&ObjectKey::new("default", "colors"))?.expect("it was made");
//! assert_eq!(colors.data.as_ref().unwrap()["door"], "blue");
//! assert_eq!(maps.list(&Query::default().namespace(Some("default")).labels("!app")?)?.len(), 1);
//!
//! drop(stop);
//! running.await??;
//! # Ok(())
//! # }
//! ```
//!
//! Inside, `reflect` asks the server and says what it has, `core` puts it into the `store` and tells the handlers through the `fan`; `erased` is that
//! whatever the form, for the handles above.

mod arrivals;
mod asked;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench;
mod core;
mod discover;
mod erased;
mod error;
mod events;
mod fan;
mod fields;
mod indexed;
mod informer;
mod lazy;
pub(crate) mod ledger;
mod life;
mod loops;
mod metrics;
mod namespaces;
mod options;
mod part;
mod parts;
mod plan;
mod query;
mod reflect;
mod registry;
mod resync;
mod roster;
mod scope;
mod select;
mod settings;
mod stats;
mod store;
mod synced;
mod tend;
mod undecoded;
mod view;

pub(crate) use self::asked::Asked;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub use self::reflect::watch_lines;
pub use self::{
    error::CacheError,
    events::{Events, Notice},
    indexed::Index,
    informer::{Informer, InformerState},
    ledger::OwnWrites,
    metrics::CacheMetrics,
    namespaces::{InNamespace, Namespaces},
    options::{CacheOptions, MetadataTransform},
    query::Query,
    registry::Cache,
    select::{Representation, Select},
    stats::{HandlerStats, InformerReport, InformerStats, ObjectSize},
    view::{Shown, View},
};
