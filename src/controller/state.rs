//! The watches of a controller, before, while and after it runs.
//!
//! What holds: sources are started once, by whoever comes first. Every watch is in `watches` and in `names`, or in neither.

use super::inbox::Inbox;
use crate::{
    handler::Target,
    source::{Prepared, WatchError, WatchHandle, WatchStats},
    workqueue::Key,
};
use hashbrown::{HashMap, hash_map::EntryRef};
use std::{collections::BTreeMap, sync::Arc};
use tokio::{runtime::Handle, task::JoinSet};

/// How many watches that failed are kept in a controller that runs.
const FAILED: usize = 64;

/// So many watches are looked through at any time; more of them, only when they have doubled.
const FEW: usize = 64;

pub(super) struct State<R: Key> {
    pub(super) phase: Phase<R>,
    /// By number, in the order of their coming. Some may have stopped.
    pub(super) watches: BTreeMap<u64, WatchHandle>,
    names: HashMap<String, Vec<u64>>,
    numbers: u64,
    /// When there are so many, those that have stopped are taken out.
    many: usize,
    /// What those that are not kept any more have done, by name, while there is another one of it.
    past: BTreeMap<String, WatchStats>,
    /// Sources that were aborted, and are still to be joined.
    pub(super) aborted: JoinSet<()>,
    /// There is somebody who sees to its end.
    pub(super) claimed: bool,
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
            aborted: JoinSet::new(),
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
        Ok(self.watches())
    }

    pub(super) fn watches(&self) -> Vec<WatchHandle> {
        self.watches.values().filter(|watch| !watch.has_stopped()).cloned().collect()
    }
}

fn target<R: Key>(inbox: &Arc<Inbox<R>>) -> Arc<dyn Target<R>> {
    inbox.clone()
}
