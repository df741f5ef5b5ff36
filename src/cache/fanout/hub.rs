//! Publishing side of the fan-out, and the creation of subscriptions.
//!
//! There are two locks, always taken in this order. The *gate* is held while the store changes and
//! the change is published, and while a snapshot is taken and its subscription is created. So a
//! subscription starts exactly at its snapshot. Only writers and new subscriptions contend for the
//! gate. The lock of the log is held briefly, and is the only one that reading needs.

use super::{
    backlog::Limits,
    event::{Event, FreedObjects, Reduce},
    log::Log,
    pending_count::PendingCount,
    subscription::Subscription,
    sync::Mutex,
    wakes::WakeList,
};
use crate::cache::{HandlerStats, store::Entry};
use std::sync::Arc;

/// Capacity of the log. Bursts up to this size are not coalesced.
const CAPACITY: usize = 4096;
/// Pending deletions per handler that keep the last state of their object.
/// [`Event`](crate::event::Event) documents the number.
const FULL_DELETIONS: usize = 4096;
/// Events published under one lock of the log, so that readers get in between.
const BATCH: usize = 256;

/// Fan-out of one informer. Dropping it ends the subscriptions after their pending events.
pub(crate) struct Fanout<P> {
    shared: Arc<Shared<P>>,
}

pub(super) struct Shared<P> {
    pub(super) gate: Mutex<()>,
    pub(super) log: Mutex<Log<P>>,
}

impl<P> Fanout<P> {
    pub(crate) fn new(reduce: Reduce<P>) -> Self {
        Self::with_limits(CAPACITY, FULL_DELETIONS, reduce)
    }

    /// Creates a fan-out whose log holds `capacity` events.
    ///
    /// Each backlog keeps the last state of `deletions` deleted objects.
    pub(super) fn with_limits(capacity: usize, deletions: usize, reduce: Reduce<P>) -> Self {
        let log = Log::new(capacity, Limits { deletions, reduce });
        Self {
            shared: Arc::new(Shared {
                gate: Mutex::new(()),
                log: Mutex::new(log),
            }),
        }
    }

    /// Changes the store and publishes the changes under the gate.
    ///
    /// This is the only way to publish, so that no snapshot is taken between the two.
    pub(crate) fn write<R>(&self, write: impl FnOnce(&mut Publisher<'_, P>) -> R) -> R {
        // Declared before the gate, so that it wakes and frees after the gate is released, also if
        // `write` panics.
        let mut publisher = Publisher {
            log: &self.shared.log,
            wakes: WakeList::default(),
            freed: FreedObjects::new(),
        };
        let _gate = self.shared.gate.lock();
        write(&mut publisher)
    }

    /// Creates a subscription that delivers the `snapshot` and then all later changes.
    ///
    /// `snapshot` returns the number of objects and an iterator, which is consumed as events are
    /// read. Before the first sync the snapshot is empty, and the first list is delivered as
    /// events.
    pub(crate) fn subscribe<I>(&self, snapshot: impl FnOnce() -> (usize, I)) -> Subscription<P>
    where
        I: IntoIterator<Item = Entry<P>, IntoIter: Send + 'static>,
    {
        let gate = self.shared.gate.lock();
        let (objects, replay) = snapshot();
        let pending_count = PendingCount::new(objects);
        let number = self.shared.log.lock().subscribe(pending_count.clone());
        drop(gate);
        Subscription::new(
            self.shared.clone(),
            number,
            pending_count,
            Box::new(replay.into_iter()),
        )
    }

    /// Wakes the handlers for events that were [published](Publisher::publish).
    pub(crate) fn wake(&self) {
        let mut wakes = WakeList::default();
        self.shared.log.lock().wake(&mut wakes);
        wakes.call();
    }

    /// Closes the fan-out. Subscriptions deliver pending events and end. Later events are dropped.
    pub(crate) fn close(&self) {
        let mut wakes = WakeList::default();
        let mut log = self.shared.log.lock();
        log.close();
        log.wake(&mut wakes);
        drop(log);
        wakes.call();
    }

    /// Returns the number of events in the log that some subscription has not read.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared.log.lock().len()
    }

    /// Returns the counters of every subscription.
    pub(crate) fn stats(&self) -> Vec<HandlerStats> {
        self.shared.log.lock().stats().collect()
    }
}

impl<P> Drop for Fanout<P> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Publishes events while [`Fanout::write`] holds the gate.
pub(crate) struct Publisher<'a, P> {
    log: &'a Mutex<Log<P>>,
    wakes: WakeList,
    freed: FreedObjects<P>,
}

impl<P> Publisher<'_, P> {
    /// Publishes an event that the store shows, without waking handlers.
    ///
    /// The caller must call [`Fanout::wake`] before it waits for anything. Waking costs more than
    /// publishing, and events arrive in bursts.
    pub(crate) fn publish(&mut self, event: Event<P>) {
        self.log.lock().append(event, &mut self.freed);
    }

    /// Publishes events that the store shows, in order. Handlers are woken when [`Fanout::write`]
    /// ends.
    pub(crate) fn publish_all(&mut self, events: impl IntoIterator<Item = Event<P>>) {
        let mut events = events.into_iter();
        // The iterator runs without the lock of the log, because its code belongs to the caller.
        let mut batch = Vec::with_capacity(BATCH.min(events.size_hint().0));
        loop {
            batch.extend(events.by_ref().take(BATCH));
            if batch.is_empty() {
                return;
            }
            let mut log = self.log.lock();
            for event in batch.drain(..) {
                log.append(event, &mut self.freed);
            }
            log.wake(&mut self.wakes);
        }
    }

    /// Marks the end of the initial objects. Only the first call has an effect.
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
