//! A controller's life: sources that wait for it, sources that run, workers, and the end of all that.
//!
//! What holds: a controller runs once. When [`ControllerTask::run_until`] has returned, no
//! source, no worker and no run of it is left; when it was dropped, they are aborted, and gone as soon as each gives way.

use super::{Built, Controller, Shared, state::Phase};
use crate::{fence::Fence, reconcile::DynReconciler, workqueue::Key};
use std::{collections::BTreeSet, fmt, future::pending, panic::resume_unwind, pin::pin, sync::Arc};
use tokio::{
    select,
    task::{JoinError, JoinSet},
};

/// A built controller: run it once.
#[must_use = "a controller runs only when told to"]
pub struct ControllerTask<R: Key> {
    controller: Controller<R>,
    reconciler: Arc<dyn DynReconciler<R>>,
}

impl<R: Key> ControllerTask<R> {
    pub(crate) fn new(controller: Controller<R>, reconciler: Arc<dyn DynReconciler<R>>) -> Self {
        Self { controller, reconciler }
    }

    /// Start the sources, then the workers, on the runtime that this is called in; run until `stop` resolves or [`Controller::stop`] is called; then
    /// finish what runs. Told to stop while it starts, it ends without an error. Called in the scope of a [`Fence`](crate::manager::election::Fence), it starts
    /// no run once that is closed.
    ///
    /// # Errors
    /// If a source fails, or is not synced in time, while it starts.
    ///
    /// # Panics
    /// With the panic of a run, if [`recover_panics`](super::Options::recover_panics) is off.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        self.run_until_forsaken(stop, pending()).await
    }

    /// What runs is waited for until `forsaken` resolves; what is left then is dropped, and is over when this returns.
    pub(crate) async fn run_until_forsaken(
        self,
        stop: impl Future<Output = ()> + Send,
        forsaken: impl Future<Output = ()> + Send,
    ) -> anyhow::Result<()> {
        let shared = &self.controller.0;
        let work = self.controller.work();
        let fence = Fence::current();
        let Some(end) = shared.claim() else {
            // It was stopped before it ran.
            shared.ended().await;
            return Ok(());
        };
        // Dropped before it is said that all is over.
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
                end.all(workers, forsaken).await;
                return Ok(());
            }
            started = self.controller.warm_up() => started,
        };
        if let Err(error) = started {
            tracing::error!(controller = self.controller.name(), error = %error, "controller did not start");
            end.all(workers, forsaken).await;
            return Err(error.into());
        }
        let mut changes = work.limit.changes();
        let mut at_work = BTreeSet::new();
        // A queue that somebody has closed is never filled again.
        while !work.queue.is_closed() {
            // Those above the limit end by themselves.
            let limit = *changes.borrow_and_update();
            if at_work.len() < limit {
                tracing::info!(controller = self.controller.name(), "worker count" = limit, "starting workers");
            }
            for number in (0..limit).filter(|number| at_work.insert(*number)) {
                workers.spawn(Fence::scope_if(fence.clone(), work.clone().run(number, self.reconciler.clone())));
            }
            select! {
                biased;
                () = &mut stop => break,
                // The sender is in `work`.
                _ = changes.changed() => {}
                Some(ended) = workers.join_next() => {
                    at_work.remove(&number_of(ended));
                }
            }
        }
        tracing::info!(controller = self.controller.name(), "stopping controller");
        end.all(workers, forsaken).await;
        Ok(())
    }
}

/// Of a worker that has ended. Its panic is the controller's.
fn number_of(ended: Result<usize, JoinError>) -> usize {
    ended.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

impl<R: Key> Shared<R> {
    /// The one who sees to its end; `None` if there is one already.
    pub(super) fn claim(&self) -> Option<Ends<'_, R>> {
        let claimed = std::mem::replace(&mut self.state.lock().claimed, true);
        (!claimed).then(|| Ends(self))
    }

    pub(super) async fn ended(&self) {
        // The sender is here.
        drop(self.ended.subscribe().wait_for(|ended| *ended).await);
        let mut aborted = std::mem::take(&mut self.state.lock().aborted);
        aborted.shutdown().await;
    }
}

/// Sees to the end, also if whoever ran the controller was dropped.
pub(super) struct Ends<'a, R: Key>(&'a Shared<R>);

