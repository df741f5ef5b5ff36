//! Watches of a controller, before, while and after it runs.
//!
//! Invariant: sources are started once. Every watch is in both `watches` and `names`, or in
//! neither.

use super::enqueue::QueueTarget;
use crate::{
    handler::Target,
    source::{Prepared, WatchError, WatchHandle, WatchStats},
    workqueue::Key,
};
use hashbrown::{HashMap, hash_map::EntryRef};
use std::{collections::BTreeMap, sync::Arc};
use tokio::{runtime::Handle, task::JoinSet};

/// Failed watches kept in a running controller.
const MAX_FAILED_WATCHES: usize = 64;

/// Smallest number of watches at which stopped ones are pruned.
const PRUNE_ABOVE: usize = 64;

pub(super) struct State<R: Key> {
    pub(super) phase: Phase<R>,
    /// Watches in the order in which they were added. Some may have stopped.
    pub(super) watches: BTreeMap<u64, WatchHandle>,
    names: HashMap<String, Vec<u64>>,
    last_number: u64,
    /// Number of watches at which stopped ones are pruned next.
    prune_at: usize,
    /// Statistics of removed watches, kept while another watch has the same name.
    removed_stats: BTreeMap<String, WatchStats>,
    /// Tasks of sources that were aborted and must be joined.
    pub(super) aborted: JoinSet<()>,
    /// Set once a caller is responsible for the shutdown.
    pub(super) claimed: bool,
}

pub(super) enum Phase<R: Key> {
    /// Sources that are not started yet.
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
            last_number: 0,
            prune_at: PRUNE_ABOVE,
            removed_stats: BTreeMap::new(),
            aborted: JoinSet::new(),
            claimed: false,
        }
    }
}

impl<R: Key> State<R> {
    /// Adds a source, and starts it if the others run.
    ///
    /// Sources that are not needed any more are moved to `dropped`. The caller drops them after it has
    /// released the lock, because they contain user code.
    pub(super) fn watch(
        &mut self,
        source: Prepared<R>,
        target: &Arc<QueueTarget<R>>,
        name: &str,
        dropped: &mut Vec<Prepared<R>>,
    ) -> Result<(), WatchError> {
        let handle = source.handle();
        // A failed watch is reported, and fails the start, until a watch of its name replaces it.
        for number in self.names.get(handle.name()).cloned().unwrap_or_default() {
            if self
                .watches
                .get(&number)
                .is_some_and(WatchHandle::has_ended)
            {
                self.forget(number);
            }
        }
        match &mut self.phase {
            Phase::Waiting(sources) => {
                dropped.extend(sources.extract_if(.., |waiting| waiting.handle().has_ended()));
                sources.push(source);
            }
            Phase::Started { runtime, sources } => {
                while sources.try_join_next().is_some() {}
                sources.spawn_on(source.run(erase(target)), runtime);
            }
            Phase::Ended => {
                dropped.push(source);
                return Err(WatchError::ControllerStopped(name.to_owned()));
            }
        }
        self.last_number += 1;
        self.names
            .entry_ref(handle.name())
            .or_default()
            .push(self.last_number);
        self.watches.insert(self.last_number, handle);
        if self.watches.len() >= self.prune_at {
            self.prune();
            self.prune_at = PRUNE_ABOVE.max(2 * self.watches.len());
        }
        Ok(())
    }

    /// Removes stopped watches and, in a running controller, the oldest failed ones.
    fn prune(&mut self) {
        for number in self.matching(WatchHandle::has_stopped) {
            self.forget(number);
        }
        if !matches!(self.phase, Phase::Waiting(_)) {
            let failed = self.matching(WatchHandle::has_ended);
            let too_many = failed.len().saturating_sub(MAX_FAILED_WATCHES);
            for number in failed.into_iter().take(too_many) {
                self.forget(number);
            }
        }
    }

    fn matching(&self, is: impl Fn(&WatchHandle) -> bool) -> Vec<u64> {
        self.watches
            .iter()
            .filter(|(_, watch)| is(watch))
            .map(|(number, _)| *number)
            .collect()
    }

    fn forget(&mut self, number: u64) {
        let Some(watch) = self.watches.remove(&number) else {
            return;
        };
        let EntryRef::Occupied(mut of_name) = self.names.entry_ref(watch.name()) else {
            return;
        };
        of_name.get_mut().retain(|other| *other != number);
        if of_name.get().is_empty() {
            of_name.remove();
            self.removed_stats.remove(watch.name());
        } else {
            *self
                .removed_stats
                .entry(watch.name().to_owned())
                .or_default() += watch.stats();
        }
    }

    /// Returns the statistics of watches by name.
    ///
    /// They grow until the last watch of a name stops.
    pub(super) fn sources(&mut self) -> BTreeMap<String, WatchStats> {
        self.prune();
        let mut all = self.removed_stats.clone();
        for watch in self.watches.values() {
            *all.entry(watch.name().to_owned()).or_default() += watch.stats();
        }
        all
    }

    /// Starts the sources, and returns the watches that the start waits for.
    pub(super) fn start(
        &mut self,
        target: &Arc<QueueTarget<R>>,
        name: &str,
    ) -> Result<Vec<WatchHandle>, WatchError> {
        match &mut self.phase {
            Phase::Waiting(waiting) => {
                let (runtime, mut sources) = (Handle::current(), JoinSet::new());
                for source in waiting.drain(..) {
                    sources.spawn_on(source.run(erase(target)), &runtime);
                }
                self.phase = Phase::Started { runtime, sources };
            }
            Phase::Started { .. } => {}
            Phase::Ended => return Err(WatchError::ControllerStopped(name.to_owned())),
        }
        Ok(self.watches())
    }

    pub(super) fn watches(&self) -> Vec<WatchHandle> {
        self.watches
            .values()
            .filter(|watch| !watch.has_stopped())
            .cloned()
            .collect()
    }
}

fn erase<R: Key>(target: &Arc<QueueTarget<R>>) -> Arc<dyn Target<R>> {
    target.clone()
}
