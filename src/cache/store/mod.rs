//! The objects of one informer, by key: one writer, many readers.
//!
//! What holds, whatever happens:
//! * a key has one slot, a slot holds one object or is free;
//! * what a snapshot shows never changes: what it shares is copied before it changes;
//! * the revision is published with the objects it belongs to;
//! * under the lock, be it a reader's, nothing is freed, no user's code runs but what compares and hashes an index's values, and no work is done that
//!   grows with the number of objects, but for the memory of a namespace's or an index value's slots being moved or freed (4 bytes each). Tables that are
//!   full are copied into larger ones under a reader's lock, which keeps no reader waiting: all but that of the namespaces, which are few. Readers wait
//!   while it grows, a millisecond for some 14,000 namespaces;
//! * what an index's values panic with when they are hashed or compared ends no change half way.
//!
//! Objects are in chunks, and a snapshot is the list of the chunks: taking one costs two counts. An update while a snapshot lives copies the
//! one chunk it changes, and the list, once per snapshot. A list of many objects is shown at once: see [`replace`].

mod entry;
mod index;
mod postings;
mod replace;
mod snapshot;
mod state;

pub(crate) use self::{
    entry::Entry,
    index::{Function, IndexId, Indexer, Lookup, Table, Values},
    postings::Slot,
    replace::About,
    snapshot::{Slots, Snapshot},
};
use self::{
    index::{PANICKED, Said},
    state::State,
};
use crate::{cache::stats::Trouble, object::ObjectKey};
use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, RwLock};
use std::{hash::BuildHasher, sync::Arc};

/// What became of an object in [`Store::replace`].
#[derive(Debug)]
pub(crate) enum Change<P> {
    Created(Entry<P>),
    Updated { old: Arc<P>, new: Entry<P> },
    Deleted(Entry<P>),
}

type SharedIndexer<P> = Arc<dyn Indexer<Arc<P>>>;

pub(crate) struct Store<P> {
    state: RwLock<State<P>>,
    /// Held by whoever writes, so that it may look at the state, take its time, and change it then. Indexes by number; a gap where one was removed.
    indexers: Mutex<Vec<Option<SharedIndexer<P>>>>,
    hasher: DefaultHashBuilder,
    /// What indexes say nothing of, though it is there.
    pub(crate) index_errors: Trouble<String>,
    /// How many objects lists were held against.
    #[cfg(test)]
    looked_at: std::sync::atomic::AtomicUsize,
}

impl<P> Default for Store<P> {
    fn default() -> Self {
        Self {
            state: RwLock::default(),
            indexers: Mutex::default(),
            hasher: DefaultHashBuilder::default(),
            index_errors: Trouble::default(),
            #[cfg(test)]
            looked_at: std::sync::atomic::AtomicUsize::new(0),
        }
    }
}

impl<P> Store<P> {
    fn hash(&self, key: &ObjectKey) -> u32 {
        let hash = self.hasher.hash_one(key);
        (hash ^ hash >> 32) as u32
    }
}

/// Reading.
impl<P> Store<P> {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<P>> {
        let hash = self.hash(key);
        self.state.read().get(hash, key).map(|entry| entry.object.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.state.read().shown.len
    }

    /// About how much memory the objects take.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.read().shown.bytes
    }

    /// Up to where the objects are.
    pub(crate) fn revision(&self) -> u64 {
        self.state.read().revision
    }

    /// All objects as they are now.
    pub(crate) fn snapshot(&self) -> Snapshot<P> {
        self.state.read().snapshot(None)
    }

    /// Those of a namespace, and that all the lookups find.
    pub(crate) fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Snapshot<P> {
        let state = self.state.read();
        let namespace = namespace.map(|name| state.namespaces.get(name).cloned().unwrap_or_default());
        let mut found = namespace.into_iter().chain(lookups.iter().map(|lookup| lookup.find(&state.tables)));
        let first = found.next();
        let others: Vec<_> = found.collect();
        // What an index finds is as good as its function, which may not say the same each time.
        let sure = !state.between && lookups.is_empty();
        if first.is_none() || sure {
            return state.snapshot(first);
        }
        // Here nobody waits.
        let all = state.snapshot(None);
        drop(state);
        let Some(first) = first else { return all };
        let slots: Arc<Vec<Slot>> = others.iter().fold(first, |both, other| both.and(other)).into();
        let is_shown = |slot: &Slot| all.at(*slot).is_some();
        if slots.iter().all(is_shown) {
            return all.only(slots);
        }
        let shown = slots.iter().copied().filter(is_shown).collect();
        all.only(Arc::new(shown))
    }
}

