//! Requests waiting for a worker: one slot per key, priorities, delays, backoff. Use it alone or behind a controller.
//!
//! [`WorkQueue`] unites client-go's work queue and controller-runtime's priority queue:
//!
//! * **One worker per key.** A key that is added while it waits is still there once; added any number of times while it runs,
//!   it runs once more afterwards.
//! * **Merging.** Over a key that waits already, the earliest time and the highest priority win; a key whose priority rises goes
//!   behind the others of its new priority. So an `add` uses up a pending `add_after`.
//!   [`Add::replace_timer`] moves a pending time instead, also later: to debounce or to postpone.
//! * **Order.** Highest priority first, then in the order of becoming ready. Every 16th turn ([`QueueOptions::share`]) goes to the
//!   oldest of those that were passed over, so that **a key is handed out at most `share × (older + 2)` turns after it joined
//!   its line**, by becoming ready or by being raised, `older` being the number of keys in line before it. With `share = 0`
//!   the order is strict and nothing is promised to lower priorities.
//! * **Backoff.** A [`Limiter`] says how long a failing key waits, from the attempts that the queue counts. Success, a terminal end and
//!   [`forget`](WorkQueue::forget) free what is remembered of a key. A run that came before the backoff had elapsed, because of an event, does not
//!   make the next wait longer.
//! * **Parking.** A key can wait for an event of yours instead of a time: [`Item::park`], [`WorkQueue::unpark`].
//! * **Shutdown**, three ways: [`close`](WorkQueue::close) drops what is queued, [`close_after_ready`](WorkQueue::close_after_ready) hands out what is
//!   ready, and what runs and was added again, before getters get `None`; [`drain`](WorkQueue::drain) also waits for the workers. Keys waiting for a time or parked are dropped in all three.
//! * **Looking inside**: [`snapshot`](WorkQueue::snapshot) shows every key, [`stats`](WorkQueue::stats) the numbers, [`Metrics`] exports them.
//!
//! Time is tokio's, so tests run on paused time. Delays tick at tokio's millisecond: never early. Nothing is spawned: getters that
//! sleep keep the time, and due keys are made ready when someone adds, gets, or asks for the length or the numbers; by an `add_after` only from
//! 65 us after the first of them is due, many in one go. A [`snapshot`](WorkQueue::snapshot) shows them as ready, but does not make them so. Two
//! getters keep the time, so that one that is alive and not polled makes keys that wait for a time 10 ms late and no more. But a getter
//! that was woken for a key that is ready, and is neither polled nor dropped, is counted on, as by tokio's `Notify`: poll what you hold, or drop it.
//!
//! What holds the lock longest: a million keys that come due in one instant take some 60 ms to be made ready, and growing past a power of two keys
//! takes some 30 ns for each of them; so does tidying up, about once for every million keys that came and went if so many were there at once.
//! A million keys that wait for a day or so are moved once or twice meanwhile, most of them in one go, which takes about as long.
//! [`close_after_ready`](WorkQueue::close_after_ready) and [`drain`](WorkQueue::drain) look at every key once, and free each that
//! waits for a time or is parked: the more there are, the longer.
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
//!             // The first run of "flaky" fails: once more, with backoff.
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

mod again;
mod alarm;
mod clock;
mod drain;
mod finish;
mod get;
mod item;
mod limiter;
mod list;
mod metrics;
mod panics;
mod queue;
mod ready;
mod reasons;
mod runs;
mod shutdown;
mod slots;
mod snapshot;
mod state;
mod stats;
mod table;
mod used;
mod waiters;
mod wheel;

pub(crate) use again::RunWatch;
pub use item::Item;
pub use limiter::Limiter;
pub(crate) use metrics::encode_queues;
pub use metrics::{Metrics, Probe, Prometheus};
pub use queue::WorkQueue;
pub use snapshot::{Entry, EntryState};
pub use stats::{BandStats, Histogram, Stats};

use serde::{Serialize, Serializer};
use std::{fmt, hash::Hash, sync::Arc, time::Duration};

/// The clock that says when a key came and went, in nanoseconds. For our own benches; no part of the API.
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub fn stamp() -> u64 {
    crate::sync::stamp().latest
}

/// What can be queued. Never implement it. `Debug` is how a key appears in logs and on the debug page. Its `Eq`, `Hash` and `Clone`
/// run under the queue's lock or beside it: they should be cheap, must not panic and must not call the queue. Its `Drop` runs without the
/// lock and may call the queue, but must not panic either.
pub trait Key: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}
impl<T: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> Key for T {}

/// Higher runs first. Any number is allowed; metrics show it as the nearest named [`Band`].
///
/// Without one, a key is added at [`Priority::NORMAL`] and requeued at the priority that it had. A few levels are meant: each that keys
/// have at a time costs a little under the lock, so do not make a priority of a time or a number of your own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Priority(pub i32);

