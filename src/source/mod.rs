//! Sources: deliver events and enqueue requests.
//!
//! | source | events | a controller's start waits until |
//! |---|---|---|
//! | [`Kind`] | objects from the controller's cache, filtered by a [`Watch`] | all are handled |
//! | [`Kind::with_cache`] | objects from another cache | all are handled |
//! | [`informer()`] | objects of an [`Informer`] that the caller holds | does not wait |
//! | `stream` | a watcher or reflector of kube-runtime | the first list is handled |
//! | [`Channel`] | events from outside the cluster, such as webhooks | does not wait |
//! | [`from_fn`], custom [`Source`] | timers, message buses, fakes | [`SourceContext::synced`] |
//!
//! For an [`optional`](crate::cache::Select::optional) kind, the start waits only until the state
//! of the informer is known. For the cache of an [added
//! cluster](crate::manager::ManagerHandle::add_cluster), it waits until the informer is synced or
//! fails. `stream` needs the default feature `kube-runtime`.
//!
//! A controller can watch a source at any time. [`Source::start`] runs a source without a
//! controller. Both return a [`WatchHandle`] with the state and the counters of the watch. After
//! [`WatchHandle::stop`], no handler is called, and an informer without other users stops.
//!
//! An event passes the predicates of the controller, those of the watch, and then the
//! [`handler`](crate::handler). If one of them panics, the event is dropped and counted. A source
//! that panics ends, and its [`WatchState`] contains the panic. At the debug level, `tracing`
//! records a span for each event.
//!
//! [`Informer`]: crate::cache::Informer
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube_client::{Api, api::PostParams};
//! use steersman::{prelude::*, source::Kind, testing::{Env, TestServer}};
//!
//! let client = Env::embedded()?.client()?; // or any other
//! let made = serde_json::from_value(serde_json::json!({"metadata": {"name": "colors"}}))?;
//! Api::<ConfigMap>::default_namespaced(client.clone()).create(&PostParams::default(), &made).await?;
//!
//! let cache = Cache::new(client, CacheOptions::default())?;
//! tokio::spawn(cache.clone().run_until(std::future::pending()));
//! let queue = WorkQueue::default();
//! let watch = Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object()).start(&queue)?;
//! watch.await_synced().await?;
//! assert_eq!(queue.get().await.unwrap().name(), "colors");
//! watch.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! A source that gets its cache from a controller cannot be started without one:
//!
//! ```compile_fail
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steersman::{prelude::*, source::Kind};
//!
//! Kind::new(Select::<ConfigMap>::new(), handler::object()).start(&WorkQueue::default());
//! ```

mod channel;
mod context;
mod deliver;
mod handle;
mod informer;
mod kind;
mod run;
#[cfg(feature = "kube-runtime")]
mod stream;

pub(crate) use self::run::{Prepared, SYNC_TIMEOUT};
#[cfg(feature = "kube-runtime")]
pub use self::stream::{StreamItem, StreamSource, stream};
pub use self::{
    channel::{Channel, ChannelSource},
    context::SourceContext,
    handle::{ScopedWatch, WatchError, WatchHandle, WatchState, WatchStats},
    informer::{InformerSource, informer},
    kind::{Kind, KindWithCache, Watch},
};
use crate::{
    cache::Cache,
    handler::Enqueue,
    workqueue::{Key, WorkQueue},
};
use std::sync::Arc;

/// Produces requests until it is stopped. Dropping its future must end all its work.
pub trait Source<R: Key>: Send + 'static {
    /// Returns the name for logs, metrics and errors.
    fn name(&self) -> String;

    /// Adds requests until [`SourceContext`] asks it to stop.
    ///
    /// The workers of the controller start when every source has called [`SourceContext::synced`]
    /// or returned. An error becomes the state of the watch, and fails a start in progress.
    fn run(
        self,
        queue: Enqueue<R>,
        cx: SourceContext,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Binds the source to the cache of the controller, if it has one.
    ///
    /// Called once, before `run`. Errors that are known at this point are returned here.
    fn bind(&mut self, cache: Option<&Cache>) -> Result<(), WatchError> {
        let _ = cache;
        Ok(())
    }

    /// Returns whether the controller starts without this source. Default: false.
    ///
    /// The start then waits until the source is synced, [degraded](SourceContext::degraded) or
    /// ended, at most for the sync timeout, and does not fail because of it.
    fn is_optional(&self) -> bool {
        false
    }

    /// Runs the source without a controller until it is stopped.
    ///
    /// Use it for tests, debugging, or custom workers on a queue.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    fn start(self, queue: &WorkQueue<R>) -> Result<WatchHandle, WatchError>
    where
        Self: Sized + SelfContained,
    {
        let prepared = Prepared::new(self, None, SYNC_TIMEOUT)?;
        let handle = prepared.handle();
        drop(tokio::spawn(prepared.run(Arc::new(queue.clone()))));
        Ok(handle)
    }
}

/// Marks sources that need nothing from a controller.
#[diagnostic::on_unimplemented(
    message = "`{Self}` gets its cache from a controller",
    note = "outside of a controller use `Kind::with_cache`"
)]
pub trait SelfContained {}

/// Creates a source from an async function, such as a ticker or a fake in tests.
///
/// Call [`SourceContext::synced`] when the initial requests are added: a controller waits for it.
pub fn from_fn<R: Key, Fut, F>(
    name: &str,
    run: F,
) -> impl Source<R> + SelfContained + use<R, Fut, F>
where
    F: FnOnce(Enqueue<R>, SourceContext) -> Fut + Send + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    FromFn {
        name: name.to_owned(),
        run,
    }
}

struct FromFn<F> {
    name: String,
    run: F,
}

impl<F> SelfContained for FromFn<F> {}

impl<R: Key, Fut, F> Source<R> for FromFn<F>
where
    F: FnOnce(Enqueue<R>, SourceContext) -> Fut + Send + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(
        self,
        queue: Enqueue<R>,
        cx: SourceContext,
    ) -> impl Future<Output = anyhow::Result<()>> + Send {
        (self.run)(queue, cx)
    }
}

#[cfg(test)]
mod tests;
