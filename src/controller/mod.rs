//! Sources, a queue and workers under one name.
//!
//! A [builder](crate::builder) makes a [`Controller`], which is a handle, and a [`ControllerTask`], which runs it:
//!
//! * Sources start at once, each in a task of its own. Workers start after the initial events of
//!   all sources went through their handlers. A source that does not sync within
//!   [`Options::sync_timeout`] fails the start; the error has its name and the server's message.
//!   Optional watches, and those of an [added cluster](crate::manager::ManagerHandle::add_cluster),
//!   do not fail the start: the controller starts without them, and they retry.
//! * Each of [`Options::max_concurrent`] workers takes a request and calls the
//!   [`Reconciler`](crate::reconcile::Reconciler) with it. No two workers have the same request at
//!   one time. The table of [`reconcile`](crate::reconcile) describes the results.
//! * If the last reconcile of a request wrote objects that the caches do not show yet, the next one
//!   starts once they do: [`Options::consistency`].
//! * A reconcile that takes longer than [`Options::stuck_after`] is reported, and continues.
//! * [`Controller::watch`] adds sources at any time, and gives a handle by which they can be stopped.
//! * When it is told to stop, runs are told ([`Context::shutdown`](crate::reconcile::Context::shutdown)), what is queued is dropped, and what runs is waited for. Dropping
//!   what runs it drops the runs, too.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steersman::{prelude::*, testing::{Env, TestServer}};
//! use tokio::sync::mpsc;
//!
//! let connection = Env::embedded()?.client()?; // or a `Config`
//! let cache = Cache::new(connection.clone(), CacheOptions::default())?;
//! let client = Client::new(connection)?.with_cache(cache.clone());
//!
//! let (seen, mut reconciled) = mpsc::unbounded_channel();
//! let (controller, task) = Controller::builder("maps").cache(&cache).for_::<ConfigMap>().build(reconcile::from_fn({
//!     let client = client.clone();
//!     move |request: Request, _cx| {
//!         let (client, seen) = (client.clone(), seen.clone());
//!         async move {
//!             let map = client.get::<ConfigMap>(&request).await?;
//!             seen.send((request, map.is_some()))?;
//!             Ok(Outcome::done())
//!         }
//!     }
//! }))?;
//! tokio::spawn(cache.run_until(std::future::pending()));
//! let running = tokio::spawn(task.run_until(std::future::pending()));
//!
//! let map = serde_json::json!({"metadata": {"namespace": "default", "name": "colors"}});
//! client.create::<ConfigMap>(&serde_json::from_value(map)?).await?;
//! assert_eq!(reconciled.recv().await, Some((Request::new("default", "colors"), true)));
//!
//! controller.stop().await;
//! running.await??;
//! # Ok(())
//! # }
//! ```

mod defer;
mod ending;
mod groups;
mod inbox;
mod metrics;
mod numbers;
mod options;
mod reason;
mod report;
mod run;
mod state;
mod terminal;
mod verdict;
mod work;

pub(crate) use self::{
    groups::{GroupLimit, PerGroup},
    options::Settings,
};
pub use self::{
    metrics::ControllerMetrics,
    numbers::{ControllerStats, Times},
    options::{Defaults, OnError, Options, Retry},
    report::{ControllerReport, QueueReport, QueueSnapshot, StuckReconcile, WatchReport},
    run::ControllerTask,
    terminal::TerminalOutcome,
};
pub use crate::source::{ScopedWatch, WatchError, WatchHandle, WatchState, WatchStats};

