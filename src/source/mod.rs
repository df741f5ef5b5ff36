//! Where events come from. A source is a future that adds requests to a queue, and what it started ends with it.
//!
//! | use | for | a controller's start waits |
//! |---|---|---|
//! | [`Kind`] | objects in the cluster, from the controller's cache; a [`Watch`] says which of their events count | until all that is there was handled; if it is [`optional`](crate::cache::Select::optional), only until it is known how it is |
//! | [`Kind::with_cache`] | the same from a cache of your own: another cluster, or no controller at all | the same; for an [added cluster](crate::manager::ManagerHandle::add_cluster) only until it is synced or fails |
//! | [`informer()`] | an [`Informer`](crate::cache::Informer) that you hold | no |
//! | [`Channel`] | news from outside the cluster, such as webhooks | no |
//! | [`from_fn`], or a [`Source`] of your own | everything else: clocks, message buses, fakes in tests | until it says so, or returns |
//!
//! Controllers watch sources, at any time. Without one, [`Source::start`] runs a source that needs nothing from it. Both give a [`WatchHandle`]: how the watch is, what it
//! has done, and its end. After [`WatchHandle::stop`] no handler is called, and an informer that nobody else uses goes.
//!
//! Events pass the controller's predicates, then the watch's own, then its [`handler`](crate::handler). A panic in one of them costs that event, and is counted; one in a source
//! ends it, and is its [`WatchState`]. When `tracing` is enabled for debugging, each event is handled in a span of its own.
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
mod drive;
mod handle;
mod informed;
mod informer;
mod kind;

pub(crate) use self::drive::{Prepared, SYNC_TIMEOUT};
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

/// A stream of requests. Its future is the source: what it started ends with it.
pub trait Source<R: Key>: Send + 'static {
    /// For logs, metrics and messages.
    fn name(&self) -> String;

    /// Add requests until told to stop. The controller's workers wait until every source has called [`SourceContext::synced`] or returned. An error is
    /// the watch's state, and fails a start in progress.
    fn run(self, queue: Enqueue<R>, cx: SourceContext) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Called once, when it is watched and before it runs, with the controller's cache if it has one: what is known to be wrong at once is said here.
    fn bind(&mut self, cache: Option<&Cache>) -> Result<(), WatchError> {
        let _ = cache;
        Ok(())
    }

    /// The controller starts without it: its start waits only until it is synced, [in trouble](SourceContext::degraded) or over, at most for the sync timeout, and is never
    /// failed by it. False by default.
    fn is_optional(&self) -> bool {
        false
    }

    /// Run it without a controller, until it is stopped: for debugging, tests, and loops of your own over a queue.
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

/// A source that needs nothing from a controller. Say it of your own ones, if it is so.
#[diagnostic::on_unimplemented(
    message = "`{Self}` gets its cache from a controller",
    note = "outside of a controller use `Kind::with_cache`"
)]
pub trait SelfContained {}

/// Any async function that adds requests: tickers, message buses, fakes in tests.
///
/// It should call [`SourceContext::synced`] when the first ones are through: a controller waits for that.
pub fn from_fn<R: Key, Fut, F>(name: &str, run: F) -> impl Source<R> + SelfContained + use<R, Fut, F>
where
    F: FnOnce(Enqueue<R>, SourceContext) -> Fut + Send + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    FromFn { name: name.to_owned(), run }
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

    fn run(self, queue: Enqueue<R>, cx: SourceContext) -> impl Future<Output = anyhow::Result<()>> + Send {
        (self.run)(queue, cx)
    }
}

#[cfg(test)]
mod tests;
