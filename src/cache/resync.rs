//! Timers of periodic resyncs.
//!
//! Each subscription has its own timers, one for each period that is set for some namespace, so
//! that subscriptions of one informer can have different periods. A resync sends no request to the
//! API server.

use crate::{jitter, object::ByNamespace};
use std::{collections::BTreeSet, pin::Pin, sync::Arc, task::Context, time::Duration};
use tokio::time::{Instant, Sleep, sleep};

/// Upper limit of a period, so that `Instant` does not overflow.
const MAX_PERIOD: Duration = Duration::from_hours(24 * 365);

/// Resync periods by namespace. Zero disables the resync.
pub(super) type Periods = Arc<ByNamespace<Duration>>;

pub(super) struct Resync {
    pub(super) periods: Periods,
    timers: Vec<Timer>,
}

/// Timer of one period, with 10 % jitter to spread the resyncs of handlers.
struct Timer {
    period: Duration,
    /// Next resync. Created by the first poll.
    next: Option<Pin<Box<Sleep>>>,
}

impl Resync {
    pub(super) fn new(periods: Periods) -> Self {
        let each: BTreeSet<_> = periods
            .iter()
            .copied()
            .filter(|period| !period.is_zero())
            .collect();
        let timers = each
            .into_iter()
            .map(|period| Timer { period, next: None })
            .collect();
        Self { periods, timers }
    }

    /// Returns the periods that have elapsed, and registers the waker for the others.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> impl Iterator<Item = Duration> {
        self.timers
            .iter_mut()
            .filter_map(|timer| timer.poll_elapsed(cx).then_some(timer.period))
    }
}

impl Timer {
    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> bool {
        let period = self.period.min(MAX_PERIOD);
        let wait = period
            .mul_f64(jitter::factor(0.9..1.1))
            .max(Duration::from_millis(1));
        let next = self.next.get_or_insert_with(|| Box::pin(sleep(wait)));
        let mut rung = false;
        // Poll until pending, so that the waker is registered.
        while next.as_mut().poll(cx).is_ready() {
            rung = true;
            next.as_mut().reset(Instant::now() + wait);
        }
        rung
    }
}
