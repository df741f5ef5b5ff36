//! Limiters: compute the delay of failing keys.
//!
//! A limiter is a function of the key, its number of failures and the time. The queue counts the
//! attempts, so a limiter has no state per key.

use super::Key;
use crate::{
    jitter,
    sync::{Instant, Mutex},
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

/// Function that computes the delay of a failing key. Clones share their state.
///
/// The attempt is 0 at the first failure since the last success. A custom function is called
/// without any lock, at the time of the add. Its time argument may be up to 20 us ahead. If it
/// panics, the panic is counted ([`Stats::limiter_panics`](super::Stats::limiter_panics)), and the
/// key gets the delay of the default limiter.
///
/// ```
/// use std::time::Duration;
/// use steersman::workqueue::{Limiter, QueueOptions, WorkQueue};
///
/// // Per key 5 ms, 10 ms … 5 min, plus up to 10 %; in total 10 keys/s after a burst of 100.
/// let limiter = Limiter::exponential(Duration::from_millis(5), Duration::from_secs(300))
///     .jitter(0.1)
///     .max(Limiter::bucket(Duration::from_millis(100), 100));
/// let queue = WorkQueue::new(QueueOptions { limiter, ..QueueOptions::default() });
/// # queue.add("key");
/// ```
pub struct Limiter<K>(Delay<K>);

enum Delay<K> {
    /// Built-in function of the attempt, which may be called under the lock.
    ByAttempt(Arc<ByAttempt>),
    Any(Arc<AnyDelay<K>>),
}

pub(super) type ByAttempt = dyn Fn(u32) -> Duration + Send + Sync;
type AnyDelay<K> = dyn Fn(&K, u32, Instant) -> Duration + Send + Sync;

impl<K: Key> Limiter<K> {
    /// Creates a limiter from a function of key, attempt and time.
    pub fn new(delay: impl Fn(&K, u32, Instant) -> Duration + Send + Sync + 'static) -> Self {
        Self(Delay::Any(Arc::new(delay)))
    }

    fn of_attempt(delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self(Delay::ByAttempt(Arc::new(delay)))
    }

    /// Doubles the delay from `base` to `max` with each attempt.
    ///
    /// Use it for keys that fail independently.
    pub fn exponential(base: Duration, max: Duration) -> Self {
        Self::of_attempt(move |attempt| exponential(base, max, attempt))
    }

    /// Returns `fast` for the first `attempts` failures, then `slow`.
    ///
    /// Use it for failures that resolve either at once or not for a long time.
    pub fn fast_slow(fast: Duration, slow: Duration, attempts: u32) -> Self {
        Self::of_attempt(move |attempt| if attempt < attempts { fast } else { slow })
    }

    /// Limits all keys with a token bucket: `burst` at once, then one per `interval`.
    ///
    /// A burst of 0 counts as 1. Each call reserves the next free time, so keys that are limited
    /// together are spread out.
    pub fn bucket(interval: Duration, burst: u32) -> Self {
        // Generic cell rate algorithm: without further keys, the bucket is full `debt` after
        // `since`.
        let state: Mutex<Option<(Instant, Duration)>> = Mutex::new(None);
        let burst = burst.max(1);
        // Bounds the interval so that the tolerance does not overflow.
        let interval = interval.min(Duration::MAX / burst);
        let tolerance = interval.saturating_mul(burst - 1);
        Self::new(move |_, _, now| {
            let mut state = state.lock();
            let (since, debt) = state.unwrap_or((now, Duration::ZERO));
            let debt = debt.saturating_sub(now.saturating_duration_since(since));
            // Threads can arrive in another order than they read the clock: `since` never
            // decreases.
            let since = since.max(now);
            *state = Some((since, debt.saturating_add(interval)));
            debt.saturating_add(since.saturating_duration_since(now))
                .saturating_sub(tolerance)
        })
    }

    /// Returns the longer delay of two limiters, both of which count the key.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Delay::ByAttempt(one), Delay::ByAttempt(other)) => {
                Self::of_attempt(move |attempt| one(attempt).max(other(attempt)))
            }
            (one, other) => {
                let (one, other) = (Self(one), Self(other));
                Self::new(move |key, attempt, now| {
                    one.delay(key, attempt, now)
                        .max(other.delay(key, attempt, now))
                })
            }
        }
    }

    /// Limits the delay to `cap`.
    #[must_use]
    pub fn at_most(self, cap: Duration) -> Self {
        match self.0 {
            Delay::ByAttempt(delay) => Self::of_attempt(move |attempt| delay(attempt).min(cap)),
            Delay::Any(delay) => {
                Self::new(move |key, attempt, now| delay(key, attempt, now).min(cap))
            }
        }
    }

    /// Adds a random part of up to `fraction` of the delay (0.1 is 10 %).
    ///
    /// The part differs by key and attempt, so that keys that failed together are retried at
    /// different times. Negative and NaN fractions count as 0.
    #[must_use]
    pub fn jitter(self, fraction: f64) -> Self {
        let fraction = if fraction > 0.0 {
            fraction.min(f64::MAX)
        } else {
            0.0
        };
        let seed = jitter::number();
        Self::new(move |key, attempt, now| {
            let delay = self.delay(key, attempt, now);
            let mut hasher = DefaultHasher::new();
            (seed, key, attempt).hash(&mut hasher);
            let draw = hasher.finish() as f64 / 2f64.powi(64);
            let longer = delay.as_secs_f64() * fraction * draw;
            delay.saturating_add(Duration::try_from_secs_f64(longer).unwrap_or(Duration::MAX))
        })
    }

    /// Returns the delay of a key that failed `attempt` times before.
    pub fn delay(&self, key: &K, attempt: u32, now: Instant) -> Duration {
        match &self.0 {
            Delay::ByAttempt(delay) => delay(attempt),
            Delay::Any(delay) => delay(key, attempt, now),
        }
    }

    /// Returns the function if it depends on the attempt only.
    pub(super) fn by_attempt(&self) -> Option<&ByAttempt> {
        match &self.0 {
            Delay::ByAttempt(delay) => Some(&**delay),
            Delay::Any(_) => None,
        }
    }
}

const BASE: Duration = Duration::from_millis(5);
const MAX: Duration = Duration::from_secs(1000);

/// Returns the delay of the default limiter, also used if a custom one panics.
pub(super) fn default_delay(attempt: u32) -> Duration {
    exponential(BASE, MAX, attempt)
}

fn exponential(base: Duration, max: Duration, attempt: u32) -> Duration {
    let doubled = |nanos: u64| nanos.checked_mul(1u64.checked_shl(attempt)?);
    match u64::try_from(base.as_nanos()).ok().and_then(doubled) {
        Some(delay) => Duration::from_nanos(delay).min(max),
        None if base.is_zero() => base,
        // The delay overflows after more than 500 years.
        None => max,
    }
}

impl<K: Key> Default for Limiter<K> {
    /// Exponential from 5 ms to 1000 s, without jitter.
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
