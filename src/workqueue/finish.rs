//! End of the processing of a key: done, requeued or parked.
//!
//! Invariant: afterwards the key is queued, is kept for its failed attempts, or has released its
//! slot.

use super::{
    Key, Reason,
    clock::TimeSource,
    reasons::ReasonIds,
    shutdown::Phase,
    slots::{Pending, Running},
    state::{NEVER, State, When},
    waiters::Wakers,
};
use std::sync::Arc;

/// Processing that ends.
pub(super) struct Finished<'a> {
    pub(super) slot: u32,
    pub(super) run: u32,
    pub(super) kind: FinishKind,
    /// Priority of the requeue.
    pub(super) priority: i32,
    /// Error of the processing, taken if set.
    pub(super) error: &'a mut Option<Arc<str>>,
    /// Reason of the requeue.
    pub(super) reason: Option<&'a Reason>,
}

/// Result of processing a key. Times are those of the queue's clock; 0 is now.
#[derive(Clone, Copy)]
pub(super) enum FinishKind {
    /// Changes nothing else.
    Drop,
    /// Resets the attempts.
    Success,
    /// Resets the attempts, and requeues at this time.
    Requeue(u64),
    /// Requeues at this time, computed by the limiter.
    Retry(u64),
    /// Parks until unparked or until this time.
    Park(u64),
}

impl<K: Key> State<K> {
    /// Counts a failure and returns the number of earlier ones.
    ///
    /// A key that was processed before its backoff had elapsed does not lengthen the next delay.
    pub(super) fn count_attempt(&mut self, at: u32) -> u32 {
        let slot = &mut self.slots[at];
        let early = slot.is_running() && self.processing.take_early(slot.position);
        if slot.is_running() {
            slot.backoff_until = 0; // A new backoff starts.
        }
        if !early || slot.attempts == 0 {
            slot.attempts = slot.attempts.saturating_add(1);
        }
        slot.attempts - 1
    }

    /// Ends the processing, at `ended_at` if that is measured.
    ///
    /// Moves the key to `done` if its slot is released.
    pub(super) fn finish(
        &mut self,
        ended: Finished<'_>,
        ended_at: Option<u64>,
        time: &impl TimeSource,
        wakers: &mut Wakers,
        done: &mut Option<K>,
    ) {
        let Finished {
            slot: at,
            run,
            kind: end,
            priority,
            error,
            reason,
        } = ended;
        let (started, mut reasons) = self.processing.end(run);
        self.watchers.wake(run); // Called after unlocking; spurious wakes are harmless.
        if let Some(ended_at) = ended_at {
            self.counters
                .worked
                .observe(ended_at.saturating_sub(started));
        }
        if self.phase == Phase::Closed {
            self.counters.rejected +=
                u64::from(matches!(end, FinishKind::Requeue(_) | FinishKind::Retry(_)));
            self.reasons.release(&mut reasons);
            return;
        }
        if let Some(error) = error.take() {
            self.errors.insert(at, error);
        }
        let open = self.phase == Phase::Open;
        if let FinishKind::Success | FinishKind::Requeue(_) = end {
            self.forget_slot(at);
        }
        if let FinishKind::Park(until) = end {
            self.park(at, until, priority, &mut reasons, time, wakers);
        }
        self.reasons.release(&mut reasons);
        if let FinishKind::Requeue(due) | FinishKind::Retry(due) = end {
            if open {
                self.push_requeue_reason(at, reason);
                let when = When::at(due, matches!(end, FinishKind::Retry(_)), false);
                self.merge(at, when, priority, time, wakers);
            } else {
                self.counters.rejected += 1;
            }
        }
        let slot = &mut self.slots[at];
        slot.running = Running::No;
        if slot.pending == Pending::Worker {
            if self.wheel.next_due().is_some() {
                self.promote_due(time.read().earliest);
            }
            self.ready_while_processing -= 1;
            self.ready.push(&mut self.slots, at);
        }
        if !open {
            self.forget_slot(at);
        }
        self.free_if_idle(at, done);
    }

    /// Adds the reason of a requeue, unless an event has already made the key ready.
    fn push_requeue_reason(&mut self, at: u32, reason: Option<&Reason>) {
        let slot = &mut self.slots[at];
        if let Some(reason) = reason.filter(|_| slot.pending != Pending::Worker) {
            self.reasons.push(&mut slot.reasons, reason);
        }
    }

    fn park(
        &mut self,
        at: u32,
        until: u64,
        priority: i32,
        reasons: &mut ReasonIds,
        time: &impl TimeSource,
        wakers: &mut Wakers,
    ) {
        if self.phase != Phase::Open {
            return;
        }
        let added_meanwhile = self.slots[at].pending != Pending::Nothing;
        self.withdraw(at);
        let slot = &mut self.slots[at];
        self.reasons.merge(reasons, &mut slot.reasons);
        slot.priority = if added_meanwhile {
            slot.priority.max(priority)
        } else {
            priority
        };
        if slot.running == Running::Unparked {
            let now = self.now(time);
            self.make_ready(at, now);
            return;
        }
        slot.pending = Pending::Unpark;
        slot.ready_at = until;
        self.parked += 1;
        if until != NEVER {
            self.schedule(at, wakers);
        }
    }

    /// Makes a parked key ready; returns false if it is neither parked nor processed.
    ///
    /// If a worker has the key, a later park has no effect.
    pub(super) fn unpark(&mut self, at: u32, now: u64) -> bool {
        self.promote_due(now);
        let slot = &mut self.slots[at];
        if slot.pending == Pending::Unpark {
            self.withdraw(at);
            self.make_ready(at, now);
            return true;
        }
        let running = slot.is_running();
        if running {
            slot.running = Running::Unparked;
        }
        running
    }
}
