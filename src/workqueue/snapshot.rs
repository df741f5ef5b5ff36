//! Looking inside: every key, and the numbers.

use super::{
    Key, Priority, Reason, Stats, WorkQueue,
    queue::Shared,
    reasons::KEPT,
    serialize_optional_seconds, serialize_seconds,
    shutdown::Phase,
    slots::{Pending, Slot},
    state::{NEVER, State},
};
use serde::Serialize;
use std::{cmp::Reverse, collections::HashSet, sync::Arc, time::Duration};

/// So many slots are read under one lock: some tens of microseconds, also when none of them is in the processor's cache and each
/// has an error.
const SLICE: u32 = 64;

/// One key in [`WorkQueue::snapshot`]. Durations are counted from the moment the key was looked at, and serialised in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Entry<K> {
    /// The key.
    pub key: K,
    /// What it does now.
    #[serde(flatten)]
    pub state: EntryState,
    /// The priority it is queued with or, if it only runs, was handed out with.
    pub priority: Priority,
    /// How long ago it was first added since it was last handed out; or, if it only runs, before that.
    #[serde(serialize_with = "serialize_seconds")]
    pub added_ago: Duration,
    /// Rate-limited requeues since the last success.
    pub attempts: u32,
    /// Why it failed last, until it succeeds.
    pub last_error: Option<Arc<str>>,
    /// Why it is queued or, if it only runs, why it runs: the last reasons, oldest first.
    pub reasons: Vec<Reason>,
}

/// What a key does, in [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum EntryState {
    /// Waits for a worker.
    Ready {
        /// Since when.
        #[serde(serialize_with = "serialize_seconds")]
        ready_ago: Duration,
    },
    /// Waits for a time.
    Delayed {
        /// How long still.
        #[serde(serialize_with = "serialize_seconds")]
        ready_in: Duration,
    },
    /// Waits to be unparked.
    Parked {
        /// How long at most, if there is a bound.
        #[serde(serialize_with = "serialize_optional_seconds")]
        ready_in: Option<Duration>,
    },
    /// A worker has it.
    Running {
        /// Which: two keys never have the same at one time, and numbers are used again.
        worker: u32,
        /// Since when.
        #[serde(serialize_with = "serialize_seconds")]
        started_ago: Duration,
        /// It was added meanwhile and will run once more when this run ends.
        again: bool,
        /// It was added meanwhile with a delay, of which this is left.
        #[serde(serialize_with = "serialize_optional_seconds")]
        again_in: Option<Duration>,
    },
    /// Not queued; remembered for its failed attempts alone.
    Idle,
}

impl<K: Key> WorkQueue<K> {
    /// Every key once, read in slices so that nobody waits long for the lock: a key that moves while this reads may be shown in its
    /// old state, its new one, or, if it was queued only meanwhile, not at all. It takes a while with many keys: in async code call it from a blocking task.
    /// Once the queue is closed it shows nothing, also not what still runs.
    pub fn snapshot(&self) -> Vec<Entry<K>> {
        let mut entries = Vec::new();
        // Asking for memory may take milliseconds, after a million pieces of it were given back: never under the lock.
        let mut slice = Vec::with_capacity(SLICE as usize);
        let mut from = 0u32;
        loop {
            let now = self.0.clock.now();
            let state = self.0.lock();
            let to = from.saturating_add(SLICE).min(state.slots.capacity());
            if from >= to {
                break;
            }
            slice.extend(state.slots.used(from..to).map(|(at, key, slot)| state.entry(now, at, key, slot)));
            drop(state);
            let reasoned = |(entry, reasons): (Entry<K>, [Option<Reason>; KEPT])| Entry {
                reasons: reasons.into_iter().flatten().collect(),
                ..entry
            };
            entries.extend(slice.drain(..).map(reasoned));
            from = to;
        }
        // A key that ended and was added again may have been read in both of its slots.
        let mut seen = HashSet::with_capacity(entries.len());
        entries.retain(|entry| seen.insert(entry.key.clone()));
        entries
    }
}

