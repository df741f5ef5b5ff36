//! Store of one informer's objects: one writer, many readers.
//!
//! Invariants:
//! * A key has one slot. A slot holds one object or is free.
//! * A snapshot never changes. Data that it shares is copied before a change.
//! * The revision is published together with its objects.
//! * Under the lock, also that of a reader, nothing is freed, no user code runs except comparing
//!   and hashing the values of an index, and no work grows with the number of objects. The
//!   exception is moving or freeing the slots of one namespace or index value (4 bytes each). Full
//!   tables are copied to larger ones under a reader's lock, which blocks no reader. The table of
//!   namespaces is the exception: readers wait while it grows, about a millisecond for 14,000
//!   namespaces.
//! * A panic in hashing or comparing index values does not leave a change incomplete.
//!
//! Objects are stored in chunks, and a snapshot is the list of chunks, so taking one costs two
//! reference counts. An update while a snapshot is alive copies the chunk that it changes, and the
//! list of chunks once per snapshot. A list of many objects becomes visible at once: see
//! [`replace`].

mod entry;
mod index;
mod postings;
mod replace;
mod snapshot;
mod state;

pub(crate) use self::{
    entry::Entry,
    index::{FnIndexer, IndexId, Indexer, Lookup, Table, Values},
    postings::Slot,
    replace::ListScope,
    snapshot::{Slots, Snapshot},
};
use self::{
    index::{IndexChange, PANICKED},
    state::State,
};
use crate::{cache::stats::ErrorCount, object::ObjectKey};
use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, RwLock};
use std::{hash::BuildHasher, sync::Arc};

/// Change of an object by [`Store::replace`].
#[derive(Debug)]
pub(crate) enum Change<P> {
    Created(Entry<P>),
    Updated { old: Arc<P>, new: Entry<P> },
    Deleted(Entry<P>),
}

type SharedIndexer<P> = Arc<dyn Indexer<Arc<P>>>;

pub(crate) struct Store<P> {
    state: RwLock<State<P>>,
    /// Indexers by number, `None` if the index was removed.
    ///
    /// Writers hold this lock, so that the state does not change between their reads and writes of
    /// it.
    indexers: Mutex<Vec<Option<SharedIndexer<P>>>>,
    hasher: DefaultHashBuilder,
    /// Objects that an index omits.
    pub(crate) index_errors: ErrorCount<String>,
    /// Number of objects that were compared with lists.
    #[cfg(test)]
    looked_at: std::sync::atomic::AtomicUsize,
}

