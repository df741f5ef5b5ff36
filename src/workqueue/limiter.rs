//! How long a failing key waits before it runs again.
//!
//! A limiter is a function of the key, how often it failed before, and now. The attempts live in the queue, so a limiter
//! keeps nothing per key and nothing needs to be freed.

use super::Key;
use crate::sync::{Instant, Mutex};
use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

/// How long a failing key waits: a function of key, attempt and now. Clones share their state.
///
/// The attempt is 0 at the first failure since the last success. A limiter of your own is called without any lock held, at the moment
/// of the add; the time that it is told may be up to 20 us ahead. If it panics, the panic is caught and counted ([`Stats::limiter_panics`](super::Stats::limiter_panics)), and
/// the key waits as long as the default limiter says: no key is lost.
///
/// ```
/// use std::time::Duration;
/// use steersman::workqueue::{Limiter, QueueOptions, WorkQueue};
///
/// // Per key 5 ms, 10 ms, 20 ms … 5 min, spread by up to 10 %; all keys together one per 100 ms after a burst of 100.
/// let limiter = Limiter::exponential(Duration::from_millis(5), Duration::from_secs(300))
///     .jitter(0.1)
///     .max(Limiter::bucket(Duration::from_millis(100), 100));
/// let queue = WorkQueue::new(QueueOptions { limiter, ..QueueOptions::default() });
/// # queue.add("key");
/// ```
pub struct Limiter<K>(Delay<K>);

enum Delay<K> {
    /// Ours, of the attempt alone: asked wherever that is known.
    ByAttempt(Arc<ByAttempt>),
    Any(Arc<AnyDelay<K>>),
}

pub(super) type ByAttempt = dyn Fn(u32) -> Duration + Send + Sync;
type AnyDelay<K> = dyn Fn(&K, u32, Instant) -> Duration + Send + Sync;

impl<K: Key> Limiter<K> {
    /// A limiter of your own.
    pub fn new(delay: impl Fn(&K, u32, Instant) -> Duration + Send + Sync + 'static) -> Self {
        Self(Delay::Any(Arc::new(delay)))
    }

    fn of_attempt(delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self(Delay::ByAttempt(Arc::new(delay)))
    }

    /// `base`, doubled per attempt, at most `max`. For keys that fail on their own.
    pub fn exponential(base: Duration, max: Duration) -> Self {
        Self::of_attempt(move |attempt| exponential(base, max, attempt))
    }

    /// `fast` for the first `attempts` failures, `slow` after that. For what usually heals at once or not for long.
    pub fn fast_slow(fast: Duration, slow: Duration, attempts: u32) -> Self {
        Self::of_attempt(move |attempt| if attempt < attempts { fast } else { slow })
    }

    /// One key per `interval`, all keys together, after `burst` that pass at once (0 counts as 1). Each call reserves the
    /// next free moment, so keys limited together are spread out, not released together.
    pub fn bucket(interval: Duration, burst: u32) -> Self {
        // The generic cell rate algorithm: the bucket would be full again `debt` after `since`, were nothing more taken.
        let state: Mutex<Option<(Instant, Duration)>> = Mutex::new(None);
        let burst = burst.max(1);
        // So that what is owed can be more than what is let pass.
        let interval = interval.min(Duration::MAX / burst);
        let tolerance = interval.saturating_mul(burst - 1);
        Self::new(move |_, _, now| {
            let mut state = state.lock();
            let (since, debt) = state.unwrap_or((now, Duration::ZERO));
            let debt = debt.saturating_sub(now.saturating_duration_since(since));
            // Two threads may come in another order than that in which they read the clock: `since` never goes back.
            let since = since.max(now);
            *state = Some((since, debt.saturating_add(interval)));
            debt.saturating_add(since.saturating_duration_since(now)).saturating_sub(tolerance)
        })
    }

    /// The longer wait of the two; both are charged.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Delay::ByAttempt(one), Delay::ByAttempt(other)) => {
                Self::of_attempt(move |attempt| one(attempt).max(other(attempt)))
            }
            (one, other) => {
                let (one, other) = (Self(one), Self(other));
                Self::new(move |key, attempt, now| one.delay(key, attempt, now).max(other.delay(key, attempt, now)))
            }
        }
    }

    /// Never longer than `cap`.
    #[must_use]
    pub fn at_most(self, cap: Duration) -> Self {
        match self.0 {
            Delay::ByAttempt(delay) => Self::of_attempt(move |attempt| delay(attempt).min(cap)),
            Delay::Any(delay) => Self::new(move |key, attempt, now| delay(key, attempt, now).min(cap)),
        }
    }

    /// Longer by up to `fraction` of the wait (0.1 is 10 %), different for every key and attempt: so that keys that failed
    /// together do not come back together. Negative fractions and those that are no number count as 0.
    #[must_use]
    pub fn jitter(self, fraction: f64) -> Self {
        let fraction = if fraction > 0.0 { fraction.min(f64::MAX) } else { 0.0 };
        let random = RandomState::new();
        Self::new(move |key, attempt, now| {
            let delay = self.delay(key, attempt, now);
            let draw = random.hash_one((key, attempt)) as f64 / 2f64.powi(64);
            let longer = delay.as_secs_f64() * fraction * draw;
            delay.saturating_add(Duration::try_from_secs_f64(longer).unwrap_or(Duration::MAX))
        })
    }

    /// The wait for a key that failed `attempt` times before.
    pub fn delay(&self, key: &K, attempt: u32, now: Instant) -> Duration {
        match &self.0 {
            Delay::ByAttempt(delay) => delay(attempt),
            Delay::Any(delay) => delay(key, attempt, now),
        }
    }

    /// The same, if it is ours and asks for nothing else: it may be asked under the queue's lock.
    pub(super) fn by_attempt(&self) -> Option<&ByAttempt> {
        match &self.0 {
            Delay::ByAttempt(delay) => Some(&**delay),
            Delay::Any(_) => None,
        }
    }
}

const BASE: Duration = Duration::from_millis(5);
const MAX: Duration = Duration::from_secs(1000);

/// What the default limiter says, and what holds for a key whose limiter panicked.
pub(super) fn default_delay(attempt: u32) -> Duration {
    exponential(BASE, MAX, attempt)
}

fn exponential(base: Duration, max: Duration, attempt: u32) -> Duration {
    let doubled = |nanos: u64| nanos.checked_mul(1u64.checked_shl(attempt)?);
    match u64::try_from(base.as_nanos()).ok().and_then(doubled) {
        Some(delay) => Duration::from_nanos(delay).min(max),
        None if base.is_zero() => base,
        // Half a thousand years and more.
        None => max,
    }
}

impl<K: Key> Default for Limiter<K> {
    /// 5 ms to 1000 s, exponential, without jitter.
    fn default() -> Self {
        Self::exponential(BASE, MAX)
    }
}

impl<K> Clone for Limiter<K> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Delay::ByAttempt(delay) => Delay::ByAttempt(delay.clone()),
            Delay::Any(delay) => Delay::Any(delay.clone()),
        })
    }
}

impl<K> std::fmt::Debug for Limiter<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Limiter")
    }
}
