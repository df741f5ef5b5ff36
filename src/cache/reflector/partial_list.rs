//! Objects of an incomplete list.
//!
//! Invariant: each object is in it once, with its last state, so that a server that repeats objects
//! takes no additional memory.

use crate::{
    cache::store::Entry,
    object::{ObjectKey, Undecoded},
};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::{hash::BuildHasher, sync::Arc};

pub(super) struct PartialList<P> {
    entries: Vec<Entry<P>>,
    /// Index of each entry, with the hash of its key.
    index: HashTable<(u64, usize)>,
    hasher: DefaultHashBuilder,
    /// Objects whose last version does not decode. Their last version that does is among the
    /// entries, if the list has one.
    undecoded: HashMap<ObjectKey, Arc<Undecoded>>,
}

impl<P> PartialList<P> {
    pub(super) fn new() -> Self {
        let (entries, index, undecoded) = (Vec::new(), HashTable::new(), HashMap::new());
        Self {
            entries,
            index,
            hasher: DefaultHashBuilder::default(),
            undecoded,
        }
    }

    /// Adds or replaces an object. Returns whether its key is new.
    pub(super) fn put(&mut self, entry: Entry<P>) -> bool {
        self.undecoded.remove(&entry.key);
        let hash = self.hasher.hash_one(&entry.key);
        let known = self.index.find(hash, |(other, position)| {
            *other == hash && self.entries[*position].key == entry.key
        });
        if let Some((_, position)) = known {
            self.entries[*position] = entry;
            return false;
        }
        self.index
            .insert_unique(hash, (hash, self.entries.len()), |(hash, _)| *hash);
        self.entries.push(entry);
        true
    }

    /// Adds or replaces an object that does not decode. Returns whether its key is new.
    pub(super) fn undecoded(&mut self, object: Arc<Undecoded>) -> bool {
        self.undecoded.insert(object.key(), object).is_none()
    }

    /// Removes an object that was deleted while the list was streamed.
    pub(super) fn deleted(&mut self, key: &ObjectKey) {
        self.undecoded.remove(key);
        let hash = self.hasher.hash_one(key);
        let found = self.index.find_entry(hash, |(other, position)| {
            *other == hash && self.entries[*position].key == *key
        });
        let Ok(found) = found else { return };
        let (_, position) = found.remove().0;
        self.entries.swap_remove(position);
        // `swap_remove` has moved the last entry to `position`.
        let last = self.entries.len();
        if let Some(moved) = self.entries.get(position)
            && let Some((_, index)) = self
                .index
                .find_mut(self.hasher.hash_one(&moved.key), |(_, other)| {
                    *other == last
                })
        {
            *index = position;
        }
    }

    /// Returns the objects that decode, and those that do not.
    pub(super) fn into_objects(self) -> (Vec<Entry<P>>, Vec<Arc<Undecoded>>) {
        (self.entries, self.undecoded.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::BTreeMap, sync::Arc};

    fn key(name: &str) -> ObjectKey {
        ObjectKey::cluster_scoped(name)
    }

    fn undecoded(name: &str) -> Arc<Undecoded> {
        Arc::new(Undecoded::named(key(name), None))
    }

    fn put(listed: &mut PartialList<u32>, name: &str, version: u32) -> bool {
        listed.put(Entry::new(key(name), Arc::new(version), 0))
    }

    #[test]
    fn objects_deleted_during_a_list_are_omitted_unless_recreated() {
        let mut listed = PartialList::new();
        put(&mut listed, "a", 1);
        put(&mut listed, "b", 2);
        listed.undecoded(undecoded("c"));
        listed.undecoded(undecoded("d"));
        listed.deleted(&key("a"));
        listed.deleted(&key("b"));
        listed.deleted(&key("c"));
        put(&mut listed, "b", 3);
        let (entries, rest) = listed.into_objects();
        let entries: Vec<_> = entries
            .iter()
            .map(|entry| (entry.key.name(), *entry.object))
            .collect();
        let rest: Vec<_> = rest.iter().map(|object| object.key()).collect();
        assert_eq!((entries, rest), (vec![("b", 3)], vec![key("d")]));
    }

    #[test]
    fn repeated_objects_are_listed_once_with_the_last_state() {
        let mut listed = PartialList::new();
        assert!(put(&mut listed, "a", 0) && listed.undecoded(undecoded("b")));
        for version in 1..1000 {
            assert!(!put(&mut listed, "a", version) && !listed.undecoded(undecoded("b")));
        }
        assert_eq!(
            (
                listed.entries.len(),
                listed.index.len(),
                listed.undecoded.len()
            ),
            (1, 1, 1)
        );
        assert_eq!(*listed.entries[0].object, 999);
    }

    #[test]
    fn an_object_is_undecoded_if_its_last_version_does_not_decode() {
        let mut listed = PartialList::new();
        for name in ["decodes again", "decodes no longer"] {
            put(&mut listed, name, 1);
            listed.undecoded(undecoded(name));
        }
        put(&mut listed, "decodes again", 2);
        let (entries, rest) = listed.into_objects();
        assert_eq!(
            entries
                .iter()
                .map(|entry| *entry.object)
                .collect::<Vec<_>>(),
            [2, 1]
        );
        assert_eq!(
            rest.iter().map(|object| object.key()).collect::<Vec<_>>(),
            [key("decodes no longer")]
        );
    }

    steersman_testkit::properties! {
        #[test]
        fn a_partial_list_behaves_like_a_map(
            steps in proptest::collection::vec((0..20u32, proptest::option::of(0..100u32)), 0..200)
        ) {
            let (mut listed, mut map) = (PartialList::new(), BTreeMap::new());
            for (name, version) in steps {
                let name = format!("o{name}");
                if let Some(version) = version {
                    let is_new = put(&mut listed, &name, version);
                    prop_assert_eq!(is_new, map.insert(name, version).is_none());
                } else {
                    listed.deleted(&key(&name));
                    map.remove(&name);
                }
            }
            let (entries, _) = listed.into_objects();
            prop_assert_eq!(entries.len(), map.len(), "none is there twice");
            let entries: BTreeMap<_, _> =
                entries.iter().map(|entry| (entry.key.name().to_owned(), *entry.object)).collect();
            prop_assert_eq!(entries, map);
        }
    }
}
