//! Adds requests to the queue, and keeps the spans of the events that caused them.

use crate::{
    handler::Target,
    workqueue::{Add, Key, WorkQueue},
};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tracing::Span;

/// Spans of events kept per request, equal to the number of its reasons.
const LINKS: usize = 3;

pub(super) struct QueueTarget<R> {
    queue: WorkQueue<R>,
    links: Mutex<HashMap<R, Vec<Span>>>,
    /// Number of requests that have links. It is 0 without a `tracing` subscriber.
    linked: AtomicUsize,
}

impl<R: Key> QueueTarget<R> {
    pub(super) fn new(queue: WorkQueue<R>) -> Self {
        Self {
            queue,
            links: Mutex::default(),
            linked: AtomicUsize::new(0),
        }
    }

    /// Takes the spans of the events that led to the reconcile which starts now.
    #[inline]
    pub(super) fn take_links(&self, request: &R) -> Vec<Span> {
        if self.linked.load(Relaxed) == 0 {
            return Vec::new();
        }
        let mut links = self.links.lock();
        let taken = links.remove(request).unwrap_or_default();
        self.linked.store(links.len(), Relaxed);
        taken
    }

    pub(super) fn end(&self) {
        self.links.lock().clear();
    }
}

impl<R: Key> Target<R> for QueueTarget<R> {
    fn add(&self, request: R, add: Add) {
        let span = Span::current();
        if !span.is_disabled() {
            let mut links = self.links.lock();
            let of_request = links.entry(request.clone()).or_default();
            if of_request.len() == LINKS {
                of_request.remove(0);
            }
            of_request.push(span);
            self.linked.store(links.len(), Relaxed);
        }
        self.queue.add_with(request, add);
    }
}
