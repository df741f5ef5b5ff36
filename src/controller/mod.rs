//! Controllers: sources, a work queue and workers that call a reconciler.
//!
//! A [builder](crate::builder) creates a [`Controller`], which is a handle, and a
//! [`ControllerTask`], which runs the controller:
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
//! * [`Controller::watch`] adds sources at any time. The returned handle stops them.
//! * On shutdown, reconciles are notified through
//!   [`Context::shutdown`](crate::reconcile::Context::shutdown), queued requests are dropped, and
//!   the task waits for running reconciles. Dropping the task's future cancels them.
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

mod enqueue;
mod groups;
mod metrics;
mod options;
mod own_writes;
mod reason;
mod report;
mod result;
mod run;
mod state;
mod stats;
mod terminal;
mod worker;

pub(crate) use self::{
    groups::{GroupLimit, PerGroup},
    options::Settings,
};
pub use self::{
    metrics::ControllerMetrics,
    options::{Defaults, OnError, Options, Retry},
    report::{ControllerReport, QueueReport, QueueSnapshot, StuckReconcile, WatchReport},
    run::ControllerTask,
    stats::{ControllerStats, ReconcileTimes},
    terminal::TerminalOutcome,
};
pub use crate::source::{ScopedWatch, WatchError, WatchHandle, WatchState, WatchStats};