impl<K: Key> WorkQueue<K> {
    /// Returns the keys that have been running for longer than `limit`, and for how long.
    ///
    /// Looks at the runs only, unlike [`Self::snapshot`]. Empty once the queue is closed.
    pub(crate) fn running_longer_than(&self, limit: Duration) -> Vec<(K, Duration)> {
        // Allocated before the lock is taken.
        let mut running = Vec::with_capacity(self.stats().running);
        let now = self.0.clock.now();
        let state = self.0.lock();
        if state.phase != Phase::Closed {
            let times = state.runs.iter().map(|(slot, started)| (slot, ago(now, started)));
            let longer = times.filter(|(_, time)| *time > limit);
            running.extend(longer.filter_map(|(slot, time)| Some((state.slots[slot].key.clone()?, time))));
        }
        drop(state);
        running.sort_by_key(|(_, time)| Reverse(*time));
        running
    }
}

impl<K: Key> State<K> {
    /// Without its reasons, and these.
    fn entry(&self, now: u64, at: u32, key: &K, slot: &Slot<K>) -> (Entry<K>, [Option<Reason>; KEPT]) {
        let run = slot.is_running().then(|| self.runs.get(slot.place));
        // Queued anew, if it is, or else as it was for its run.
        let (priority, added_at, reasons) = match run {
            Some(run) if slot.pending == Pending::Nothing => (run.priority, run.added_at, run.reasons),
            _ => (slot.priority, slot.added_at, slot.reasons),
        };
        let ready_in = Duration::from_nanos(slot.ready_at.saturating_sub(now));
        // Nobody has looked at the clock since it came due.
        let due = slot.ready_at <= now && matches!(slot.pending, Pending::Time | Pending::Unpark);
        let pending = if due { Pending::Worker } else { slot.pending };
        let state = match (run, pending) {
            (Some(run), pending) => EntryState::Running {
                worker: slot.place,
                started_ago: ago(now, run.started),
                again: pending == Pending::Worker,
                again_in: (pending == Pending::Time).then_some(ready_in),
            },
            (None, Pending::Worker) => EntryState::Ready { ready_ago: ago(now, slot.ready_at) },
            (None, Pending::Time) => EntryState::Delayed { ready_in },
            (None, Pending::Unpark) => EntryState::Parked { ready_in: (slot.ready_at != NEVER).then_some(ready_in) },
            (None, Pending::Nothing) => EntryState::Idle,
        };
        let entry = Entry {
            key: key.clone(),
            state,
            priority: Priority(priority),
            added_ago: ago(now, added_at),
            attempts: slot.attempts,
            last_error: self.errors.get(&at).cloned(),
            reasons: Vec::new(),
        };
        (entry, self.reasons.get(reasons))
    }
}

impl<K: Key> Shared<K> {
    pub(super) fn stats(&self) -> Stats {
        let now = self.clock.now();
        self.change(|state, _| {
            state.pass(now);
            state.stats(now)
        })
    }
}

impl<K: Key> State<K> {
    fn stats(&self, now: u64) -> Stats {
        let mut stats = Stats {
            delayed: self.delayed,
            parked: self.parked,
            running: self.runs.len(),
            adds: self.counters.adds,
            retries: self.counters.retries,
            rejected: self.counters.rejected,
            limiter_panics: self.counters.limiter_panics,
            delays: self.counters.delays,
            waited: self.counters.waited,
            worked: self.counters.worked,
            ..Stats::default()
        };
        for level in self.ready.levels() {
            let band = &mut stats.bands[Priority(level.priority).band() as usize];
            band.depth += level.len;
            let oldest = level.oldest().map(|at| ago(now, self.slots[at].ready_at));
            band.oldest = band.oldest.max(oldest.unwrap_or_default());
        }
        for (slot, started) in self.runs.iter() {
            stats.unfinished += ago(now, started);
            stats.longest_running = stats.longest_running.max(ago(now, started));
            if self.is_queued_again(slot) {
                stats.bands[Priority(self.slots[slot].priority).band() as usize].depth += 1;
            }
        }
        stats
    }
}

fn ago(now: u64, then: u64) -> Duration {
    Duration::from_nanos(now.saturating_sub(then))
}
