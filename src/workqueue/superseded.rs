//! Notifies a run that its key was queued again.
//!
//! Invariant: a waker is registered only while its wait exists, its run is current, and its key is
//! not queued again. The time for which the key is delayed has not changed since the waker was
//! registered. Each wait has one waker. The index of a run is reused, but not its serial number,
//! nor the number of a wait.

use super::{
    Item, Key, WorkQueue, shutdown::Phase, slots::Pending, state::State, timer::Timer,
    waiters::Wakers,
};
use hashbrown::HashMap;
use std::{
    future::poll_fn,
    task::{Poll, Waker},
};

#[derive(Default)]
pub(super) struct Watchers {
    /// Wakers by run and wait.
    wakers: HashMap<u32, HashMap<u64, Waker>>,
    woken: Vec<Waker>,
    /// Number of the last wait.
    waits: u64,
}

impl Watchers {
    fn number(&mut self) -> u64 {
        self.waits += 1;
        self.waits
    }

    /// Registers a waker and returns the replaced one, to be dropped without the lock.
    fn register(&mut self, run: u32, wait: u64, waker: &Waker) -> Option<Waker> {
        let registered = self.wakers.entry(run).or_default();
        if registered
            .get(&wait)
            .is_some_and(|known| known.will_wake(waker))
        {
            return None;
        }
        registered.insert(wait, waker.clone())
    }

    /// Removes a wait and returns its waker, to be dropped without the lock.
    fn unregister(&mut self, run: u32, wait: u64) -> Option<Waker> {
        let registered = self.wakers.get_mut(&run)?;
        let waker = registered.remove(&wait);
        if registered.is_empty() {
            self.wakers.remove(&run);
        }
        waker
    }

    /// Wakes the waits of a run whose key was queued again or got another delay.
    #[inline]
    pub(super) fn wake(&mut self, run: u32) {
        if !self.wakers.is_empty() {
            self.woken
                .extend(self.wakers.remove(&run).unwrap_or_default().into_values());
        }
    }

    #[inline]
    pub(super) fn collect_wakers(&mut self, wakers: &mut Wakers) {
        if !self.woken.is_empty() {
            wakers.extend(self.woken.drain(..));
        }
    }
}

/// Observes whether the key of one run is queued again. Reports `false` after the run has ended.
pub(crate) struct SupersededWatch<K> {
    queue: WorkQueue<K>,
    slot: u32,
    run: u32,
    serial: u32,
}

impl<K: Key> SupersededWatch<K> {
    pub(super) fn new(item: &Item<K>, state: &State<K>) -> Self {
        let (queue, slot, run) = item.slot_and_run();
        Self {
            queue: queue.clone(),
            slot,
            run,
            serial: state.processing.get(run).serial,
        }
    }

    fn is_current(&self, state: &State<K>) -> bool {
        let run = state.processing.get(self.run);
        state.phase != Phase::Closed && run.slot == self.slot && run.serial == self.serial
    }

    pub(crate) fn is_queued_again(&self) -> bool {
        let now = self.queue.0.clock.now();
        self.queue.0.change(|state, _| {
            state.promote_due(now);
            self.is_current(state) && state.is_queued_again(self.slot)
        })
    }

    /// Waits until the key is queued again.
    ///
    /// Has its own timer, because no getter has one if all workers are busy.
    ///
    /// Cancel safety: dropping the future unregisters its waker.
    pub(crate) async fn queued_again(&self) {
        let mut wait = SupersededWait {
            watch: self,
            number: None,
        };
        let mut timer = Timer::default();
        poll_fn(|cx| {
            loop {
                let checked = wait.check(cx.waker());
                let Err(at) = checked else {
                    return Poll::Ready(());
                };
                if timer.poll(&self.queue.0, at, cx) {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }
}

struct SupersededWait<'a, K: Key> {
    watch: &'a SupersededWatch<K>,
    /// Set when the wait is first registered.
    number: Option<u64>,
}

impl<K: Key> SupersededWait<'_, K> {
    /// Returns whether the key is queued again, or else the end of its delay, if any.
    ///
    /// Registers the waker for changes.
    fn check(&mut self, waker: &Waker) -> Result<(), Option<u64>> {
        let SupersededWatch {
            queue, slot, run, ..
        } = self.watch;
        let now = queue.0.clock.now();
        let (checked, _replaced) = queue.0.change(|state, _| {
            state.promote_due(now);
            if !self.watch.is_current(state) {
                return (Err(None), None);
            }
            if state.is_queued_again(*slot) {
                return (Ok(()), None);
            }
            let number = *self.number.get_or_insert_with(|| state.watchers.number());
            let replaced = state.watchers.register(*run, number, waker);
            let slot = &state.slots[*slot];
            (
                Err((slot.pending == Pending::Time).then_some(slot.ready_at)),
                replaced,
            )
        });
        checked
    }
}

impl<K: Key> Drop for SupersededWait<'_, K> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let SupersededWatch { queue, run, .. } = self.watch;
            let _waker = queue
                .0
                .change(|state, _| state.watchers.unregister(*run, number));
        }
    }
}
