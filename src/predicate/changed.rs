//! Predicates that detect what an update changed. They accept all other events.

use super::Predicate;
use crate::{event::Event, object::Meta};

/// Returns whether the event is not an update, or is one whose objects differ.
///
/// An update with two UIDs stands for a deletion and a creation, so it always differs.
fn changed<K>(event: &Event<K>, same: impl Fn(Meta<'_>, Meta<'_>) -> bool) -> bool {
    let new = event.object().meta();
    event
        .old()
        .is_none_or(|old| old.meta().uid() != new.uid() || !same(old.meta(), new))
}

/// Drops updates that do not change `metadata.generation`.
///
/// These are updates of the status, of labels and annotations, and resyncs. Use it for the
/// reconciled kind. Some built-in kinds, such as config maps and secrets, have no generation: all
/// their updates are dropped.
#[derive(Clone, Copy, Debug)]
pub struct GenerationChanged;

/// Drops resyncs: updates that do not change the resource version.
#[derive(Clone, Copy, Debug)]
pub struct ResourceVersionChanged;

/// Drops updates that do not change the labels.
#[derive(Clone, Copy, Debug)]
pub struct LabelsChanged;

/// Drops updates that do not change the annotations.
#[derive(Clone, Copy, Debug)]
pub struct AnnotationsChanged;

impl<K> Predicate<K> for GenerationChanged {
    fn accepts(&self, event: &Event<K>) -> bool {
        changed(event, |old, new| old.generation() == new.generation())
    }
}

impl<K> Predicate<K> for ResourceVersionChanged {
    fn accepts(&self, event: &Event<K>) -> bool {
        changed(event, |old, new| {
            old.resource_version() == new.resource_version()
        })
    }
}

impl<K> Predicate<K> for LabelsChanged {
    fn accepts(&self, event: &Event<K>) -> bool {
        changed(event, |old, new| old.labels() == new.labels())
    }
}

impl<K> Predicate<K> for AnnotationsChanged {
    fn accepts(&self, event: &Event<K>) -> bool {
        changed(event, |old, new| old.annotations() == new.annotations())
    }
}