use self::{
    enqueue::QueueTarget,
    own_writes::Deferrals,
    run::RunningAtShutdown,
    state::State,
    stats::ReconcileCounters,
    terminal::TerminalOutcomes,
    worker::{ConcurrencyLimit, Workers},
};
use crate::{
    cache::Cache,
    reconcile::Request,
    source::{Prepared, Source},
    workqueue::{Key, WorkQueue},
};
use futures::future::try_join_all;
use kube_core::GroupVersionKind;
use parking_lot::Mutex;
use std::{
    fmt,
    future::pending,
    sync::{Arc, OnceLock},
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// Handle to a controller. Clones refer to the same controller.
///
/// The handle exists before the controller is built, so that a reconciler can own it and add
/// watches.
pub struct Controller<R: Key = Request>(Arc<Shared<R>>);

struct Shared<R: Key> {
    name: Arc<str>,
    built: OnceLock<Built<R>>,
    state: Mutex<State<R>>,
    /// Cancelled when the controller starts to shut down.
    shutdown: Arc<CancellationToken>,
    ended: watch::Sender<bool>,
}

/// Configuration set by the builder.
///
/// The reconciler is not part of it: a reconciler may own a handle to its controller, and is
/// dropped with the [`ControllerTask`].
pub(crate) struct Built<R> {
    workers: Arc<Workers<R>>,
    cache: Option<Cache>,
    gvk: Option<GroupVersionKind>,
}

/// Arguments of [`Controller::finish`].
pub(crate) struct Parts<R> {
    pub(crate) queue: WorkQueue<R>,
    pub(crate) cache: Option<Cache>,
    pub(crate) gvk: Option<GroupVersionKind>,
    pub(crate) settings: Settings,
    pub(crate) groups: Option<Box<dyn GroupLimit<R>>>,
}

impl<R: Key> Controller<R> {
    /// Creates the handle of a controller that is not built yet.
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
        let Parts {
            queue,
            cache,
            gvk,
            settings,
            groups,
        } = parts;
        let workers = Workers {
            name: self.0.name.clone(),
            group: gvk
                .as_ref()
                .map(|gvk| gvk.group.as_str())
                .unwrap_or_default()
                .into(),
            kind: gvk
                .as_ref()
                .map(|gvk| gvk.kind.as_str())
                .unwrap_or_default()
                .into(),
            target: Arc::new(QueueTarget::new(queue.clone())),
            queue,
            groups,
            deferrals: Arc::new(Deferrals::default()),
            running_at_shutdown: RunningAtShutdown::default(),
            terminal: TerminalOutcomes::default(),
            counters: ReconcileCounters::default(),
            shutdown: self.0.shutdown.clone(),
            limit: ConcurrencyLimit::new(settings.max_concurrent),
            settings,
        };
        drop(self.0.built.set(Built {
            workers: Arc::new(workers),
            cache,
            gvk,
        }));
    }

    /// Returns the name of the controller.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    fn built(&self) -> Option<&Built<R>> {
        self.0.built.get()
    }

    fn workers(&self) -> &Arc<Workers<R>> {
        let built = self.built();
        &built
            .unwrap_or_else(|| panic!("{}", WatchError::NeverBuilt(self.name().to_owned())))
            .workers
    }

    /// Adds a source, before or after the start.
    ///
    /// Workers wait for sources that are added before the start. A source that is added later
    /// starts at once, and no worker waits for it: use [`WatchHandle::await_synced`].
    ///
    /// # Errors
    /// Returns an error if the declaration is invalid, the controller is not built or it has
    /// stopped. Later failures are in the state of the handle.
    pub fn watch(&self, source: impl Source<R>) -> Result<WatchHandle, WatchError> {
        let built = self
            .built()
            .ok_or_else(|| WatchError::NeverBuilt(self.name().to_owned()))?;
        if self.0.shutdown.is_cancelled() {
            return Err(WatchError::ControllerStopped(self.name().to_owned()));
        }
        let prepared = Prepared::new(
            source,
            built.cache.as_ref(),
            built.workers.settings.sync_timeout,
        )?
        .with_controller_name(&self.0.name);
        let handle = prepared.handle();
        let mut dropped = Vec::new();
        let watched =
            self.0
                .state
                .lock()
                .watch(prepared, &built.workers.target, self.name(), &mut dropped);
        drop(dropped);
        watched.map(|()| handle)
    }

    /// Returns every watch that was not stopped.
    pub fn watches(&self) -> Vec<WatchHandle> {
        self.0.state.lock().watches()
    }

    /// Returns the work queue, for inspection or to add requests.
    ///
    /// # Panics
    /// Panics before the controller is built.
    pub fn queue(&self) -> &WorkQueue<R> {
        &self.workers().queue
    }

    /// Returns the number of requests that are reconciled concurrently.
    ///
    /// # Panics
    /// Panics before the controller is built.
    pub fn max_concurrent(&self) -> usize {
        self.workers().limit.get()
    }

    /// Sets the number of requests that are reconciled concurrently, at least 1.
    ///
    /// The change takes effect at once. Running reconciles are not cancelled.
    ///
    /// # Panics
    /// Panics before the controller is built.
    pub fn set_max_concurrent(&self, workers: usize) {
        self.workers().limit.set(workers.max(1));
    }

    /// Returns [`Options::needs_leader`] and [`Options::warmup`].
    pub(crate) fn leads(&self) -> (bool, bool) {
        let settings = &self.workers().settings;
        (settings.needs_leader, settings.warmup)
    }

    /// Returns a check that fails while a reconcile is stuck, if the options ask for one.
    pub(crate) fn stuck_check(
        &self,
    ) -> Option<impl Fn() -> Result<(), String> + Send + Sync + use<R>> {
        let controller = self.clone();
        self.workers()
            .settings
            .stuck_fails_readiness
            .then_some(move || match controller.stuck() {
                stuck if stuck.is_empty() => Ok(()),
                stuck => {
                    let stuck: Vec<_> = stuck.iter().map(ToString::to_string).collect();
                    Err(format!("stuck reconciles: {}", stuck.join(", ")))
                }
            })
    }

    /// Starts the sources before the controller runs, and waits until they are synced.
    ///
    /// A standby that is warmed up reconciles immediately when it becomes the leader. Later calls,
    /// and the controller's task, wait for the same sources.
    ///
    /// # Panics
    /// Panics before the controller is built, or outside of a tokio runtime.
    pub async fn warm_up(&self) -> Result<(), WatchError> {
        let handles = self
            .0
            .state
            .lock()
            .start(&self.workers().target, self.name())?;
        try_join_all(handles.iter().map(async |handle| {
            if handle.is_optional() {
                handle.await_reported().await;
                return Ok(());
            }
            match handle.await_synced().await {
                // A watch that was stopped on purpose does not fail the start.
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

    /// Stops the controller and its watches, and waits for running reconciles.
    ///
    /// Do not await this in a reconcile of the same controller: it would wait for itself.
    pub async fn stop(&self) {
        self.0.shutdown.cancel();
        // Claimed only if the task does not run. The claim prevents a later run.
        if let Some(end) = self.0.claim() {
            end.shut_down(JoinSet::new(), pending()).await;
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
        f.debug_struct("Controller")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
