//! Runs a controller: starts its sources and workers, and shuts them down.
//!
//! Invariant: a controller runs once. When [`ControllerTask::run_until`] has returned, none of its
//! sources, workers and reconciles is left. If the future is dropped, they are aborted and end at
//! their next `await`.

use super::{Built, Controller, Shared, state::Phase};
use crate::{
    fencing::Fence,
    reconcile::DynReconciler,
    workqueue::{EntryState, Key, WorkQueue},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    fmt,
    future::pending,
    panic::resume_unwind,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use tokio::{
    select,
    task::{JoinError, JoinSet},
};

/// Future of a built controller, before it runs. It runs once.
#[must_use = "a controller does nothing before `run_until`"]
pub struct ControllerTask<R: Key> {
    controller: Controller<R>,
    reconciler: Arc<dyn DynReconciler<R>>,
}

impl<R: Key> ControllerTask<R> {
    pub(crate) fn new(controller: Controller<R>, reconciler: Arc<dyn DynReconciler<R>>) -> Self {
        Self {
            controller,
            reconciler,
        }
    }

    /// Runs the controller on the current runtime until `stop` resolves.
    ///
    /// Starts the sources, then the workers. When `stop` resolves or [`Controller::stop`] is
    /// called, it waits for running reconciles and returns. A stop during the start is not an
    /// error.
    ///
    /// In the scope of a [`Fence`](crate::manager::election::Fence) no reconcile starts after the
    /// fence is closed.
    ///
    /// # Errors
    /// Returns an error if a source fails or does not sync in time during the start.
    ///
    /// # Panics
    /// Propagates the panic of a reconcile if [`recover_panics`](super::Options::recover_panics) is
    /// off.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        self.run_until_aborted(stop, pending()).await
    }

    /// Runs until `stop` resolves, then waits for reconciles until `abort` does.
    ///
    /// Reconciles that still run are then aborted. They have ended when this function returns.
    pub(crate) async fn run_until_aborted(
        self,
        stop: impl Future<Output = ()> + Send,
        abort: impl Future<Output = ()> + Send,
    ) -> anyhow::Result<()> {
        let shared = &self.controller.0;
        let shared_workers = self.controller.workers();
        let fence = Fence::current();
        let Some(end) = shared.claim() else {
            // The controller was stopped before it ran.
            shared.ended().await;
            return Ok(());
        };
        // Declared after `end`, so that workers are dropped before the controller reports its end.
        let mut workers = JoinSet::new();
        let mut stop = pin!(async {
            select! {
                () = stop => {}
                () = shared.shutdown.cancelled() => {}
            }
        });
        tracing::info!(controller = self.controller.name(), "starting controller");
        let started = select! {
            biased;
            () = &mut stop => {
                end.shut_down(workers, abort).await;
                return Ok(());
            }
            started = self.controller.warm_up() => started,
        };
        if let Err(error) = started {
            tracing::error!(
                controller = self.controller.name(),
                %error,
                "starting controller failed"
            );
            end.shut_down(workers, abort).await;
            return Err(error.into());
        }
        let mut changes = shared_workers.limit.changes();
        let mut running_workers = BTreeSet::new();
        // A closed queue never returns requests again.
        while !shared_workers.queue.is_closed() {
            // Workers above the limit return on their own.
            let limit = *changes.borrow_and_update();
            if running_workers.len() < limit {
                tracing::info!(
                    controller = self.controller.name(),
                    workers = limit,
                    "starting workers"
                );
            }
            for number in (0..limit).filter(|number| running_workers.insert(*number)) {
                workers.spawn(Fence::scope_if(
                    fence.clone(),
                    shared_workers.clone().run(number, self.reconciler.clone()),
                ));
            }
            select! {
                biased;
                () = &mut stop => break,
                // Never fails: the sender is in `workers`.
                _ = changes.changed() => {}
                Some(ended) = workers.join_next() => {
                    running_workers.remove(&number_of(ended));
                }
            }
        }
        tracing::info!(controller = self.controller.name(), "stopping controller");
        end.shut_down(workers, abort).await;
        Ok(())
    }
}

/// Returns the number of a worker that has ended. Propagates its panic.
fn number_of(ended: Result<usize, JoinError>) -> usize {
    ended.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

impl<R: Key> Shared<R> {
    /// Makes the caller responsible for the shutdown.
    ///
    /// Returns `None` if another caller already is.
    pub(super) fn claim(&self) -> Option<ShutdownGuard<'_, R>> {
        let claimed = std::mem::replace(&mut self.state.lock().claimed, true);
        (!claimed).then(|| ShutdownGuard(self))
    }

    pub(super) async fn ended(&self) {
        // Never fails: the sender is in `self`.
        drop(self.ended.subscribe().wait_for(|ended| *ended).await);
        let mut aborted = std::mem::take(&mut self.state.lock().aborted);
        aborted.shutdown().await;
    }
}

/// Guard that shuts the controller down, also if its future is dropped.
pub(super) struct ShutdownGuard<'a, R: Key>(&'a Shared<R>);

