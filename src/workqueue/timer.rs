//! Timer of a future that waits on the queue.

use super::{Key, queue::Shared};
use crate::sync::{Instant, Sleep, sleep_until};
use std::{pin::Pin, task::Context};

/// Timer for a time of the queue's clock, or unset.
#[derive(Default)]
pub(super) struct Timer(Option<(u64, Pin<Box<Sleep>>)>);

impl Timer {
    /// Sets and polls the timer. Returns whether to keep waiting.
    pub(super) fn poll<K: Key>(
        &mut self,
        queue: &Shared<K>,
        at: Option<u64>,
        cx: &mut Context<'_>,
    ) -> bool {
        let Some((at, deadline)) = at.and_then(|at| Some((at, queue.clock.instant(at)?))) else {
            self.0 = None;
            return true;
        };
        let (_, sleep) = match self.0.take() {
            Some(set) if set.0 == at => self.0.insert(set),
            _ => self.0.insert((at, Box::pin(sleep_until(deadline)))),
        };
        sleep.as_mut().poll(cx).is_pending() && Instant::now() < deadline
    }
}
