//! Clock of the queue: nanoseconds of tokio's time since the queue was created.
//!
//! A reading takes a third of the time of tokio's clock and returns an [interval](TimeRange). Its
//! start decides which keys are due, and delays are added to its end: keys are never early, and at
//! most 20 us late. After a timer has fired, and for snapshots, the queue reads tokio's clock
//! itself.

use crate::sync::{self, Instant, Stamp, stamp};
use std::time::Duration;

#[derive(Clone, Copy)]
pub(super) struct Clock {
    epoch: Instant,
    /// Epoch in the units of [`Stamp`].
    epoch_nanos: u64,
}

/// Interval that contains the current time; empty if tokio's clock was read.
#[derive(Clone, Copy)]
pub(super) struct TimeRange {
    /// Decides which keys are due.
    pub(super) earliest: u64,
    /// Start of delays, and time of events.
    pub(super) latest: u64,
}

impl TimeRange {
    /// Returns the time after `delay`; 0 for a delay of zero.
    #[inline]
    pub(super) fn due(self, delay: Duration) -> u64 {
        if delay.is_zero() {
            0
        } else {
            self.after(delay)
        }
    }

    pub(super) fn after(self, delay: Duration) -> u64 {
        self.latest
            .saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Source of the time, read only if needed.
pub(super) trait TimeSource {
    fn read(&self) -> TimeRange;
}

impl Clock {
    pub(super) fn new() -> Self {
        sync::prepare();
        let epoch = Instant::now();
        Self {
            epoch,
            epoch_nanos: Stamp::of(epoch).latest,
        }
    }

    /// Reads tokio's clock.
    #[inline]
    pub(super) fn now(self) -> u64 {
        let since = Instant::now().saturating_duration_since(self.epoch);
        since
            .as_secs()
            .saturating_mul(1_000_000_000)
            .saturating_add(since.subsec_nanos().into())
    }

    /// Reads tokio's clock as a [`TimeRange`].
    pub(super) fn exact(self) -> TimeRange {
        let now = self.now();
        TimeRange {
            earliest: now,
            latest: now,
        }
    }

    pub(super) fn instant(self, nanos: u64) -> Option<Instant> {
        self.epoch.checked_add(Duration::from_nanos(nanos))
    }

    /// Converts a stamp.
    #[inline]
    pub(super) fn moment(self, stamp: Stamp) -> TimeRange {
        let since = |nanos: u64| nanos.saturating_sub(self.epoch_nanos);
        TimeRange {
            earliest: since(stamp.earliest),
            latest: since(stamp.latest),
        }
    }
}

impl TimeSource for Clock {
    #[inline]
    fn read(&self) -> TimeRange {
        self.moment(stamp())
    }
}

/// A time that was already read.
impl TimeSource for TimeRange {
    #[inline]
    fn read(&self) -> TimeRange {
        *self
    }
}
