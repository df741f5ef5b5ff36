//! When to tell a handler of objects again.
//!
//! Each user has timers of its own, as wide as it asked for, one for each period that some namespace has: users of one informer need not agree, and who does not ask is
//! not disturbed. The server has no part in it.

use crate::object::ByNamespace;
use rand::RngExt;
use std::{collections::BTreeSet, pin::Pin, sync::Arc, task::Context, time::Duration};
use tokio::time::{Instant, Sleep, sleep};

/// What is longer is as good as never, and may be more than the clock can count.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// How often objects are told again, by where they are; never if that is zero.
pub(super) type Periods = Arc<ByNamespace<Duration>>;

pub(super) struct Resync {
    pub(super) periods: Periods,
    timers: Vec<Timer>,
}

/// Rings once in a period, sooner or later by up to a tenth, so that not all handlers have all their work at once.
struct Timer {
    period: Duration,
    /// Begins with the first look at it.
    next: Option<Pin<Box<Sleep>>>,
}

impl Resync {
    pub(super) fn every(periods: Periods) -> Self {
        let each: BTreeSet<_> = periods.iter().copied().filter(|period| !period.is_zero()).collect();
        let timers = each.into_iter().map(|period| Timer { period, next: None }).collect();
        Self { periods, timers }
    }

    /// The periods that are over. Who was told of none is woken.
    pub(super) fn poll_rung(&mut self, cx: &mut Context<'_>) -> impl Iterator<Item = Duration> {
        self.timers.iter_mut().filter_map(|timer| timer.poll_rung(cx).then_some(timer.period))
    }
}

impl Timer {
    fn poll_rung(&mut self, cx: &mut Context<'_>) -> bool {
        let period = self.period.min(LONGEST);
        let wait = period.mul_f64(rand::rng().random_range(0.9..1.1)).max(Duration::from_millis(1));
        let next = self.next.get_or_insert_with(|| Box::pin(sleep(wait)));
        let mut rung = false;
        // It is polled until it waits, so that it wakes.
        while next.as_mut().poll(cx).is_ready() {
            rung = true;
            next.as_mut().reset(Instant::now() + wait);
        }
        rung
    }
}
