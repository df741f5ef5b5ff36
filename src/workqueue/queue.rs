//! The handle: [`WorkQueue`], what it does under one lock, and whom it wakes after.

use super::{
    Add, Item, Key, Priority, QueueOptions, Reason, Stats,
    clock::{Clock, Moment, Time},
    drain::Drain,
    get::Get,
    limiter::{ByAttempt, Limiter, default_delay},
    metrics::Probe,
    panics::discard,
    shutdown::Phase,
    state::{State, When},
    table::KeyHash,
    waiters::Wakes,
};
use crate::sync::{CalmMutex, MutexGuard};
use hashbrown::DefaultHashBuilder;
use std::{
    fmt,
    hash::BuildHasher,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// So many keys of a batch are added under one lock.
const BATCH: usize = 256;

/// A queue of keys for workers; see the [module](super). A handle: clones share one queue. Making one spawns nothing.
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
/// item.finish(Outcome::requeue()); // failed: again in 5 ms
/// assert_eq!(queue.num_requeues(&"a"), 1);
/// ```
pub struct WorkQueue<K>(pub(super) Arc<Shared<K>>);

pub(super) struct Shared<K> {
    state: Apart<CalmMutex<State<K>>>,
    hasher: DefaultHashBuilder,
    limiter: Limiter<K>,
    pub(super) clock: Clock,
    /// Measure how long keys wait and run.
    pub(super) timing: bool,
}

/// On lines of the caches of its own: what is beside it is read by everybody, and never written.
#[repr(align(128))]
struct Apart<T>(T);

/// Where a key is to be found.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Hash(KeyHash),
    Slot(u32),
}

/// What the limiter says of a key.
enum Limited<'a> {
    Not,
    For(Duration),
    /// Asked when the key is found, so that it is looked for once.
    ByAttempt(&'a ByAttempt),
}

impl Limited<'_> {
    /// The attempt is counted, if it was not yet.
    #[inline]
    fn delay<K: Key>(&self, state: &mut State<K>, slot: u32) -> Option<Duration> {
        match self {
            Self::Not => None,
            Self::For(delay) => Some(*delay),
            Self::ByAttempt(delay) => Some(delay(state.count_attempt(slot))),
        }
    }
}

/// When a key that is added `now` may run.
#[inline]
fn when(add: &Add, limited: Option<Duration>, now: Moment) -> When {
    let after = add.after.filter(|after| !after.is_zero());
    let delay = match (after, limited) {
        (Some(after), Some(limited)) => after.min(limited),
        (None, Some(limited)) => limited,
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
    /// Change the state under the lock; then, without it, wake whom that concerns. What is returned is dropped without the lock.
    #[inline]
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State<K>, &mut Wakes) -> T) -> T {
        let mut wakes = Wakes::default();
        let mut state = self.lock();
        let result = change(&mut state, &mut wakes);
        state.settle(&mut wakes);
        drop(state);
        if wakes.is_empty() {
            std::mem::forget(wakes); // As after most changes: there is nothing to drop, and no need to look for it.
        } else {
            wakes.call();
        }
        result
    }

    pub(super) fn hash(&self, key: &K) -> KeyHash {
        KeyHash::fold(self.hasher.hash_one(key))
    }

    /// Count an attempt of the key and ask the limiter how long it waits.
    pub(super) fn limit(&self, key: &K, place: Place, now: Moment) -> Duration {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Duration::ZERO;
        }
        let mut copy = None;
        let slot = match place {
            Place::Hash(hash) => state.slots.find_or_insert(hash, {
                copy = Some(key.clone());
                &mut copy
            }),
            Place::Slot(slot) => slot,
        };
        let attempt = state.count_attempt(slot);
        drop(state);
        drop(copy);
        let now = self.clock.instant(now.latest).expect("it was read from the clock");
        let limited = catch_unwind(AssertUnwindSafe(|| self.limiter.delay(key, attempt, now)));
        limited.unwrap_or_else(|panic| {
            discard(panic);
            self.lock().counters.limiter_panics += 1;
            default_delay(attempt)
        })
    }

    /// Count an attempt of the key in this slot, whatever the limiter would say.
    pub(super) fn count_attempt(&self, slot: u32) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.count_attempt(slot);
        }
    }
}

