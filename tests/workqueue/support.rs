//! Helpers of the work queue tests: queues, pollable futures, random numbers.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use steersman::workqueue::{Add, Item, Key, Limiter, Outcome, Priority, QueueOptions, WorkQueue};
use tokio::time::Instant;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Shortest possible step of time.
pub(crate) const NANOSECOND: Duration = Duration::from_nanos(1);

/// Returns `delay` less one nanosecond.
#[track_caller]
pub(crate) fn nearly(delay: Duration) -> Duration {
    delay.checked_sub(NANOSECOND).expect("a delay")
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Creates a queue without a share for lower priorities, as in controller-runtime.
pub(crate) fn strict<K: Key>() -> WorkQueue<K> {
    with_share(0)
}

pub(crate) fn with_share<K: Key>(share: u32) -> WorkQueue<K> {
    WorkQueue::new(QueueOptions {
        share,
        ..QueueOptions::default()
    })
}

pub(crate) fn with_limiter<K: Key>(limiter: Limiter<K>) -> WorkQueue<K> {
    WorkQueue::new(QueueOptions {
        limiter,
        ..QueueOptions::default()
    })
}

/// Returns options to add at a priority.
pub(crate) fn at(priority: i32) -> Add {
    Add {
        priority: Some(Priority(priority)),
        ..Add::default()
    }
}

/// Returns options to add after a delay that replaces a pending one.
pub(crate) fn replace(after: Duration) -> Add {
    Add {
        after: Some(after),
        replace_timer: true,
        ..Add::default()
    }
}

pub(crate) fn rate_limited() -> Add {
    Add {
        rate_limited: true,
        ..Add::default()
    }
}

pub(crate) fn because(reason: &str) -> Add {
    Add {
        reason: Some(reason.into()),
        ..Add::default()
    }
}

/// Returns the next key, which must be ready.
#[track_caller]
pub(crate) fn take<K: Key>(queue: &WorkQueue<K>) -> Item<K> {
    queue.try_get().expect("a key should be ready")
}

/// Takes and finishes the next key, which must be `key`.
#[track_caller]
pub(crate) fn run<K: Key>(queue: &WorkQueue<K>, key: &K) {
    let item = take(queue);
    assert_eq!(item.key(), key);
    item.finish(Outcome::done());
}

/// Runs all ready keys one after another, and returns them in order.
pub(crate) fn run_all<K: Key>(queue: &WorkQueue<K>) -> Vec<K> {
    std::iter::from_fn(|| {
        let item = queue.try_get()?;
        let key = item.key().clone();
        item.finish(Outcome::done());
        Some(key)
    })
    .collect()
}

pub(crate) fn reasons<K: Key>(item: &Item<K>) -> Vec<String> {
    item.reasons().iter().map(ToString::to_string).collect()
}

/// Asserts that `delay` has passed since `start`.
///
/// Tolerates the millisecond of tokio's timer.
#[track_caller]
pub(crate) fn assert_elapsed(start: Instant, delay: Duration) {
    let elapsed = start.elapsed();
    assert!(
        (delay..=delay + ms(1)).contains(&elapsed),
        "{elapsed:?} instead of {delay:?}"
    );
}

/// Returns the output, unless `limit` passes first.
///
/// Unlike tokio's timeout, it does not poll the future a last time, which would hide a lost wakeup.
pub(crate) async fn within<F: IntoFuture>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        () = tokio::time::sleep(limit) => None,
        output = future.into_future() => Some(output),
    }
}

/// Returns the output, on paused time.
///
/// Fails the test instead of hanging if the future never completes.
#[track_caller]
pub(crate) fn soon<F: IntoFuture>(future: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        within(Duration::from_hours(10_000), future)
            .await
            .unwrap_or_else(|| panic!("{caller}: it never comes"))
    }
}

/// Future that is polled by hand, and a counter of its wakeups.
pub(crate) struct ByHand<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl<F: Future> ByHand<F> {
    pub(crate) fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            wakes: Arc::default(),
        }
    }

    /// Creates a future and polls it once, which must return pending.
    #[track_caller]
    pub(crate) fn waiting(future: F) -> Self {
        let mut this = Self::new(future);
        assert!(this.poll().is_pending(), "the future should be pending");
        this
    }

    /// Polls the future and resets the counter of wakeups.
    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        self.wakes.0.store(0, Ordering::Relaxed);
        let waker = Waker::from(self.wakes.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls the future, which must be ready.
    #[track_caller]
    pub(crate) fn ready(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it should be ready"),
        }
    }

    pub(crate) fn was_woken(&self) -> bool {
        self.wakes.0.load(Ordering::Relaxed) > 0
    }
}

/// Deterministic random numbers (`splitmix64`).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}
