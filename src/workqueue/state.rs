//! State that the lock of the queue protects, and its transitions.
//!
//! Invariant: **a key in [`Ready`] is never held by a worker.** A key that is added while a worker
//! has it is only marked, and joins the ready keys when the worker finishes. It follows that no key
//! is held by two workers, and that any number of adds during a run lead to one more run.
//!
//! This module calls no wakers. They are returned as [`Wakers`], to be called without the lock.
//! Times are those of the [queue's clock](super::clock), which is read only if needed.

use super::{
    Key, Reason,
    clock::{TimeRange, TimeSource},
    processing::{HandedOut, Processing, ProcessingEntry},
    ready::Ready,
    reasons::{ReasonIds, Reasons},
    shutdown::Phase,
    slot_table::KeyHash,
    slots::{Pending, Running, Slots},
    stats::Counters,
    superseded::Watchers,
    waiters::{Registered, Waiters, Wakers},
    wheel::Wheel,
};
use hashbrown::HashMap;
use std::{sync::Arc, task::Waker};

/// Time of keys that are parked without a limit.
pub(super) const NEVER: u64 = u64::MAX;

/// Maximum delay of promoting due keys in `add_after`, in nanoseconds.
///
/// Avoids a promotion per add, and still bounds the number of due keys.
const PROMOTION_DELAY: u64 = 1 << 16;

pub(super) struct State<K> {
    pub(super) slots: Slots<K>,
    pub(super) ready: Ready,
    pub(super) wheel: Wheel,
    pub(super) waiters: Waiters,
    pub(super) reasons: Reasons,
    pub(super) processing: Processing,
    /// Wakers of runs that wait until their key is queued again.
    pub(super) watchers: Watchers,
    /// Last errors of failing keys, by slot.
    pub(super) errors: HashMap<u32, Arc<str>>,
    pub(super) counters: Counters,
    /// Number of keys that a worker has and that are ready again.
    pub(super) ready_while_processing: usize,
    /// Number of delayed keys.
    pub(super) delayed: usize,
    pub(super) parked: usize,
    pub(super) phase: Phase,
    /// Wakers of calls of `drain`.
    pub(super) drainers: HashMap<u64, Waker>,
    /// Number of the last `drain` call.
    pub(super) next_drainer: u64,
    /// Number of the last `drain` call that [`close`](super::WorkQueue::close) has ended.
    pub(super) last_ended_drainer: u64,
}

/// Time at which an added key becomes ready.
#[derive(Clone, Copy)]
pub(super) enum When {
    Now,
    /// `backoff`: the delay is that of a failing key. `replace`: also replaces an earlier time.
    At {
        due: u64,
        backoff: bool,
        replace: bool,
    },
}

impl When {
    /// Creates a time of the queue's clock; 0 is now.
    pub(super) fn at(due: u64, backoff: bool, replace: bool) -> Self {
        if due == 0 {
            Self::Now
        } else {
            Self::At {
                due,
                backoff,
                replace,
            }
        }
    }
}

impl<K: Key> State<K> {
    pub(super) fn new(share: u32) -> Self {
        Self {
            slots: Slots::new(),
            ready: Ready::new(share),
            wheel: Wheel::new(),
            waiters: Waiters::new(),
            reasons: Reasons::new(),
            processing: Processing::default(),
            watchers: Watchers::default(),
            errors: HashMap::new(),
            counters: Counters::default(),
            ready_while_processing: 0,
            delayed: 0,
            parked: 0,
            phase: Phase::Open,
            drainers: HashMap::new(),
            next_drainer: 0,
            last_ended_drainer: 0,
        }
    }

