//! What the queue takes from its surroundings, in the hands of a scheduler that decides who runs: the counterpart of
//! `src/sync.rs`. The clock stands still until [`advance`] moves it.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    sync::PoisonError,
    task::{Context, Poll, Waker},
    time::Duration,
};

pub(crate) use shuttle::sync::MutexGuard;

/// A lock that a panic does not poison, as that of `src/sync.rs`.
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

/// Here nobody gains by looking away.
pub(crate) type CalmMutex<T> = Mutex<T>;

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

/// A moment, in nanoseconds: here it is known.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) earliest: u64,
    pub(crate) latest: u64,
}

impl Stamp {
    pub(crate) fn of(clock: Instant) -> Self {
        let nanos = clock.0.as_nanos() as u64;
        Self { earliest: nanos, latest: nanos }
    }
}

/// The clock costs nothing here.
pub(crate) fn stamp() -> Stamp {
    Stamp::of(Instant::now())
}

pub(crate) fn prepare() {}

/// Set the clock to zero: a new schedule begins.
pub(crate) fn reset() {
    CLOCK.set(Clock::default());
}

/// Let time pass; those whose time has come are woken, and no others.
pub(crate) fn advance(by: Duration) {
    let due: Vec<_> = CLOCK.with_borrow_mut(|clock| {
        clock.now += by;
        let now = clock.now;
        clock.sleeping.extract_if(.., |(deadline, _)| *deadline <= now).collect()
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
