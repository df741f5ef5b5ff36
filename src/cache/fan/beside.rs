//! How many events a cursor has still to tell that are not in the log: what is left of the snapshot it began with, and what it has taken and not handed over.
//!
//! Only the cursor writes it, without a lock, since it is written with each event; who asks for numbers reads it. So it is no more than a number: nothing else may depend on it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

#[derive(Clone)]
pub(super) struct Beside(Arc<AtomicUsize>);

impl Beside {
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

    /// One was handed over. A snapshot may have been said to be smaller than it is.
    pub(super) fn told(&self) {
        self.set(self.get().saturating_sub(1));
    }
}
