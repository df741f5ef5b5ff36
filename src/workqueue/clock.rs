//! The queue's clock: nanoseconds since the queue was made, by tokio's time.
//!
//! What it reads takes a third of what reading tokio's clock does, and leaves [a little open](Moment). What is due is decided by the earlier moment, and
//! what is to wait does so from the later on: so nothing is early, and late by 20 us at the most. Who was woken by a timer, or asks how things are, reads
//! tokio's clock itself.

use crate::sync::{self, Instant, Stamp, stamp};
use std::time::Duration;

#[derive(Clone, Copy)]
pub(super) struct Clock {
    epoch: Instant,
    /// The same, as stamps have it.
    began: u64,
}

/// What the time lies between; the same twice where tokio's clock was read.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// To decide what is due.
    pub(super) earliest: u64,
    /// To say when something happened, or from when on it waits.
    pub(super) latest: u64,
}

impl Moment {
    /// `delay` after it; 0 is now itself.
    #[inline]
    pub(super) fn due(self, delay: Duration) -> u64 {
        if delay.is_zero() { 0 } else { self.after(delay) }
    }

    pub(super) fn after(self, delay: Duration) -> u64 {
        self.latest.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// What time it is, asked only by who has to know.
pub(super) trait Time {
    fn read(&self) -> Moment;
}

impl Clock {
    pub(super) fn new() -> Self {
        sync::prepare();
        let epoch = Instant::now();
        Self { epoch, began: Stamp::of(epoch).latest }
    }

    /// By tokio's clock.
    #[inline]
    pub(super) fn now(self) -> u64 {
        let since = Instant::now().saturating_duration_since(self.epoch);
        since.as_secs().saturating_mul(1_000_000_000).saturating_add(since.subsec_nanos().into())
    }

    /// The same as a moment.
    pub(super) fn exact(self) -> Moment {
        let now = self.now();
        Moment { earliest: now, latest: now }
    }

    pub(super) fn instant(self, nanos: u64) -> Option<Instant> {
        self.epoch.checked_add(Duration::from_nanos(nanos))
    }

    /// The moment of a stamp.
    #[inline]
    pub(super) fn moment(self, stamp: Stamp) -> Moment {
        let since = |nanos: u64| nanos.saturating_sub(self.began);
        Moment { earliest: since(stamp.earliest), latest: since(stamp.latest) }
    }
}

impl Time for Clock {
    #[inline]
    fn read(&self) -> Moment {
        self.moment(stamp())
    }
}

/// For one who has read it already.
impl Time for Moment {
    #[inline]
    fn read(&self) -> Moment {
        *self
    }
}
