//! Pending mappings of each object, and the requests that they enqueued.
//!
//! The oldest and the newest failing events of an object are retried. The events between
//! them are dropped, so that an object holds at most two failing events. First attempts are
//! concurrent: events succeed and fail in any order, also while older events are retried.
//!
//! Invariant: let a mapping of an object enqueue a request while the object is in a state that maps
//! to this request, and let an event report that the object has left the state. The request is
//! enqueued again after that event, and the requests of the object's newest state are enqueued
//! after the newest event. Both are complete when no mapping of the object is pending.
//!
//! The event that reports the change maps the state as its old one. If its mappings succeed, they
//! enqueue the request. If the event is dropped, [`EnqueuedRequests`] enqueues again what was last
//! enqueued between the event before and this one. The first event after a time without pending
//! mappings is never dropped, so requests need no record while nothing is pending.
//!
//! The invariant covers requests that mappings enqueue. It does not cover a reconcile for another
//! reason that happens to read the object in a state whose event is dropped.

use super::{
    enqueue::Target,
    retry::{EventRef, Mapping},
};
use crate::{
    object::ObjectId,
    workqueue::{Add, Key},
};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::{any::Any, sync::Arc};

/// Maximum number of failing mappings that are retried and do not belong to an event.
pub(super) const MAX_FAILING_WITHOUT_OBJECT: usize = 1024;

/// Mappings that neither succeeded nor were dropped: one entry per object.
#[derive(Default)]
pub(super) struct PendingMappings(Mutex<State>);

#[derive(Default)]
struct State {
    by_object: HashMap<ObjectId, PendingObject>,
    failing_without_object: usize,
    closed: bool,
}

/// Pending mappings of one object.
#[derive(Default)]
struct PendingObject {
    /// Events with pending mappings, oldest first.
    events: Vec<PendingEvent>,
    /// Number of the newest event, pending or not.
    newest: u64,
    enqueued: Option<Box<dyn EnqueuedRequests>>,
    /// Whether a future retries the failing mappings.
    retried: bool,
}

struct PendingEvent {
    number: u64,
    /// Number of the event of this object before.
    previous: u64,
    unattempted: usize,
    /// Failing calls of [`Enqueue::add_async`](super::Enqueue::add_async).
    failing: Vec<Arc<Mapping>>,
}

/// States which future retries a failing mapping.
pub(super) enum Retries {
    /// The future of the caller.
    Started,
    /// The future that retries the other mappings of the object.
    Running,
    /// No future: too many other mappings fail.
    Dropped,
}

impl PendingMappings {
    /// Adds an unattempted mapping. Returns `false` if the source has stopped.
    pub(super) fn push(&self, event: &EventRef) -> bool {
        let mut state = self.0.lock();
        if !state.closed {
            let object = state.by_object.entry(event.object.clone()).or_default();
            object.event(event.number).unattempted += 1;
        }
        !state.closed
    }

    /// Records requests that a mapping of the object is about to enqueue.
    pub(super) fn record<R: Key>(
        &self,
        object: &ObjectId,
        target: &Arc<dyn Target<R>>,
        requests: &[R],
        add: &Add,
    ) {
        let mut state = self.0.lock();
        let Some(object) = state.by_object.get_mut(object) else {
            return;
        };
        let enqueued = object.enqueued.get_or_insert_with(|| {
            Box::new(EnqueuedTo {
                target: target.clone(),
                requests: HashMap::new(),
            })
        });
        let enqueued: &mut dyn Any = &mut **enqueued;
        let enqueued: &mut EnqueuedTo<R> = enqueued
            .downcast_mut()
            .expect("a source has one type of requests");
        for request in requests {
            enqueued
                .requests
                .insert(request.clone(), (object.newest, add.clone()));
        }
    }

    /// Removes a mapping that needs no attempt after its first.
    pub(super) fn finish_first_attempt(&self, event: &EventRef) {
        self.update(&event.object, |object| {
            object.event(event.number).unattempted -= 1;
        });
    }

    /// Keeps a mapping after its first attempt has failed.
    pub(super) fn insert_failing(&self, event: &EventRef, mapping: &Arc<Mapping>) -> Retries {
        let mut retries = Retries::Running;
        let dropped = self.update(&event.object, |object| {
            let failing = object.event(event.number);
            failing.unattempted -= 1;
            failing.failing.push(mapping.clone());
            if !std::mem::replace(&mut object.retried, true) {
                retries = Retries::Started;
            }
            object.drop_between()
        });
        if let Some((mappings, enqueue_again)) = dropped.flatten() {
            drop(mappings);
            enqueue_again();
        }
        retries
    }

    /// Enqueues again what was last enqueued before an event whose mapping is dropped.
    pub(super) fn enqueue_again(&self, event: &EventRef) {
        let enqueue_again = self.update(&event.object, |object| {
            let previous = object.event(event.number).previous;
            object.enqueue_again(previous)
        });
        if let Some(enqueue_again) = enqueue_again {
            enqueue_again();
        }
    }

    /// Returns the failing mappings of an object, oldest event first.
    pub(super) fn failing(&self, object: &ObjectId) -> Vec<Arc<Mapping>> {
        let state = self.0.lock();
        let object = state.by_object.get(object).into_iter();
        object
            .flat_map(|object| &object.events)
            .flat_map(|event| &event.failing)
            .cloned()
            .collect()
    }

