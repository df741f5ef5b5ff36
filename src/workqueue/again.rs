//! Tells a run that its key was queued again.
//!
//! Invariant: a waker is here only while its wait is, its run goes on, its key is not queued again, and that waits for what it
//! waited for, or for nothing any more; and there is one of each wait. Numbers of runs are used again, their serials and the numbers of waits are not.

use super::{Item, Key, WorkQueue, alarm::Alarm, shutdown::Phase, slots::Pending, state::State, waiters::Wakes};
use hashbrown::HashMap;
use std::{
    future::poll_fn,
    task::{Poll, Waker},
};

#[derive(Default)]
pub(super) struct Watchers {
    /// By the number of the run, and that of the wait.
    asleep: HashMap<u32, HashMap<u64, Waker>>,
    woken: Vec<Waker>,
    /// The last wait got this number.
    waits: u64,
}

impl Watchers {
    fn number(&mut self) -> u64 {
        self.waits += 1;
        self.waits
    }

    /// Gives back the waker that this one replaces, to be dropped without the lock.
    fn sleep(&mut self, run: u32, wait: u64, waker: &Waker) -> Option<Waker> {
        let asleep = self.asleep.entry(run).or_default();
        if asleep.get(&wait).is_some_and(|known| known.will_wake(waker)) {
            return None;
        }
        asleep.insert(wait, waker.clone())
    }

    /// The wait is over, whoever ended it. Gives back its waker, to be dropped without the lock.
    fn leave(&mut self, run: u32, wait: u64) -> Option<Waker> {
        let asleep = self.asleep.get_mut(&run)?;
        let waker = asleep.remove(&wait);
        if asleep.is_empty() {
            self.asleep.remove(&run);
        }
        waker
    }

    /// The key of this run is queued again, or will be at another time than before.
    #[inline]
    pub(super) fn wake(&mut self, run: u32) {
        if !self.asleep.is_empty() {
            self.woken.extend(self.asleep.remove(&run).unwrap_or_default().into_values());
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

    /// Until it is. Keeps the time for itself: if all workers run, there is no getter that does. Leaves nothing behind when dropped.
    pub(crate) async fn queued_again(&self) {
        let mut wait = Wait { watch: self, number: None };
        let mut alarm = Alarm::default();
        poll_fn(|cx| {
            loop {
                let look = wait.look(cx.waker());
                let Err(at) = look else { return Poll::Ready(()) };
                if alarm.poll(&self.queue.0, at, cx) {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }
}

struct Wait<'a, K: Key> {
    watch: &'a RunWatch<K>,
    /// From when it first fell asleep.
    number: Option<u64>,
}

impl<K: Key> Wait<'_, K> {
    /// Whether it is queued again, and if not, when it will be, as far as that is known; who asks is woken when that changes.
    fn look(&mut self, waker: &Waker) -> Result<(), Option<u64>> {
        let RunWatch { queue, slot, run, .. } = self.watch;
        let now = queue.0.clock.now();
        let (look, _replaced) = queue.0.change(|state, _| {
            state.pass(now);
            if !self.watch.is_going_on(state) {
                return (Err(None), None);
            }
            if state.is_queued_again(*slot) {
                return (Ok(()), None);
            }
            let number = *self.number.get_or_insert_with(|| state.watchers.number());
            let replaced = state.watchers.sleep(*run, number, waker);
            let slot = &state.slots[*slot];
            (Err((slot.pending == Pending::Time).then_some(slot.ready_at)), replaced)
        });
        look
    }
}

impl<K: Key> Drop for Wait<'_, K> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let RunWatch { queue, run, .. } = self.watch;
            let _waker = queue.0.change(|state, _| state.watchers.leave(*run, number));
        }
    }
}
