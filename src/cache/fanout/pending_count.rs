//! Number of pending events of a subscription that are not in the log.
//!
//! These are the rest of its snapshot, and events that it has taken from the log and not delivered.
//! Only the subscription writes the counter, without a lock, because it changes with each event.
//! Only statistics read it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

#[derive(Clone)]
pub(super) struct PendingCount(Arc<AtomicUsize>);

impl PendingCount {
    pub(super) fn new(events: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(events)))
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(Relaxed)
    }

    pub(super) fn set(&self, events: usize) {
        self.0.store(events, Relaxed);
    }

    pub(super) fn add(&self, events: usize) {
        self.set(self.get() + events);
    }

    /// Counts a delivered event. Saturates, because the size of the snapshot is a hint.
    pub(super) fn delivered(&self) {
        self.set(self.get().saturating_sub(1));
    }
}
