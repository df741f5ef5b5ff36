//! Predicates that combine other predicates.

use super::Predicate;
use crate::event::Event;

/// Accepts an event if both predicates do. Skips the second if the first rejects.
#[derive(Clone, Copy, Debug)]
pub struct And<A, B>(pub A, pub B);

/// Accepts an event if one predicate does. Skips the second if the first accepts.
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B>(pub A, pub B);

/// Accepts an event if the predicate rejects it.
///
/// This holds for every type of event: `Not(GenerationChanged)` also drops creations and deletions.
#[derive(Clone, Copy, Debug)]
pub struct Not<P>(pub P);

impl<K, A: Predicate<K>, B: Predicate<K>> Predicate<K> for And<A, B> {
    fn accepts(&self, event: &Event<K>) -> bool {
        self.0.accepts(event) && self.1.accepts(event)
    }
}

impl<K, A: Predicate<K>, B: Predicate<K>> Predicate<K> for Or<A, B> {
    fn accepts(&self, event: &Event<K>) -> bool {
        self.0.accepts(event) || self.1.accepts(event)
    }
}

impl<K, P: Predicate<K>> Predicate<K> for Not<P> {
    fn accepts(&self, event: &Event<K>) -> bool {
        !self.0.accepts(event)
    }
}

/// Accepts an event if all of `predicates` do, a tuple, an array or a `Vec`.
///
/// The first predicate that rejects ends the evaluation. Without predicates every event passes.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::predicate::{self, GenerationChanged, LabelsChanged, Not, Predicate};
/// use steersman::event::Event;
///
/// let deleting = predicate::object(|pod| pod.meta().is_deleting());
/// let predicate = predicate::all((GenerationChanged, Not(deleting), predicate::labels("app")?));
/// assert!(!predicate.accepts(&Event::<Pod>::create(Pod::default())));
/// # Ok::<_, steersman::object::SelectorError>(())
/// ```
pub fn all<P>(predicates: P) -> All<P> {
    All(predicates)
}

/// Accepts an event if one of `predicates` does, a tuple, an array or a `Vec`.
///
/// The first predicate that accepts ends the evaluation. Without predicates no event passes.
pub fn any<P>(predicates: P) -> Any<P> {
    Any(predicates)
}

/// Predicate that [`all`] returns.
#[derive(Clone, Copy, Debug)]
pub struct All<P>(P);

/// Predicate that [`any`] returns.
#[derive(Clone, Copy, Debug)]
pub struct Any<P>(P);

impl<K: 'static, P: Predicates<K>> Predicate<K> for All<P> {
    fn accepts(&self, event: &Event<K>) -> bool {
        self.0.visit(&mut |predicate| predicate.accepts(event))
    }
}

impl<K: 'static, P: Predicates<K>> Predicate<K> for Any<P> {
    fn accepts(&self, event: &Event<K>) -> bool {
        !self.0.visit(&mut |predicate| !predicate.accepts(event))
    }
}

/// Several predicates: a tuple of up to eight, an array or a `Vec`. `()` is none.
///
/// Not meant to be implemented by users.
pub trait Predicates<K>: Send + Sync + 'static {
    /// Calls `next` for each predicate until it returns `false`. Returns whether it never did.
    #[doc(hidden)]
    fn visit(&self, next: &mut dyn FnMut(&dyn Predicate<K>) -> bool) -> bool;
}

impl<K: 'static, P: Predicate<K>, const N: usize> Predicates<K> for [P; N] {
    fn visit(&self, next: &mut dyn FnMut(&dyn Predicate<K>) -> bool) -> bool {
        self.iter().all(|predicate| next(predicate))
    }
}

impl<K: 'static, P: Predicate<K>> Predicates<K> for Vec<P> {
    fn visit(&self, next: &mut dyn FnMut(&dyn Predicate<K>) -> bool) -> bool {
        self.iter().all(|predicate| next(predicate))
    }
}

impl<K: 'static> Predicates<K> for () {
    fn visit(&self, _: &mut dyn FnMut(&dyn Predicate<K>) -> bool) -> bool {
        true
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<K: 'static, $($name: Predicate<K>),*> Predicates<K> for ($($name,)*) {
            #[expect(non_snake_case, reason = "the names of the types serve as names of the values")]
            fn visit(&self, next: &mut dyn FnMut(&dyn Predicate<K>) -> bool) -> bool {
                let ($($name,)*) = self;
                $(next($name))&&*
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
