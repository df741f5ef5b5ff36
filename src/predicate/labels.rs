//! Objects by their labels.

use super::Predicate;
use crate::{
    event::Event,
    object::{Selector, SelectorError},
};

/// See [`labels`].
#[derive(Clone, Debug)]
pub struct Labels(Selector);

/// Only objects with such labels, as in `kubectl -l`; of an update the new one counts. What selects by labels everywhere is better said to the
/// cache: [`Select::labels`](crate::cache::Select::labels).
pub fn labels(selector: &str) -> Result<Labels, SelectorError> {
    Selector::parse(selector).map(Labels)
}

impl<K> Predicate<K> for Labels {
    fn accepts(&self, event: &Event<K>) -> bool {
        self.0.matches(event.object().meta().labels())
    }
}
