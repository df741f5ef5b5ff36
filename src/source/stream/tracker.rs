//! Known objects of a stream, from which events are derived.

use crate::{
    event::Event,
    object::{KubeObject, Object, ObjectKey, Payload},
};
use hashbrown::HashMap;
use kube_core::TypeMeta;
use std::sync::Arc;

/// Turns the items of a watcher into events.
///
/// Invariant: a list that ends without an object deletes it, also if lists before it broke off.
pub(super) struct Tracker<K> {
    known: HashMap<ObjectKey, Known<K>>,
    /// Number of the current or last list.
    list: u64,
    /// Whether to keep whole objects instead of their metadata.
    keep_objects: bool,
    /// Type of the kept metadata, from the first object.
    types: Arc<TypeMeta>,
}

struct Known<K> {
    object: Object<K>,
    /// Last list in which the object was, or during which it was created or updated.
    list: u64,
}

impl<K: KubeObject> Tracker<K> {
    pub(super) fn new(keep_objects: bool) -> Self {
        Self {
            known: HashMap::new(),
            list: 0,
            keep_objects,
            types: Arc::default(),
        }
    }

    /// Handles `Init`.
    pub(super) fn begin_list(&mut self) {
        self.list += 1;
    }

    /// Handles `InitApply`. Returns `None` if the object is unchanged.
    pub(super) fn list(&mut self, object: K, initial: bool) -> Option<Event<K>> {
        match self.track(object) {
            (None, object) => Some(Event::Create { object, initial }),
            (Some(old), new) if is_same_version(&old, &new) => None,
            (Some(old), new) => Some(Event::Update { old, new }),
        }
    }

    /// Handles `Apply`.
    pub(super) fn apply(&mut self, object: K) -> Event<K> {
        match self.track(object) {
            (None, object) => Event::create(object),
            (Some(old), new) => Event::Update { old, new },
        }
    }

    /// Handles `Delete`.
    pub(super) fn delete(&mut self, object: K) -> Event<K> {
        let object = Object::from(object);
        self.known.remove(object.key());
        Event::delete(object)
    }

    /// Handles `InitDone`. Returns the deletions that were missed.
    pub(super) fn end_list(&mut self) -> Vec<Event<K>> {
        let list = self.list;
        let missing = self.known.extract_if(|_, known| known.list < list);
        let missing = missing.map(|(_, known)| Event::Delete {
            object: known.object,
            state_unknown: true,
        });
        missing.collect()
    }

    /// Remembers an object. Returns its previous state, and the object.
    fn track(&mut self, object: K) -> (Option<Object<K>>, Object<K>) {
        let object = Arc::new(object);
        let new = Object::from(object.clone());
        let kept = if self.keep_objects {
            new.clone()
        } else {
            self.without_body(&object, new.key())
        };
        let known = Known {
            object: kept,
            list: self.list,
        };
        let old = self.known.insert(new.key().clone(), known);
        (old.map(|old| old.object), new)
    }

    fn without_body(&mut self, object: &Arc<K>, key: &ObjectKey) -> Object<K> {
        if self.types.kind.is_empty()
            && let Some(gvk) = object.gvk()
        {
            self.types = Arc::new(TypeMeta {
                api_version: gvk.api_version(),
                kind: gvk.kind,
            });
        }
        Object::dropped(key.clone(), object.to_metadata(&self.types, key))
    }
}

fn is_same_version<K>(old: &Object<K>, new: &Object<K>) -> bool {
    let (old, new) = (old.meta(), new.meta());
    new.resource_version().is_some()
        && old.resource_version() == new.resource_version()
        && old.uid() == new.uid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::DecodeError;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn map(name: &str, resource_version: &str) -> ConfigMap {
        let map = serde_json::json!({
            "metadata": {
                "namespace": "shop", "name": name, "resourceVersion": resource_version,
                "labels": {"version": resource_version},
            },
            "data": {"version": resource_version},
        });
        serde_json::from_value(map).expect("a config map")
    }

    fn listed(tracker: &mut Tracker<ConfigMap>, maps: &[ConfigMap]) -> Vec<String> {
        tracker.begin_list();
        let mut events = Vec::new();
        for map in maps {
            events.extend(tracker.list(map.clone(), false));
        }
        let mut missing = tracker.end_list();
        missing.sort_by_key(|event| event.object().key().clone());
        events.extend(missing);
        events.iter().map(describe).collect()
    }

    fn describe(event: &Event<ConfigMap>) -> String {
        let verb = match event {
            Event::Create { .. } => "create",
            Event::Update { .. } => "update",
            Event::Delete {
                state_unknown: true,
                ..
            } => "missed",
            Event::Delete { .. } => "delete",
            Event::Generic { .. } => "generic",
        };
        format!("{verb} {}", event.object().name())
    }

    #[test]
    fn a_relist_reports_changed_new_and_missing_objects_only() {
        let mut tracker = Tracker::new(false);
        let first = listed(
            &mut tracker,
            &["a", "b", "c", "d"].map(|name| map(name, "1")),
        );
        assert_eq!(first, ["create a", "create b", "create c", "create d"]);
        let second = listed(&mut tracker, &[map("a", "1"), map("b", "2"), map("e", "3")]);
        assert_eq!(second, ["update b", "create e", "missed c", "missed d"]);
        assert_eq!(
            listed(&mut tracker, &[]),
            ["missed a", "missed b", "missed e"]
        );
    }

    #[test]
    fn an_incomplete_list_deletes_nothing() {
        let mut tracker = Tracker::new(false);
        listed(&mut tracker, &["a", "b", "c"].map(|name| map(name, "1")));
        tracker.begin_list();
        assert!(tracker.list(map("a", "1"), false).is_none());
        assert_eq!(
            listed(&mut tracker, &[map("b", "1")]),
            ["missed a", "missed c"]
        );
    }

    #[test]
    fn events_between_lists_are_known_to_the_next_list() {
        let mut tracker = Tracker::new(false);
        listed(&mut tracker, &[map("a", "1")]);
        assert_eq!(describe(&tracker.apply(map("a", "2"))), "update a");
        assert_eq!(describe(&tracker.apply(map("b", "3"))), "create b");
        assert_eq!(describe(&tracker.delete(map("a", "4"))), "delete a");
        assert_eq!(listed(&mut tracker, &[]), ["missed b"]);
    }

    #[test]
    fn the_old_object_has_metadata_and_decodes_if_objects_are_kept() {
        for keep_objects in [false, true] {
            let mut tracker = Tracker::new(keep_objects);
            tracker.apply(map("a", "1"));
            let event = tracker.apply(map("a", "2"));
            let old = event.old().expect("an update");
            assert_eq!(old.meta().labels().get("version"), Some("1"));
            assert_eq!(old.gvk().expect("a kind").kind, "ConfigMap");
            match old.decode() {
                Ok(old) if keep_objects => assert_eq!(*old, map("a", "1")),
                Err(DecodeError::BodyDropped { .. }) if !keep_objects => {}
                other => panic!("{other:?}"),
            }
            assert_eq!(*event.object().decode().expect("a body"), map("a", "2"));
        }
    }
}