impl<K: Key> WorkQueue<K> {
    /// An empty queue. The first one in a process finds out how fast the processor's counter runs, which takes some 20 ms: times are read from it.
    pub fn new(options: QueueOptions<K>) -> Self {
        let QueueOptions { name, limiter, share, metrics } = options;
        let metrics = metrics.filter(|_| !name.is_empty());
        let queue = Self(Arc::new(Shared {
            state: Apart(CalmMutex::new(State::new(share))),
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

    /// Add a key, ready now, at [`Priority::NORMAL`]. Ignored after a shutdown.
    #[inline]
    pub fn add(&self, key: K) {
        self.put(self.0.hash(&key), key, |_, _| When::Now, (Priority::NORMAL, None), &self.0.clock);
    }

    /// `when` tells when the key, which is in this slot by then, may run.
    #[inline]
    fn put(
        &self,
        hash: KeyHash,
        key: K,
        when: impl FnOnce(&mut State<K>, u32) -> When,
        (priority, reason): (Priority, Option<&Reason>),
        time: &impl Time,
    ) {
        let mut key = Some(key);
        self.0.change(|state, wakes| state.add((hash, &mut key), when, (priority.0, reason), time, wakes));
    }

    /// Add a key, ready after a delay.
    pub fn add_after(&self, key: K, after: Duration) {
        self.add_with(key, Add { after: Some(after), ..Add::default() });
    }

    /// Add a key, ready as soon as the limiter allows, and count an attempt.
    pub fn add_rate_limited(&self, key: K) {
        self.add_with(key, Add { rate_limited: true, ..Add::default() });
    }

    /// Add a key as told.
    pub fn add_with(&self, key: K, add: Add) {
        let how = (add.priority.unwrap_or_default(), add.reason.as_ref());
        let hash = self.0.hash(&key);
        if add.after.is_none() && !add.rate_limited {
            return self.put(hash, key, |_, _| When::Now, how, &self.0.clock);
        }
        let now = self.0.clock.read();
        let limited = self.limited(hash, &key, &add, now);
        self.put(hash, key, |state, slot| when(&add, limited.delay(state, slot), now), how, &now);
    }

    /// Add many keys alike, for less than one by one: up to 256 of them are taken from the iterator before they are added, under one lock. Others get their turn in between.
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
                    let limited = self.limited(hash, &key, &add, now);
                    (hash, Some(key), limited)
                })
                .collect();
            self.0.change(|state, wakes| {
                for (hash, key, limited) in &mut batch {
                    let when = |state: &mut State<K>, slot| when(&add, limited.delay(state, slot), now);
                    state.add((*hash, key), when, how, &now, wakes);
                }
            });
        }
    }

    fn limited(&self, hash: KeyHash, key: &K, add: &Add, now: Moment) -> Limited<'_> {
        if !add.rate_limited {
            return Limited::Not;
        }
        match self.0.limiter.by_attempt() {
            Some(delay) => Limited::ByAttempt(delay),
            None => Limited::For(self.0.limit(key, Place::Hash(hash), now)),
        }
    }

    /// The next key, `None` once shut down. Dropping the future loses nothing.
    ///
    /// # Panics
    /// If keys wait for a time and this is not polled in a tokio runtime with its timer enabled.
    pub async fn get(&self) -> Option<Item<K>> {
        Get::new(self, None).await
    }

    /// The next key if one is ready.
    #[inline]
    pub fn try_get(&self) -> Option<Item<K>> {
        self.0.change(|state, _| {
            let held = state.take(&self.0.clock, self.0.timing)?;
            Some(Item::new(self, held))
        })
    }

    /// Make a parked key ready. If it runs, parking it at the end of that run does not last. Otherwise nothing happens, and this is false.
    pub fn unpark(&self, key: &K) -> bool {
        let hash = self.0.hash(key);
        let now = self.0.clock.now();
        self.0.change(|state, _| state.slots.find(hash, key).is_some_and(|slot| state.unpark(slot, now)))
    }

    /// Take a key off the queue, whatever it waits for; true if it did. A run of it goes on, and its failed attempts stay counted.
    pub fn cancel(&self, key: &K) -> bool {
        let hash = self.0.hash(key);
        let mut done = None;
        self.0.change(|state, _| state.slots.find(hash, key).is_some_and(|slot| state.cancel(slot, &mut done)))
    }

    /// Forget a key's failed attempts and its last error. It stays queued if it is. Unknown keys are ignored.
    pub fn forget(&self, key: &K) {
        let hash = self.0.hash(key);
        let mut done = None;
        self.0.change(|state, _| {
            if let Some(slot) = state.slots.find(hash, key) {
                state.forget(slot, &mut done);
            }
        });
    }

    /// How often a key was rate limited since its last success.
    pub fn num_requeues(&self, key: &K) -> u32 {
        let hash = self.0.hash(key);
        let state = self.0.lock();
        state.slots.find(hash, key).map_or(0, |slot| state.slots[slot].attempts)
    }

    /// Keys ready to run, with those that will be when their present run ends; without those that wait for a time or are parked.
    pub fn len(&self) -> usize {
        let now = self.0.clock.now();
        self.0.change(|state, _| {
            state.pass(now);
            state.len()
        })
    }

    /// No key is ready to run.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The queue's numbers.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Shut down and drop what is queued: getters get `None` at once, adds are ignored, runs may end.
    ///
    /// All shutdowns are idempotent, drop the keys that wait for a time or are parked, and may follow each other; the strictest holds.
    pub fn close(&self) {
        self.shut_down(Phase::Closed);
    }

    /// Shut down, but hand out what is ready before getters get `None`. A key that runs and was added again is ready when that run
    /// ends: until then getters that find nothing wait for it.
    pub fn close_after_ready(&self) {
        self.shut_down(Phase::HandOut);
    }

    fn shut_down(&self, phase: Phase) {
        let now = self.0.clock.now();
        self.0.change(|state, _| state.shut_down(phase, now));
    }

    /// [`close_after_ready`](Self::close_after_ready), then wait until everything was handed out and no run is left. It is those who get keys that empty
    /// the queue, whoever ends the runs: without any it waits. [`close`](Self::close) ends the wait of those who wait by then; after it this waits for
    /// the runs that go on. Dropping the future leaves the queue shut down.
    pub async fn drain(&self) {
        self.close_after_ready();
        Drain::new(self).await;
    }

    /// Shut down, in whichever way.
    pub fn is_closed(&self) -> bool {
        self.0.lock().phase != Phase::Open
    }
}
