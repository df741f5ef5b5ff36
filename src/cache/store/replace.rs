//! A list goes in: the objects of a namespace, or of everything, are exactly those, and from one moment to the next.
//!
//! What comes is made to be found first, though nothing shows it yet; then all of the new is shown at once, in chunks that were changed beside those that are read;
//! then what shows nothing any more is no longer found. Readers wait for one object at a time, or for the moment in between. Only the chunks of what changes are copied,
//! and only what the list is about is looked at: with a list for each of a thousand namespaces, none pays for the others. What is left of that is the list of
//! the chunks, eight bytes for 256 objects.

use super::{
    Change, Entry, Said, Slot, Store,
    state::{State, spread},
};
use crate::object::ObjectKey;
use hashbrown::{HashSet, HashTable};
use std::mem;

/// Of which objects a list says that there are no others.
#[derive(Clone, Copy)]
pub(crate) enum About<'a> {
    /// Of a namespace: no others are looked at. The empty one is where cluster-scoped objects are.
    Namespace(&'a str),
    /// Of those that the function names: all are looked at.
    Those(&'a dyn Fn(&ObjectKey) -> bool),
}

impl About<'_> {
    pub(crate) fn is_about(self, key: &ObjectKey) -> bool {
        match self {
            Self::Namespace(namespace) => key.namespace().unwrap_or_default() == namespace,
            Self::Those(are) => are(key),
        }
    }
}

impl<P: 'static> Store<P> {
    /// Make the objects exactly these, at once; gives what that changed. An object that `is_same` as the one there is is dropped, and the old one
    /// stays: who holds it holds the current one. What is not among those that it is `about` stays too, and so do those to be `kept`, unless they are
    /// among the new ones.
    pub(crate) fn replace(
        &self,
        about: About<'_>,
        entries: Vec<Entry<P>>,
        kept: &[ObjectKey],
        revision: u64,
        is_same: impl Fn(&P, &P) -> bool,
    ) -> Vec<Change<P>> {
        let indexers = self.indexers.lock();
        let indexed = indexers.iter().any(Option::is_some);
        // Only a writer could change what is there, so that it stays as it is here.
        let before = self.state.read().shown.clone();
        let mut next = before.clone();
        let (mut changes, mut comes, mut goes) = (Vec::new(), Vec::new(), Vec::<Slot>::new());

        let (entries, gone) = self.against(about, entries, kept);
        for entry in entries {
            let slot = self.state.read().find(entry.hash, &entry.key);
            let Some((slot, old)) = slot.and_then(|slot| Some((slot, before.at(slot)?))) else {
                changes.push(Change::Created(entry.clone()));
                comes.push(entry);
                continue;
            };
            if is_same(&old.object, &entry.object) {
                continue;
            }
            changes.push(Change::Updated { old: old.object.clone(), new: entry.clone() });
            if indexed {
                // Another slot, because it may be found by other values.
                goes.push(slot);
                comes.push(entry);
            } else {
                next.put(slot, Some(entry));
            }
        }
        changes.extend(gone.iter().filter_map(|slot| before.at(*slot)).cloned().map(Change::Deleted));
        goes.extend(gone);

        if comes.is_empty() && goes.len() == before.len {
            // Their memory goes with them.
            let tables = indexers.iter().map(|it| it.as_ref().map(|it| it.table())).collect();
            let old = mem::replace(&mut *self.state.write(), State::empty(tables, revision));
            drop(indexers);
            drop((old, next, before));
            return changes;
        }

        self.make_room_for(comes.len());
        for entry in comes {
            let mut said = Said::of(&indexers, None, Some(&entry.object), &self.index_errors);
            self.make_room(&said);
            let mut state = self.state.write();
            state.between = true;
            let slot = state.file(entry.hash, &entry.key);
            said.update(slot, &mut state.tables);
            drop(state);
            next.put(slot, Some(entry));
        }
        // The last first: so none of the slots before it is moved, and they are given out again in their order.
        goes.sort_unstable_by(|a, b| b.cmp(a));
        for slot in &goes {
            next.put(*slot, None);
        }
        let mut state = self.state.write();
        mem::swap(&mut state.shown, &mut next);
        (state.revision, state.between) = (revision, !goes.is_empty());
        drop(state);
        for (number, slot) in (1..).zip(&goes) {
            let Some(entry) = before.at(*slot) else { continue };
            let mut said = Said::of(&indexers, Some(&entry.object), None, &self.index_errors);
            let mut state = self.state.write();
            state.unfile(*slot, entry.hash, &entry.key);
            said.update(*slot, &mut state.tables);
            state.between = number < goes.len();
        }
        let old = if goes.is_empty() { None } else { self.compact() };
        drop(indexers);
        drop((old, next, before));
        changes
    }

    /// Give back what a list that was much larger has left; gives what was there. For who holds off other writers.
    fn compact(&self) -> Option<State<P>> {
        let mut compacted = self.state.read().compacted()?;
        let mut state = self.state.write();
        // A bookmark needs no writer's turn, and may have come meanwhile.
        compacted.revision = state.revision;
        Some(mem::replace(&mut *state, compacted))
    }

    /// A list against what is there: what it has, each object once, and the slots of those that it has not and should.
    fn against(&self, about: About<'_>, mut entries: Vec<Entry<P>>, kept: &[ObjectKey]) -> (Vec<Entry<P>>, Vec<Slot>) {
        let mut named = HashTable::with_capacity(entries.len());
        let mut again = Vec::new();
        for entry in &mut entries {
            entry.hash = self.hash(&entry.key);
        }
        for (number, entry) in entries.iter().enumerate() {
            let hash = spread(entry.hash);
            match named.find_mut(hash, |other: &usize| entries[*other].is(entry.hash, &entry.key)) {
                // Pages that were not of one revision can name an object twice; the last one is the newest.
                Some(other) => again.push(mem::replace(other, number)),
                None => drop(named.insert_unique(hash, number, |other| spread(entries[*other].hash))),
            }
        }
        let kept: HashSet<_> = kept.iter().collect();
        let is_gone = |entry: &Entry<P>| {
            let named = named.find(spread(entry.hash), |number| entries[*number].is(entry.hash, &entry.key));
            named.is_none() && !kept.contains(&entry.key)
        };
        let (there, are): (_, &dyn Fn(&ObjectKey) -> bool) = match about {
            About::Namespace(namespace) => (self.select(Some(namespace), &[]), &|_| true),
            About::Those(are) => (self.snapshot(), are),
        };
        #[cfg(test)]
        self.looked_at.fetch_add(there.len(), std::sync::atomic::Ordering::Relaxed);
        let gone = there.slots().filter(|(_, entry)| are(&entry.key) && is_gone(entry)).map(|(slot, _)| slot).collect();
        again.sort_unstable();
        let mut number = 0..;
        entries.retain(|_| number.next().is_some_and(|number| again.binary_search(&number).is_err()));
        (entries, gone)
    }
}