impl<R: Key> Ends<'_, R> {
    /// Told to stop: nothing new begins, and what runs is waited for, or dropped when it is `forsaken`.
    pub(super) async fn all(self, mut workers: JoinSet<usize>, forsaken: impl Future<Output = ()>) {
        let phase = self.begin();
        for watch in self.0.state.lock().watches.values() {
            watch.end();
        }
        let mut sources = if let Phase::Started { sources, .. } = phase { sources } else { JoinSet::new() };
        let ended = async {
            while sources.join_next().await.is_some() {}
            while let Some(ended) = workers.join_next().await {
                number_of(ended);
            }
        };
        select! {
            biased;
            () = ended => {}
            () = forsaken => {
                workers.abort_all();
                sources.shutdown().await;
                workers.shutdown().await;
            }
        }
        // Runs that have just ended may have left something to wait for.
        if let Some(Built { work, .. }) = self.0.built.get() {
            work.deferrals.over().await;
        }
    }

    /// Nothing new begins.
    fn begin(&self) -> Phase<R> {
        let Self(shared) = self;
        shared.shutdown.cancel();
        if let Some(Built { work, .. }) = shared.built.get() {
            work.ending.begin(&work.queue);
            work.queue.close();
            work.deferrals.end();
            work.inbox.end();
        }
        std::mem::replace(&mut shared.state.lock().phase, Phase::Ended)
    }
}

impl<R: Key> Drop for Ends<'_, R> {
    fn drop(&mut self) {
        if let Phase::Started { mut sources, .. } = self.begin() {
            sources.abort_all();
            self.0.state.lock().aborted = sources;
        }
        self.0.ended.send_replace(true);
    }
}

/// One that is never run.
impl<R: Key> Drop for ControllerTask<R> {
    fn drop(&mut self) {
        drop(self.controller.0.claim());
    }
}

impl<R: Key> fmt::Debug for ControllerTask<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControllerTask").field(&self.controller).finish()
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
        tokio::runtime::Handle::current().metrics().num_alive_tasks()
    }

    /// One whose two runs and whose source never end; a permit for each that has begun.
    fn stuck() -> (Controller<Request>, ControllerTask<Request>, Arc<Semaphore>) {
        let begun = Arc::new(Semaphore::new(0));
        let begins = begun.clone();
        let reconciler = reconcile::from_fn(move |_: Request, _| {
            begins.add_permits(1);
            pending()
        });
        let built = Controller::builder("stuck").max_concurrent(2).build(reconciler);
        let (controller, task) = built.expect("it is built");
        let deaf = source::from_fn("deaf", async |_, cx| {
            cx.synced();
            pending().await
        });
        controller.watch(deaf).expect("it is watched");
        (controller, task, begun)
    }

    #[tokio::test(start_paused = true)]
    async fn forsaken_it_names_what_is_left_and_leaves_no_task() {
        let before = alive();
        let (controller, task, begun) = stuck();
        for name in ["a", "b", "c"] {
            controller.queue().add(Request::new("default", name));
        }
        let (named, at_work) = (controller.clone(), begun.clone());
        let stop = async move { drop(at_work.acquire_many(2).await) };
        let forsaken = async move {
            // The queue is closed, and nobody has ended.
            yield_now().await;
            assert_eq!(named.left(), ["run of default/a", "run of default/b", "source deaf"]);
        };
        task.run_until_forsaken(stop, forsaken).await.expect("it has started");
        assert_eq!(alive(), before, "on this thread nobody could have ended since");
    }

    #[tokio::test(start_paused = true)]
    async fn warm_and_never_run_it_leaves_no_task() {
        let before = alive();
        let (controller, task, _) = stuck();
        controller.warm_up().await.expect("it is synced");
        assert_eq!(alive(), before + 1);
        drop(task);
        controller.stop().await;
        assert_eq!(alive(), before);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_ends_while_others_are_waited_for_is_not_named() {
        let (controller, task, begun) = stuck();
        let short = Request::new("default", "short");
        controller.queue().add(short.clone());
        let (named, at_work) = (controller.clone(), begun.clone());
        let stop = async move { drop(at_work.acquire().await) };
        let forsaken = async move {
            yield_now().await;
            assert_eq!(named.left()[0], "run of default/short");
            named.work().ending.ran(&short);
            assert_eq!(named.left(), ["source deaf"]);
        };
        task.run_until_forsaken(stop, forsaken).await.expect("it has started");
        assert!(controller.left().is_empty());
    }
}
