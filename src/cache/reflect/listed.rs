//! What a list has said so far.
//!
//! What holds: each object is there once, however often it is named, so that a server that repeats itself takes no more memory than another. Of what it says of one
//! object the last counts.

use super::Unread;
use crate::{cache::store::Entry, object::ObjectKey};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::hash::BuildHasher;

pub(super) struct Listed<P> {
    entries: Vec<Entry<P>>,
    /// Where they are, with the hash of their keys.
    places: HashTable<(u64, usize)>,
    hasher: DefaultHashBuilder,
    /// They are there, and cannot be read: with their uids.
    unread: HashMap<ObjectKey, Option<String>>,
}

impl<P> Listed<P> {
    pub(super) fn new() -> Self {
        let (entries, places, unread) = (Vec::new(), HashTable::new(), HashMap::new());
        Self { entries, places, hasher: DefaultHashBuilder::default(), unread }
    }

    /// Whether it was not there yet.
    pub(super) fn put(&mut self, entry: Entry<P>) -> bool {
        let hash = self.hasher.hash_one(&entry.key);
        let known = self.places.find(hash, |(other, place)| *other == hash && self.entries[*place].key == entry.key);
        if let Some((_, place)) = known {
            self.entries[*place] = entry;
            return false;
        }
        self.places.insert_unique(hash, (hash, self.entries.len()), |(hash, _)| *hash);
        self.entries.push(entry);
        true
    }

    /// Whether it was not there yet.
    pub(super) fn unread(&mut self, Unread { key, uid }: Unread) -> bool {
        self.unread.insert(key, uid).is_none()
    }

    /// A streamed list says so of what goes before it is whole.
    pub(super) fn deleted(&mut self, key: &ObjectKey) {
        self.unread.remove(key);
        let hash = self.hasher.hash_one(key);
        let found = self.places.find_entry(hash, |(other, place)| *other == hash && self.entries[*place].key == *key);
        let Ok(found) = found else { return };
        let (_, place) = found.remove().0;
        self.entries.swap_remove(place);
        // The last one has taken its place.
        let last = self.entries.len();
        if let Some(moved) = self.entries.get(place)
            && let Some((_, its)) = self.places.find_mut(self.hasher.hash_one(&moved.key), |(_, other)| *other == last)
        {
            *its = place;
        }
    }

    /// What there is, and what is there and cannot be read.
    pub(super) fn whole(self) -> (Vec<Entry<P>>, Vec<Unread>) {
        (self.entries, self.unread.into_iter().map(|(key, uid)| Unread { key, uid }).collect())
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

    fn unread(name: &str) -> Unread {
        Unread { key: key(name), uid: None }
    }

    fn put(listed: &mut Listed<u32>, name: &str, version: u32) -> bool {
        listed.put(Entry::new(key(name), Arc::new(version), 0))
    }

    #[test]
    fn what_goes_before_a_list_is_whole_is_not_in_it_unless_it_comes_back() {
        let mut listed = Listed::new();
        put(&mut listed, "a", 1);
        put(&mut listed, "b", 2);
        listed.unread(unread("c"));
        listed.unread(unread("d"));
        listed.deleted(&key("a"));
        listed.deleted(&key("b"));
        listed.deleted(&key("c"));
        put(&mut listed, "b", 3);
        let (entries, rest) = listed.whole();
        let entries: Vec<_> = entries.iter().map(|entry| (entry.key.name(), *entry.object)).collect();
        assert_eq!((entries, rest), (vec![("b", 3)], vec![unread("d")]));
    }

    #[test]
    fn what_is_named_again_and_again_is_there_once_and_as_it_was_last() {
        let mut listed = Listed::new();
        assert!(put(&mut listed, "a", 0) && listed.unread(unread("b")));
        for version in 1..1000 {
            assert!(!put(&mut listed, "a", version) && !listed.unread(unread("b")));
        }
        assert_eq!((listed.entries.len(), listed.places.len(), listed.unread.len()), (1, 1, 1));
        assert_eq!(*listed.entries[0].object, 999);
    }

    steersman_testkit::properties! {
        #[test]
        fn whatever_comes_and_goes_it_is_what_a_map_would_be(
            steps in proptest::collection::vec((0..20u32, proptest::option::of(0..100u32)), 0..200)
        ) {
            let (mut listed, mut map) = (Listed::new(), BTreeMap::new());
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
            let (entries, _) = listed.whole();
            prop_assert_eq!(entries.len(), map.len(), "none is there twice");
            let entries: BTreeMap<_, _> =
                entries.iter().map(|entry| (entry.key.name().to_owned(), *entry.object)).collect();
            prop_assert_eq!(entries, map);
        }
    }
}
