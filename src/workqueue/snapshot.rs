//! Snapshot of all keys, and the counters.

use super::{
    Key, Priority, Reason, Stats, WorkQueue,
    queue::Shared,
    reasons::MAX_REASONS,
    serialize_optional_seconds, serialize_seconds,
    shutdown::Phase,
    slots::{Pending, Slot},
    state::{NEVER, State},
};
use serde::Serialize;
use std::{cmp::Reverse, collections::HashSet, sync::Arc, time::Duration};

/// Slots that are read under one lock.
///
/// Some tens of microseconds, also if none of them is in the CPU cache and each has an error.
const SLICE: u32 = 64;

/// Key in a [`WorkQueue::snapshot`].
///
/// Durations are relative to the time at which the key was read, and serialized in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Entry<K> {
    /// The key.
    pub key: K,
    /// Current state of the key.
    #[serde(flatten)]
    pub state: EntryState,
    /// Priority of the queued key, or that with which it was handed out.
    pub priority: Priority,
    /// Time since the first add after the key was last handed out.
    ///
    /// If the key is only being processed, the time since the add before that.
    #[serde(serialize_with = "serialize_seconds")]
    pub added_ago: Duration,
    /// Rate-limited requeues since the last success.
    pub attempts: u32,
    /// Last error, until the key succeeds.
    pub last_error: Option<Arc<str>>,
    /// Last reasons why the key is queued or being processed, oldest first.
    pub reasons: Vec<Reason>,
}

/// State of a key in an [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum EntryState {
    /// Waits for a worker.
    Ready {
        /// Time since the key became ready.
        #[serde(serialize_with = "serialize_seconds")]
        ready_ago: Duration,
    },
    /// Waits until its delay has passed.
    Delayed {
        /// Remaining delay.
        #[serde(serialize_with = "serialize_seconds")]
        ready_in: Duration,
    },
    /// Waits to be unparked.
    Parked {
        /// Remaining time if parking is limited.
        #[serde(serialize_with = "serialize_optional_seconds")]
        ready_in: Option<Duration>,
    },
    /// A worker has the key.
    Running {
        /// Number of the worker, unique among current workers and reused later.
        worker: u32,
        /// Time since the worker got the key.
        #[serde(serialize_with = "serialize_seconds")]
        started_ago: Duration,
        /// Whether the key was added meanwhile and is handed out again afterwards.
        again: bool,
        /// Remaining delay if the key was added meanwhile with a delay.
        #[serde(serialize_with = "serialize_optional_seconds")]
        again_in: Option<Duration>,
    },
    /// Not queued, but failed attempts are counted.
    Idle,
}

impl<K: Key> WorkQueue<K> {
    /// Returns every key once.
    ///
    /// The keys are read in slices, so that the lock is never held for long. A key that changes
    /// during the call is shown in its old or new state, or is missing if it was only queued during
    /// the call. With many keys the call takes long: use a blocking task in async code. Empty once
    /// the queue is closed, even if workers still have keys.
    pub fn snapshot(&self) -> Vec<Entry<K>> {
        let mut entries = Vec::new();
        // Allocated without the lock: an allocation can take milliseconds after millions of frees.
        let mut slice = Vec::with_capacity(SLICE as usize);
        let mut from = 0u32;
        loop {
            let now = self.0.clock.now();
            let state = self.0.lock();
            let to = from.saturating_add(SLICE).min(state.slots.capacity());
            if from >= to {
                break;
            }
            slice.extend(
                state
                    .slots
                    .used(from..to)
                    .map(|(at, key, slot)| state.entry(now, at, key, slot)),
            );
            drop(state);
            let reasoned = |(entry, reasons): (Entry<K>, [Option<Reason>; MAX_REASONS])| Entry {
                reasons: reasons.into_iter().flatten().collect(),
                ..entry
            };
            entries.extend(slice.drain(..).map(reasoned));
            from = to;
        }
        // A key that was finished and added again may have been read in both of its slots.
        let mut seen = HashSet::with_capacity(entries.len());
        entries.retain(|entry| seen.insert(entry.key.clone()));
        entries
    }
}

impl<K: Key> WorkQueue<K> {
    /// Returns the keys that workers have had for longer than `limit`.
    ///
    /// Reads only these keys, unlike [`Self::snapshot`]. Empty once the queue is closed.
    pub(crate) fn running_longer_than(&self, limit: Duration) -> Vec<(K, Duration)> {
        // Allocated before the lock is taken.
        let mut running = Vec::with_capacity(self.stats().running);
        let now = self.0.clock.now();
        let state = self.0.lock();
        if state.phase != Phase::Closed {
            let times = state
                .processing
                .iter()
                .map(|(slot, started)| (slot, ago(now, started)));
            let longer = times.filter(|(_, time)| *time > limit);
            running.extend(
                longer.filter_map(|(slot, time)| Some((state.slots[slot].key.clone()?, time))),
            );
        }
        drop(state);
        running.sort_by_key(|(_, time)| Reverse(*time));
        running
    }
}

impl<K: Key> State<K> {
    /// Returns the entry without its reasons, and the reasons.
    fn entry(
        &self,
        now: u64,
        at: u32,
        key: &K,
        slot: &Slot<K>,
    ) -> (Entry<K>, [Option<Reason>; MAX_REASONS]) {
        let run = slot
            .is_running()
            .then(|| self.processing.get(slot.position));
        // Data of the queued key, or else of the key that the worker has.
        let (priority, added_at, reasons) = match run {
            Some(run) if slot.pending == Pending::Nothing => {
                (run.priority, run.added_at, run.reasons)
            }
            _ => (slot.priority, slot.added_at, slot.reasons),
        };
        let ready_in = Duration::from_nanos(slot.ready_at.saturating_sub(now));
        // Due keys become ready only when the queue reads the clock.
        let due = slot.ready_at <= now && matches!(slot.pending, Pending::Time | Pending::Unpark);
        let pending = if due { Pending::Worker } else { slot.pending };
        let state = match (run, pending) {
            (Some(run), pending) => EntryState::Running {
                worker: slot.position,
                started_ago: ago(now, run.started),
                again: pending == Pending::Worker,
                again_in: (pending == Pending::Time).then_some(ready_in),
            },
            (None, Pending::Worker) => EntryState::Ready {
                ready_ago: ago(now, slot.ready_at),
            },
            (None, Pending::Time) => EntryState::Delayed { ready_in },
            (None, Pending::Unpark) => EntryState::Parked {
                ready_in: (slot.ready_at != NEVER).then_some(ready_in),
            },
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
            state.promote_due(now);
            state.stats(now)
        })
    }
}

impl<K: Key> State<K> {
    fn stats(&self, now: u64) -> Stats {
        let mut stats = Stats {
            delayed: self.delayed,
            parked: self.parked,
            running: self.processing.len(),
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
        for (slot, started) in self.processing.iter() {
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
