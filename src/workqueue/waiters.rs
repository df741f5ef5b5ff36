//! Getters that found nothing and sleep, and who is to be woken.
//!
//! Invariants, kept by [`Waiters::settle`] after every change:
//!
//! * For every ready key there is a getter awake on its way to it, or no getter sleeps.
//! * While keys wait for a time, two of the sleeping getters keep it, as far as there are two: the first has its alarm set for
//!   when the first key is due, the second for [`GRACE`] later; either may be sooner. For a vacant post one is awake to take it.
//!
//! So one getter that is not polled, because its task computes or waits for something else first, makes keys late by [`GRACE`] and no
//! more, as long as another sleeps; and whoever finds it late takes its post away, so that it does so once. Two that stop being polled
//! between two keys that come due can still hold up the rest: a timer for each getter would cost more than that is worth.
//!
//! A getter that was woken for a key is counted on until it is polled or dropped: for one key that is ready one is woken, and not all.
//!
//! It would be cheaper to wake one getter, and let it wake the next when it takes a key. But then one that was woken
//! and is not polled, because its task computes or waits for something else first, keeps all others asleep; and so does tokio,
//! which lets no other thread have the task that a thread has woken last.

use super::{
    list::{Links, List, Nodes},
    panics::discard,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

/// How late a keeper may be, in nanoseconds, before others count on it no more: more than a busy machine needs to poll a task.
const GRACE: u64 = 10_000_000;

/// A sleeping getter's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterId(u32);

/// A getter that has just fallen asleep, and the time to wake by if it has to keep it.
#[must_use]
pub(super) struct Asleep {
    pub(super) id: WaiterId,
    pub(super) alarm: Option<u64>,
}

#[derive(Clone, Copy)]
enum Sleeper {
    Idle,
    /// It keeps the time, at this post.
    Keeper(usize),
    /// Not any more: it was woken, for a key or for this, and has not been polled since.
    Woken(For),
}

/// What a getter is woken for.
#[derive(Clone, Copy, PartialEq)]
enum For {
    Key,
    /// To keep the time. It takes a key that it finds, but nobody counts on that: no key is late for want of one who keeps the time.
    Time,
}

struct Waiter {
    links: Links,
    waker: Option<Waker>,
    asleep: Sleeper,
}

/// One who keeps the time.
#[derive(Clone, Copy)]
struct Keeper {
    at: u32,
    alarm: u64,
}

pub(super) struct Waiters {
    nodes: Vec<Waiter>,
    free: Vec<u32>,
    /// The one who fell asleep last is woken first: its memory is warmest.
    idle: List,
    keepers: [Option<Keeper>; 2],
    /// Idle ones and keepers.
    asleep: usize,
    /// Those woken and not polled yet.
    woken: usize,
    /// Those of them that were woken for a key.
    coming: usize,
}

/// When the keeper at this post has to wake if the first key is due at `first_due`.
fn alarm(post: usize, first_due: u64) -> u64 {
    first_due.saturating_add(GRACE * post as u64)
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
            keepers: [None; 2],
            asleep: 0,
            woken: 0,
            coming: 0,
        }
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
        self.asleep += 1;
        let post = first_due.and_then(|due| Some((self.keepers.iter().position(Option::is_none)?, due)));
        let alarm = post.map(|(post, due)| {
            let alarm = alarm(post, due);
            self.keepers[post] = Some(Keeper { at, alarm });
            self.nodes[at as usize].asleep = Sleeper::Keeper(post);
            alarm
        });
        if alarm.is_none() {
            self.idle.push_back(&mut self.nodes, at);
        }
        Asleep { id: WaiterId(at), alarm }
    }

    /// The getter is awake, or gone.
    pub(super) fn leave(&mut self, id: &mut Option<WaiterId>, wakes: &mut Wakes) {
        let Some(WaiterId(at)) = id.take() else { return };
        match self.nodes[at as usize].asleep {
            Sleeper::Idle => {
                self.idle.unlink(&mut self.nodes, at);
                self.asleep -= 1;
            }
            Sleeper::Keeper(post) => {
                self.keepers[post] = None;
                self.asleep -= 1;
            }
            Sleeper::Woken(what) => {
                self.woken -= 1;
                self.coming -= usize::from(what == For::Key);
            }
        }
        wakes.dropped = self.nodes[at as usize].waker.take();
        self.free.push(at);
    }

    /// Whom to wake now that `ready` keys can be taken and keys wait for a time or not.
    #[inline]
    pub(super) fn settle(&mut self, ready: usize, timed: bool, wakes: &mut Wakes) {
        if self.asleep > 0 {
            self.wake_needed(ready, timed, wakes);
        }
    }

    #[inline(never)]
    fn wake_needed(&mut self, ready: usize, timed: bool, wakes: &mut Wakes) {
        while ready > self.coming {
            let Some(waker) = self.wake_one(For::Key) else { return };
            wakes.push(waker);
        }
        if timed {
            self.fill_posts(wakes);
        }
    }

    fn fill_posts(&mut self, wakes: &mut Wakes) {
        let vacant = self.keepers.iter().filter(|keeper| keeper.is_none()).count();
        while vacant > self.woken && !self.idle.is_empty() {
            wakes.extend(self.wake_one(For::Time));
        }
        if self.keepers[0].is_none() && self.woken == 0 {
            wakes.extend(self.wake_one(For::Time)); // The second, to become the first.
        }
    }

    /// The first time to wait for has come nearer: those who keep it have to set their alarms anew.
    pub(super) fn first_due_changed(&mut self, first_due: u64, wakes: &mut Wakes) {
        for (post, keeper) in self.keepers.iter_mut().enumerate() {
            if let Some(keeper) = keeper
                && alarm(post, first_due) < keeper.alarm
            {
                keeper.alarm = alarm(post, first_due);
                wakes.extend(self.nodes[keeper.at as usize].waker.clone());
            }
        }
    }

    /// Somebody has found keys due: a keeper that should have woken long ago keeps the time no more, and is the last to be woken.
    pub(super) fn dismiss_late(&mut self, now: u64) {
        for keeper in &mut self.keepers {
            if let Some(late) = keeper.take_if(|keeper| keeper.alarm.saturating_add(GRACE) <= now) {
                self.nodes[late.at as usize].asleep = Sleeper::Idle;
                self.idle.push_front(&mut self.nodes, late.at);
            }
        }
    }

    pub(super) fn wake_all(&mut self, wakes: &mut Wakes) {
        while let Some(waker) = self.wake_one(For::Key) {
            wakes.push(waker);
        }
    }

    /// Those who keep the time last, and the first of them at the very end: so that keys that are added do not keep moving its
    /// alarm from getter to getter.
    fn wake_one(&mut self, what: For) -> Option<Waker> {
        let idle = self.idle.pop_back(&mut self.nodes);
        let at = idle.or_else(|| self.keepers.iter_mut().rev().find_map(Option::take).map(|keeper| keeper.at))?;
        let waiter = &mut self.nodes[at as usize];
        waiter.asleep = Sleeper::Woken(what);
        self.asleep -= 1;
        self.woken += 1;
        self.coming += usize::from(what == For::Key);
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

    /// A waker that panics keeps nobody else asleep, and nobody who called the queue from what they got: whoever made it is told by the panic's hook.
    #[inline(never)]
    pub(super) fn call(self) {
        let Self { first, rest, dropped } = self;
        let harmless = |does: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(does)).unwrap_or_else(discard);
        for waker in first.into_iter().chain(rest) {
            let mut waker = Some(waker);
            harmless(&mut || waker.take().into_iter().for_each(Waker::wake));
        }
        let mut dropped = dropped;
        harmless(&mut || drop(dropped.take()));
    }
}
