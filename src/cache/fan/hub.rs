//! The informer's end: publishing, and letting handlers in.
//!
//! Two locks, always taken in this order. The *gate* is held while the store changes and the change is published, and while a snapshot is taken
//! and its cursor begins: so a cursor begins exactly where its snapshot ends. Only writers and new cursors wait for it. The log's own lock is held for
//! moments, and is the only one that reading needs.

use super::{
    backlog::Limits,
    beside::Beside,
    cursor::Cursor,
    event::{Event, Reduce, Trash},
    log::Log,
    sync::Mutex,
    wakes::Wakes,
};
use crate::cache::{HandlerStats, store::Entry};
use std::sync::Arc;

/// Events in the log, if nothing else is said: what comes in a burst, and is not worth coalescing.
const CAPACITY: usize = 4096;
/// Deletions that wait for a handler with the last state of their object. [`Event`](crate::event::Event) documents the number.
const FULL_DELETIONS: usize = 4096;
/// Events published in one go, so that readers get in between.
const BATCH: usize = 256;

/// The fan-out of one informer. Dropping it ends the cursors, once they have told what they have.
pub(crate) struct Fan<P> {
    shared: Arc<Shared<P>>,
}

pub(super) struct Shared<P> {
    pub(super) gate: Mutex<()>,
    pub(super) log: Mutex<Log<P>>,
}

impl<P> Fan<P> {
    pub(crate) fn new(reduce: Reduce<P>) -> Self {
        Self::with_limits(CAPACITY, FULL_DELETIONS, reduce)
    }

    /// Creates a fan-out whose log holds `capacity` events, and whose backlogs keep the last state of `deletions` deleted objects each.
    pub(super) fn with_limits(capacity: usize, deletions: usize, reduce: Reduce<P>) -> Self {
        let log = Log::new(capacity, Limits { deletions, reduce });
        Self { shared: Arc::new(Shared { gate: Mutex::new(()), log: Mutex::new(log) }) }
    }

    /// Change the store and publish what changed. This is the only way to publish: no snapshot is taken between the two.
    pub(crate) fn write<R>(&self, write: impl FnOnce(&mut Publisher<'_, P>) -> R) -> R {
        // Dropped after the gate is open again, also if `write` panics: then it wakes and frees.
        let mut publisher = Publisher { log: &self.shared.log, wakes: Wakes::default(), trash: Trash::new() };
        let _gate = self.shared.gate.lock();
        write(&mut publisher)
    }

    /// A cursor that tells first what is in the `snapshot`, so many, one by one as it is read, and then what happens from then on.
    ///
    /// Before the first sync the snapshot is empty, and the first list comes as events.
    pub(crate) fn subscribe<I>(&self, snapshot: impl FnOnce() -> (usize, I)) -> Cursor<P>
    where
        I: IntoIterator<Item = Entry<P>, IntoIter: Send + 'static>,
    {
        let gate = self.shared.gate.lock();
        let (objects, replay) = snapshot();
        let beside = Beside::new(objects);
        let number = self.shared.log.lock().join(beside.clone());
        drop(gate);
        Cursor::new(self.shared.clone(), number, beside, Box::new(replay.into_iter()))
    }

    /// Wake the handlers who sleep through what was [published](Publisher::publish).
    pub(crate) fn wake(&self) {
        let mut wakes = Wakes::default();
        self.shared.log.lock().wake(&mut wakes);
        wakes.call();
    }

    /// The informer has ended: cursors tell what they have, and end. What is published then is lost.
    pub(crate) fn close(&self) {
        let mut wakes = Wakes::default();
        let mut log = self.shared.log.lock();
        log.close();
        log.wake(&mut wakes);
        drop(log);
        wakes.call();
    }

    /// Events in the log: those that some cursor has still to read.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared.log.lock().len()
    }

    /// Of every cursor.
    pub(crate) fn stats(&self) -> Vec<HandlerStats> {
        self.shared.log.lock().stats().collect()
    }
}

impl<P> Drop for Fan<P> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Publishes, for as long as [`Fan::write`] keeps new cursors out.
pub(crate) struct Publisher<'a, P> {
    log: &'a Mutex<Log<P>>,
    wakes: Wakes,
    trash: Trash<P>,
}

impl<P> Publisher<'_, P> {
    /// The store shows it: everybody is told. But who sleeps sleeps on until [`Fan::wake`], which whoever calls this has to call before it waits for anything:
    /// waking costs more than telling, and events come in bursts.
    pub(crate) fn publish(&mut self, event: Event<P>) {
        self.log.lock().append(event, &mut self.trash);
    }

    /// The store shows them all, in this order. Handlers are woken when [`Fan::write`] ends.
    pub(crate) fn publish_all(&mut self, events: impl IntoIterator<Item = Event<P>>) {
        let mut events = events.into_iter();
        // Taken from the iterator while the log is free: what makes them is not ours.
        let mut batch = Vec::with_capacity(BATCH.min(events.size_hint().0));
        loop {
            batch.extend(events.by_ref().take(BATCH));
            if batch.is_empty() {
                return;
            }
            let mut log = self.log.lock();
            for event in batch.drain(..) {
                log.append(event, &mut self.trash);
            }
            log.wake(&mut self.wakes);
        }
    }

    /// The first list is published: from here on nothing is initial. Only the first call counts.
    pub(crate) fn synced(&mut self) {
        let mut log = self.log.lock();
        log.synced();
        log.wake(&mut self.wakes);
    }
}

impl<P> Drop for Publisher<'_, P> {
    fn drop(&mut self) {
        self.wakes.call();
    }
}
