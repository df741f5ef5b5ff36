//! Shutting a queue down.
//!
//! Invariant: a shutdown only goes on, from open to handing out to closed, and nothing is added once it has begun. While it hands
//! out, getters sleep as long as a key that runs will be ready again, and no longer.

use super::{
    Key,
    ready::Ready,
    reasons::Reasons,
    slots::{Pending, Slots},
    state::State,
    wheel::Wheel,
};
use std::task::Waker;

/// How far a shutdown has gone. Later ones include earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    /// No adds; what is ready, or will be when its run ends, is handed out.
    HandOut,
    /// No adds, nothing is handed out.
    Closed,
}

impl<K: Key> State<K> {
    /// Go on to `phase`; what is dropped comes back, to be freed without the lock.
    pub(super) fn shut_down(&mut self, phase: Phase, now: u64) -> Option<Dropped<K>> {
        if phase == Phase::Closed {
            self.dismissed = self.next_drainer;
        }
        if self.phase >= phase {
            return None;
        }
        self.pass(now);
        self.phase = phase;
        let wheel = std::mem::replace(&mut self.wheel, Wheel::new());
        (self.delayed, self.parked) = (0, 0);
        self.errors.clear();
        let dropped = if phase == Phase::Closed {
            let slots = std::mem::replace(&mut self.slots, Slots::new());
            let reasons = self.runs.keep_reasons(&mut self.reasons);
            self.ready = Ready::new(0);
            self.again = 0;
            Dropped { _slots: Some(slots), _keys: Vec::new(), _reasons: Some(reasons), _wheel: wheel }
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
            Dropped { _slots: None, _keys: keys, _reasons: None, _wheel: wheel }
        };
        Some(dropped)
    }

    /// Whether a getter that finds nothing may find something later.
    pub(super) fn gives_more(&self) -> bool {
        match self.phase {
            Phase::Open => true,
            Phase::HandOut => self.len() > 0,
            Phase::Closed => false,
        }
    }

    /// True once nothing is left to hand out and no run goes on; otherwise `waker` is called then, unless `drainer` leaves.
    pub(super) fn poll_drained(&mut self, drainer: u64, waker: &Waker) -> (bool, Option<Waker>) {
        let drained = drainer <= self.dismissed || self.is_drained();
        let known = if drained { self.drainers.remove(&drainer) } else { self.drainers.insert(drainer, waker.clone()) };
        (drained, known)
    }

    /// Nothing is left to hand out, and no run goes on.
    fn is_drained(&self) -> bool {
        self.phase != Phase::Open && self.len() == 0 && self.runs.len() == 0
    }

    /// Those who wait for that and need not wait any longer.
    pub(super) fn drained(&mut self) -> impl Iterator<Item = Waker> {
        let up_to = if self.is_drained() { u64::MAX } else { self.dismissed };
        self.drainers.extract_if(move |drainer, _| *drainer <= up_to).map(|(_, waker)| waker)
    }
}

/// What a shutdown dropped.
pub(super) struct Dropped<K> {
    _slots: Option<Slots<K>>,
    _keys: Vec<K>,
    _reasons: Option<Reasons>,
    _wheel: Wheel,
}
