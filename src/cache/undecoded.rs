//! Objects of one informer whose current version does not decode.
//!
//! The store keeps their last good state, or nothing. A read of one object looks here first, so
//! that it returns the error and not a state that is out of date. Subscriptions report each version
//! that does not decode once.
//!
//! Invariant: an object is here from before the store publishes the revision at which it did not
//! decode until after the store shows that it decodes again or is gone. So a read never returns an
//! older state after it returned the error.

use crate::object::{ObjectKey, Undecoded};
use hashbrown::HashMap;
use parking_lot::RwLock;
use std::sync::{
    Arc,
    atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Acquire, Release},
    },
};

#[derive(Default)]
pub(super) struct UndecodedObjects {
    objects: RwLock<HashMap<ObjectKey, Numbered>>,
    /// Number of objects. Lets reads skip the lock while there are none.
    len: AtomicUsize,
    /// Number of the last added object. Lets subscriptions skip the lock while nothing is new.
    last: AtomicU64,
}

struct Numbered {
    object: Arc<Undecoded>,
    /// Position in the order of additions.
    number: u64,
}

impl UndecodedObjects {
    pub(super) fn len(&self) -> usize {
        self.len.load(Acquire)
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<Undecoded>> {
        if self.len() == 0 {
            return None;
        }
        self.objects
            .read()
            .get(key)
            .map(|numbered| numbered.object.clone())
    }

    /// Adds an object, or replaces another version of it. Returns whether the version is new.
    pub(super) fn put(&self, object: Arc<Undecoded>) -> bool {
        let mut objects = self.objects.write();
        let key = object.key();
        if objects
            .get(&key)
            .is_some_and(|known| known.object.is_same(&object))
        {
            return false;
        }
        let number = self.last.load(Acquire) + 1;
        objects.insert(key, Numbered { object, number });
        self.len.store(objects.len(), Release);
        self.last.store(number, Release);
        true
    }

    pub(super) fn remove(&self, key: &ObjectKey) {
        if self.len() > 0 {
            let mut objects = self.objects.write();
            objects.remove(key);
            self.len.store(objects.len(), Release);
        }
    }

    /// Keeps the objects whose keys `keep` accepts.
    pub(super) fn retain(&self, keep: impl Fn(&ObjectKey) -> bool) {
        if self.len() > 0 {
            let mut objects = self.objects.write();
            objects.retain(|key, _| keep(key));
            self.len.store(objects.len(), Release);
        }
    }

    /// Returns the objects added after the number `seen`, in order.
    ///
    /// Moves `seen` to the last one.
    pub(super) fn since(&self, seen: &mut u64) -> Vec<Arc<Undecoded>> {
        if self.last.load(Acquire) == *seen {
            return Vec::new();
        }
        let objects = self.objects.read();
        let mut new: Vec<_> = objects.values().filter(|one| one.number > *seen).collect();
        new.sort_unstable_by_key(|one| one.number);
        *seen = self.last.load(Acquire);
        new.into_iter().map(|one| one.object.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, uid: &str) -> Arc<Undecoded> {
        Arc::new(Undecoded::named(ObjectKey::cluster_scoped(name), Some(uid)))
    }

    #[test]
    fn a_version_that_does_not_decode_is_reported_once_while_it_stays() {
        let (undecoded, mut seen) = (UndecodedObjects::default(), 0);
        let mut since = || {
            undecoded
                .since(&mut seen)
                .iter()
                .map(|object| object.key().to_string())
                .collect::<Vec<_>>()
        };
        assert!(undecoded.put(object("a", "1")) && undecoded.put(object("b", "1")));
        assert!(
            !undecoded.put(object("a", "1")),
            "a relist returns the same version"
        );
        assert_eq!(since(), ["a", "b"]);
        assert!(since().is_empty());
        assert!(undecoded.put(object("a", "2")));
        undecoded.put(object("c", "1"));
        undecoded.remove(&ObjectKey::cluster_scoped("c"));
        assert_eq!((since(), undecoded.len()), (vec!["a".to_owned()], 2));
        undecoded.retain(|key| key.name() == "b");
        assert!(undecoded.get(&ObjectKey::cluster_scoped("a")).is_none());
        assert_eq!(undecoded.len(), 1);
    }
}
