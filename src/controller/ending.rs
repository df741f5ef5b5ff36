//! Which runs are left of a controller that was told to stop: the queue forgets them when it is closed, and who waits for them wants to name them.
//!
//! What holds: before the end this costs a run one look at a flag. A run that ends in the very moment in which it begins may be named all the same.

use crate::workqueue::{EntryState, Key, WorkQueue};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(super) struct Ending<R> {
    begun: AtomicBool,
    runs: Mutex<Vec<R>>,
}

impl<R> Default for Ending<R> {
    fn default() -> Self {
        Self { begun: AtomicBool::new(false), runs: Mutex::default() }
    }
}

impl<R: Key> Ending<R> {
    /// To be called before the queue is closed.
    pub(super) fn begin(&self, queue: &WorkQueue<R>) {
        let mut runs = self.runs.lock();
        if !self.begun.swap(true, Relaxed) {
            let running = queue.snapshot().into_iter();
            let running = running.filter(|entry| matches!(entry.state, EntryState::Running { .. }));
            *runs = running.map(|entry| entry.key).collect();
        }
    }

    #[inline]
    pub(super) fn ran(&self, request: &R) {
        if self.begun.load(Relaxed) {
            self.runs.lock().retain(|other| other != request);
        }
    }

    /// In words.
    pub(super) fn left(&self) -> Vec<String> {
        self.runs.lock().iter().map(|request| format!("run of {request:?}")).collect()
    }
}
