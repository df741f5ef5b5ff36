//! Replaces the objects of a namespace, or of a whole kind, by those of a list.
//!
//! The change becomes visible at once. First, new objects are added to the tables, in slots that
//! are still empty. Then the chunks, which were changed in a copy, are swapped. Finally, slots that
//! became empty are removed from the tables. Readers wait for one object at a time, or for the
//! swap. Only chunks with changes are copied, and only objects that the list concerns are compared:
//! the cost of a list of one of a thousand namespaces does not depend on the others, apart from the
//! list of chunks, which has eight bytes per 256 objects.

use super::{
    Change, Entry, IndexChange, Slot, Store,
    state::{State, spread},
};
use crate::object::ObjectKey;
use hashbrown::{HashSet, HashTable};
use std::mem;

/// Objects for which a list is complete.
#[derive(Clone, Copy)]
pub(crate) enum ListScope<'a> {
    /// Objects of a namespace. Others are not read. The empty name is for cluster-scoped objects.
    Namespace(&'a str),
    /// Objects whose keys the function accepts. All objects are read.
    Matching(&'a dyn Fn(&ObjectKey) -> bool),
}

impl ListScope<'_> {
    pub(crate) fn contains(self, key: &ObjectKey) -> bool {
        match self {
            Self::Namespace(namespace) => key.namespace().unwrap_or_default() == namespace,
            Self::Matching(are) => are(key),
        }
    }
}

impl<P: 'static> Store<P> {
    /// Replaces the objects by these, at once, and returns the changes.
    ///
    /// If `is_same` returns `true` for the old and the new object, the old one stays, so that
    /// references to it stay current. Objects outside of `scope` stay, and so do those in
    /// `kept` that are not in the list.
    pub(crate) fn replace(
        &self,
        scope: ListScope<'_>,
        entries: Vec<Entry<P>>,
        kept: &[ObjectKey],
        revision: u64,
        is_same: impl Fn(&P, &P) -> bool,
    ) -> Vec<Change<P>> {
        let indexers = self.indexers.lock();
        let indexed = indexers.iter().any(Option::is_some);
        // The writers' lock is held, so this stays current.
        let before = self.state.read().visible.clone();
        let mut next = before.clone();
        let (mut changes, mut added, mut removed_slots) =
            (Vec::new(), Vec::new(), Vec::<Slot>::new());

        let (entries, gone) = self.compare(scope, entries, kept);
        for entry in entries {
            let slot = self.state.read().find(entry.hash, &entry.key);
            let Some((slot, old)) = slot.and_then(|slot| Some((slot, before.at(slot)?))) else {
                changes.push(Change::Created(entry.clone()));
                added.push(entry);
                continue;
            };
            if is_same(&old.object, &entry.object) {
                continue;
            }
            changes.push(Change::Updated {
                old: old.object.clone(),
                new: entry.clone(),
            });
            if indexed {
                // A new slot, because its index values may differ.
                removed_slots.push(slot);
                added.push(entry);
            } else {
                next.put(slot, Some(entry));
            }
        }
        changes.extend(
            gone.iter()
                .filter_map(|slot| before.at(*slot))
                .cloned()
                .map(Change::Deleted),
        );
        removed_slots.extend(gone);

        if added.is_empty() && removed_slots.len() == before.len {
            // The store becomes empty: free all memory.
            let tables = indexers
                .iter()
                .map(|it| it.as_ref().map(|it| it.table()))
                .collect();
            let old = mem::replace(&mut *self.state.write(), State::empty(tables, revision));
            drop(indexers);
            drop((old, next, before));
            return changes;
        }

        self.reserve(added.len());
        for entry in added {
            let mut change =
                IndexChange::of(&indexers, None, Some(&entry.object), &self.index_errors);
            self.grow_tables(&change);
            let mut state = self.state.write();
            state.has_empty_slots = true;
            let slot = state.add_slot(entry.hash, &entry.key);
            change.update(slot, &mut state.tables);
            drop(state);
            next.put(slot, Some(entry));
        }
        // In descending order, so that removals do not shift other slots, and free slots are reused
        // in order.
        removed_slots.sort_unstable_by(|a, b| b.cmp(a));
        for slot in &removed_slots {
            next.put(*slot, None);
        }
        let mut state = self.state.write();
        mem::swap(&mut state.visible, &mut next);
        (state.revision, state.has_empty_slots) = (revision, !removed_slots.is_empty());
        drop(state);
        for (number, slot) in (1..).zip(&removed_slots) {
            let Some(entry) = before.at(*slot) else {
                continue;
            };
            let mut change =
                IndexChange::of(&indexers, Some(&entry.object), None, &self.index_errors);
            let mut state = self.state.write();
            state.remove_slot(*slot, entry.hash, &entry.key);
            change.update(*slot, &mut state.tables);
            state.has_empty_slots = number < removed_slots.len();
        }
        let old = if removed_slots.is_empty() {
            None
        } else {
            self.compact()
        };
        drop(indexers);
        drop((old, next, before));
        changes
    }

    /// Frees the memory of a list that was much larger. Returns the previous state.
    ///
    /// The caller holds the writers' lock.
    fn compact(&self) -> Option<State<P>> {
        let mut compacted = self.state.read().compacted()?;
        let mut state = self.state.write();
        // `advance` does not take the writers' lock, and may have run meanwhile.
        compacted.revision = state.revision;
        Some(mem::replace(&mut *state, compacted))
    }

    /// Compares a list with the store.
    ///
    /// Returns the objects of the list, each once, and the slots of objects that it should have and
    /// does not.
    fn compare(
        &self,
        scope: ListScope<'_>,
        mut entries: Vec<Entry<P>>,
        kept: &[ObjectKey],
    ) -> (Vec<Entry<P>>, Vec<Slot>) {
        let mut named = HashTable::with_capacity(entries.len());
        let mut again = Vec::new();
        for entry in &mut entries {
            entry.hash = self.hash(&entry.key);
        }
        for (number, entry) in entries.iter().enumerate() {
            let hash = spread(entry.hash);
            match named.find_mut(hash, |other: &usize| {
                entries[*other].is(entry.hash, &entry.key)
            }) {
                // Pages of different revisions can contain an object twice. The last one is the
                // newest.
                Some(other) => again.push(mem::replace(other, number)),
                None => {
                    named.insert_unique(hash, number, |other| spread(entries[*other].hash));
                }
            }
        }
        let kept: HashSet<_> = kept.iter().collect();
        let is_gone = |entry: &Entry<P>| {
            let named = named.find(spread(entry.hash), |number| {
                entries[*number].is(entry.hash, &entry.key)
            });
            named.is_none() && !kept.contains(&entry.key)
        };
        let (current, are): (_, &dyn Fn(&ObjectKey) -> bool) = match scope {
            ListScope::Namespace(namespace) => (self.select(Some(namespace), &[]), &|_| true),
            ListScope::Matching(are) => (self.snapshot(), are),
        };
        #[cfg(test)]
        self.looked_at
            .fetch_add(current.len(), std::sync::atomic::Ordering::Relaxed);
        let gone = current
            .slots()
            .filter(|(_, entry)| are(&entry.key) && is_gone(entry))
            .map(|(slot, _)| slot)
            .collect();
        again.sort_unstable();
        let mut number = 0..;
        entries.retain(|_| {
            number
                .next()
                .is_some_and(|number| again.binary_search(&number).is_err())
        });
        (entries, gone)
    }
}
