//! When to tell a handler of every object again.
//!
//! Each user has a timer of its own, as wide as it asked for: users of one informer need not agree, and who does not ask is not disturbed. The server has no part in it.

use rand::RngExt;
use std::{pin::Pin, task::Context, time::Duration};
use tokio::time::{Instant, Sleep, sleep};

/// Rings once in a period, sooner or later by up to a tenth, so that not all handlers have all their work at once.
pub(super) struct Resync {
    period: Duration,
    /// Begins with the first look at it.
    next: Option<Pin<Box<Sleep>>>,
}

impl Resync {
    /// A period of zero is none.
    pub(super) fn every(period: Option<Duration>) -> Option<Self> {
        let period = period.filter(|period| !period.is_zero())?;
        Some(Self { period, next: None })
    }

    /// Whether it has rung. Who was told no is woken.
    pub(super) fn poll_rung(&mut self, cx: &mut Context<'_>) -> bool {
        let wait = self.period.mul_f64(rand::rng().random_range(0.9..1.1)).max(Duration::from_millis(1));
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
