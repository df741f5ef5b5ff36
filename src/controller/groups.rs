//! Limits the number of requests of one group that are reconciled concurrently.
//!
//! Invariant: a group is in the table exactly while one of its requests is reconciled, and at most
//! `limit` of them are. A waiting request is parked or about to be parked; an unpark before that is
//! not lost.
//!
//! The waiting request with the highest priority is next. One turn in `share` belongs to the
//! request that has waited longest, as in the queue, so that no request starves. If the next
//! request is cancelled before it uses its turn, the group continues when another request has
//! waited for [`MAX_GROUP_WAIT`].

use crate::{
    panic_message::panic_message,
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

/// Time after which a request that waits for its group is tried again.
pub(super) const MAX_GROUP_WAIT: Duration = Duration::from_secs(30);

/// Limit of concurrent reconciles per group, independent of the type of the group.
pub(crate) trait GroupLimit<R>: Send + Sync {
    /// Sets the share of turns for the longest wait to that of the queue.
    fn set_share(&mut self, share: u32);
    /// Returns `false` if the group is full. The caller parks the request.
    fn enter(&self, request: &R, priority: Priority) -> bool;
    /// Ends the reconcile of a request, and unparks the next request of its group.
    ///
    /// `unpark` returns `false` if the request is no longer in the queue.
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
    /// Group that each running request has entered.
    entered: HashMap<R, Arc<G>>,
}

struct Group<R> {
    running: usize,
    /// Waiting requests by arrival.
    waiting: BTreeMap<u64, (Priority, R)>,
    /// Waiting requests by priority, then by arrival.
    ranks: BTreeSet<(Reverse<Priority>, u64)>,
    /// Arrival of each request, kept until it runs.
    ///
    /// A request that another one overtakes after it was unparked keeps its position.
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

    /// Takes the request whose turn it is.
    fn next(&mut self, share: u32) -> Option<R> {
        self.turns += 1;
        let of_rank = self.ranks.first().map(|(_, arrival)| *arrival);
        let longest = self.waiting.first_key_value().map(|(arrival, _)| *arrival);
        let arrival = if share > 0 && self.turns.is_multiple_of(share.into()) {
            longest
        } else {
            of_rank
        }?;
        let (priority, request) = self.waiting.remove(&arrival)?;
        self.ranks.remove(&(Reverse(priority), arrival));
        Some(request)
    }

    /// Removes requests that were cancelled after they were unparked, once they exceed twice the
    /// waiting requests.
    fn forget_cancelled(&mut self) {
        if self.arrivals.len() > 2 * self.waiting.len() + 64 {
            self.arrivals
                .retain(|_, arrival| self.waiting.contains_key(arrival));
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
        let state = State {
            groups: HashMap::new(),
            entered: HashMap::new(),
        };
        Self {
            limit,
            share: 0,
            group_of,
            state: Mutex::new(state),
        }
    }

    /// Returns the group of a request; `None` if the function panics.
    ///
    /// A request without a group is not limited.
    fn group(&self, request: &R) -> Option<G> {
        let group = catch_unwind(AssertUnwindSafe(|| (self.group_of)(request)));
        let log_panic = |panic: Box<dyn Any + Send>| {
            let error = panic_message(&*panic);
            tracing::error!(
                ?request,
                error,
                "group function panicked, request has no group"
            );
        };
        group.map_err(log_panic).ok()
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
        let Some(name) = self.group(request).map(Arc::new) else {
            return true;
        };
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
        let Some(name) = entered.remove(request) else {
            return;
        };
        let Some(group) = groups.get_mut(&name) else {
            return;
        };
        group.running -= 1;
        // A request that was cancelled meanwhile passes its turn to the next one.
        while let Some(next) = group.next(self.share) {
            if unpark(&next) {
                break;
            }
            group.forget(&next);
        }
        group.forget_cancelled();
        if group.running == 0 && group.waiting.is_empty() {
            groups.remove(&name);
        }
    }
}