    /// Removes a mapping that needs no attempt after a retry.
    pub(super) fn finish_failing(&self, object: &ObjectId, mapping: &Arc<Mapping>) {
        self.update(object, |object| {
            for event in &mut object.events {
                event.failing.retain(|other| !Arc::ptr_eq(other, mapping));
            }
        });
    }

    /// Returns whether no mapping of the object fails. Then the caller stops retrying.
    pub(super) fn stop_retrying(&self, object: &ObjectId) -> bool {
        let stopped = self.update(object, |object| {
            object.retried = object.events.iter().any(PendingEvent::is_failing);
            !object.retried
        });
        stopped.unwrap_or(true)
    }

    /// Updates an object, then removes its completed events, and the object if nothing of it is
    /// pending.
    fn update<T>(&self, key: &ObjectId, update: impl FnOnce(&mut PendingObject) -> T) -> Option<T> {
        let mut state = self.0.lock();
        let object = state.by_object.get_mut(key)?;
        let updated = update(object);
        object.remove_completed();
        let done = object.events.is_empty() && !object.retried;
        let removed = done.then(|| state.by_object.remove(key));
        drop(state);
        drop(removed);
        Some(updated)
    }

    pub(super) fn insert_without_object(&self) -> Retries {
        let mut state = self.0.lock();
        if state.failing_without_object == MAX_FAILING_WITHOUT_OBJECT {
            return Retries::Dropped;
        }
        state.failing_without_object += 1;
        Retries::Started
    }

    pub(super) fn remove_without_object(&self) {
        self.0.lock().failing_without_object -= 1;
    }

    /// Drops all mappings and records.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let by_object = std::mem::take(&mut state.by_object);
        drop(state);
        drop(by_object);
    }
}

impl PendingObject {
    /// Returns the pending event with this number, added if it is missing.
    fn event(&mut self, number: u64) -> &mut PendingEvent {
        let found = self
            .events
            .binary_search_by_key(&number, |event| event.number);
        let at = found.unwrap_or_else(|at| {
            // A mapping can be pushed after its event has completed. Then the event reports nothing
            // new, and has no event before it: numbers start at 1.
            let previous = if number > self.newest { self.newest } else { 0 };
            self.newest = self.newest.max(number);
            let event = PendingEvent {
                number,
                previous,
                unattempted: 0,
                failing: Vec::new(),
            };
            self.events.insert(at, event);
            at
        });
        &mut self.events[at]
    }

    /// Drops the mappings of the event that fails between two others.
    ///
    /// Returns them with a function that enqueues again what the event would have reported.
    fn drop_between(&mut self) -> Option<(Vec<Arc<Mapping>>, EnqueueAgain)> {
        let mut failing = self.events.iter_mut().filter(|event| event.is_failing());
        let (_oldest, between) = (failing.next()?, failing.next()?);
        failing.next()?;
        let mappings = std::mem::take(&mut between.failing);
        let previous = between.previous;
        Some((mappings, self.enqueue_again(previous)))
    }

    /// Returns a function that enqueues again what was last enqueued after the event `previous`.
    fn enqueue_again(&mut self, previous: u64) -> EnqueueAgain {
        match &mut self.enqueued {
            Some(enqueued) => enqueued.enqueue_again(previous, self.newest),
            None => Box::new(|| {}),
        }
    }

    fn remove_completed(&mut self) {
        let enqueued = &mut self.enqueued;
        self.events.retain(|event| {
            let completed = event.unattempted == 0 && !event.is_failing();
            if completed && let Some(enqueued) = enqueued {
                enqueued.forget(event.previous);
            }
            !completed
        });
    }
}

impl PendingEvent {
    fn is_failing(&self) -> bool {
        !self.failing.is_empty()
    }
}

/// Enqueues requests again. Called without the lock.
type EnqueueAgain = Box<dyn FnOnce()>;

/// Requests that mappings of one object enqueued, each with the newest event at the last time.
///
/// Contains the requests whose object may have changed since: those of an event leave when the next
/// event completes. A request is in it once, so its size is bounded by the number of requests that
/// mappings of the object return.
trait EnqueuedRequests: Any + Send {
    /// Removes the requests that were last enqueued when the event `number` was the newest.
    fn forget(&mut self, number: u64);

    /// Returns a function that enqueues those requests again, now that `newest` is the newest.
    fn enqueue_again(&mut self, number: u64, newest: u64) -> EnqueueAgain;
}

struct EnqueuedTo<R> {
    target: Arc<dyn Target<R>>,
    requests: HashMap<R, (u64, Add)>,
}

impl<R: Key> EnqueuedRequests for EnqueuedTo<R> {
    fn forget(&mut self, number: u64) {
        self.requests.retain(|_, (newest, _)| *newest != number);
    }

    fn enqueue_again(&mut self, number: u64, newest: u64) -> EnqueueAgain {
        let mut requests = Vec::new();
        for (request, (last, add)) in &mut self.requests {
            if *last == number {
                *last = newest;
                requests.push((request.clone(), add.clone()));
            }
        }
        let target = self.target.clone();
        Box::new(move || {
            for (request, add) in requests {
                target.add(request, add);
            }
        })
    }
}
