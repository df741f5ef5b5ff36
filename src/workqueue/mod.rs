//! Queue of keys for workers, with deduplication, priorities, delays and backoff.
//!
//! [`WorkQueue`] combines client-go's rate-limited work queue with controller-runtime's priority
//! queue. Each controller has one. Use it directly to run workers without a controller.
//!
//! * **Deduplication.** A key is queued once and held by at most one worker. A key that is added
//!   while a worker holds it is handed out once more afterwards, however often it was added.
//! * **Merging.** Adding a queued key keeps the earlier time and the higher priority. A delayed key
//!   that is added without a delay becomes ready. [`Add::replace_timer`] moves the time instead.
//! * **Backoff.** A [`Limiter`] computes the delay of a failed key from its number of attempts,
//!   which the queue counts. [`Outcome::done`], [`Outcome::requeue_after`] and
//!   [`forget`](WorkQueue::forget) reset the number. An attempt that an event triggers before the
//!   backoff has elapsed does not lengthen the next delay.
//! * **Parking.** [`Item::park`] holds a key back until [`WorkQueue::unpark`].
//!
//! [`snapshot`](WorkQueue::snapshot) lists every key with its state. [`stats`](WorkQueue::stats)
//! returns the counters, and [`Metrics`] exports them.
//!
//! # Order
//!
//! The highest priority comes first. Keys of equal priority come in the order in which they became
//! ready or were raised to it. Every 16th key ([`QueueOptions::share`]) is instead the oldest one
//! that higher priorities have overtaken, so that low priorities do not starve. A key is therefore
//! handed out within `share × (n + 2)` keys, where `n` is the number of keys that were ready before
//! it. `share = 0` makes the order strict.
//!
//! # Shutdown
//!
//! | method | ready keys | waits for workers |
//! |---|---|---|
//! | [`close`](WorkQueue::close) | dropped | no |
//! | [`close_after_ready`](WorkQueue::close_after_ready) | handed out | no |
//! | [`drain`](WorkQueue::drain) | handed out | yes |
//!
//! All three drop delayed and parked keys. [`get`](WorkQueue::get) returns `None` when no key is
//! left to hand out.
//!
//! # Time
//!
//! The queue uses tokio's clock, so tests can pause it. Delays have tokio's resolution of 1 ms and
//! never end early. The queue spawns no task: the timers belong to futures that wait in
//! [`get`](WorkQueue::get). Poll or drop such a future. One that is kept without being polled
//! delays the key it was woken for, as with [`tokio::sync::Notify`], and makes delayed keys up to
//! 10 ms late.
//!
//! Due keys become ready at the next add, get, or call of `len` or `stats`. An `add_after` promotes
//! them only from 65 us after the first of them is due, to promote many at once. A
//! [`snapshot`](WorkQueue::snapshot) shows due keys as ready without promoting them.
//!
//! One lock protects the queue. It is held longest when many keys move at once: about 60 ms when a
//! million keys become due at the same instant, and about 30 ns per key when the number of keys
//! grows past a power of two. [`close_after_ready`](WorkQueue::close_after_ready) and
//! [`drain`](WorkQueue::drain) visit every key once.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use steersman::workqueue::{Outcome, WorkQueue};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let queue: WorkQueue<&str> = WorkQueue::default();
//! let worker = tokio::spawn({
//!     let queue = queue.clone();
//!     async move {
//!         let mut runs = Vec::new();
//!         let mut next = queue.get().await;
//!         while let Some(item) = next {
//!             runs.push((*item, item.attempt()));
//!             // The first attempt of "flaky" fails and is retried with backoff.
//!             let failed = *item == "flaky" && item.attempt() == 1;
//!             next = item.finish_and_get(if failed { Outcome::requeue() } else { Outcome::done() }).await;
//!         }
//!         runs
//!     }
//! });
//! queue.add("flaky");
//! queue.add_after("later", Duration::from_secs(60));
//! tokio::time::sleep(Duration::from_secs(61)).await;
//! queue.drain().await;
//! assert_eq!(worker.await.unwrap(), [("flaky", 1), ("flaky", 2), ("later", 1)]);
//! # }
//! ```

