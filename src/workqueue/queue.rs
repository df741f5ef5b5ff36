//! Handle of the queue: [`WorkQueue`], its lock, and the calls of wakers after unlocking.

use super::{
    Add, Item, Key, Priority, QueueOptions, Reason, Stats,
    clock::{Clock, TimeRange, TimeSource},
    drain::Drain,
    get::Get,
    limiter::{ByAttempt, Limiter, default_delay},
    metrics::Probe,
    panic_payload::discard,
    shutdown::Phase,
    slot_table::KeyHash,
    state::{State, When},
    waiters::Wakers,
};
use crate::sync::{BackoffMutex, MutexGuard};
use hashbrown::DefaultHashBuilder;
use std::{
    fmt,
    hash::BuildHasher,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// Keys of a batch that are added under one lock.
const BATCH: usize = 256;

/// Queue of keys for workers, see the [module](super). Clones share one queue.
///
/// ```
/// use steersman::workqueue::{Add, Outcome, Priority, WorkQueue};
///
/// let queue = WorkQueue::default();
/// queue.add("b");
/// queue.add_with("a", Add { priority: Some(Priority::HIGH), reason: Some("asked for".into()), ..Add::default() });
///
/// let item = queue.try_get().unwrap();
/// assert_eq!((*item, item.priority(), item.attempt()), ("a", Priority::HIGH, 1));
/// assert_eq!(item.reasons(), ["asked for".into()]);
/// item.finish(Outcome::requeue()); // failed, retry in 5 ms
/// assert_eq!(queue.num_requeues(&"a"), 1);
/// ```
pub struct WorkQueue<K>(pub(super) Arc<Shared<K>>);

pub(super) struct Shared<K> {
    state: CachePadded<BackoffMutex<State<K>>>,
    hasher: DefaultHashBuilder,
    limiter: Limiter<K>,
    pub(super) clock: Clock,
    /// Whether to measure how long keys wait and are processed.
    pub(super) timing: bool,
}

/// Padded to its own cache lines.
///
/// Writers of the lock do not invalidate the read-only fields beside it.
#[repr(align(128))]
struct CachePadded<T>(T);

/// Location of a key.
#[derive(Clone, Copy)]
pub(super) enum KeyLocation {
    Hash(KeyHash),
    Slot(u32),
}

/// Decision of the limiter for a key.
enum LimiterDecision<'a> {
    NoLimit,
    Delay(Duration),
    /// Computed when the slot is known, so that the key is looked up once.
    ByAttempt(&'a ByAttempt),
}

impl LimiterDecision<'_> {
    /// Returns the delay, and counts the attempt if that is still to do.
    #[inline]
    fn delay<K: Key>(&self, state: &mut State<K>, slot: u32) -> Option<Duration> {
        match self {
            Self::NoLimit => None,
            Self::Delay(delay) => Some(*delay),
            Self::ByAttempt(delay) => Some(delay(state.count_attempt(slot))),
        }
    }
}

/// Returns when a key that is added `now` becomes ready.
#[inline]
fn when(add: &Add, decision: Option<Duration>, now: TimeRange) -> When {
    let after = add.after.filter(|after| !after.is_zero());
    let delay = match (after, decision) {
        (Some(after), Some(decision)) => after.min(decision),
        (None, Some(decision)) => decision,
        (after, None) => after.unwrap_or_default(),
    };
    When::at(now.due(delay), add.rate_limited, add.replace_timer)
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Key> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new(QueueOptions::default())
    }
}

impl<K: Key> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("WorkQueue")
            .field("ready", &stats.depth())
            .field("delayed", &stats.delayed)
            .field("parked", &stats.parked)
            .field("running", &stats.running)
            .finish()
    }
}

impl<K> Shared<K> {
    pub(super) fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.0.lock()
    }
}