impl<P> Default for Store<P> {
    fn default() -> Self {
        Self {
            state: RwLock::default(),
            indexers: Mutex::default(),
            hasher: DefaultHashBuilder::default(),
            index_errors: ErrorCount::default(),
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

/// Reads.
impl<P> Store<P> {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<P>> {
        let hash = self.hash(key);
        self.state
            .read()
            .get(hash, key)
            .map(|entry| entry.object.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.state.read().visible.len
    }

    /// Returns the approximate memory of the objects.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.read().visible.bytes
    }

    /// Returns the revision of the objects.
    pub(crate) fn revision(&self) -> u64 {
        self.state.read().revision
    }

    /// Returns a snapshot of all objects.
    pub(crate) fn snapshot(&self) -> Snapshot<P> {
        self.state.read().snapshot(None)
    }

    /// Returns a snapshot of the objects of a namespace that all lookups find.
    pub(crate) fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Snapshot<P> {
        let state = self.state.read();
        let namespace =
            namespace.map(|name| state.namespaces.get(name).cloned().unwrap_or_default());
        let mut found = namespace
            .into_iter()
            .chain(lookups.iter().map(|lookup| lookup.find(&state.tables)));
        let first = found.next();
        let others: Vec<_> = found.collect();
        // An index may find free slots if its function is not deterministic.
        let all_visible = !state.has_empty_slots && lookups.is_empty();
        if first.is_none() || all_visible {
            return state.snapshot(first);
        }
        // The rest runs without the lock.
        let all = state.snapshot(None);
        drop(state);
        let Some(first) = first else { return all };
        let slots: Arc<Vec<Slot>> = others
            .iter()
            .fold(first, |both, other| both.and(other))
            .into();
        let is_shown = |slot: &Slot| all.at(*slot).is_some();
        if slots.iter().all(is_shown) {
            return all.only(slots);
        }
        let shown = slots.iter().copied().filter(is_shown).collect();
        all.only(Arc::new(shown))
    }
}

/// Writes. Writers are serialized. They return removed objects, which the caller frees.
impl<P: 'static> Store<P> {
    /// Adds or replaces an object at this revision. Returns the previous one.
    pub(crate) fn put(&self, entry: Entry<P>, revision: u64) -> Option<Arc<P>> {
        let hash = self.hash(&entry.key);
        let indexers = self.indexers.lock();
        // The users' index functions run here, where they block only other writers.
        let mut change = self.index_change(&indexers, &entry.key, Some(&entry.object));
        self.grow_tables(&change);
        let mut state = self.state.write();
        if let Some(slot) = state.find(hash, &entry.key) {
            state.revision = revision;
            change.update(slot, &mut state.tables);
            // Replaces the key as well, because some objects share the memory of their key.
            let replaced = state.visible.put(slot, Some(Entry { hash, ..entry }));
            drop(state);
            return replaced.map(|replaced| replaced.object);
        }
        if state.spare_capacity() == 0 {
            drop(state);
            self.reserve(1);
            state = self.state.write();
        }
        state.revision = revision;
        let slot = state.insert(hash, entry);
        change.update(slot, &mut state.tables);
        None
    }

    /// Returns the index values before and after a change of an object.
    ///
    /// The caller holds the writers' lock.
    fn index_change(
        &self,
        indexers: &[Option<SharedIndexer<P>>],
        key: &ObjectKey,
        new: Option<&Arc<P>>,
    ) -> IndexChange<'_> {
        let old = if indexers.is_empty() {
            None
        } else {
            self.get(key)
        };
        IndexChange::of(indexers, old.as_ref(), new, &self.index_errors)
    }

    /// Grows full index tables, without blocking readers while they are copied.
    ///
    /// The caller holds the writers' lock.
    fn grow_tables(&self, change: &IndexChange<'_>) {
        if change.is_empty() {
            return;
        }
        let grown = change.grown(&self.state.read().tables);
        if !grown.is_empty() {
            let mut state = self.state.write();
            let old: Vec<_> = grown
                .into_iter()
                .map(|(number, table)| state.tables[number].replace(table))
                .collect();
            drop(state);
            drop(old);
        }
    }

    /// Grows the table of slots if it has no room for `more` objects.
    fn reserve(&self, more: usize) {
        let state = self.state.read();
        if state.spare_capacity() < more {
            let grown = state.grown(more);
            drop(state);
            let old = self.state.write().grow(grown);
            drop(old);
        }
    }

    /// Removes an object at this revision, and returns it.
    pub(crate) fn remove(&self, key: &ObjectKey, revision: u64) -> Option<Entry<P>> {
        let hash = self.hash(key);
        let indexers = self.indexers.lock();
        let mut change = self.index_change(&indexers, key, None);
        let mut state = self.state.write();
        state.revision = revision;
        let slot = state.find(hash, key)?;
        change.update(slot, &mut state.tables);
        let entry = state.take(hash, slot);
        drop(state);
        entry
    }

    /// Moves to a revision without a change.
    pub(crate) fn advance(&self, revision: u64) {
        self.state.write().revision = revision;
    }

    /// Adds an index of all objects, and returns its number.
    pub(crate) fn add_indexer(&self, indexer: SharedIndexer<P>) -> usize {
        let mut indexers = self.indexers.lock();
        let mut table = indexer.table();
        // The writers' lock is held, so only the revision can change meanwhile.
        let now = self.snapshot();
        for (slot, entry) in now.slots() {
            let inserted = indexer.values(&entry.object).and_then(|mut values| {
                let panics = table.insert(slot, &mut values);
                if panics.is_empty() {
                    Ok(())
                } else {
                    Err(PANICKED.into())
                }
            });
            if let Err(error) = inserted {
                self.index_errors.record(error);
            }
        }
        drop(now);
        let number = indexers
            .iter()
            .position(Option::is_none)
            .unwrap_or(indexers.len());
        if number == indexers.len() {
            indexers.push(None);
        }
        indexers[number] = Some(indexer);
        let mut state = self.state.write();
        state.tables.resize_with(indexers.len(), || None);
        state.tables[number] = Some(table);
        number
    }

    /// Removes an index.
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
