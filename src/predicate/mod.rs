//! Predicates: decide which events reach the handler.
//!
//! An event that is dropped leaves its object in the cache. To cache fewer objects, narrow the
//! [`Select`](crate::cache::Select).
//!
//! | predicate | accepts |
//! |---|---|
//! | [`GenerationChanged`] | changes of the spec, not of the status that the reconciler writes |
//! | [`LabelsChanged`], [`AnnotationsChanged`] | changes of labels or annotations |
//! | [`ResourceVersionChanged`] | all updates but resyncs |
//! | [`labels`] | objects that match, if the cache needs the others too |
//! | [`Funcs`] | some types of events, by a closure for each |
//! | [`object`], [`from_fn`] | what a closure accepts |
//! | [`And`], [`Or`], [`Not`], [`all`], [`any`] | combinations of predicates |
//!
//! The predicates that detect a change decide only about updates, and accept all other events. If a
//! watch has several predicates, all of them must accept an event.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use steersman::{event::Event, predicate::{self, GenerationChanged, Or, Predicate}};
//!
//! let wakes = Or(GenerationChanged, predicate::object(|pod| pod.meta().is_deleting()));
//! let pod = Pod::default();
//! assert!(!wakes.accepts(&Event::<Pod>::update(pod.clone(), pod.clone())));
//! assert!(wakes.accepts(&Event::<Pod>::create(pod)));
//! ```

mod changed;
mod combine;
mod funcs;
mod labels;

pub use self::{
    changed::{AnnotationsChanged, GenerationChanged, LabelsChanged, ResourceVersionChanged},
    combine::{All, And, Any, Not, Or, Predicates, all, any},
    funcs::Funcs,
    labels::{Labels, labels},
};
use crate::{event::Event, object::Object};
use std::sync::Arc;

/// Decides whether to handle an event.
///
/// A predicate returns immediately and cannot fail. If it panics, the event is dropped and counted.
pub trait Predicate<K>: Send + Sync + 'static {
    /// Returns whether to pass the event to the handler.
    fn accepts(&self, event: &Event<K>) -> bool;
}

/// Creates a predicate from a closure over the event.
///
/// Declare the type of the argument (`|event: &Event<Pod>|`) if the closure decodes the object.
pub fn from_fn<K, F: Fn(&Event<K>) -> bool + Send + Sync + 'static>(
    decide: F,
) -> impl Predicate<K> + use<K, F> {
    FromFn(decide)
}

/// Creates a predicate from a closure over the object; for updates, the new state.
pub fn object<K, F: Fn(&Object<K>) -> bool + Send + Sync + 'static>(
    decide: F,
) -> impl Predicate<K> + use<K, F> {
    from_fn(move |event: &Event<K>| decide(event.object()))
}

struct FromFn<F>(F);

impl<K, F: Fn(&Event<K>) -> bool + Send + Sync + 'static> Predicate<K> for FromFn<F> {
    fn accepts(&self, event: &Event<K>) -> bool {
        (self.0)(event)
    }
}

/// Shares a predicate between watches, also as `Arc<dyn Predicate<K>>`.
impl<K: 'static, P: Predicate<K> + ?Sized> Predicate<K> for Arc<P> {
    fn accepts(&self, event: &Event<K>) -> bool {
        (**self).accepts(event)
    }
}

/// Boxed predicates, also as `Box<dyn Predicate<K>>`.
impl<K: 'static, P: Predicate<K> + ?Sized> Predicate<K> for Box<P> {
    fn accepts(&self, event: &Event<K>) -> bool {
        (**self).accepts(event)
    }
}

#[cfg(test)]
mod tests;