impl<K: Key> Shared<K> {
    /// Changes the state under the lock, then calls wakers without it.
    ///
    /// The returned value is dropped without the lock.
    #[inline]
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State<K>, &mut Wakers) -> T) -> T {
        let mut wakers = Wakers::default();
        let mut state = self.lock();
        let result = change(&mut state, &mut wakers);
        state.collect_wakers(&mut wakers);
        drop(state);
        if wakers.is_empty() {
            std::mem::forget(wakers); // Skips the drop of an empty value.
        } else {
            wakers.call();
        }
        result
    }

    pub(super) fn hash(&self, key: &K) -> KeyHash {
        KeyHash::fold(self.hasher.hash_one(key))
    }

    /// Counts an attempt of the key and returns the limiter's delay.
    pub(super) fn limit(&self, key: &K, position: KeyLocation, now: TimeRange) -> Duration {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Duration::ZERO;
        }
        let mut copy = None;
        let slot = match position {
            KeyLocation::Hash(hash) => state.slots.find_or_insert(hash, {
                copy = Some(key.clone());
                &mut copy
            }),
            KeyLocation::Slot(slot) => slot,
        };
        let attempt = state.count_attempt(slot);
        drop(state);
        drop(copy);
        let now = self
            .clock
            .instant(now.latest)
            .expect("an instant of the clock");
        let decision = catch_unwind(AssertUnwindSafe(|| self.limiter.delay(key, attempt, now)));
        decision.unwrap_or_else(|panic| {
            discard(panic);
            self.lock().counters.limiter_panics += 1;
            default_delay(attempt)
        })
    }

    /// Counts an attempt of the key in this slot without calling the limiter.
    pub(super) fn count_attempt(&self, slot: u32) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.count_attempt(slot);
        }
    }
}

impl<K: Key> WorkQueue<K> {
    /// Creates an empty queue.
    ///
    /// The first queue in a process calibrates the processor's time stamp counter, which takes
    /// about 20 ms.
    pub fn new(options: QueueOptions<K>) -> Self {
        let QueueOptions {
            name,
            limiter,
            share,
            metrics,
        } = options;
        let metrics = metrics.filter(|_| !name.is_empty());
        let queue = Self(Arc::new(Shared {
            state: CachePadded(BackoffMutex::new(State::new(share))),
            hasher: DefaultHashBuilder::default(),
            limiter,
            clock: Clock::new(),
            timing: metrics.is_some(),
        }));
        if let Some(metrics) = metrics {
            metrics.watch(Probe::new(name, &queue.0));
        }
        queue
    }

    /// Adds a key, ready now, with [`Priority::NORMAL`]. Ignored after a shutdown.
    #[inline]
    pub fn add(&self, key: K) {
        self.put(
            self.0.hash(&key),
            key,
            |_, _| When::Now,
            (Priority::NORMAL, None),
            &self.0.clock,
        );
    }

    /// Adds a key. `when` returns when it becomes ready, once its slot is known.
    #[inline]
    fn put(
        &self,
        hash: KeyHash,
        key: K,
        when: impl FnOnce(&mut State<K>, u32) -> When,
        (priority, reason): (Priority, Option<&Reason>),
        time: &impl TimeSource,
    ) {
        let mut key = Some(key);
        self.0.change(|state, wakers| {
            state.add((hash, &mut key), when, (priority.0, reason), time, wakers);
        });
    }

    /// Adds a key that becomes ready after a delay.
    pub fn add_after(&self, key: K, after: Duration) {
        self.add_with(
            key,
            Add {
                after: Some(after),
                ..Add::default()
            },
        );
    }

    /// Adds a key after the limiter's delay, and counts an attempt.
    pub fn add_rate_limited(&self, key: K) {
        self.add_with(
            key,
            Add {
                rate_limited: true,
                ..Add::default()
            },
        );
    }

    /// Adds a key with options.
    pub fn add_with(&self, key: K, add: Add) {
        let how = (add.priority.unwrap_or_default(), add.reason.as_ref());
        let hash = self.0.hash(&key);
        if add.after.is_none() && !add.rate_limited {
            return self.put(hash, key, |_, _| When::Now, how, &self.0.clock);
        }
        let now = self.0.clock.read();
        let decision = self.limited(hash, &key, &add, now);
        self.put(
            hash,
            key,
            |state, slot| when(&add, decision.delay(state, slot), now),
            how,
            &now,
        );
    }

