//! The queue's clock: nanoseconds since the queue was made, by tokio's time.
//!
//! It is read in two ways. What is *due* is decided by the time itself. When something *happened* is said by a [stamp], which may be off by
//! up to 20 us and costs a third; most queues have nothing that waits for a time, and then that is all they read.

use crate::sync::{self, Instant, Stamp, stamp};
use std::time::Duration;

#[derive(Clone, Copy)]
pub(super) struct Clock {
    epoch: Instant,
    /// The same.
    began: Stamp,
}

/// `delay` after `now`; 0 is now itself.
pub(super) fn due(delay: Duration, now: u64) -> u64 {
    if delay.is_zero() { 0 } else { now.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)) }
}

/// What time it is.
pub(super) trait Time {
    /// To say when something happened.
    fn stamp(&self) -> u64;

    /// To decide what is due.
    fn now(&self) -> u64;
}

impl Clock {
    pub(super) fn new() -> Self {
        sync::prepare();
        let epoch = Instant::now();
        Self { epoch, began: Stamp::of(epoch) }
    }

    #[inline]
    pub(super) fn now(self) -> u64 {
        self.since_epoch(Instant::now())
    }

    pub(super) fn since_epoch(self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch);
        since.as_secs().saturating_mul(1_000_000_000).saturating_add(since.subsec_nanos().into())
    }

    pub(super) fn instant(self, nanos: u64) -> Option<Instant> {
        self.epoch.checked_add(Duration::from_nanos(nanos))
    }

    /// `delay` after `now`; 0 is now itself.
    pub(super) fn due(self, delay: Duration, now: Instant) -> u64 {
        due(delay, self.since_epoch(now))
    }

    /// For one who has read a stamp already.
    #[inline]
    pub(super) fn stamped(self, stamp: Stamp) -> Stamped {
        Stamped { clock: self, stamp: stamp.since(self.began) }
    }
}

impl Time for Clock {
    #[inline]
    fn stamp(&self) -> u64 {
        stamp().since(self.began)
    }

    #[inline]
    fn now(&self) -> u64 {
        (*self).now()
    }
}

pub(super) struct Stamped {
    clock: Clock,
    stamp: u64,
}

impl Time for Stamped {
    #[inline]
    fn stamp(&self) -> u64 {
        self.stamp
    }

    #[inline]
    fn now(&self) -> u64 {
        self.clock.now()
    }
}

/// For one who has read the clock already.
impl Time for u64 {
    #[inline]
    fn stamp(&self) -> u64 {
        *self
    }

    #[inline]
    fn now(&self) -> u64 {
        *self
    }
}
