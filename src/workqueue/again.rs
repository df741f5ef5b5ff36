//! Tells a run that its key was queued again.
//!
//! Invariant: a waker is here exactly while its run goes on and its key is not queued again. Numbers of runs are used again, their serials are not.

use super::{Item, Key, WorkQueue, shutdown::Phase, state::State, waiters::Wakes};
use hashbrown::HashMap;
use std::task::{Context, Poll, Waker};

/// By the number of the run.
#[derive(Default)]
pub(super) struct Watchers {
    asleep: HashMap<u32, Vec<Waker>>,
    woken: Vec<Waker>,
}

impl Watchers {
    fn sleep(&mut self, run: u32, waker: &Waker) {
        let asleep = self.asleep.entry(run).or_default();
        if !asleep.iter().any(|other| other.will_wake(waker)) {
            asleep.push(waker.clone());
        }
    }

    /// The key of this run is queued again.
    #[inline]
    pub(super) fn queued_again(&mut self, run: u32) {
        if !self.asleep.is_empty() {
            self.woken.extend(self.asleep.remove(&run).unwrap_or_default());
        }
    }

    /// It is over: nobody is told any more.
    #[inline]
    pub(super) fn end(&mut self, run: u32) {
        if !self.asleep.is_empty() {
            self.asleep.remove(&run);
        }
    }

    #[inline]
    pub(super) fn settle(&mut self, wakes: &mut Wakes) {
        if !self.woken.is_empty() {
            wakes.extend(self.woken.drain(..));
        }
    }
}

/// One run, for whoever wants to know whether its key is queued again; also after its end, when it is not.
pub(crate) struct RunWatch<K> {
    queue: WorkQueue<K>,
    slot: u32,
    run: u32,
    serial: u32,
}

impl<K: Key> RunWatch<K> {
    pub(super) fn new(item: &Item<K>, state: &State<K>) -> Self {
        let (queue, slot, run) = item.place();
        Self { queue: queue.clone(), slot, run, serial: state.runs.get(run).serial }
    }

    fn is_going_on(&self, state: &State<K>) -> bool {
        let run = state.runs.get(self.run);
        state.phase != Phase::Closed && run.slot == self.slot && run.serial == self.serial
    }

    pub(crate) fn is_queued_again(&self) -> bool {
        let state = self.queue.0.lock();
        self.is_going_on(&state) && state.is_queued_again(self.slot)
    }

    pub(crate) fn poll_queued_again(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.queue.0.lock();
        if !self.is_going_on(&state) {
            return Poll::Pending;
        }
        if state.is_queued_again(self.slot) {
            return Poll::Ready(());
        }
        state.watchers.sleep(self.run, cx.waker());
        Poll::Pending
    }
}