    /// Adds many keys with the same options, in batches of up to 256 per lock.
    ///
    /// Cheaper than adding them one by one. Other callers can take the lock between batches.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>, add: Add) {
        let how = (add.priority.unwrap_or_default().0, add.reason.as_ref());
        let mut keys = keys.into_iter();
        loop {
            let batch: Vec<_> = keys.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return;
            }
            let now = self.0.clock.read();
            let mut batch: Vec<_> = batch
                .into_iter()
                .map(|key| {
                    let hash = self.0.hash(&key);
                    let decision = self.limited(hash, &key, &add, now);
                    (hash, Some(key), decision)
                })
                .collect();
            self.0.change(|state, wakers| {
                for (hash, key, decision) in &mut batch {
                    let when =
                        |state: &mut State<K>, slot| when(&add, decision.delay(state, slot), now);
                    state.add((*hash, key), when, how, &now, wakers);
                }
            });
        }
    }

    fn limited(&self, hash: KeyHash, key: &K, add: &Add, now: TimeRange) -> LimiterDecision<'_> {
        if !add.rate_limited {
            return LimiterDecision::NoLimit;
        }
        match self.0.limiter.by_attempt() {
            Some(delay) => LimiterDecision::ByAttempt(delay),
            None => LimiterDecision::Delay(self.0.limit(key, KeyLocation::Hash(hash), now)),
        }
    }

    /// Waits for the next key; `None` once shut down.
    ///
    /// Cancel safety: dropping the future loses no key.
    ///
    /// # Panics
    /// If keys are delayed and this is not polled in a tokio runtime with its timer enabled.
    pub async fn get(&self) -> Option<Item<K>> {
        Get::new(self, None).await
    }

    /// Returns the next key if one is ready.
    #[inline]
    pub fn try_get(&self) -> Option<Item<K>> {
        self.0.change(|state, _| {
            let handed_out = state.take(&self.0.clock, self.0.timing)?;
            Some(Item::new(self, handed_out))
        })
    }

    /// Makes a parked key ready; returns false if it is neither parked nor processed.
    ///
    /// If a worker has the key, a later [`Item::park`] of that worker makes it ready at once.
    pub fn unpark(&self, key: &K) -> bool {
        let hash = self.0.hash(key);
        let now = self.0.clock.now();
        self.0.change(|state, _| {
            state
                .slots
                .find(hash, key)
                .is_some_and(|slot| state.unpark(slot, now))
        })
    }

    /// Removes a queued key; returns whether it was queued.
    ///
    /// A worker that has the key continues, and failed attempts stay counted.
    pub fn cancel(&self, key: &K) -> bool {
        let hash = self.0.hash(key);
        let mut done = None;
        self.0.change(|state, _| {
            state
                .slots
                .find(hash, key)
                .is_some_and(|slot| state.cancel(slot, &mut done))
        })
    }

    /// Resets the attempts and the last error of a key.
    ///
    /// A queued key stays queued. Unknown keys are ignored.
    pub fn forget(&self, key: &K) {
        let hash = self.0.hash(key);
        let mut done = None;
        self.0.change(|state, _| {
            if let Some(slot) = state.slots.find(hash, key) {
                state.forget(slot, &mut done);
            }
        });
    }

    /// Returns the number of rate-limited adds of a key since its last success.
    pub fn num_requeues(&self, key: &K) -> u32 {
        let hash = self.0.hash(key);
        let state = self.0.lock();
        state
            .slots
            .find(hash, key)
            .map_or(0, |slot| state.slots[slot].attempts)
    }

    /// Returns the number of ready keys.
    ///
    /// Includes keys that will be ready when their worker finishes, but not delayed and parked
    /// ones.
    pub fn len(&self) -> usize {
        let now = self.0.clock.now();
        self.0.change(|state, _| {
            state.promote_due(now);
            state.len()
        })
    }

    /// Returns whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counters of the queue.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Shuts down and drops all queued keys. Getters return `None` at once.
    ///
    /// Adds are ignored. Workers can finish their keys. All shutdown methods are idempotent, drop
    /// delayed and parked keys, and can be combined; the strictest one takes effect.
    pub fn close(&self) {
        self.shut_down(Phase::Closed);
    }

    /// Shuts down, but hands out the ready keys before getters return `None`.
    ///
    /// A key that was added again while a worker has it is ready when that worker finishes. Until
    /// then, getters wait for it.
    pub fn close_after_ready(&self) {
        self.shut_down(Phase::HandOut);
    }

    fn shut_down(&self, phase: Phase) {
        let now = self.0.clock.now();
        self.0.change(|state, _| state.shut_down(phase, now));
    }

    /// Shuts down as [`close_after_ready`](Self::close_after_ready), and waits for workers.
    ///
    /// Returns when all ready keys were handed out and finished. Other tasks must get and finish
    /// the keys. [`close`](Self::close) ends a wait in progress. A call after it waits only for
    /// keys that workers have.
    ///
    /// Cancel safety: dropping the future leaves the queue shut down.
    pub async fn drain(&self) {
        self.close_after_ready();
        Drain::new(self).await;
    }

    /// Returns whether the queue is shut down, by any method.
    pub fn is_closed(&self) -> bool {
        self.0.lock().phase != Phase::Open
    }
}
