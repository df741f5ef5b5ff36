//! Predicate that selects objects by labels.

use super::Predicate;
use crate::{
    event::Event,
    object::{LabelQuery, Selector, SelectorError},
};

/// Predicate that selects objects by labels, see [`labels`].
#[derive(Clone, Debug)]
pub struct Labels(Selector);

/// Creates a predicate that accepts objects whose labels match, as in `kubectl -l`.
///
/// For an update, the new object is compared. If no other object is needed in the cache, use
/// [`Select::labels`](crate::cache::Select::labels) instead.
pub fn labels(selector: impl Into<LabelQuery>) -> Result<Labels, SelectorError> {
    Selector::parse(&selector.into().0).map(Labels)
}

impl<K> Predicate<K> for Labels {
    fn accepts(&self, event: &Event<K>) -> bool {
        self.0.matches(event.object().meta().labels())
    }
}
