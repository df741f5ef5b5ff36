//! Predicate that every watch of an external object ends with.

use crate::cluster_api::predicates::NotPaused;
use steersman::{event::Event, predicate::Predicate};
use tracing::Span;

/// Drops events of paused objects, and logs that it does.
pub(super) struct Unpaused {
    pub(super) span: Span,
    /// Whether deletions pass.
    pub(super) passes_deletes: bool,
}

impl<K> Predicate<K> for Unpaused {
    fn accepts(&self, event: &Event<K>) -> bool {
        let is_delete = matches!(event, Event::Delete { .. });
        if NotPaused.accepts(event) || (is_delete && self.passes_deletes) {
            return true;
        }
        let key = event.object().key();
        self.span.in_scope(|| {
            let (namespace, name) = (key.namespace(), key.name());
            tracing::debug!(namespace, name, "external object is paused, event dropped");
        });
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::DynamicObject;
    use serde_json::json;

    #[test]
    fn only_the_deletion_of_a_paused_object_can_be_passed() {
        let object = |annotations| -> DynamicObject {
            let metadata = json!({"name": "a", "annotations": annotations});
            serde_json::from_value(json!({ "metadata": metadata })).expect("an object")
        };
        let paused = || object(json!({"cluster.x-k8s.io/paused": ""}));
        let events = || {
            [
                Event::create(paused()),
                Event::update(object(json!({})), paused()),
                Event::delete(paused()),
                Event::generic(paused()),
                Event::update(paused(), object(json!({}))),
                Event::delete(object(json!({}))),
            ]
        };
        let accepts = |passes_deletes| {
            let span = Span::none();
            let unpaused = Unpaused {
                span,
                passes_deletes,
            };
            events().map(|event: Event<DynamicObject>| unpaused.accepts(&event))
        };
        assert_eq!(accepts(false), [false, false, false, false, true, true]);
        assert_eq!(accepts(true), [false, false, true, false, true, true]);
    }
}
