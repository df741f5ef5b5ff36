//! Predicate with a closure for each type of event.

use super::Predicate;
use crate::{
    event::{CreateEvent, DeleteEvent, Event},
    object::Object,
};
use std::fmt;

/// Predicate with a closure for each type of event. Events without one are accepted.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::{event::Event, predicate::{Funcs, Predicate}};
///
/// let while_it_lives = Funcs::<Pod>::new().update(|old, new| old.meta().uid() == new.meta().uid()).delete(|_| false);
/// assert!(while_it_lives.accepts(&Event::create(Pod::default())));
/// assert!(!while_it_lives.accepts(&Event::delete(Pod::default())));
/// ```
#[must_use = "filter with it"]
pub struct Funcs<K>(Vec<Box<dyn Predicate<K>>>);

impl<K: 'static> Funcs<K> {
    /// Creates a predicate that accepts every event.
    #[expect(clippy::new_without_default, reason = "a default would say nothing")]
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a closure for create events, including those of the initial list.
    pub fn create(
        self,
        decide: impl Fn(CreateEvent<'_, K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(move |event| {
            if let &Event::Create {
                ref object,
                initial,
            } = event
            {
                decide(CreateEvent { object, initial })
            } else {
                true
            }
        })
    }

    /// Adds a closure for update events, called with the old and the new object.
    pub fn update(
        self,
        decide: impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(move |event| {
            if let Event::Update { old, new } = event {
                decide(old, new)
            } else {
                true
            }
        })
    }

    /// Adds a closure for delete events.
    pub fn delete(
        self,
        decide: impl Fn(DeleteEvent<'_, K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(move |event| {
            if let &Event::Delete {
                ref object,
                state_unknown,
            } = event
            {
                decide(DeleteEvent {
                    object,
                    state_unknown,
                })
            } else {
                true
            }
        })
    }

    /// Adds a closure for generic events.
    pub fn generic(self, decide: impl Fn(&Object<K>) -> bool + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Generic { object } = event {
                decide(object)
            } else {
                true
            }
        })
    }

    fn with(mut self, decide: impl Fn(&Event<K>) -> bool + Send + Sync + 'static) -> Self {
        self.0.push(Box::new(super::FromFn(decide)));
        self
    }
}

impl<K: 'static> Predicate<K> for Funcs<K> {
    fn accepts(&self, event: &Event<K>) -> bool {
        self.0.iter().all(|predicate| predicate.accepts(event))
    }
}

impl<K> fmt::Debug for Funcs<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Funcs").field(&self.0.len()).finish()
    }
}
