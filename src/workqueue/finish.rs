//! How a run ends: with its key done, to be run again, or parked.
//!
//! Invariant: when a run has ended, its key waits for something, is remembered for its failed attempts, or has given its slot up.

use super::{
    Key, Reason,
    clock::Time,
    reasons::ReasonIds,
    shutdown::Phase,
    slots::{Pending, Running},
    state::{NEVER, State, When},
    waiters::Wakes,
};
use std::sync::Arc;

/// A run that ends.
pub(super) struct Ended<'a> {
    pub(super) slot: u32,
    pub(super) run: u32,
    pub(super) end: End,
    /// Of the requeue.
    pub(super) priority: i32,
    /// Taken if there is one.
    pub(super) error: &'a mut Option<Arc<str>>,
    /// Reason of the requeue.
    pub(super) reason: Option<&'a Reason>,
}

/// How a run ends. Times are moments of the queue's clock; 0 is now.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// Leave everything as it is.
    Drop,
    /// Forget failed attempts.
    Success,
    /// Forget failed attempts; once more at this time.
    Again(u64),
    /// Once more at this time, as the limiter said.
    Retry(u64),
    /// Until unparked, or this time.
    Park(u64),
}

impl<K: Key> State<K> {
    /// Count a failure and say how many there were before. A run that was ready before its backoff had elapsed is not the
    /// retry that was waited for: it does not make the next wait longer.
    pub(super) fn count_attempt(&mut self, at: u32) -> u32 {
        let slot = &mut self.slots[at];
        let early = slot.is_running() && self.runs.take_early(slot.place);
        if slot.is_running() {
            slot.backoff_until = 0; // What this run waited for is over; a new backoff begins.
        }
        if !early || slot.attempts == 0 {
            slot.attempts = slot.attempts.saturating_add(1);
        }
        slot.attempts - 1
    }

    /// End a run, at `ended_at` if that is measured. The key is put into `done` if nothing is left to remember of it.
    pub(super) fn finish(
        &mut self,
        ended: Ended<'_>,
        ended_at: Option<u64>,
        time: &impl Time,
        wakes: &mut Wakes,
        done: &mut Option<K>,
    ) {
        let Ended { slot: at, run, end, priority, error, reason } = ended;
        let (started, mut reasons) = self.runs.end(run);
        self.watchers.wake(run); // Wakers go without the lock; that they are told once more does no harm.
        if let Some(ended_at) = ended_at {
            self.counters.worked.observe(ended_at.saturating_sub(started));
        }
        if self.phase == Phase::Closed {
            self.counters.rejected += u64::from(matches!(end, End::Again(_) | End::Retry(_)));
            self.reasons.release(&mut reasons);
            return;
        }
        if let Some(error) = error.take() {
            self.errors.insert(at, error);
        }
        let open = self.phase == Phase::Open;
        if let End::Success | End::Again(_) = end {
            self.forget_slot(at);
        }
        if let End::Park(until) = end {
            self.park(at, until, priority, &mut reasons, time, wakes);
        }
        self.reasons.release(&mut reasons);
        if let End::Again(due) | End::Retry(due) = end {
            if open {
                self.push_requeue_reason(at, reason);
                let when = When::at(due, matches!(end, End::Retry(_)), false);
                self.merge(at, when, priority, time, wakes);
            } else {
                self.counters.rejected += 1;
            }
        }
        let slot = &mut self.slots[at];
        slot.running = Running::No;
        if slot.pending == Pending::Worker {
            if self.wheel.next_due().is_some() {
                self.pass(time.read().earliest);
            }
            self.again -= 1;
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
        time: &impl Time,
        wakes: &mut Wakes,
    ) {
        if self.phase != Phase::Open {
            return;
        }
        let added_meanwhile = self.slots[at].pending != Pending::Nothing;
        self.withdraw(at);
        let slot = &mut self.slots[at];
        self.reasons.merge(reasons, &mut slot.reasons);
        slot.priority = if added_meanwhile { slot.priority.max(priority) } else { priority };
        if slot.running == Running::Unparked {
            let now = self.now(time);
            self.make_ready(at, now);
            return;
        }
        slot.pending = Pending::Unpark;
        slot.ready_at = until;
        self.parked += 1;
        if until != NEVER {
            self.set_alarm(at, wakes);
        }
    }

    /// End a key's parking, or see to it that parking the run that has it does not last. False if it is neither parked nor in a run.
    pub(super) fn unpark(&mut self, at: u32, now: u64) -> bool {
        self.pass(now);
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
