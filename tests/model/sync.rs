//! Counterpart of `src/sync.rs` for model checks.
//!
//! A scheduler decides which thread runs. The clock stands still until [`advance`] moves it.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    sync::PoisonError,
    task::{Context, Poll, Waker},
    time::Duration,
};

pub(crate) use shuttle::sync::MutexGuard;

/// Lock that a panic does not poison, like that of `src/sync.rs`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Same type as [`Mutex`], because backing off has no use under the scheduler.
pub(crate) type BackoffMutex<T> = Mutex<T>;

/// Time since the schedule began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

#[derive(Default)]
struct Clock {
    now: Duration,
    sleeping: Vec<(Duration, Waker)>,
}

thread_local! {
    /// All tasks of one schedule run on one thread.
    static CLOCK: RefCell<Clock> = RefCell::default();
}

impl Instant {
    pub(crate) fn now() -> Self {
        CLOCK.with_borrow(|clock| Self(clock.now))
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn checked_add(self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }
}

/// A time in nanoseconds, which is exact here.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) earliest: u64,
    pub(crate) latest: u64,
}

impl Stamp {
    pub(crate) fn of(clock: Instant) -> Self {
        let nanos = clock.0.as_nanos() as u64;
        Self {
            earliest: nanos,
            latest: nanos,
        }
    }
}

/// Returns the current time. Reading the clock is free here, so it is exact.
pub(crate) fn stamp() -> Stamp {
    Stamp::of(Instant::now())
}

pub(crate) fn prepare() {}

/// Sets the clock to zero for a new schedule.
pub(crate) fn reset() {
    CLOCK.set(Clock::default());
}

/// Advances the clock, and wakes only the timers that are due.
pub(crate) fn advance(by: Duration) {
    let due: Vec<_> = CLOCK.with_borrow_mut(|clock| {
        clock.now += by;
        let now = clock.now;
        clock
            .sleeping
            .extract_if(.., |(deadline, _)| *deadline <= now)
            .collect()
    });
    for (_, waker) in due {
        waker.wake();
    }
    shuttle::thread::yield_now();
}

pub(crate) struct Sleep(Instant);

pub(crate) fn sleep_until(deadline: Instant) -> Sleep {
    Sleep(deadline)
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        CLOCK.with_borrow_mut(|clock| {
            if clock.now >= self.0.0 {
                return Poll::Ready(());
            }
            clock.sleeping.push((self.0.0, cx.waker().clone()));
            Poll::Pending
        })
    }
}
