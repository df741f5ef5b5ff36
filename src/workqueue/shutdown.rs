//! Shutdown of a queue.
//!
//! Invariant: the phase only advances, from open to handing out to closed, and adds are rejected
//! once it is not open. While handing out, getters wait as long as a key that a worker has will be
//! ready again.

use super::{
    Key,
    ready::Ready,
    reasons::Reasons,
    slots::{Pending, Slots},
    state::State,
    wheel::Wheel,
};
use std::task::Waker;

/// Phase of the shutdown, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    /// Rejects adds, and hands out the keys that are ready.
    ///
    /// Includes keys that become ready when their worker finishes.
    HandOut,
    /// Rejects adds and hands out nothing.
    Closed,
}

impl<K: Key> State<K> {
    /// Advances to `phase`. Returns the dropped data, to be freed without the lock.
    pub(super) fn shut_down(&mut self, phase: Phase, now: u64) -> Option<Dropped<K>> {
        if phase == Phase::Closed {
            self.last_ended_drainer = self.next_drainer;
        }
        if self.phase >= phase {
            return None;
        }
        self.promote_due(now);
        self.phase = phase;
        let wheel = std::mem::replace(&mut self.wheel, Wheel::new());
        (self.delayed, self.parked) = (0, 0);
        self.errors.clear();
        let dropped = if phase == Phase::Closed {
            let slots = std::mem::replace(&mut self.slots, Slots::new());
            let reasons = self.processing.move_reasons(&mut self.reasons);
            self.ready = Ready::new(0);
            self.ready_while_processing = 0;
            Dropped {
                _slots: Some(slots),
                _keys: Vec::new(),
                _reasons: Some(reasons),
                _wheel: wheel,
            }
        } else {
            let reasons = &mut self.reasons;
            let keys = self.slots.sweep(|slot| {
                if matches!(slot.pending, Pending::Time | Pending::Unpark) {
                    slot.pending = Pending::Nothing;
                    reasons.release(&mut slot.reasons);
                }
                if slot.pending == Pending::Nothing && !slot.is_running() {
                    slot.attempts = 0;
                }
            });
            Dropped {
                _slots: None,
                _keys: keys,
                _reasons: None,
                _wheel: wheel,
            }
        };
        Some(dropped)
    }

    /// Returns whether a getter that finds nothing can find a key later.
    pub(super) fn may_yield_more(&self) -> bool {
        match self.phase {
            Phase::Open => true,
            Phase::HandOut => self.len() > 0,
            Phase::Closed => false,
        }
    }

    /// Returns whether the queue is drained, else registers `waker`.
    ///
    /// Also returns the waker that was registered before, to be dropped without the lock.
    pub(super) fn poll_drained(&mut self, drainer: u64, waker: &Waker) -> (bool, Option<Waker>) {
        let drained = drainer <= self.last_ended_drainer || self.is_drained();
        let known = if drained {
            self.drainers.remove(&drainer)
        } else {
            self.drainers.insert(drainer, waker.clone())
        };
        (drained, known)
    }

    /// Returns whether no key is left to hand out and no worker has one.
    fn is_drained(&self) -> bool {
        self.phase != Phase::Open && self.len() == 0 && self.processing.len() == 0
    }

    /// Removes the wakers of `drain` calls that are complete.
    pub(super) fn take_drained(&mut self) -> impl Iterator<Item = Waker> {
        let up_to = if self.is_drained() {
            u64::MAX
        } else {
            self.last_ended_drainer
        };
        self.drainers
            .extract_if(move |drainer, _| *drainer <= up_to)
            .map(|(_, waker)| waker)
    }
}

/// Data dropped by a shutdown.
pub(super) struct Dropped<K> {
    _slots: Option<Slots<K>>,
    _keys: Vec<K>,
    _reasons: Option<Reasons>,
    _wheel: Wheel,
}
