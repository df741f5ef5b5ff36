//! Predicates for objects of every kind.

use crate::cluster_api::{annotations, labels};
use steersman::{event::Event, predicate::Predicate};

/// Drops events of objects with the annotation `cluster.x-k8s.io/paused`, whatever its value.
///
/// This includes their deletion. The update that removes the annotation passes.
#[derive(Clone, Copy, Debug)]
pub struct NotPaused;

impl<K> Predicate<K> for NotPaused {
    fn accepts(&self, event: &Event<K>) -> bool {
        let annotations = event.object().meta().annotations();
        !annotations.contains(annotations::PAUSED)
    }
}

/// Drops events of objects whose label `cluster.x-k8s.io/watch-filter` does not have this value.
///
/// An empty value accepts every object, also those with the label.
#[derive(Clone, Debug)]
pub struct HasFilterLabel(pub String);

impl<K> Predicate<K> for HasFilterLabel {
    fn accepts(&self, event: &Event<K>) -> bool {
        let label = event.object().meta().labels().get(labels::WATCH_FILTER);
        self.0.is_empty() || label == Some(&self.0)
    }
}

/// Accepts the events that [`NotPaused`] and [`HasFilterLabel`] both accept.
#[derive(Clone, Debug)]
pub struct NotPausedAndHasFilterLabel(pub String);

impl<K> Predicate<K> for NotPausedAndHasFilterLabel {
    fn accepts(&self, event: &Event<K>) -> bool {
        NotPaused.accepts(event) && HasFilterLabel(self.0.clone()).accepts(event)
    }
}

/// Drops events of objects with the annotation `cluster.x-k8s.io/managed-by`, whatever its value.
///
/// An external system manages such infrastructure instead of the controllers of its provider.
#[derive(Clone, Copy, Debug)]
pub struct NotExternallyManaged;

impl<K> Predicate<K> for NotExternallyManaged {
    fn accepts(&self, event: &Event<K>) -> bool {
        let annotations = event.object().meta().annotations();
        !annotations.contains(annotations::MANAGED_BY)
    }
}

/// Drops updates that do not change the resource version, which are resyncs.
///
/// Use it for watches of other kinds than the reconciled one.
#[derive(Clone, Copy, Debug)]
pub struct Changed;

impl<K> Predicate<K> for Changed {
    fn accepts(&self, event: &Event<K>) -> bool {
        let new = event.object().meta().resource_version();
        event
            .old()
            .is_none_or(|old| old.meta().resource_version() != new)
    }
}
