//! Waiting getters, and which of them to wake.
//!
//! Invariants, restored by [`Waiters::wake_and_assign_timers`] after every change:
//!
//! * For every ready key, a getter was woken and not polled yet, or no getter is waiting.
//! * While keys are delayed, two of the waiting getters have a timer, if there are two: the first
//!   for the time at which the first key is due, the second for [`TIMER_GRACE`] later. Either may
//!   be earlier. If a timer is missing, a getter was woken to set it.
//!
//! A getter that is not polled, because its task is busy, therefore makes keys late by at most
//! [`TIMER_GRACE`], as long as another one waits. The getter that detects this takes over its
//! timer. If both getters with timers stop being polled between two due keys, the other keys wait:
//! a timer for each getter would be too expensive.
//!
//! One getter is woken per ready key. It is expected to take the key until it is polled or dropped.
//! It would be cheaper to wake one getter and let it wake the next one, but then a woken getter
//! that is not polled would block all others. That is common in tokio, where no other thread can
//! steal the task that a thread has woken last.

use super::{
    linked_list::{Links, List, Nodes},
    panic_payload::discard,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

/// Delay in nanoseconds after which a timer counts as missed.
///
/// Longer than a busy machine needs to poll a task.
const TIMER_GRACE: u64 = 10_000_000;

/// Number of a waiting getter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterId(u32);

/// Registered getter, and the time for its timer if it must set one.
#[must_use]
pub(super) struct Registered {
    pub(super) id: WaiterId,
    pub(super) timer: Option<u64>,
}

#[derive(Clone, Copy)]
enum WaiterState {
    Idle,
    /// Has the timer with this index.
    HasTimer(usize),
    /// Was woken and has not been polled since.
    Woken(WakeReason),
}

/// Reason for waking a getter.
#[derive(Clone, Copy, PartialEq)]
enum WakeReason {
    Key,
    /// A timer must be set. The getter may take a key, but is not expected to.
    Timer,
}

struct Waiter {
    links: Links,
    waker: Option<Waker>,
    state: WaiterState,
}

/// Getter with a timer.
#[derive(Clone, Copy)]
struct TimerHolder {
    at: u32,
    due: u64,
}

pub(super) struct Waiters {
    nodes: Vec<Waiter>,
    free: Vec<u32>,
    /// Getters without a timer. The last one is woken first: its memory is warm in the cache.
    idle: List,
    timer_holders: [Option<TimerHolder>; 2],
    /// Number of getters that were not woken.
    not_woken: usize,
    /// Number of getters that were woken and not polled yet.
    woken: usize,
    /// Number of those that were woken for a key.
    woken_for_key: usize,
}

/// Returns the time of a timer if the first key is due at `first_due`.
fn timer_due(index: usize, first_due: u64) -> u64 {
    first_due.saturating_add(TIMER_GRACE * index as u64)
}

impl Nodes for Vec<Waiter> {
    fn links(&mut self, node: u32) -> &mut Links {
        &mut self[node as usize].links
    }
}

impl Waiters {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            idle: List::EMPTY,
            timer_holders: [None; 2],
            not_woken: 0,
            woken: 0,
            woken_for_key: 0,
        }
    }

    /// Registers a getter. `first_due` is the time of the first delayed key.
    pub(super) fn register(&mut self, waker: &Waker, first_due: Option<u64>) -> Registered {
        let waiter = Waiter {
            links: Links::UNLINKED,
            waker: Some(waker.clone()),
            state: WaiterState::Idle,
        };
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = waiter;
            at
        } else {
            self.nodes.push(waiter);
            self.nodes.len() as u32 - 1
        };
        self.not_woken += 1;
        let free_timer = first_due
            .and_then(|due| Some((self.timer_holders.iter().position(Option::is_none)?, due)));
        let timer = free_timer.map(|(index, due)| {
            let timer = timer_due(index, due);
            self.timer_holders[index] = Some(TimerHolder { at, due: timer });
            self.nodes[at as usize].state = WaiterState::HasTimer(index);
            timer
        });
        if timer.is_none() {
            self.idle.push_back(&mut self.nodes, at);
        }
        Registered {
            id: WaiterId(at),
            timer,
        }
    }

    /// Unregisters a getter that was polled or dropped.
    pub(super) fn unregister(&mut self, id: &mut Option<WaiterId>, wakers: &mut Wakers) {
        let Some(WaiterId(at)) = id.take() else {
            return;
        };
        match self.nodes[at as usize].state {
            WaiterState::Idle => {
                self.idle.unlink(&mut self.nodes, at);
                self.not_woken -= 1;
            }
            WaiterState::HasTimer(index) => {
                self.timer_holders[index] = None;
                self.not_woken -= 1;
            }
            WaiterState::Woken(reason) => {
                self.woken -= 1;
                self.woken_for_key -= usize::from(reason == WakeReason::Key);
            }
        }
        wakers.dropped = self.nodes[at as usize].waker.take();
        self.free.push(at);
    }

    /// Collects wakers for `ready` keys, and for missing timers if keys are delayed.
    #[inline]
    pub(super) fn wake_and_assign_timers(
        &mut self,
        ready: usize,
        timed: bool,
        wakers: &mut Wakers,
    ) {
        if self.not_woken > 0 {
            self.wake_needed(ready, timed, wakers);
        }
    }

    #[inline(never)]
    fn wake_needed(&mut self, ready: usize, timed: bool, wakers: &mut Wakers) {
        while ready > self.woken_for_key {
            let Some(waker) = self.wake_one(WakeReason::Key) else {
                return;
            };
            wakers.push(waker);
        }
        if timed {
            self.assign_timers(wakers);
        }
    }

    fn assign_timers(&mut self, wakers: &mut Wakers) {
        let vacant = self
            .timer_holders
            .iter()
            .filter(|holder| holder.is_none())
            .count();
        while vacant > self.woken && !self.idle.is_empty() {
            wakers.extend(self.wake_one(WakeReason::Timer));
        }
        if self.timer_holders[0].is_none() && self.woken == 0 {
            wakers.extend(self.wake_one(WakeReason::Timer)); // The second becomes the first.
        }
    }

    /// Moves the timers to an earlier time.
    pub(super) fn first_due_changed(&mut self, first_due: u64, wakers: &mut Wakers) {
        for (index, holder) in self.timer_holders.iter_mut().enumerate() {
            if let Some(holder) = holder
                && timer_due(index, first_due) < holder.due
            {
                holder.due = timer_due(index, first_due);
                wakers.extend(self.nodes[holder.at as usize].waker.clone());
            }
        }
    }

    /// Removes timers that should have fired long ago. Their getters are woken last.
    pub(super) fn reassign_late_timers(&mut self, now: u64) {
        for holder in &mut self.timer_holders {
            if let Some(late) =
                holder.take_if(|holder| holder.due.saturating_add(TIMER_GRACE) <= now)
            {
                self.nodes[late.at as usize].state = WaiterState::Idle;
                self.idle.push_front(&mut self.nodes, late.at);
            }
        }
    }

    pub(super) fn wake_all(&mut self, wakers: &mut Wakers) {
        while let Some(waker) = self.wake_one(WakeReason::Key) {
            wakers.push(waker);
        }
    }

    /// Wakes a getter. Those with timers are last, so that adds do not move timers around.
    fn wake_one(&mut self, reason: WakeReason) -> Option<Waker> {
        let idle = self.idle.pop_back(&mut self.nodes);
        let at = idle.or_else(|| {
            self.timer_holders
                .iter_mut()
                .rev()
                .find_map(Option::take)
                .map(|holder| holder.at)
        })?;
        let waiter = &mut self.nodes[at as usize];
        waiter.state = WaiterState::Woken(reason);
        self.not_woken -= 1;
        self.woken += 1;
        self.woken_for_key += usize::from(reason == WakeReason::Key);
        waiter.waker.take()
    }
}

/// Wakers to call, and one to drop, after unlocking: both may run foreign code.
#[derive(Default)]
#[must_use]
pub(super) struct Wakers {
    first: Option<Waker>,
    rest: Vec<Waker>,
    dropped: Option<Waker>,
}

impl Wakers {
    fn push(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.rest.push(waker);
        }
    }

    pub(super) fn extend(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        wakers.into_iter().for_each(|waker| self.push(waker));
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.dropped.is_none()
    }

    /// Calls the wakers. A panic affects neither other wakers nor the caller.
    ///
    /// The panic hook has reported it.
    #[inline(never)]
    pub(super) fn call(self) {
        let Self {
            first,
            rest,
            dropped,
        } = self;
        let harmless =
            |does: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(does)).unwrap_or_else(discard);
        for waker in first.into_iter().chain(rest) {
            let mut waker = Some(waker);
            harmless(&mut || waker.take().into_iter().for_each(Waker::wake));
        }
        let mut dropped = dropped;
        harmless(&mut || drop(dropped.take()));
    }
}
