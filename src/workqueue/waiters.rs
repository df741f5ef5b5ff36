//! Getters that found nothing and sleep, and who is to be woken.
//!
//! Invariant, kept by [`Waiters::settle`] after every change: for every ready key there is a getter awake on its way to it, or no
//! getter sleeps; and while keys wait for a time, one sleeping getter, the *timekeeper*, has its alarm set for the first of
//! them, or one is awake to become it.
//!
//! It would be cheaper to wake one getter, and let it wake the next when it takes a key. But then a getter that was woken
//! and is not polled, because its task computes or waits for something else first, keeps the others asleep; and so does tokio,
//! which lets no other thread have the task that a thread has woken last.

use super::list::{Links, List, Nodes};
use std::task::Waker;

/// A sleeping getter's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterId(u32);

/// A getter that has just fallen asleep, and the time to wake by if it has to keep it.
#[must_use]
pub(super) struct Asleep {
    pub(super) id: WaiterId,
    pub(super) alarm: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleeper {
    Idle,
    Timekeeper,
    /// Not any more: it was woken and has not been polled since.
    Woken,
}

struct Waiter {
    links: Links,
    waker: Option<Waker>,
    asleep: Sleeper,
}

pub(super) struct Waiters {
    nodes: Vec<Waiter>,
    free: Vec<u32>,
    /// The one who fell asleep last is woken first: its memory is warmest.
    idle: List,
    timekeeper: Option<u32>,
    /// Those woken and not polled yet.
    woken: usize,
}

impl Nodes for Vec<Waiter> {
    fn links(&mut self, node: u32) -> &mut Links {
        &mut self[node as usize].links
    }
}

impl Waiters {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), idle: List::EMPTY, timekeeper: None, woken: 0 }
    }

    /// Fall asleep, while the first key that waits for a time is due at `first_due`.
    pub(super) fn sleep(&mut self, waker: &Waker, first_due: Option<u64>) -> Asleep {
        let waiter = Waiter { links: Links::UNLINKED, waker: Some(waker.clone()), asleep: Sleeper::Idle };
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = waiter;
            at
        } else {
            self.nodes.push(waiter);
            self.nodes.len() as u32 - 1
        };
        let alarm = first_due.filter(|_| self.timekeeper.is_none());
        if alarm.is_some() {
            self.timekeeper = Some(at);
            self.nodes[at as usize].asleep = Sleeper::Timekeeper;
        } else {
            self.idle.push_back(&mut self.nodes, at);
        }
        Asleep { id: WaiterId(at), alarm }
    }

    /// The getter is awake, or gone.
    pub(super) fn leave(&mut self, id: &mut Option<WaiterId>, wakes: &mut Wakes) {
        let Some(WaiterId(at)) = id.take() else { return };
        match self.nodes[at as usize].asleep {
            Sleeper::Idle => self.idle.unlink(&mut self.nodes, at),
            Sleeper::Timekeeper => self.timekeeper = None,
            Sleeper::Woken => self.woken -= 1,
        }
        wakes.dropped = self.nodes[at as usize].waker.take();
        self.free.push(at);
    }

    /// Whom to wake now that `ready` keys can be taken and keys wait for a time or not.
    #[inline]
    pub(super) fn settle(&mut self, ready: usize, timed: bool, wakes: &mut Wakes) {
        if !self.idle.is_empty() || self.timekeeper.is_some() {
            self.wake_needed(ready, timed, wakes);
        }
    }

    #[inline(never)]
    fn wake_needed(&mut self, ready: usize, timed: bool, wakes: &mut Wakes) {
        while ready > self.woken {
            let Some(waker) = self.wake_one() else { return };
            wakes.push(waker);
        }
        if timed && self.timekeeper.is_none() && self.woken == 0 {
            wakes.extend(self.wake_one());
        }
    }

    /// The first time to wait for has come nearer: the timekeeper has to set its alarm anew.
    pub(super) fn alarm_changed(&self, wakes: &mut Wakes) {
        let timekeeper = self.timekeeper.and_then(|at| self.nodes[at as usize].waker.clone());
        wakes.extend(timekeeper);
    }

    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) {
        while let Some(waker) = self.wake_one() {
            wakes.push(waker);
        }
    }

    /// The timekeeper last: so that keys that are added do not keep moving its alarm from getter to getter.
    fn wake_one(&mut self) -> Option<Waker> {
        let at = self.idle.pop_back(&mut self.nodes).or_else(|| self.timekeeper.take())?;
        let waiter = &mut self.nodes[at as usize];
        waiter.asleep = Sleeper::Woken;
        self.woken += 1;
        waiter.waker.take()
    }
}

/// Wakers to call, and one to drop, once the lock is released: both may run whatever their maker likes.
#[derive(Default)]
#[must_use]
pub(super) struct Wakes {
    first: Option<Waker>,
    rest: Vec<Waker>,
    dropped: Option<Waker>,
}

impl Wakes {
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

    #[inline(never)]
    pub(super) fn call(self) {
        let Self { first, rest, dropped } = self;
        first.into_iter().chain(rest).for_each(Waker::wake);
        drop(dropped);
    }
}
