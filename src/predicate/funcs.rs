//! Predicates by what happened.

use super::Predicate;
use crate::{event::Event, object::Object};
use std::fmt;

/// A closure for each kind of event. Those left out accept.
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
    /// One that accepts everything yet.
    #[expect(clippy::new_without_default, reason = "a default would say nothing")]
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Of what is there, was made, or is in the list in the beginning.
    pub fn create(self, decide: impl Fn(&Object<K>) -> bool + Send + Sync + 'static) -> Self {
        self.with(move |event| if let Event::Create { object, .. } = event { decide(object) } else { true })
    }

    /// Of changes: asked with the old and the new object.
    pub fn update(self, decide: impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static) -> Self {
        self.with(move |event| if let Event::Update { old, new } = event { decide(old, new) } else { true })
    }

    /// Of what is gone.
    pub fn delete(self, decide: impl Fn(&Object<K>) -> bool + Send + Sync + 'static) -> Self {
        self.with(move |event| if let Event::Delete { object, .. } = event { decide(object) } else { true })
    }

    /// Of what comes from outside the cluster.
    pub fn generic(self, decide: impl Fn(&Object<K>) -> bool + Send + Sync + 'static) -> Self {
        self.with(move |event| if let Event::Generic { object } = event { decide(object) } else { true })
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