// The API. These modules lock the state, change it, and call wakers after unlocking.
mod drain;
mod get;
mod item;
mod queue;
mod snapshot;
mod superseded;

// The state that the lock protects.
mod finish;
mod processing;
mod ready;
mod shutdown;
mod slots;
mod state;
mod waiters;
mod wheel;

// Building blocks of the state.
mod clock;
mod linked_list;
mod panic_payload;
mod reasons;
mod slot_bitmap;
mod slot_table;
mod timer;

// Configuration and metrics.
mod limiter;
mod metrics;
mod stats;

pub use item::Item;
pub use limiter::Limiter;
pub(crate) use metrics::encode_queues;
pub use metrics::{Metrics, Probe, Prometheus};
pub use queue::WorkQueue;
pub use snapshot::{Entry, EntryState};
pub(crate) use stats::serialize_histogram;
pub use stats::{BandStats, Histogram, Stats};
pub(crate) use superseded::SupersededWatch;

use serde::{Serialize, Serializer};
use std::{fmt, hash::Hash, sync::Arc, time::Duration};

/// Returns the time of the queue's clock in nanoseconds. For benchmarks only.
#[cfg(feature = "__internals")]
#[doc(hidden)]
pub fn stamp() -> u64 {
    crate::sync::stamp().latest
}

/// Types that can be queued. Implemented for every type that has the supertraits.
///
/// Logs and the debug page show a key by its `Debug`. `Eq`, `Hash` and `Clone` can be called while
/// the queue's lock is held: they should be cheap, must not panic and must not call the queue.
/// `Drop` is called without the lock and may call the queue, but must not panic.
pub trait Key: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}
impl<T: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> Key for T {}

/// Priority of a key. Higher priorities are handed out first.
///
/// Any number is allowed. Metrics show it as the nearest [`Band`]. Without a priority, a key is
/// added with [`Priority::NORMAL`] and requeued with its previous priority. Use only a few
/// different levels: each level in use costs time under the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Priority(pub i32);

impl Priority {
    /// Priority of keys that can wait: objects of the initial list, unchanged updates.
    pub const LOW: Self = Self(-100);
    /// Default priority.
    pub const NORMAL: Self = Self(0);
    /// Priority of keys that a person waits for.
    pub const HIGH: Self = Self(100);

    /// Returns the nearest band; the higher one if two are equally near.
    pub fn band(self) -> Band {
        match self.0 {
            50.. => Band::High,
            -50..50 => Band::Normal,
            _ => Band::Low,
        }
    }
}

/// Named priority, as metrics label it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Band {
    /// Priorities near [`Priority::LOW`].
    Low,
    /// Priorities near [`Priority::NORMAL`].
    Normal,
    /// Priorities near [`Priority::HIGH`].
    High,
}

impl Band {
    /// All bands, lowest first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// Returns the priority that the band is named after.
    pub fn priority(self) -> Priority {
        match self {
            Self::Low => Priority::LOW,
            Self::Normal => Priority::NORMAL,
            Self::High => Priority::HIGH,
        }
    }
}

/// Reason why a key is queued, for logs, spans and the debug page.
///
/// The queue stores equal texts once, and the last three reasons of each key. It stores at most
/// 65,535 different texts and drops further ones. Leave names and numbers out of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Reason(Arc<str>);