impl<R: Key> ShutdownGuard<'_, R> {
    /// Stops the controller and waits for running reconciles.
    ///
    /// Aborts them once `abort` resolves.
    pub(super) async fn shut_down(
        self,
        mut workers: JoinSet<usize>,
        abort: impl Future<Output = ()>,
    ) {
        let phase = self.close();
        for watch in self.0.state.lock().watches.values() {
            watch.end();
        }
        let mut sources = if let Phase::Started { sources, .. } = phase {
            sources
        } else {
            JoinSet::new()
        };
        let ended = async {
            while sources.join_next().await.is_some() {}
            while let Some(ended) = workers.join_next().await {
                number_of(ended);
            }
        };
        select! {
            biased;
            () = ended => {}
            () = abort => {
                workers.abort_all();
                sources.shutdown().await;
                workers.shutdown().await;
            }
        }
        // Reconciles that have just ended may have started deferrals.
        if let Some(Built {
            workers: shared_workers,
            ..
        }) = self.0.built.get()
        {
            shared_workers.deferrals.shut_down().await;
        }
    }

    /// Closes the queue and cancels the shutdown token, so that no reconcile starts.
    fn close(&self) -> Phase<R> {
        let Self(shared) = self;
        shared.shutdown.cancel();
        if let Some(Built {
            workers: shared_workers,
            ..
        }) = shared.built.get()
        {
            shared_workers
                .running_at_shutdown
                .begin(&shared_workers.queue);
            shared_workers.queue.close();
            shared_workers.deferrals.abort();
            shared_workers.target.end();
        }
        std::mem::replace(&mut shared.state.lock().phase, Phase::Ended)
    }
}

impl<R: Key> Drop for ShutdownGuard<'_, R> {
    fn drop(&mut self) {
        if let Phase::Started { mut sources, .. } = self.close() {
            sources.abort_all();
            self.0.state.lock().aborted = sources;
        }
        self.0.ended.send_replace(true);
    }
}

/// Ends a controller that never ran, so that `stop` does not wait for it.
impl<R: Key> Drop for ControllerTask<R> {
    fn drop(&mut self) {
        drop(self.controller.0.claim());
    }
}

impl<R: Key> fmt::Debug for ControllerTask<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControllerTask")
            .field(&self.controller)
            .finish()
    }
}

/// Reconciles that still run after a controller was told to stop.
///
/// A closed queue does not list its running requests, but the shutdown report names them. Before
/// the shutdown this costs each reconcile one load of a flag. A reconcile that ends while the
/// shutdown begins may be listed although it has ended.
pub(super) struct RunningAtShutdown<R> {
    stopping: AtomicBool,
    requests: Mutex<Vec<R>>,
}

impl<R> Default for RunningAtShutdown<R> {
    fn default() -> Self {
        Self {
            stopping: AtomicBool::new(false),
            requests: Mutex::default(),
        }
    }
}

impl<R: Key> RunningAtShutdown<R> {
    /// Records the running reconciles. Must be called before the queue is closed.
    pub(super) fn begin(&self, queue: &WorkQueue<R>) {
        let mut runs = self.requests.lock();
        if !self.stopping.swap(true, Relaxed) {
            let running = queue.snapshot().into_iter();
            let running = running.filter(|entry| matches!(entry.state, EntryState::Running { .. }));
            *runs = running.map(|entry| entry.key).collect();
        }
    }

    #[inline]
    pub(super) fn finished(&self, request: &R) {
        if self.stopping.load(Relaxed) {
            self.requests.lock().retain(|other| other != request);
        }
    }

    /// Returns the reconciles that still run, as text.
    pub(super) fn unfinished(&self) -> Vec<String> {
        self.requests
            .lock()
            .iter()
            .map(|request| format!("reconcile of {request:?}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reconcile::{self, Request},
        source,
    };
    use tokio::{sync::Semaphore, task::yield_now};

    fn alive() -> usize {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    }

    /// Creates a controller whose source and reconciles never end.
    ///
    /// Each started reconcile adds a permit to the semaphore.
    fn stuck() -> (Controller<Request>, ControllerTask<Request>, Arc<Semaphore>) {
        let started = Arc::new(Semaphore::new(0));
        let permits = started.clone();
        let reconciler = reconcile::from_fn(move |_: Request, _| {
            permits.add_permits(1);
            pending()
        });
        let built = Controller::builder("stuck")
            .max_concurrent(2)
            .build(reconciler);
        let (controller, task) = built.expect("a valid controller");
        let unresponsive = source::from_fn("unresponsive", async |_, cx| {
            cx.synced();
            pending().await
        });
        controller.watch(unresponsive).expect("the watch is added");
        (controller, task, started)
    }

    #[tokio::test(start_paused = true)]
    async fn an_aborted_controller_names_unfinished_reconciles_and_leaves_no_task() {
        let before = alive();
        let (controller, task, started) = stuck();
        for name in ["a", "b", "c"] {
            controller.queue().add(Request::new("default", name));
        }
        let (named, running_workers) = (controller.clone(), started.clone());
        let stop = async move { drop(running_workers.acquire_many(2).await) };
        let abort = async move {
            // The queue is closed, and no reconcile has ended.
            yield_now().await;
            assert_eq!(
                named.unfinished(),
                [
                    "reconcile of default/a",
                    "reconcile of default/b",
                    "source unresponsive"
                ]
            );
        };
        task.run_until_aborted(stop, abort).await.expect("started");
        assert_eq!(
            alive(),
            before,
            "no task can have ended on this thread since"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_warm_controller_that_never_runs_leaves_no_task() {
        let before = alive();
        let (controller, task, _) = stuck();
        controller.warm_up().await.expect("synced without an error");
        assert_eq!(alive(), before + 1);
        drop(task);
        controller.stop().await;
        assert_eq!(alive(), before);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_ends_during_the_shutdown_is_not_named() {
        let (controller, task, started) = stuck();
        let short = Request::new("default", "short");
        controller.queue().add(short.clone());
        let (named, running_workers) = (controller.clone(), started.clone());
        let stop = async move { drop(running_workers.acquire().await) };
        let abort = async move {
            yield_now().await;
            assert_eq!(named.unfinished()[0], "reconcile of default/short");
            named.workers().running_at_shutdown.finished(&short);
            assert_eq!(named.unfinished(), ["source unresponsive"]);
        };
        task.run_until_aborted(stop, abort).await.expect("started");
        assert!(controller.unfinished().is_empty());
    }
}