impl Priority {
    /// For what can wait: objects of the initial list, unchanged updates.
    pub const LOW: Self = Self(-100);
    /// The default.
    pub const NORMAL: Self = Self(0);
    /// For what a person waits for.
    pub const HIGH: Self = Self(100);

    /// The named band nearest to it; the higher one of two equally near.
    pub fn band(self) -> Band {
        match self.0 {
            50.. => Band::High,
            -50..50 => Band::Normal,
            _ => Band::Low,
        }
    }
}

/// The three named priorities, as metrics label them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Band {
    /// Around [`Priority::LOW`].
    Low,
    /// Around [`Priority::NORMAL`].
    Normal,
    /// Around [`Priority::HIGH`].
    High,
}

impl Band {
    /// All bands, lowest first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// The priority that gives the band its name.
    pub fn priority(self) -> Priority {
        match self {
            Self::Low => Priority::LOW,
            Self::Normal => Priority::NORMAL,
            Self::High => Priority::HIGH,
        }
    }
}

/// Why a key is queued, for logs, spans and the debug page. Equal texts are kept once per queue; a key keeps its last three.
/// While 65,535 different texts are kept, further ones are not: say what happened, and leave names and numbers to the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Reason(Arc<str>);

impl Reason {
    /// The text.
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

/// How to add a key. Over a key already queued the earliest time and the highest priority win.
#[derive(Clone, Debug, Default)]
pub struct Add {
    /// Not before this has passed; zero means now. Beyond some 580 years it means never. Default: now.
    pub after: Option<Duration>,
    /// Wait as long as the limiter says, and count an attempt; with an `after` that is not zero, the shorter of the two. Default: false.
    pub rate_limited: bool,
    /// Default: [`Priority::NORMAL`].
    pub priority: Option<Priority>,
    /// Not kept if it is one text too many, see [`Reason`]; the key is added all the same. Default: none.
    pub reason: Option<Reason>,
    /// Let the delay replace a pending one, also an earlier one: to postpone or debounce. A key that is ready already
    /// stays ready. Default: false.
    pub replace_timer: bool,
}

/// How the work on a key ended: for [`Item::finish`], and what a reconciler returns.
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
    /// Nothing left to do until an event; forgets failed attempts. Also for a failure that will not heal by trying again.
    pub fn done() -> Self {
        Self { next: Next::Done, priority: None }
    }

    /// Once more after `delay`, or sooner if an event comes; forgets failed attempts.
    pub fn requeue_after(delay: Duration) -> Self {
        Self { next: Next::After(delay), priority: None }
    }

    /// Once more with growing backoff: after a failure, or to poll for something that should come soon.
    pub fn requeue() -> Self {
        Self { next: Next::RateLimited { at_least: Duration::ZERO }, priority: None }
    }

    /// [`Self::requeue`], but not sooner than after `delay`: for who was told how long to wait.
    pub fn requeue_not_before(delay: Duration) -> Self {
        Self { next: Next::RateLimited { at_least: delay }, priority: None }
    }

    /// Once more after `delay`, which may be zero, whatever the limiter says; a failed attempt is counted.
    pub fn retry_after(delay: Duration) -> Self {
        Self { next: Next::Retry(delay), priority: None }
    }

    /// Returns the delay that the outcome asks for, without that of the limiter.
    pub(crate) fn delay(self) -> Duration {
        match self.next {
            Next::Done => Duration::ZERO,
            Next::After(delay) | Next::RateLimited { at_least: delay } | Next::Retry(delay) => delay,
        }
    }

    /// As `reconcile_total` labels it.
    pub(crate) fn label(self) -> &'static str {
        match self.next {
            Next::Done => "success",
            Next::After(_) => "requeue_after",
            Next::RateLimited { .. } | Next::Retry(_) => "requeue",
        }
    }

    /// The priority of the requeue instead of the one the key had.
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority: Some(priority), ..self }
    }
}

/// Settings of a queue.
#[derive(Clone)]
pub struct QueueOptions<K> {
    /// Label of the metrics; empty means no metrics. Default: empty.
    pub name: String,
    /// How long failing keys wait. Default: 5 ms, doubled per attempt, at most 1000 s, without jitter: keys that fail in one instant come back in one
    /// instant. [`Limiter::jitter`] and [`Limiter::bucket`] spread them.
    pub limiter: Limiter<K>,
    /// One turn in this many goes to the oldest key of a lower priority; 0 is strict order, 1 means 2. Default: 16.
    pub share: u32,
    /// Where the numbers go. With it, a queue also measures how long keys wait and run. Default: nowhere.
    pub metrics: Option<Arc<dyn Metrics>>,
}

impl<K: Key> Default for QueueOptions<K> {
    fn default() -> Self {
        Self { name: String::new(), limiter: Limiter::default(), share: 16, metrics: None }
    }
}

impl<K> fmt::Debug for QueueOptions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueOptions").field("name", &self.name).field("share", &self.share).finish_non_exhaustive()
    }
}

pub(crate) fn serialize_seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn serialize_optional_seconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}