impl Reason {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Options for adding a key. See [`WorkQueue`] for how they merge with a queued key.
#[derive(Clone, Debug, Default)]
pub struct Add {
    /// Delay before the key becomes ready. Above about 580 years it never does. Default: none.
    pub after: Option<Duration>,
    /// Waits for the limiter's delay and counts an attempt. Default: false.
    ///
    /// If `after` is set and not zero, the shorter of the two delays applies.
    pub rate_limited: bool,
    /// Priority of the key. Default: [`Priority::NORMAL`].
    pub priority: Option<Priority>,
    /// Reason for adding the key, dropped if the queue has too many. Default: none.
    ///
    /// See [`Reason`] for the limit.
    pub reason: Option<Reason>,
    /// Replaces a pending delay, also by a later one, to postpone or debounce. Default: false.
    ///
    /// A key that is ready stays ready.
    pub replace_timer: bool,
}

/// Result of processing a key, also returned by reconcilers. See [`Item::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    next: Next,
    priority: Option<Priority>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Done,
    After(Duration),
    RateLimited { at_least: Duration },
    Retry(Duration),
}

impl Outcome {
    /// Finishes until the next event, and resets the attempts.
    ///
    /// Also for a failure that a retry cannot fix.
    pub fn done() -> Self {
        Self {
            next: Next::Done,
            priority: None,
        }
    }

    /// Requeues after `delay`, or earlier if the key is added, and resets the attempts.
    pub fn requeue_after(delay: Duration) -> Self {
        Self {
            next: Next::After(delay),
            priority: None,
        }
    }

    /// Requeues with growing backoff, after a failure or to poll.
    pub fn requeue() -> Self {
        Self {
            next: Next::RateLimited {
                at_least: Duration::ZERO,
            },
            priority: None,
        }
    }

    /// Requeues with growing backoff, but not before `delay`.
    ///
    /// Use it when the server has requested a minimum delay.
    pub fn requeue_not_before(delay: Duration) -> Self {
        Self {
            next: Next::RateLimited { at_least: delay },
            priority: None,
        }
    }

    /// Requeues after `delay`, ignoring the limiter, and counts a failed attempt.
    pub fn retry_after(delay: Duration) -> Self {
        Self {
            next: Next::Retry(delay),
            priority: None,
        }
    }

    /// Returns the delay that the outcome requests, without that of the limiter.
    pub(crate) fn delay(self) -> Duration {
        match self.next {
            Next::Done => Duration::ZERO,
            Next::After(delay) | Next::RateLimited { at_least: delay } | Next::Retry(delay) => {
                delay
            }
        }
    }

    /// Returns the label of the outcome in `reconcile_total`.
    pub(crate) fn label(self) -> &'static str {
        match self.next {
            Next::Done => "success",
            Next::After(_) => "requeue_after",
            Next::RateLimited { .. } | Next::Retry(_) => "requeue",
        }
    }

    /// Sets the priority of the requeue. Default: the previous priority of the key.
    pub fn priority(self, priority: Priority) -> Self {
        Self {
            priority: Some(priority),
            ..self
        }
    }
}

/// Options of a queue.
#[derive(Clone)]
pub struct QueueOptions<K> {
    /// Label of the metrics. Empty disables them. Default: empty.
    pub name: String,
    /// Limiter that delays failing keys. Default: 5 ms, doubled per attempt, at most 1000 s.
    ///
    /// The default has no jitter, so keys that fail at the same instant are retried at the same
    /// instant. [`Limiter::jitter`] and [`Limiter::bucket`] spread them.
    pub limiter: Limiter<K>,
    /// Every `share`-th key is the oldest one of a lower priority. Default: 16.
    ///
    /// 0 makes the order strict. 1 has the effect of 2.
    pub share: u32,
    /// Receiver of the metrics. Default: none.
    ///
    /// If set, the queue also measures waiting and processing times.
    pub metrics: Option<Arc<dyn Metrics>>,
}

impl<K: Key> Default for QueueOptions<K> {
    fn default() -> Self {
        Self {
            name: String::new(),
            limiter: Limiter::default(),
            share: 16,
            metrics: None,
        }
    }
}

impl<K> fmt::Debug for QueueOptions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueOptions")
            .field("name", &self.name)
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}

pub(crate) fn serialize_seconds<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn serialize_optional_seconds<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    duration
        .map(|duration| duration.as_secs_f64())
        .serialize(serializer)
}
