//! Predicates made of predicates.

use super::Predicate;
use crate::event::Event;

/// Both. The second is not asked if the first rejects.
#[derive(Clone, Copy, Debug)]
pub struct And<A, B>(pub A, pub B);

/// At least one. The second is not asked if the first accepts.
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B>(pub A, pub B);

/// The opposite, of every kind of event: `Not(GenerationChanged)` also drops every creation and deletion.
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
