//! A controller's life: sources that wait for it, sources that run, workers, and the end of all that.
//!
//! What holds: a controller runs once. Sources are started once, by whoever comes first. When [`ControllerTask::run_until`] has returned, no
//! source, no worker and no run of it is left; when it was dropped, they are aborted, and gone as soon as each gives way.

use super::{Built, Controller, Shared, inbox::Inbox};
use crate::{
    fence::Fence,
    handler::Target,
    reconcile::DynReconciler,
    source::{Prepared, WatchError, WatchHandle, WatchStats},
    workqueue::Key,
};
use hashbrown::{HashMap, hash_map::EntryRef};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::resume_unwind,
    pin::pin,
    sync::Arc,
};
use tokio::{
    runtime::Handle,
    select,
    task::{JoinError, JoinSet},
};

/// How many watches that failed are kept in a controller that runs.
const FAILED: usize = 64;

/// So many watches are looked through at any time; more of them, only when they have doubled.
const FEW: usize = 64;

pub(super) struct State<R: Key> {
    pub(super) phase: Phase<R>,
    /// By number, in the order of their coming. Some may have stopped.
    watches: BTreeMap<u64, WatchHandle>,
    names: HashMap<String, Vec<u64>>,
    numbers: u64,
    /// When there are so many, those that have stopped are taken out.
    many: usize,
    /// What those that are not kept any more have done, by name, while there is another one of it.
    past: BTreeMap<String, WatchStats>,
    /// There is somebody who sees to its end.
    claimed: bool,
}

pub(super) enum Phase<R: Key> {
    /// Sources that do not run yet.
    Waiting(Vec<Prepared<R>>),
    Started {
        runtime: Handle,
        sources: JoinSet<()>,
    },
    Ended,
}

impl<R: Key> Default for State<R> {
    fn default() -> Self {
        Self {
            phase: Phase::Waiting(Vec::new()),
            watches: BTreeMap::new(),
            names: HashMap::new(),
            numbers: 0,
            many: FEW,
            past: BTreeMap::new(),
            claimed: false,
        }
    }
}

impl<R: Key> State<R> {
    /// What comes to be in `gone` is somebody else's code, to be dropped without the lock that this is under.
    pub(super) fn watch(
        &mut self,
        source: Prepared<R>,
        inbox: &Arc<Inbox<R>>,
        name: &str,
        gone: &mut Vec<Prepared<R>>,
    ) -> Result<(), WatchError> {
        let handle = source.handle();
        // Those that failed are shown, and fail a start, until they are watched anew.
        for number in self.names.get(handle.name()).cloned().unwrap_or_default() {
            if self.watches.get(&number).is_some_and(WatchHandle::has_ended) {
                self.forget(number);
            }
        }
        match &mut self.phase {
            Phase::Waiting(sources) => {
                gone.extend(sources.extract_if(.., |waiting| waiting.handle().has_ended()));
                sources.push(source);
            }
            Phase::Started { runtime, sources } => {
                while sources.try_join_next().is_some() {}
                sources.spawn_on(source.run(target(inbox)), runtime);
            }
            Phase::Ended => {
                gone.push(source);
                return Err(WatchError::ControllerStopped(name.to_owned()));
            }
        }
        self.numbers += 1;
        self.names.entry_ref(handle.name()).or_default().push(self.numbers);
        self.watches.insert(self.numbers, handle);
        if self.watches.len() >= self.many {
            self.prune();
            self.many = FEW.max(2 * self.watches.len());
        }
        Ok(())
    }

    /// Without those that have stopped, and in a controller that runs, without the first of many that failed.
    fn prune(&mut self) {
        for number in self.numbers_of(WatchHandle::has_stopped) {
            self.forget(number);
        }
        if !matches!(self.phase, Phase::Waiting(_)) {
            let failed = self.numbers_of(WatchHandle::has_ended);
            let too_many = failed.len().saturating_sub(FAILED);
            for number in failed.into_iter().take(too_many) {
                self.forget(number);
            }
        }
    }

    fn numbers_of(&self, is: impl Fn(&WatchHandle) -> bool) -> Vec<u64> {
        self.watches.iter().filter(|(_, watch)| is(watch)).map(|(number, _)| *number).collect()
    }

    fn forget(&mut self, number: u64) {
        let Some(watch) = self.watches.remove(&number) else { return };
        let EntryRef::Occupied(mut of_name) = self.names.entry_ref(watch.name()) else { return };
        of_name.get_mut().retain(|other| *other != number);
        if of_name.get().is_empty() {
            of_name.remove();
            self.past.remove(watch.name());
        } else {
            *self.past.entry(watch.name().to_owned()).or_default() += watch.stats();
        }
    }

    /// What watches have done, by name: a name's numbers grow until its last watch stops.
    pub(super) fn sources(&mut self) -> BTreeMap<String, WatchStats> {
        self.prune();
        let mut all = self.past.clone();
        for watch in self.watches.values() {
            *all.entry(watch.name().to_owned()).or_default() += watch.stats();
        }
        all
    }

    /// Gives what a start waits for.
    pub(super) fn start(&mut self, inbox: &Arc<Inbox<R>>, name: &str) -> Result<Vec<WatchHandle>, WatchError> {
        match &mut self.phase {
            Phase::Waiting(waiting) => {
                let (runtime, mut sources) = (Handle::current(), JoinSet::new());
                for source in waiting.drain(..) {
                    sources.spawn_on(source.run(target(inbox)), &runtime);
                }
                self.phase = Phase::Started { runtime, sources };
            }
            Phase::Started { .. } => {}
            Phase::Ended => return Err(WatchError::ControllerStopped(name.to_owned())),
        }
        Ok(self.watches.values().filter(|watch| !watch.is_optional() && !watch.has_stopped()).cloned().collect())
    }

    pub(super) fn watches(&self) -> Vec<WatchHandle> {
        self.watches.values().filter(|watch| !watch.has_stopped()).cloned().collect()
    }
}

fn target<R: Key>(inbox: &Arc<Inbox<R>>) -> Arc<dyn Target<R>> {
    inbox.clone()
}

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
                end.all(workers).await;
                return Ok(());
            }
            started = self.controller.warm_up() => started,
        };
        if let Err(error) = started {
            tracing::error!(controller = self.controller.name(), error = %error, "controller did not start");
            end.all(workers).await;
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
        end.all(workers).await;
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
    }
}

/// Sees to the end, also if whoever ran the controller was dropped.
pub(super) struct Ends<'a, R: Key>(&'a Shared<R>);

impl<R: Key> Ends<'_, R> {
    /// Told to stop: nothing new begins, and what runs is waited for.
    pub(super) async fn all(self, mut workers: JoinSet<usize>) {
        let phase = self.begin();
        for watch in self.0.state.lock().watches.values() {
            watch.end();
        }
        if let Phase::Started { mut sources, .. } = phase {
            while sources.join_next().await.is_some() {}
        }
        while let Some(ended) = workers.join_next().await {
            number_of(ended);
        }
    }

    /// Nothing new begins.
    fn begin(&self) -> Phase<R> {
        let Self(shared) = self;
        shared.shutdown.cancel();
        if let Some(Built { work, .. }) = shared.built.get() {
            work.queue.close();
            work.deferrals.end();
            work.inbox.end();
        }
        std::mem::replace(&mut shared.state.lock().phase, Phase::Ended)
    }
}

impl<R: Key> Drop for Ends<'_, R> {
    fn drop(&mut self) {
        drop(self.begin());
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
