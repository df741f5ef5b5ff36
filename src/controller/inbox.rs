//! What stands before the queue: requests as handlers add them, and the spans of the events they are for.

use crate::{
    handler::Target,
    workqueue::{Add, Key, WorkQueue},
};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tracing::Span;

/// A request is linked to its last events, as many as it keeps reasons.
const LINKS: usize = 3;

pub(super) struct Inbox<R> {
    queue: WorkQueue<R>,
    links: Mutex<HashMap<R, Vec<Span>>>,
    /// How many requests have links: none, unless somebody subscribes to spans.
    linked: AtomicUsize,
}

impl<R: Key> Inbox<R> {
    pub(super) fn new(queue: WorkQueue<R>) -> Self {
        Self { queue, links: Mutex::default(), linked: AtomicUsize::new(0) }
    }

    /// The events that led to a run that begins now.
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

impl<R: Key> Target<R> for Inbox<R> {
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