/// Writing. Writers wait for each other, and what they take out is handed back: the caller frees it.
impl<P: 'static> Store<P> {
    /// Put an object in, at this revision; gives what was there.
    pub(crate) fn put(&self, entry: Entry<P>, revision: u64) -> Option<Arc<P>> {
        let hash = self.hash(&entry.key);
        let indexers = self.indexers.lock();
        // The user's functions run here, where nobody waits but other writers.
        let mut said = self.said(&indexers, &entry.key, Some(&entry.object));
        self.make_room(&said);
        let mut state = self.state.write();
        if let Some(slot) = state.find(hash, &entry.key) {
            state.revision = revision;
            said.update(slot, &mut state.tables);
            // The new key too: what keeps its key in itself keeps this one.
            let replaced = state.shown.put(slot, Some(Entry { hash, ..entry }));
            drop(state);
            return replaced.map(|replaced| replaced.object);
        }
        if state.room() == 0 {
            drop(state);
            self.make_room_for(1);
            state = self.state.write();
        }
        state.revision = revision;
        let slot = state.insert(hash, entry);
        said.update(slot, &mut state.tables);
        None
    }

    /// What the indexes say of an object that comes in the place of that one with this key, or goes. For who holds off other writers.
    fn said(&self, indexers: &[Option<SharedIndexer<P>>], key: &ObjectKey, new: Option<&Arc<P>>) -> Said<'_> {
        let old = if indexers.is_empty() { None } else { self.get(key) };
        Said::of(indexers, old.as_ref(), new, &self.index_errors)
    }

    /// For what is said of an object that comes: tables that are full grow beside those that are read. For who holds off other writers.
    fn make_room(&self, said: &Said<'_>) {
        if said.is_nothing() {
            return;
        }
        let grown = said.grown(&self.state.read().tables);
        if !grown.is_empty() {
            let mut state = self.state.write();
            let old: Vec<_> = grown.into_iter().map(|(number, table)| state.tables[number].replace(table)).collect();
            drop(state);
            drop(old);
        }
    }

    /// The same of the slots, for so many objects.
    fn make_room_for(&self, more: usize) {
        let state = self.state.read();
        if state.room() < more {
            let grown = state.grown(more);
            drop(state);
            let old = self.state.write().grow(grown);
            drop(old);
        }
    }

    /// Take an object out, at this revision.
    pub(crate) fn remove(&self, key: &ObjectKey, revision: u64) -> Option<Entry<P>> {
        let hash = self.hash(key);
        let indexers = self.indexers.lock();
        let mut said = self.said(&indexers, key, None);
        let mut state = self.state.write();
        state.revision = revision;
        let slot = state.find(hash, key)?;
        said.update(slot, &mut state.tables);
        let entry = state.take(hash, slot);
        drop(state);
        entry
    }

    /// Nothing changed up to this revision.
    pub(crate) fn advance(&self, revision: u64) {
        self.state.write().revision = revision;
    }

    /// Gives the number of the index.
    pub(crate) fn add_indexer(&self, indexer: SharedIndexer<P>) -> usize {
        let mut indexers = self.indexers.lock();
        let mut table = indexer.table();
        // Nothing but the revision changes meanwhile.
        let now = self.snapshot();
        for (slot, entry) in now.slots() {
            let inserted = indexer.values(&entry.object).and_then(|mut values| {
                let panics = table.insert(slot, &mut values);
                if panics.is_empty() { Ok(()) } else { Err(PANICKED.into()) }
            });
            if let Err(error) = inserted {
                self.index_errors.note(error);
            }
        }
        drop(now);
        let number = indexers.iter().position(Option::is_none).unwrap_or(indexers.len());
        if number == indexers.len() {
            indexers.push(None);
        }
        indexers[number] = Some(indexer);
        let mut state = self.state.write();
        state.tables.resize_with(indexers.len(), || None);
        state.tables[number] = Some(table);
        number
    }

    /// Keep an index no longer.
    pub(crate) fn remove_index(&self, number: usize) {
        let mut indexers = self.indexers.lock();
        let table = self.state.write().tables[number].take();
        let indexer = indexers[number].take();
        drop(indexers);
        drop((table, indexer));
    }
}

#[cfg(test)]
mod tests;
