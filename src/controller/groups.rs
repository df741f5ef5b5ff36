//! How many requests of one group are reconciled at once.
//!
//! What holds: a group is in the table exactly while one of its requests runs; at most `limit` of them do. Who waits is parked, or about to be: unparking
//! it before that counts. Whose turn came and was not taken, because the request was cancelled then, is found out when the next one has waited for [`PATIENCE`].

use crate::workqueue::{Key, Priority};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// After this long a request that waits for its group asks again.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A limit, whatever groups are told apart by.
pub(crate) trait GroupLimit<R>: Send + Sync {
    /// False if its group is full: park it.
    fn enter(&self, request: &R, priority: Priority) -> bool;
    /// Its run is over. `unpark` the next one of its group; false from it means that there was nothing to unpark.
    fn leave(&self, request: &R, unpark: &mut dyn FnMut(&R) -> bool);
}

pub(crate) struct PerGroup<R, G, F> {
    limit: usize,
    group_of: F,
    groups: Mutex<HashMap<G, Group<R>>>,
}

struct Group<R> {
    running: usize,
    /// The highest priority first, then who waits longest.
    waiting: BTreeMap<Place, R>,
    /// The other way round.
    places: HashMap<R, Place>,
    arrived: u64,
}

type Place = (Reverse<Priority>, u64);

impl<R> Default for Group<R> {
    fn default() -> Self {
        Self { running: 0, waiting: BTreeMap::new(), places: HashMap::new(), arrived: 0 }
    }
}

impl<R: Key> Group<R> {
    fn wait(&mut self, request: &R, priority: Priority) {
        self.arrived += 1;
        let arrival = match self.places.get(request) {
            Some(place @ (waits_with, arrival)) => {
                // Raised meanwhile, it goes before others that came with it.
                if waits_with.0 >= priority {
                    return;
                }
                self.waiting.remove(place);
                *arrival
            }
            None => self.arrived,
        };
        let place = (Reverse(priority), arrival);
        self.places.insert(request.clone(), place);
        self.waiting.insert(place, request.clone());
    }

    fn next(&mut self) -> Option<R> {
        let (_, request) = self.waiting.pop_first()?;
        self.places.remove(&request);
        Some(request)
    }
}

impl<R: Key, G: Hash + Eq, F: Fn(&R) -> G> PerGroup<R, G, F> {
    pub(crate) fn new(limit: usize, group_of: F) -> Self {
        Self { limit, group_of, groups: Mutex::default() }
    }

    /// `None` if the function panics: such a request is of no group.
    fn group(&self, request: &R) -> Option<G> {
        catch_unwind(AssertUnwindSafe(|| (self.group_of)(request))).ok()
    }
}

impl<R, G, F> GroupLimit<R> for PerGroup<R, G, F>
where
    R: Key,
    G: Hash + Eq + Send,
    F: Fn(&R) -> G + Send + Sync,
{
    fn enter(&self, request: &R, priority: Priority) -> bool {
        let Some(group) = self.group(request) else { return true };
        let mut groups = self.groups.lock();
        let group = groups.entry(group).or_default();
        let enters = group.running < self.limit;
        if enters {
            group.running += 1;
            if let Some(place) = group.places.remove(request) {
                group.waiting.remove(&place);
            }
        } else {
            group.wait(request, priority);
        }
        enters
    }

    fn leave(&self, request: &R, unpark: &mut dyn FnMut(&R) -> bool) {
        let Some(name) = self.group(request) else { return };
        let mut groups = self.groups.lock();
        let Some(group) = groups.get_mut(&name) else { return };
        // Not below, also if the function once said something else.
        group.running = group.running.saturating_sub(1);
        // One that was cancelled meanwhile does not take the turn of another.
        while let Some(next) = group.next() {
            if unpark(&next) {
                break;
            }
        }
        if group.running == 0 && group.waiting.is_empty() {
            groups.remove(&name);
        }
    }
}
