//! The queue's state: all that its lock protects, and every change to it.
//!
//! Invariant: **a key in [`Ready`] is never in a run.** A key that is added while it runs is only marked as waiting for a
//! worker, and joins the ready ones when the run ends. From that follows that no key is in two workers, and that any number of adds
//! during a run lead to one more run.
//!
//! Nothing here waits or wakes: whom to wake goes out as [`Wakes`], to be called without the lock. Times are moments of the [queue's
//! clock](super::clock), which is read only where it matters.

use super::{
    Key, Reason,
    again::Watchers,
    clock::{Moment, Time},
    ready::Ready,
    reasons::{ReasonIds, Reasons},
    runs::{Held, Run, Runs},
    shutdown::Phase,
    slots::{Pending, Running, Slots},
    stats::Counters,
    table::KeyHash,
    waiters::{Asleep, Waiters, Wakes},
    wheel::Wheel,
};
use hashbrown::HashMap;
use std::{sync::Arc, task::Waker};

/// No time: for keys parked without a bound.
pub(super) const NEVER: u64 = u64::MAX;

/// In nanoseconds. So that keys which become due while others are added are not looked for at each of those, and do not pile up either.
const SLACK: u64 = 1 << 16;

pub(super) struct State<K> {
    pub(super) slots: Slots<K>,
    pub(super) ready: Ready,
    pub(super) wheel: Wheel,
    pub(super) waiters: Waiters,
    pub(super) reasons: Reasons,
    pub(super) runs: Runs,
    /// Of runs that want to know whether their key is queued again.
    pub(super) watchers: Watchers,
    /// Last errors of failing keys, by slot.
    pub(super) errors: HashMap<u32, Arc<str>>,
    pub(super) counters: Counters,
    /// Keys that run and wait for a worker again.
    pub(super) again: usize,
    /// Keys that wait for a time.
    pub(super) delayed: usize,
    pub(super) parked: usize,
    pub(super) phase: Phase,
    /// Those who wait for the last run to end.
    pub(super) drainers: HashMap<u64, Waker>,
    /// The last of them got this number.
    pub(super) next_drainer: u64,
    /// Up to this number [`close`](super::WorkQueue::close) has ended their wait.
    pub(super) dismissed: u64,
}

/// When an added key may run.
#[derive(Clone, Copy)]
pub(super) enum When {
    Now,
    /// `backoff`: that is how long a failing key has to wait; `replace`: also if it waits for an earlier time already.
    At {
        due: u64,
        backoff: bool,
        replace: bool,
    },
}

