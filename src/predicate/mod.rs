//! Which events wake a controller. What is filtered out is in memory all the same: to keep less, narrow the [`Select`](crate::cache::Select).
//!
//! | use | for |
//! |---|---|
//! | [`GenerationChanged`] | what is reconciled: not its status, which the reconciler writes itself |
//! | [`LabelsChanged`], [`AnnotationsChanged`] | what is steered by those: `Or(GenerationChanged, AnnotationsChanged)` |
//! | [`ResourceVersionChanged`] | everything but resyncs |
//! | [`labels`] | objects with such labels, where others are needed in memory too |
//! | [`Funcs`] | some kinds of events: not deletions, or only updates that changed this or that |
//! | [`object`], [`from_fn`] | everything else |
//! | [`And`], [`Or`], [`Not`] | several in one; several on one watch must all accept |
//!
//! Predicates that look for a change say something of updates only, and let every other event pass.
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
    combine::{And, Not, Or},
    funcs::Funcs,
    labels::{Labels, labels},
};
use crate::{event::Event, object::Object};
use std::sync::Arc;

/// Decides one event. It does not fail and does not wait; if it panics, the event is dropped, and that is counted.
pub trait Predicate<K>: Send + Sync + 'static {
    /// Whether the event goes on to the handler.
    fn accepts(&self, event: &Event<K>) -> bool;
}

/// Decide by the whole event. Say the type of the closure's argument (`|event: &Event<Pod>|`) if it decodes.
pub fn from_fn<K, F: Fn(&Event<K>) -> bool + Send + Sync + 'static>(decide: F) -> impl Predicate<K> + use<K, F> {
    FromFn(decide)
}

/// Decide by the object, which is the new one of an update.
pub fn object<K, F: Fn(&Object<K>) -> bool + Send + Sync + 'static>(decide: F) -> impl Predicate<K> + use<K, F> {
    from_fn(move |event: &Event<K>| decide(event.object()))
}

struct FromFn<F>(F);

impl<K, F: Fn(&Event<K>) -> bool + Send + Sync + 'static> Predicate<K> for FromFn<F> {
    fn accepts(&self, event: &Event<K>) -> bool {
        (self.0)(event)
    }
}

/// Of several watches: `Arc<dyn Predicate<K>>`.
impl<K: 'static, P: Predicate<K> + ?Sized> Predicate<K> for Arc<P> {
    fn accepts(&self, event: &Event<K>) -> bool {
        (**self).accepts(event)
    }
}

/// One whose type is forgotten.
impl<K: 'static, P: Predicate<K> + ?Sized> Predicate<K> for Box<P> {
    fn accepts(&self, event: &Event<K>) -> bool {
        (**self).accepts(event)
    }
}

#[cfg(test)]
mod tests;
