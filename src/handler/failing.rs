//! Keeps the failing mappings of events that are retried, and drops those that are too many.

use super::later::{EventRef, Mapping};
use crate::object::ObjectKey;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;

/// Maximum number of failing mappings that are retried and do not belong to an event.
pub(super) const MAX_FAILING_WITHOUT_OBJECT: usize = 1024;

/// Mappings that are retried after a failure: one entry per object.
///
/// An entry holds the mappings of the oldest failing event and of the newest. The oldest knows the
/// state for which requests were last enqueued, the newest the state for which they are missing. No
/// request was enqueued for the states between them, so no request is lost with them.
#[derive(Default)]
pub(super) struct FailingMappings(Mutex<FailingState>);

#[derive(Default)]
struct FailingState {
    by_object: HashMap<ObjectKey, FailingObject>,
    without_object: usize,
}

/// Failing mappings of one object: at most two events, oldest first.
#[derive(Default)]
struct FailingObject(Vec<FailingEvent>);

struct FailingEvent {
    number: u64,
    /// One for each failing call of [`Enqueue::later`](super::Enqueue::later).
    mappings: Vec<Arc<Mapping>>,
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

impl FailingMappings {
    pub(super) fn insert(&self, event: &EventRef, mapping: &Arc<Mapping>) -> Retries {
        let mut state = self.0.lock();
        let mut retries = Retries::Running;
        let object = state.by_object.entry_ref(&event.object).or_insert_with(|| {
            retries = Retries::Started;
            FailingObject::default()
        });
        let dropped = object.insert(event.number, mapping);
        drop(state);
        drop(dropped);
        retries
    }

    /// Returns the mappings of an object, oldest event first.
    pub(super) fn get(&self, object: &ObjectKey) -> Vec<Arc<Mapping>> {
        let state = self.0.lock();
        let object = state.by_object.get(object).into_iter();
        object.flat_map(|object| &object.0).flat_map(|event| &event.mappings).cloned().collect()
    }

    pub(super) fn remove(&self, object: &ObjectKey, mapping: &Arc<Mapping>) {
        if let Some(object) = self.0.lock().by_object.get_mut(object) {
            object.remove(mapping);
        }
    }

    pub(super) fn remove_if_empty(&self, object: &ObjectKey) -> bool {
        let mut state = self.0.lock();
        let is_empty = state.by_object.get(object).is_none_or(|object| object.0.is_empty());
        if is_empty {
            state.by_object.remove(object);
        }
        is_empty
    }

    pub(super) fn insert_without_object(&self) -> Retries {
        let mut state = self.0.lock();
        if state.without_object == MAX_FAILING_WITHOUT_OBJECT {
            return Retries::Dropped;
        }
        state.without_object += 1;
        Retries::Started
    }

    pub(super) fn remove_without_object(&self) {
        self.0.lock().without_object -= 1;
    }
}

impl FailingObject {
    /// Adds a mapping of an event. Returns the event between two others that it makes redundant.
    ///
    /// First attempts are concurrent, so events do not fail in their order.
    fn insert(&mut self, number: u64, mapping: &Arc<Mapping>) -> Option<FailingEvent> {
        let Self(events) = self;
        match events.binary_search_by_key(&number, |event| event.number) {
            Ok(at) => events[at].mappings.push(mapping.clone()),
            Err(at) => events.insert(at, FailingEvent { number, mappings: vec![mapping.clone()] }),
        }
        (events.len() > 2).then(|| events.remove(1))
    }

    fn remove(&mut self, mapping: &Arc<Mapping>) {
        for event in &mut self.0 {
            event.mappings.retain(|other| !Arc::ptr_eq(other, mapping));
        }
        self.0.retain(|event| !event.mappings.is_empty());
    }
}
