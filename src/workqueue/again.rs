//! Tells a run that its key was queued again.
//!
//! Invariant: a waker is here exactly while its run goes on, its key is not queued again, and what it waits for is what it was. Numbers of runs are used
//! again, their serials are not.

use super::{Item, Key, WorkQueue, alarm::Alarm, shutdown::Phase, slots::Pending, state::State, waiters::Wakes};
use hashbrown::HashMap;
use std::{
    future::poll_fn,
    task::{Poll, Waker},
};

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

    /// The key of this run is queued again, or will be at another time than before.
    #[inline]
    pub(super) fn wake(&mut self, run: u32) {
        if !self.asleep.is_empty() {
            self.woken.extend(self.asleep.remove(&run).unwrap_or_default());
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
        let now = self.queue.0.clock.now();
        self.queue.0.change(|state, _| {
            state.pass(now);
            self.is_going_on(state) && state.is_queued_again(self.slot)
        })
    }

    /// Whether it is, and if not, when it will be, as far as that is known; who asks is woken when that changes.
    fn look(&self, waker: &Waker) -> Result<(), Option<u64>> {
        let now = self.queue.0.clock.now();
        self.queue.0.change(|state, _| {
            state.pass(now);
            if !self.is_going_on(state) {
                return Err(None);
            }
            if state.is_queued_again(self.slot) {
                return Ok(());
            }
            state.watchers.sleep(self.run, waker);
            let slot = &state.slots[self.slot];
            Err((slot.pending == Pending::Time).then_some(slot.ready_at))
        })
    }

    /// Until it is. Keeps the time for itself: if all workers run, there is no getter that does.
    pub(crate) async fn queued_again(&self) {
        let mut alarm = Alarm::default();
        poll_fn(|cx| {
            loop {
                let look = self.look(cx.waker());
                let Err(at) = look else { return Poll::Ready(()) };
                if alarm.poll(&self.queue.0, at, cx) {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }
}
