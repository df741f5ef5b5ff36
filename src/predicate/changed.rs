//! What an update has changed. Other events pass: there is nothing to compare.

use super::Predicate;
use crate::{event::Event, object::Meta};

/// Returns whether the event is not an update, or is one whose objects differ.
///
/// An update with two uids stands for a deletion and a creation, so it always differs.
fn changed<K>(event: &Event<K>, same: impl Fn(Meta<'_>, Meta<'_>) -> bool) -> bool {
    let new = event.object().meta();
    event.old().is_none_or(|old| old.meta().uid() != new.uid() || !same(old.meta(), new))
}

/// Drops updates that left `metadata.generation` alone: those of the status, of labels and annotations, and resyncs. The usual choice for what is
/// reconciled. Some built-in kinds, config maps and secrets among them, count no generations: none of their updates passes.
#[derive(Clone, Copy, Debug)]
pub struct GenerationChanged;

/// Drops resyncs, and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct ResourceVersionChanged;

/// Drops updates that left the labels alone.
#[derive(Clone, Copy, Debug)]
pub struct LabelsChanged;

/// Drops updates that left the annotations alone.
#[derive(Clone, Copy, Debug)]
pub struct AnnotationsChanged;

impl<K> Predicate<K> for GenerationChanged {
    fn accepts(&self, event: &Event<K>) -> bool {
        changed(event, |old, new| old.generation() == new.generation())
    }
}

impl<K> Predicate<K> for ResourceVersionChanged {
    fn accepts(&self, event: &Event<K>) -> bool {
        changed(event, |old, new| old.resource_version() == new.resource_version())
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
