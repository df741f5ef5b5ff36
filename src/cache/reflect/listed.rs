//! What a list has said so far.

use crate::{cache::store::Entry, object::ObjectKey};
use hashbrown::HashMap;

/// Objects in the order in which the server named them. One that is named again is there twice: the last counts.
pub(super) struct Listed<P> {
    entries: Vec<Entry<P>>,
    /// They are there, and cannot be read.
    unread: Vec<ObjectKey>,
    /// Deleted while the list was told, and how much of both had come by then.
    gone: HashMap<ObjectKey, (usize, usize)>,
}

impl<P> Listed<P> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), unread: Vec::new(), gone: HashMap::new() }
    }

    pub(super) fn put(&mut self, entry: Entry<P>) {
        self.entries.push(entry);
    }

    pub(super) fn unread(&mut self, key: ObjectKey) {
        self.unread.push(key);
    }

    /// A streamed list says so of what goes before it is whole.
    pub(super) fn deleted(&mut self, key: ObjectKey) {
        self.gone.insert(key, (self.entries.len(), self.unread.len()));
    }

    /// What there is, and what is there and cannot be read.
    pub(super) fn whole(self) -> (Vec<Entry<P>>, Vec<ObjectKey>) {
        let Self { mut entries, mut unread, gone } = self;
        if !gone.is_empty() {
            let mut number = 0..;
            entries.retain(|entry| number.next() >= gone.get(&entry.key).map(|(entries, _)| *entries));
            let mut number = 0..;
            unread.retain(|key| number.next() >= gone.get(key).map(|(_, unread)| *unread));
        }
        (entries, unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::cluster_scoped(name)
    }

    #[test]
    fn what_goes_before_a_list_is_whole_is_not_in_it_unless_it_comes_back() {
        let mut listed = Listed::new();
        let put = |listed: &mut Listed<u32>, name, version| {
            listed.put(Entry::new(key(name), Arc::new(version), 0));
        };
        put(&mut listed, "a", 1);
        put(&mut listed, "b", 2);
        listed.unread(key("c"));
        listed.unread(key("d"));
        listed.deleted(key("a"));
        listed.deleted(key("b"));
        listed.deleted(key("c"));
        put(&mut listed, "b", 3);
        let (entries, unread) = listed.whole();
        let entries: Vec<_> = entries.iter().map(|entry| (entry.key.name(), *entry.object)).collect();
        assert_eq!((entries, unread), (vec![("b", 3)], vec![key("d")]));
    }
}