use self::{
    defer::Deferrals,
    ending::Ending,
    inbox::Inbox,
    numbers::Numbers,
    state::State,
    terminal::TerminalOutcomes,
    work::{Limit, Work},
};
use crate::{
    cache::Cache,
    reconcile::Request,
    source::{Prepared, Source},
    workqueue::{Key, WorkQueue},
};
use futures_util::future::try_join_all;
use kube_core::GroupVersionKind;
use parking_lot::Mutex;
use std::{
    fmt,
    future::pending,
    sync::{Arc, OnceLock},
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// A handle; clones mean the same controller. There is one from the start of building, for reconcilers that watch.
pub struct Controller<R: Key = Request>(Arc<Shared<R>>);

struct Shared<R: Key> {
    name: Arc<str>,
    built: OnceLock<Built<R>>,
    state: Mutex<State<R>>,
    /// It begins to stop.
    shutdown: Arc<CancellationToken>,
    ended: watch::Sender<bool>,
}

/// What a builder has put together. Not the reconciler: that may own a handle of its controller, and goes with the task.
pub(crate) struct Built<R> {
    work: Arc<Work<R>>,
    cache: Option<Cache>,
    gvk: Option<GroupVersionKind>,
}

/// What a builder puts together.
pub(crate) struct Parts<R> {
    pub(crate) queue: WorkQueue<R>,
    pub(crate) cache: Option<Cache>,
    pub(crate) gvk: Option<GroupVersionKind>,
    pub(crate) settings: Settings,
    pub(crate) groups: Option<Box<dyn GroupLimit<R>>>,
}

impl<R: Key> Controller<R> {
    /// Not built yet.
    pub(crate) fn unbuilt(name: &str) -> Self {
        Self(Arc::new(Shared {
            name: name.into(),
            built: OnceLock::new(),
            state: Mutex::new(State::default()),
            shutdown: Arc::default(),
            ended: watch::Sender::new(false),
        }))
    }

    pub(crate) fn finish(&self, parts: Parts<R>) {
        let Parts { queue, cache, gvk, settings, groups } = parts;
        let work = Work {
            name: self.0.name.clone(),
            group: gvk.as_ref().map(|gvk| gvk.group.as_str()).unwrap_or_default().into(),
            kind: gvk.as_ref().map(|gvk| gvk.kind.as_str()).unwrap_or_default().into(),
            inbox: Arc::new(Inbox::new(queue.clone())),
            queue,
            groups,
            deferrals: Arc::new(Deferrals::default()),
            ending: Ending::default(),
            terminal: TerminalOutcomes::default(),
            numbers: Numbers::default(),
            shutdown: self.0.shutdown.clone(),
            limit: Limit::new(settings.max_concurrent),
            settings,
        };
        drop(self.0.built.set(Built { work: Arc::new(work), cache, gvk }));
    }

    /// What it was named when it was built.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    fn built(&self) -> Option<&Built<R>> {
        self.0.built.get()
    }

    fn work(&self) -> &Arc<Work<R>> {
        let built = self.built();
        &built.unwrap_or_else(|| panic!("{}", WatchError::NeverBuilt(self.name().to_owned()))).work
    }

    /// Add a source, before or after start. What is known at once fails here; the rest is the handle's state.
    ///
    /// Added before the start, it is one of those that the workers wait for; later, it begins at once, and nobody waits for it but who asks the handle to.
    pub fn watch(&self, source: impl Source<R>) -> Result<WatchHandle, WatchError> {
        let built = self.built().ok_or_else(|| WatchError::NeverBuilt(self.name().to_owned()))?;
        if self.0.shutdown.is_cancelled() {
            return Err(WatchError::ControllerStopped(self.name().to_owned()));
        }
        let prepared =
            Prepared::new(source, built.cache.as_ref(), built.work.settings.sync_timeout)?.of_controller(&self.0.name);
        let handle = prepared.handle();
        let mut gone = Vec::new();
        let watched = self.0.state.lock().watch(prepared, &built.work.inbox, self.name(), &mut gone);
        drop(gone);
        watched.map(|()| handle)
    }

    /// Every watch that was not stopped.
    pub fn watches(&self) -> Vec<WatchHandle> {
        self.0.state.lock().watches()
    }

    /// To look into, or to add to by hand.
    ///
    /// # Panics
    /// Before the controller is built.
    pub fn queue(&self) -> &WorkQueue<R> {
        &self.work().queue
    }

    /// How many requests are reconciled at once.
    ///
    /// # Panics
    /// Before the controller is built.
    pub fn max_concurrent(&self) -> usize {
        self.work().limit.get()
    }

    /// Takes effect at once; what runs is finished. At least 1.
    ///
    /// # Panics
    /// Before the controller is built.
    pub fn set_max_concurrent(&self, workers: usize) {
        self.work().limit.set(workers.max(1));
    }

    /// Whether it runs only while its manager leads, and whether its sources run before.
    pub(crate) fn leads(&self) -> (bool, bool) {
        let settings = &self.work().settings;
        (settings.needs_leader, settings.warmup)
    }

    /// Returns a check that fails while a reconcile is stuck, if the options ask for one.
    pub(crate) fn stuck_check(&self) -> Option<impl Fn() -> Result<(), String> + Send + Sync + use<R>> {
        let controller = self.clone();
        self.work().settings.stuck_fails_readiness.then_some(move || match controller.stuck() {
            stuck if stuck.is_empty() => Ok(()),
            stuck => {
                let stuck: Vec<_> = stuck.iter().map(ToString::to_string).collect();
                Err(format!("stuck reconciles: {}", stuck.join(", ")))
            }
        })
    }

    /// Start the sources before the controller runs, and wait for them: a standby that does so acts at once when it is its turn. Whoever calls it again, or runs the
    /// controller, waits for the same sources.
    ///
    /// # Panics
    /// Before the controller is built, or outside of a tokio runtime.
    pub async fn warm_up(&self) -> Result<(), WatchError> {
        let handles = self.0.state.lock().start(&self.work().inbox, self.name())?;
        try_join_all(handles.iter().map(async |handle| {
            if handle.is_optional() {
                handle.await_known().await;
                return Ok(());
            }
            match handle.await_synced().await {
                // Whoever stopped it can do without.
                Err(WatchError::Stopped { .. }) => Ok(()),
                synced => synced,
            }
        }))
        .await?;
        if self.0.shutdown.is_cancelled() {
            return Err(WatchError::ControllerStopped(self.name().to_owned()));
        }
        Ok(())
    }

    /// Stop this controller: its watches end, what it runs is waited for. Not from within one of its runs: it would wait for itself.
    pub async fn stop(&self) {
        self.0.shutdown.cancel();
        // If it does not run, it never will.
        if let Some(end) = self.0.claim() {
            end.all(JoinSet::new(), pending()).await;
        }
        self.0.ended().await;
    }
}

impl<R: Key> Clone for Controller<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Key> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.name()).finish_non_exhaustive()
    }
}
