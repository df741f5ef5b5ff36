//! Rate limits of the crate governor on tokio's clock.
//!
//! Limiters only use governor's `check` and `check_key`, and waiting is a sleep of tokio, so that
//! tests can pause time. governor's own `until_ready` sleeps in real time.

use governor::{
    Quota,
    clock::{Clock, Reference},
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{InMemoryState, NotKeyed},
};
use std::{num::NonZeroU32, ops::Add, time::Duration};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

/// Time in which a whole burst is replenished at most, because governor counts nanoseconds as
/// `u64`.
const MAX_BURST_PERIOD: Duration = Duration::from_hours(100 * 365 * 24);

/// A rate limit: a burst, and the time after which one more is allowed.
///
/// ```
/// use std::time::Duration;
/// use steersman::client::Rate;
///
/// let rate = Rate::per_second(20, 30);
/// assert_eq!((rate.burst, rate.every), (30, Duration::from_millis(50)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number allowed at once after a pause. Zero counts as one.
    pub burst: u32,
    /// Time until one more is allowed.
    pub every: Duration,
}

impl Rate {
    /// Creates a rate of `count` per second with a burst: QPS and burst of client-go.
    ///
    /// A `count` of zero counts as one.
    pub const fn per_second(count: u32, burst: u32) -> Self {
        let count = if count == 0 { 1 } else { count };
        let every = Duration::from_nanos(1_000_000_000 / count as u64);
        Self { burst, every }
    }

    pub(crate) fn quota(self) -> Quota {
        let burst = NonZeroU32::new(self.burst).unwrap_or(NonZeroU32::MIN);
        let every = self.every.min(MAX_BURST_PERIOD / burst.get());
        Quota::with_period(every.max(Duration::from_nanos(1)))
            .expect("the period is not zero")
            .allow_burst(burst)
    }
}

/// tokio's clock, which tests can pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokioClock;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokioInstant(Instant);

impl Clock for TokioClock {
    type Instant = TokioInstant;

    fn now(&self) -> TokioInstant {
        TokioInstant(Instant::now())
    }
}

impl Add<Nanos> for TokioInstant {
    type Output = Self;

    fn add(self, time: Nanos) -> Self {
        Self(self.0 + Duration::from(time))
    }
}

impl Reference for TokioInstant {
    fn duration_since(&self, earlier: Self) -> Nanos {
        self.0.saturating_duration_since(earlier.0).into()
    }

    fn saturating_sub(&self, time: Nanos) -> Self {
        Self(self.0.checked_sub(time.into()).unwrap_or(self.0))
    }
}

/// A limiter of governor with state in `S`.
pub(crate) type RateLimiter<K, S> =
    governor::RateLimiter<K, S, TokioClock, NoOpMiddleware<TokioInstant>>;

/// Hands out permits at a [`Rate`].
pub(crate) struct Permits {
    limiter: RateLimiter<NotKeyed, InMemoryState>,
    /// Held by the caller that is next. It is fair, so callers are served in order, and only one of
    /// them sleeps.
    next: Mutex<()>,
}

impl Permits {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            limiter: RateLimiter::new(rate.quota(), InMemoryState::default(), TokioClock),
            next: Mutex::new(()),
        }
    }

    /// Waits for a permit, in the order of the calls.
    ///
    /// Cancel safety: a dropped call takes no permit.
    pub(crate) async fn acquire(&self) {
        let _next = self.next.lock().await;
        while let Err(not_until) = self.limiter.check() {
            sleep(not_until.wait_time_from(TokioClock.now())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, future::join_all};
    use std::{pin::pin, sync::Arc};
    use tokio::{
        task::yield_now,
        time::{advance, timeout},
    };

    const RATE: Rate = Rate {
        burst: 2,
        every: Duration::from_millis(100),
    };

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_permitted_at_once_and_the_rest_at_the_rate() {
        let permits = Permits::new(RATE);
        let begun = Instant::now();
        join_all((0..2).map(|_| permits.acquire())).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        join_all((0..5).map(|_| permits.acquire())).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(500));
        advance(Duration::from_hours(1)).await;
        let begun = Instant::now();
        join_all((0..3).map(|_| permits.acquire())).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(100));
    }

    /// tokio's timers are coarser than the limiter, so a permit can be available before the caller
    /// that waits for it wakes up.
    #[tokio::test(start_paused = true)]
    async fn a_caller_does_not_overtake_one_that_waits() {
        let permits = Arc::new(Permits::new(Rate {
            burst: 1,
            every: Duration::from_micros(100_500),
        }));
        permits.acquire().await;
        let first = permits.clone();
        let first = tokio::spawn(async move { first.acquire().await });
        yield_now().await;
        advance(Duration::from_micros(100_600)).await;
        assert!(!first.is_finished());
        let mut second = pin!(permits.acquire());
        assert!(second.as_mut().now_or_never().is_none());
        first.await.expect("no panic");
        second.await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_call_takes_no_permit() {
        let permits = Permits::new(RATE);
        join_all((0..2).map(|_| permits.acquire())).await;
        let begun = Instant::now();
        let dropped = timeout(Duration::from_millis(50), permits.acquire()).await;
        assert!(dropped.is_err());
        permits.acquire().await;
        assert_eq!(begun.elapsed(), Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn extreme_rates_neither_panic_nor_block() {
        for burst in [0, 1, u32::MAX] {
            for every in [Duration::ZERO, Duration::MAX] {
                Permits::new(Rate { burst, every }).acquire().await;
            }
        }
        let never_again = Permits::new(Rate {
            burst: 1,
            every: Duration::MAX,
        });
        never_again.acquire().await;
        let second = timeout(Duration::from_hours(10 * 365 * 24), never_again.acquire()).await;
        assert!(second.is_err());
        let unlimited = Permits::new(Rate {
            burst: 1,
            every: Duration::ZERO,
        });
        let begun = Instant::now();
        for _ in 0..100 {
            unlimited.acquire().await;
        }
        assert!(begun.elapsed() <= Duration::from_millis(100));
    }
}