impl When {
    /// `due` as a moment of the queue's clock; 0 is now.
    pub(super) fn at(due: u64, backoff: bool, replace: bool) -> Self {
        if due == 0 { Self::Now } else { Self::At { due, backoff, replace } }
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
            runs: Runs::default(),
            watchers: Watchers::default(),
            errors: HashMap::new(),
            counters: Counters::default(),
            again: 0,
            delayed: 0,
            parked: 0,
            phase: Phase::Open,
            drainers: HashMap::new(),
            next_drainer: 0,
            dismissed: 0,
        }
    }

    /// Keys a worker could take, now or when a run ends.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.again
    }

    /// Add the key that is given, or merge with what it waits for already. The key is taken unless the queue has it already or
    /// takes no more. `when` is told its slot.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        (hash, key): (KeyHash, &mut Option<K>),
        when: impl FnOnce(&mut Self, u32) -> When,
        (priority, reason): (i32, Option<&Reason>),
        time: &impl Time,
        wakes: &mut Wakes,
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
        self.merge(at, when, priority, time, wakes);
    }

    /// The rules: ready beats a time, the earlier time beats the later, the higher priority beats the lower; a raised key goes
    /// behind the others of its new priority; parked keys stay parked.
    #[inline(always)]
    pub(super) fn merge(&mut self, at: u32, when: When, priority: i32, time: &impl Time, wakes: &mut Wakes) {
        let slot = &self.slots[at];
        // Such a key does not care about the time.
        let stays = slot.pending == Pending::Worker && priority <= slot.priority;
        match when {
            When::Now if stays => {}
            When::Now if slot.pending == Pending::Nothing => {
                let now = self.now(time);
                self.begin(at, priority, now);
                self.make_ready(at, now);
            }
            When::Now => {
                let now = self.now(time);
                self.bring_forward(at, priority, now);
            }
            When::At { due, backoff, replace } => {
                // Nobody asks what time it is for one that stays.
                let now = if stays { due } else { self.now_before(at, time) };
                self.counters.retries += 1;
                if matches!(self.slots[at].pending, Pending::Nothing | Pending::Time) {
                    self.counters.delays.observe(due.saturating_sub(now));
                }
                if backoff {
                    self.back_off(at, due, replace, now);
                }
                self.put_off(at, (due, replace), priority, now, wakes);
            }
        }
    }

    /// It waited for nothing.
    #[inline]
    fn begin(&mut self, at: u32, priority: i32, now: u64) {
        let slot = &mut self.slots[at];
        (slot.priority, slot.added_at) = (priority, now);
    }

    /// It waits for something, and is ready now; unless it is parked.
    fn bring_forward(&mut self, at: u32, priority: i32, now: u64) {
        self.raise(at, priority);
        if self.slots[at].pending == Pending::Time {
            self.withdraw(at);
            self.make_ready(at, now);
        }
    }

    /// Ready at a time, if it does not wait for something already that beats that.
    fn put_off(&mut self, at: u32, (due, replace): (u64, bool), priority: i32, now: u64, wakes: &mut Wakes) {
        let slot = &self.slots[at];
        match slot.pending {
            Pending::Nothing => {
                self.begin(at, priority, now);
                self.wait_until(at, due, wakes);
            }
            Pending::Time if due < slot.ready_at || replace => {
                self.raise(at, priority);
                self.withdraw(at);
                self.wait_until(at, due, wakes);
            }
            _ => self.raise(at, priority),
        }
    }

    /// That is how long a failing key has to wait. A wait for an earlier backoff goes on.
    fn back_off(&mut self, at: u32, due: u64, replace: bool, now: u64) {
        let slot = &mut self.slots[at];
        let pending = slot.pending == Pending::Time && slot.backoff_until > now && !replace;
        slot.backoff_until = if pending { slot.backoff_until.min(due) } else { due };
    }

    fn raise(&mut self, at: u32, priority: i32) {
        let slot = &self.slots[at];
        if priority <= slot.priority {
            return;
        }
        let in_line = slot.pending == Pending::Worker && !slot.is_running();
        if in_line {
            self.ready.remove(&mut self.slots, at);
        }
        self.slots[at].priority = priority;
        if in_line {
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
            self.again += 1;
            self.watchers.wake(slot.place);
        } else {
            self.ready.push(&mut self.slots, at);
        }
    }

    fn wait_until(&mut self, at: u32, due: u64, wakes: &mut Wakes) {
        let slot = &mut self.slots[at];
        slot.pending = Pending::Time;
        slot.ready_at = due.min(NEVER - 1);
        if slot.is_running() {
            self.watchers.wake(slot.place);
        }
        self.delayed += 1;
        self.set_alarm(at, wakes);
    }

    pub(super) fn set_alarm(&mut self, at: u32, wakes: &mut Wakes) {
        let due = self.slots[at].ready_at;
        if self.wheel.next_due().is_none_or(|first| due < first) {
            self.waiters.first_due_changed(due, wakes);
        }
        self.wheel.push(&mut self.slots, at);
    }

    /// What time it is, for something that happens: what is due by then is ready before that.
    #[inline(always)]
    pub(super) fn now(&mut self, time: &impl Time) -> u64 {
        let Moment { earliest, latest } = time.read();
        self.pass(earliest);
        latest
    }

    /// The same for a key that is about to wait for a time. Whether others are ready by now makes no difference to that, so that they may be made so
    /// [a little later](SLACK), many in one go; unless it is in line with them, or due itself.
    #[inline(never)]
    fn now_before(&mut self, at: u32, time: &impl Time) -> u64 {
        let Moment { earliest, latest } = time.read();
        let slot = &self.slots[at];
        let apart = match slot.pending {
            Pending::Nothing => true,
            Pending::Time => slot.ready_at > earliest,
            Pending::Worker | Pending::Unpark => false,
        };
        if !apart || self.wheel.next_due().is_some_and(|first| first.saturating_add(SLACK) <= earliest) {
            self.pass(earliest);
        }
        latest
    }

    /// Time has passed: make ready what is due.
    #[inline]
    pub(super) fn pass(&mut self, now: u64) {
        if self.wheel.next_due().is_some_and(|due| due <= now) {
            self.expire(now);
        }
    }

    fn expire(&mut self, now: u64) {
        self.waiters.dismiss_late(now);
        let Self { slots, wheel, ready, counters, again, delayed, parked, watchers, .. } = self;
        wheel.expire(slots, now, |slots, at| {
            let slot = &mut slots[at];
            *if slot.pending == Pending::Time { &mut *delayed } else { &mut *parked } -= 1;
            slot.pending = Pending::Worker;
            counters.adds += 1;
            if slot.is_running() {
                *again += 1;
                watchers.wake(slot.place);
            } else {
                ready.push(slots, at);
            }
        });
    }

    /// Hand out the key whose turn it is. While it runs, the `place` of its slot is the number of the run.
    #[inline]
    pub(super) fn take(&mut self, time: &impl Time, timing: bool) -> Option<Held<K>> {
        if self.ready.len() == 0 && self.wheel.next_due().is_none() {
            return None; // Many of those who are woken come too late: they need not read the clock.
        }
        let now = self.now(time);
        let at = self.ready.pop(&mut self.slots)?;
        let slot = &mut self.slots[at];
        let run = self.runs.start(Run {
            slot: at,
            started: now,
            added_at: slot.added_at,
            priority: slot.priority,
            early: slot.ready_at < slot.backoff_until,
            reasons: std::mem::replace(&mut slot.reasons, ReasonIds::EMPTY),
            serial: 0,
        });
        (slot.pending, slot.running, slot.place) = (Pending::Nothing, Running::Yes, run);
        let waited = now.saturating_sub(slot.ready_at);
        if timing {
            self.counters.waited.observe(waited);
        }
        Some(Held {
            key: slot.key.clone().expect("a slot in use has a key"),
            slot: at,
            run,
            priority: slot.priority,
            attempts: slot.attempts,
            waited,
            began: now,
        })
    }

    /// Whether the key of a run will run once more.
    pub(super) fn is_queued_again(&self, at: u32) -> bool {
        self.phase != Phase::Closed && self.slots[at].pending == Pending::Worker
    }

    /// Take back what a key waits for; a run of it goes on.
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
            Pending::Worker if slot.is_running() => self.again -= 1,
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

    /// Forget the failed attempts of a key.
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

    /// Fall asleep until there may be a key.
    pub(super) fn sleep(&mut self, waker: &Waker) -> Asleep {
        self.waiters.sleep(waker, self.wheel.next_due())
    }

    /// Wake whom the state now concerns: the last step of every change, see [`Shared::change`](super::queue::Shared::change).
    #[inline(always)]
    pub(super) fn settle(&mut self, wakes: &mut Wakes) {
        self.watchers.settle(wakes);
        if self.phase == Phase::Open {
            self.waiters.settle(self.ready.len(), self.wheel.next_due().is_some(), wakes);
        } else {
            self.settle_shutdown(wakes);
        }
    }

    #[cold]
    fn settle_shutdown(&mut self, wakes: &mut Wakes) {
        self.waiters.settle(self.ready.len(), false, wakes);
        if !self.gives_more() {
            self.waiters.wake_all(wakes);
        }
        wakes.extend(self.drained());
    }
}
