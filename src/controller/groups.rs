//! How many requests of one group are reconciled at once.
//!
//! What holds: a group is in the table exactly while one of its requests runs; at most `limit` of them do. Who waits is parked, or about to be: unparking
//! it before that counts. Of those who wait the highest priority is next, and one turn in `share` who waits longest, as in the queue: none waits for ever. Whose turn came and was not taken, because the request was cancelled then, is found out when the next one has waited for [`PATIENCE`].

use crate::{
    caught::words,
    workqueue::{Key, Priority},
};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::{
    any::Any,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// After this long a request that waits for its group asks again.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A limit, whatever groups are told apart by.
pub(crate) trait GroupLimit<R>: Send + Sync {
    /// The queue's.
    fn set_share(&mut self, share: u32);
    /// False if its group is full: park it.
    fn enter(&self, request: &R, priority: Priority) -> bool;
    /// Its run is over. `unpark` the next one of its group; false from it means that there was nothing to unpark.
    fn leave(&self, request: &R, unpark: &mut dyn FnMut(&R) -> bool);
}

pub(crate) struct PerGroup<R, G, F> {
    limit: usize,
    share: u32,
    group_of: F,
    state: Mutex<State<R, G>>,
}

struct State<R, G> {
    groups: HashMap<Arc<G>, Group<R>>,
    /// Of each request that runs: it leaves what it has entered.
    entered: HashMap<R, Arc<G>>,
}

struct Group<R> {
    running: usize,
    /// Who waits, longest first.
    waiting: BTreeMap<u64, (Priority, R)>,
    /// The highest priority first, then who waits longest.
    ranks: BTreeSet<(Reverse<Priority>, u64)>,
    /// When each came: also of those whose turn has come, until they run. Who is overtaken then has waited no less.
    arrivals: HashMap<R, u64>,
    arrived: u64,
    turns: u64,
}

impl<R> Default for Group<R> {
    fn default() -> Self {
        Self {
            running: 0,
            waiting: BTreeMap::new(),
            ranks: BTreeSet::new(),
            arrivals: HashMap::new(),
            arrived: 0,
            turns: 0,
        }
    }
}

impl<R: Key> Group<R> {
    fn wait(&mut self, request: &R, priority: Priority) {
        self.arrived += 1;
        let arrival = *self.arrivals.entry(request.clone()).or_insert(self.arrived);
        let before = self.waiting.remove(&arrival);
        let priority = before.map_or(priority, |(before, _)| {
            self.ranks.remove(&(Reverse(before), arrival));
            before.max(priority)
        });
        self.ranks.insert((Reverse(priority), arrival));
        self.waiting.insert(arrival, (priority, request.clone()));
    }

    /// Whose turn it is.
    fn next(&mut self, share: u32) -> Option<R> {
        self.turns += 1;
        let of_rank = self.ranks.first().map(|(_, arrival)| *arrival);
        let longest = self.waiting.first_key_value().map(|(arrival, _)| *arrival);
        let arrival = if share > 0 && self.turns.is_multiple_of(share.into()) { longest } else { of_rank }?;
        let (priority, request) = self.waiting.remove(&arrival)?;
        self.ranks.remove(&(Reverse(priority), arrival));
        Some(request)
    }

    /// Whoever was cancelled after its turn came is still known: of those that do not wait no more than of those that do, or a few.
    fn forget_the_cancelled(&mut self) {
        if self.arrivals.len() > 2 * self.waiting.len() + 64 {
            self.arrivals.retain(|_, arrival| self.waiting.contains_key(arrival));
        }
    }

    fn forget(&mut self, request: &R) {
        if let Some(arrival) = self.arrivals.remove(request)
            && let Some((priority, _)) = self.waiting.remove(&arrival)
        {
            self.ranks.remove(&(Reverse(priority), arrival));
        }
    }
}

impl<R: Key, G: Hash + Eq, F: Fn(&R) -> G> PerGroup<R, G, F> {
    pub(crate) fn new(limit: usize, group_of: F) -> Self {
        let state = State { groups: HashMap::new(), entered: HashMap::new() };
        Self { limit, share: 0, group_of, state: Mutex::new(state) }
    }

    /// `None` if the function panics: such a request is of no group.
    fn group(&self, request: &R) -> Option<G> {
        let group = catch_unwind(AssertUnwindSafe(|| (self.group_of)(request)));
        let said = |panic: Box<dyn Any + Send>| {
            let panic = words(&*panic);
            tracing::error!(?request, panic, "the group of a request cannot be told: it is of none");
        };
        group.map_err(said).ok()
    }
}

impl<R, G, F> GroupLimit<R> for PerGroup<R, G, F>
where
    R: Key,
    G: Hash + Eq + Send + Sync,
    F: Fn(&R) -> G + Send + Sync,
{
    fn set_share(&mut self, share: u32) {
        self.share = share;
    }

    fn enter(&self, request: &R, priority: Priority) -> bool {
        let Some(name) = self.group(request).map(Arc::new) else { return true };
        let State { groups, entered } = &mut *self.state.lock();
        let group = groups.entry(name.clone()).or_default();
        let enters = group.running < self.limit;
        if enters {
            group.running += 1;
            group.forget(request);
            entered.insert(request.clone(), name);
        } else {
            group.wait(request, priority);
        }
        enters
    }

    fn leave(&self, request: &R, unpark: &mut dyn FnMut(&R) -> bool) {
        let State { groups, entered } = &mut *self.state.lock();
        let Some(name) = entered.remove(request) else { return };
        let Some(group) = groups.get_mut(&name) else { return };
        group.running -= 1;
        // One that was cancelled meanwhile does not take the turn of another.
        while let Some(next) = group.next(self.share) {
            if unpark(&next) {
                break;
            }
            group.forget(&next);
        }
        group.forget_the_cancelled();
        if group.running == 0 && group.waiting.is_empty() {
            groups.remove(&name);
        }
    }
}