    /// Returns the number of keys that are ready now or when their worker finishes.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.ready_while_processing
    }

    /// Adds a key, or merges with the queued one.
    ///
    /// Takes the key unless it is already queued or the queue is shut down. `when` receives its
    /// slot.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        (hash, key): (KeyHash, &mut Option<K>),
        when: impl FnOnce(&mut Self, u32) -> When,
        (priority, reason): (i32, Option<&Reason>),
        time: &impl TimeSource,
        wakers: &mut Wakers,
    ) {
        if self.phase != Phase::Open {
            self.counters.rejected += 1;
            return;
        }
        let at = self.slots.find_or_insert(hash, key);
        if let Some(reason) = reason {
            self.reasons.push(&mut self.slots[at].reasons, reason);
        }
        let when = when(self, at);
        self.merge(at, when, priority, time, wakers);
    }

    /// Merges an add into the state of a key.
    ///
    /// Ready wins over a time, the earlier over the later time, the higher over the lower priority.
    /// A raised key is queued behind the others of its new priority. A parked key stays parked.
    #[inline(always)]
    pub(super) fn merge(
        &mut self,
        at: u32,
        when: When,
        priority: i32,
        time: &impl TimeSource,
        wakers: &mut Wakers,
    ) {
        let slot = &self.slots[at];
        // Nothing changes, so the clock is not read.
        let unchanged = slot.pending == Pending::Worker && priority <= slot.priority;
        match when {
            When::Now if unchanged => {}
            When::Now if slot.pending == Pending::Nothing => {
                let now = self.now(time);
                self.queue_new(at, priority, now);
                self.make_ready(at, now);
            }
            When::Now => {
                let now = self.now(time);
                self.bring_forward(at, priority, now);
            }
            When::At {
                due,
                backoff,
                replace,
            } => {
                // The clock is not needed for a key that stays ready.
                let now = if unchanged {
                    due
                } else {
                    self.now_before(at, time)
                };
                self.counters.retries += 1;
                if matches!(self.slots[at].pending, Pending::Nothing | Pending::Time) {
                    self.counters.delays.observe(due.saturating_sub(now));
                }
                if backoff {
                    self.set_backoff(at, due, replace, now);
                }
                self.delay(at, (due, replace), priority, now, wakers);
            }
        }
    }

    /// Queues a key that was not queued.
    #[inline]
    fn queue_new(&mut self, at: u32, priority: i32, now: u64) {
        let slot = &mut self.slots[at];
        (slot.priority, slot.added_at) = (priority, now);
    }

    /// Makes a delayed key ready. A parked key stays parked.
    fn bring_forward(&mut self, at: u32, priority: i32, now: u64) {
        self.raise_priority(at, priority);
        if self.slots[at].pending == Pending::Time {
            self.withdraw(at);
            self.make_ready(at, now);
        }
    }

    /// Delays a key, unless it becomes ready earlier.
    fn delay(
        &mut self,
        at: u32,
        (due, replace): (u64, bool),
        priority: i32,
        now: u64,
        wakers: &mut Wakers,
    ) {
        let slot = &self.slots[at];
        match slot.pending {
            Pending::Nothing => {
                self.queue_new(at, priority, now);
                self.wait_until(at, due, wakers);
            }
            Pending::Time if due < slot.ready_at || replace => {
                self.raise_priority(at, priority);
                self.withdraw(at);
                self.wait_until(at, due, wakers);
            }
            _ => self.raise_priority(at, priority),
        }
    }

    /// Sets the end of the backoff. A pending earlier backoff wins unless replaced.
    fn set_backoff(&mut self, at: u32, due: u64, replace: bool, now: u64) {
        let slot = &mut self.slots[at];
        let pending = slot.pending == Pending::Time && slot.backoff_until > now && !replace;
        slot.backoff_until = if pending {
            slot.backoff_until.min(due)
        } else {
            due
        };
    }

    fn raise_priority(&mut self, at: u32, priority: i32) {
        let slot = &self.slots[at];
        if priority <= slot.priority {
            return;
        }
        let is_ready = slot.pending == Pending::Worker && !slot.is_running();
        if is_ready {
            self.ready.remove(&mut self.slots, at);
        }
        self.slots[at].priority = priority;
        if is_ready {
            self.ready.push(&mut self.slots, at);
        }
    }

    #[inline(always)]
    pub(super) fn make_ready(&mut self, at: u32, ready_at: u64) {
        let slot = &mut self.slots[at];
        slot.pending = Pending::Worker;
        slot.ready_at = ready_at;
        self.counters.adds += 1;
        if slot.is_running() {
            self.ready_while_processing += 1;
            self.watchers.wake(slot.position);
        } else {
            self.ready.push(&mut self.slots, at);
        }
    }

    fn wait_until(&mut self, at: u32, due: u64, wakers: &mut Wakers) {
        let slot = &mut self.slots[at];
        slot.pending = Pending::Time;
        slot.ready_at = due.min(NEVER - 1);
        if slot.is_running() {
            self.watchers.wake(slot.position);
        }
        self.delayed += 1;
        self.schedule(at, wakers);
    }

    pub(super) fn schedule(&mut self, at: u32, wakers: &mut Wakers) {
        let due = self.slots[at].ready_at;
        if self.wheel.next_due().is_none_or(|first| due < first) {
            self.waiters.first_due_changed(due, wakers);
        }
        self.wheel.push(&mut self.slots, at);
    }

    /// Reads the clock and promotes all keys that are due.
    #[inline(always)]
    pub(super) fn now(&mut self, time: &impl TimeSource) -> u64 {
        let TimeRange { earliest, latest } = time.read();
        self.promote_due(earliest);
        latest
    }

    /// Reads the clock for a key that is about to be delayed.
    ///
    /// Promotes other due keys only after [`PROMOTION_DELAY`], many at once, unless their order
    /// relative to this key matters.
    #[inline(never)]
    fn now_before(&mut self, at: u32, time: &impl TimeSource) -> u64 {
        let TimeRange { earliest, latest } = time.read();
        let slot = &self.slots[at];
        let reordering = match slot.pending {
            Pending::Nothing => true,
            Pending::Time => slot.ready_at > earliest,
            Pending::Worker | Pending::Unpark => false,
        };
        if !reordering
            || self
                .wheel
                .next_due()
                .is_some_and(|first| first.saturating_add(PROMOTION_DELAY) <= earliest)
        {
            self.promote_due(earliest);
        }
        latest
    }

    /// Promotes the keys that are due at `now`.
    #[inline]
    pub(super) fn promote_due(&mut self, now: u64) {
        if self.wheel.next_due().is_some_and(|due| due <= now) {
            self.expire(now);
        }
    }

    fn expire(&mut self, now: u64) {
        self.waiters.reassign_late_timers(now);
        let Self {
            slots,
            wheel,
            ready,
            counters,
            ready_while_processing: again,
            delayed,
            parked,
            watchers,
            ..
        } = self;
        wheel.expire(slots, now, |slots, at| {
            let slot = &mut slots[at];
            *if slot.pending == Pending::Time {
                &mut *delayed
            } else {
                &mut *parked
            } -= 1;
            slot.pending = Pending::Worker;
            counters.adds += 1;
            if slot.is_running() {
                *again += 1;
                watchers.wake(slot.position);
            } else {
                ready.push(slots, at);
            }
        });
    }

    /// Hands out the next key. While a worker has it, `position` of its slot is the run.
    #[inline]
    pub(super) fn take(&mut self, time: &impl TimeSource, timing: bool) -> Option<HandedOut<K>> {
        if self.ready.len() == 0 && self.wheel.next_due().is_none() {
            return None; // Many woken getters arrive too late and need not read the clock.
        }
        let now = self.now(time);
        let at = self.ready.pop(&mut self.slots)?;
        let slot = &mut self.slots[at];
        let run = self.processing.start(ProcessingEntry {
            slot: at,
            started: now,
            added_at: slot.added_at,
            priority: slot.priority,
            early: slot.ready_at < slot.backoff_until,
            reasons: std::mem::replace(&mut slot.reasons, ReasonIds::EMPTY),
            serial: 0,
        });
        (slot.pending, slot.running, slot.position) = (Pending::Nothing, Running::Yes, run);
        let waited = now.saturating_sub(slot.ready_at);
        if timing {
            self.counters.waited.observe(waited);
        }
        Some(HandedOut {
            key: slot.key.clone().expect("a slot in use has a key"),
            slot: at,
            run,
            priority: slot.priority,
            attempts: slot.attempts,
            waited,
            began: now,
        })
    }

    /// Returns whether the key of a run is ready again.
    pub(super) fn is_queued_again(&self, at: u32) -> bool {
        self.phase != Phase::Closed && self.slots[at].pending == Pending::Worker
    }

    /// Removes a key from the queue. A worker that has it continues.
    pub(super) fn cancel(&mut self, at: u32, done: &mut Option<K>) -> bool {
        let waited = self.slots[at].pending != Pending::Nothing;
        self.withdraw(at);
        self.reasons.release(&mut self.slots[at].reasons);
        self.free_if_idle(at, done);
        waited
    }

    pub(super) fn withdraw(&mut self, at: u32) {
        let slot = &mut self.slots[at];
        match std::mem::replace(&mut slot.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::Worker if slot.is_running() => self.ready_while_processing -= 1,
            Pending::Worker => self.ready.remove(&mut self.slots, at),
            Pending::Time => {
                self.delayed -= 1;
                self.wheel.remove(&mut self.slots, at);
            }
            Pending::Unpark => {
                self.parked -= 1;
                if slot.ready_at != NEVER {
                    self.wheel.remove(&mut self.slots, at);
                }
            }
        }
    }

    /// Resets the attempts of a key.
    pub(super) fn forget(&mut self, at: u32, done: &mut Option<K>) {
        self.forget_slot(at);
        self.free_if_idle(at, done);
    }

    #[inline(always)]
    pub(super) fn forget_slot(&mut self, at: u32) {
        let slot = &mut self.slots[at];
        (slot.attempts, slot.backoff_until) = (0, 0);
        if !self.errors.is_empty() {
            self.errors.remove(&at);
        }
    }

    #[inline(always)]
    pub(super) fn free_if_idle(&mut self, at: u32, done: &mut Option<K>) {
        if self.slots.free_if_idle(at, done) && !self.errors.is_empty() {
            self.errors.remove(&at);
        }
    }

    /// Registers a getter until there may be a key.
    pub(super) fn register_getter(&mut self, waker: &Waker) -> Registered {
        self.waiters.register(waker, self.wheel.next_due())
    }

    /// Collects the wakers to call, as the last step of every change.
    ///
    /// See [`Shared::change`](super::queue::Shared::change).
    #[inline(always)]
    pub(super) fn collect_wakers(&mut self, wakers: &mut Wakers) {
        self.watchers.collect_wakers(wakers);
        if self.phase == Phase::Open {
            self.waiters.wake_and_assign_timers(
                self.ready.len(),
                self.wheel.next_due().is_some(),
                wakers,
            );
        } else {
            self.collect_wakers_in_shutdown(wakers);
        }
    }

    #[cold]
    fn collect_wakers_in_shutdown(&mut self, wakers: &mut Wakers) {
        self.waiters
            .wake_and_assign_timers(self.ready.len(), false, wakers);
        if !self.may_yield_more() {
            self.waiters.wake_all(wakers);
        }
        wakers.extend(self.take_drained());
    }
}
