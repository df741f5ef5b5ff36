//! The objects of one informer, by key: one writer, many readers.
//!
//! What holds, whatever happens:
//! * a key has one slot, a slot holds one object or is free;
//! * what a snapshot shows never changes: what it shares is copied before it changes;
//! * the revision is published with the objects it belongs to;
//! * under the lock, be it a reader's, nothing is freed, no user's code runs but what compares and hashes an index's values, and no work is done that
//!   grows with the number of objects, but for the memory of a namespace's or an index value's slots being moved or freed (4 bytes each). Tables that are
//!   full are copied into larger ones under a reader's lock, which keeps no reader waiting.
//!
//! Objects are in chunks, and a snapshot is the list of the chunks: taking one costs two counts. An update while a snapshot lives copies the
//! one chunk it changes, and the list, once per snapshot.

mod index;
mod postings;
mod snapshot;

use self::{
    index::Said,
    postings::{Postings, Slot},
};
pub(crate) use self::{
    index::{Function, IndexId, Indexer, Lookup, Table, Values},
    snapshot::Snapshot,
};
use crate::{cache::stats::Trouble, object::ObjectKey};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use parking_lot::{Mutex, RwLock};
use std::{hash::BuildHasher, mem, sync::Arc};

/// Objects in a chunk: few enough to be copied in microseconds, many enough that the list of chunks is short.
const CHUNK: usize = 512;

/// An object and its key.
#[derive(Debug)]
pub(crate) struct Entry<P> {
    pub(crate) key: ObjectKey,
    pub(crate) object: Arc<P>,
    /// About how much memory it takes.
    pub(crate) bytes: u32,
}

impl<P> Clone for Entry<P> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), object: self.object.clone(), bytes: self.bytes }
    }
}

/// What became of an object in [`Store::replace`].
#[derive(Debug)]
pub(crate) enum Change<P> {
    Created(Entry<P>),
    Updated { old: Arc<P>, new: Entry<P> },
    Deleted(Entry<P>),
}

type SharedIndexer<P> = Arc<dyn Indexer<Arc<P>>>;
type Chunk<P> = Vec<Option<Entry<P>>>;
type Spine<P> = Arc<Vec<Arc<Chunk<P>>>>;

pub(crate) struct Store<P> {
    state: RwLock<State<P>>,
    /// Held by whoever writes, so that it may look at the state, take its time, and change it then. Indexes by number; a gap where one was removed.
    indexers: Mutex<Vec<Option<SharedIndexer<P>>>>,
    hasher: DefaultHashBuilder,
    /// What indexes say nothing of, though it is there.
    pub(crate) index_errors: Trouble<String>,
}

struct State<P> {
    spine: Spine<P>,
    slots: HashTable<Slot>,
    free: Vec<Slot>,
    namespaces: HashMap<String, Postings>,
    /// As in `indexers`.
    tables: Vec<Option<Box<dyn Table>>>,
    /// Of all objects.
    bytes: u64,
    revision: u64,
}

impl<P> Default for State<P> {
    fn default() -> Self {
        Self {
            spine: Spine::default(),
            slots: HashTable::new(),
            free: Vec::new(),
            namespaces: HashMap::new(),
            tables: Vec::new(),
            bytes: 0,
            revision: 0,
        }
    }
}

impl<P> Default for Store<P> {
    fn default() -> Self {
        Self {
            state: RwLock::default(),
            indexers: Mutex::default(),
            hasher: DefaultHashBuilder::default(),
            index_errors: Trouble::default(),
        }
    }
}

/// Reading.
impl<P> Store<P> {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<P>> {
        let hash = self.hasher.hash_one(key);
        let state = self.state.read();
        state.find(hash, key).map(|slot| state.entry(slot).object.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.state.read().slots.len()
    }

    /// About how much memory the objects take.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.read().bytes
    }

    /// Up to where the objects are.
    pub(crate) fn revision(&self) -> u64 {
        self.state.read().revision
    }

    /// All objects as they are now.
    pub(crate) fn snapshot(&self) -> Snapshot<P> {
        Snapshot::new(self.state.read().spine.clone(), None)
    }

    /// Those of a namespace, and that all the lookups find.
    pub(crate) fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Snapshot<P> {
        let state = self.state.read();
        let namespace = namespace.map(|name| state.namespaces.get(name).cloned().unwrap_or_default());
        let found: Vec<_> =
            namespace.into_iter().chain(lookups.iter().map(|lookup| lookup.find(&state.tables))).collect();
        let spine = state.spine.clone();
        drop(state);
        Snapshot::new(spine, found.into_iter().reduce(|a, b| a.and(&b)))
    }
}

/// Writing. Writers wait for each other, and what they take out is handed back: the caller frees it.
impl<P: 'static> Store<P> {
    /// Put an object in, at this revision; gives what was there.
    pub(crate) fn put(&self, entry: Entry<P>, revision: u64) -> Option<Arc<P>> {
        let hash = self.hasher.hash_one(&entry.key);
        let indexers = self.indexers.lock();
        let old = self.get(&entry.key);
        // The user's functions run here, where nobody waits but other writers.
        let mut said = Said::of(&indexers, old.as_ref(), Some(&entry.object), &self.index_errors);
        self.make_room(&said);
        let mut state = self.state.write();
        state.revision = revision;
        if let Some(slot) = state.find(hash, &entry.key) {
            said.update(slot, &mut state.tables);
            let replaced = state.change(slot, entry.object, entry.bytes);
            drop(state);
            Some(replaced)
        } else {
            debug_assert!(state.slots.len() < state.slots.capacity(), "it would grow while readers wait");
            let slot = state.insert(hash, entry, &self.hasher);
            said.update(slot, &mut state.tables);
            None
        }
    }

    /// For an object that comes and what is said of it: tables that are full grow beside those that are read. For who holds off other writers.
    fn make_room(&self, said: &Said) {
        let state = self.state.read();
        let slots = state.grown(&self.hasher);
        let tables = said.grown(&state.tables);
        drop(state);
        if slots.is_none() && tables.is_empty() {
            return;
        }
        let mut state = self.state.write();
        let slots = slots.map(|slots| mem::replace(&mut state.slots, slots));
        let tables: Vec<_> = tables.into_iter().map(|(number, table)| state.tables[number].replace(table)).collect();
        drop(state);
        drop((slots, tables));
    }

    /// Take an object out, at this revision.
    pub(crate) fn remove(&self, key: &ObjectKey, revision: u64) -> Option<Entry<P>> {
        let hash = self.hasher.hash_one(key);
        let indexers = self.indexers.lock();
        let old = self.get(key);
        let mut said = Said::of(&indexers, old.as_ref(), None, &self.index_errors);
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

    /// Make the objects exactly these, at once; gives what that changed. An object that `is_same` as the one there is is dropped, and the old one
    /// stays: who holds it holds the current one. What is not among those that it is `about` stays too, and so do those to be `kept`, unless they are
    /// among the new ones.
    ///
    /// The new state is built beside the old one, which is read meanwhile.
    pub(crate) fn replace(
        &self,
        about: impl Fn(&ObjectKey) -> bool,
        entries: Vec<Entry<P>>,
        kept: &[ObjectKey],
        revision: u64,
        is_same: impl Fn(&P, &P) -> bool,
    ) -> Vec<Change<P>> {
        let indexers = self.indexers.lock();
        let mut next = State {
            revision,
            tables: indexers.iter().map(|it| it.as_ref().map(|it| it.table())).collect(),
            ..State::default()
        };
        // Only a writer could change what is there, so that it stays as it is in this snapshot.
        let now = self.snapshot();
        let there = |hash: u64, key: &ObjectKey| now.at(self.state.read().find(hash, key)?);
        let elsewhere = |entry: &&Entry<P>| !about(&entry.key);
        let kept = kept.iter().filter_map(|key| there(self.hasher.hash_one(key), key));
        for mut entry in now.iter().filter(elsewhere).chain(kept).cloned().chain(entries) {
            let hash = self.hasher.hash_one(&entry.key);
            if let Some(old) = there(hash, &entry.key)
                && is_same(&old.object, &entry.object)
            {
                entry = old.clone();
            }
            // Pages that were not of one revision can name an object twice; the last one is the newest.
            if let Some(slot) = next.find(hash, &entry.key) {
                let mut said =
                    Said::of(&indexers, Some(&next.entry(slot).object), Some(&entry.object), &self.index_errors);
                said.update(slot, &mut next.tables);
                next.change(slot, entry.object, entry.bytes);
            } else {
                let mut said = Said::of(&indexers, None, Some(&entry.object), &self.index_errors);
                let slot = next.insert(hash, entry, &self.hasher);
                said.update(slot, &mut next.tables);
            }
        }
        let mut changes = Vec::new();
        for entry in next.entries() {
            match there(self.hasher.hash_one(&entry.key), &entry.key) {
                Some(old) if Arc::ptr_eq(&old.object, &entry.object) => {}
                Some(old) => changes.push(Change::Updated { old: old.object.clone(), new: entry.clone() }),
                None => changes.push(Change::Created(entry.clone())),
            }
        }
        let gone = now.iter().filter(|entry| next.find(self.hasher.hash_one(&entry.key), &entry.key).is_none());
        changes.extend(gone.cloned().map(Change::Deleted));
        drop(now);
        let old = mem::replace(&mut *self.state.write(), next);
        drop(indexers);
        drop(old);
        changes
    }

    /// Gives the number of the index.
    pub(crate) fn add_indexer(&self, indexer: SharedIndexer<P>) -> usize {
        let mut indexers = self.indexers.lock();
        let mut table = indexer.table();
        // Nothing but the revision changes meanwhile.
        let now = self.snapshot();
        for (slot, entry) in now.slots_and_entries() {
            match indexer.values(&entry.object) {
                Ok(mut values) => table.insert(slot, &mut values),
                Err(error) => self.index_errors.note(error),
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

impl<P> State<P> {
    fn find(&self, hash: u64, key: &ObjectKey) -> Option<Slot> {
        self.slots.find(hash, |slot| self.entry(*slot).key == *key).copied()
    }

    /// Of a slot that is not free.
    fn entry(&self, slot: Slot) -> &Entry<P> {
        let slot = slot as usize;
        self.spine[slot / CHUNK][slot % CHUNK].as_ref().expect("a slot in the table holds an object")
    }

    fn entries(&self) -> impl Iterator<Item = &Entry<P>> {
        self.spine.iter().flat_map(|chunk| chunk.iter().flatten())
    }

    /// To be changed: copied first if a snapshot has it.
    fn place(&mut self, slot: Slot) -> &mut Option<Entry<P>> {
        let slot = slot as usize;
        let chunk = &mut Arc::make_mut(&mut self.spine)[slot / CHUNK];
        &mut Arc::make_mut(chunk)[slot % CHUNK]
    }

    /// The object in a slot that is not free; gives what was there.
    fn change(&mut self, slot: Slot, object: Arc<P>, bytes: u32) -> Arc<P> {
        let entry = self.place(slot).as_mut().expect("a slot in the table holds an object");
        let old = (mem::replace(&mut entry.object, object), mem::replace(&mut entry.bytes, bytes));
        self.bytes = self.bytes + u64::from(bytes) - u64::from(old.1);
        old.0
    }

    /// The slots in a larger table, if this one has no room for one more.
    fn grown(&self, hasher: &DefaultHashBuilder) -> Option<HashTable<Slot>> {
        if self.slots.len() < self.slots.capacity() {
            return None;
        }
        let hash = |slot: &Slot| hasher.hash_one(&self.entry(*slot).key);
        let mut grown = HashTable::with_capacity(2 * self.slots.len() + 1);
        for slot in &self.slots {
            grown.insert_unique(hash(slot), *slot, hash);
        }
        Some(grown)
    }

    fn insert(&mut self, hash: u64, entry: Entry<P>, hasher: &DefaultHashBuilder) -> Slot {
        self.bytes += u64::from(entry.bytes);
        let namespace = entry.key.namespace().unwrap_or_default();
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.spine.last().map_or(0, |last| (self.spine.len() - 1) * CHUNK + last.len());
            Slot::try_from(slot).expect("fewer than four thousand million objects")
        });
        self.namespaces.entry_ref(namespace).or_default().insert(slot);
        let spine = Arc::make_mut(&mut self.spine);
        if let Some(chunk) = spine.get_mut(slot as usize / CHUNK) {
            let chunk = Arc::make_mut(chunk);
            match chunk.get_mut(slot as usize % CHUNK) {
                Some(place) => *place = Some(entry),
                None => chunk.push(Some(entry)),
            }
        } else {
            let mut chunk = Vec::with_capacity(CHUNK);
            chunk.push(Some(entry));
            spine.push(Arc::new(chunk));
        }
        let spine = &self.spine;
        self.slots.insert_unique(hash, slot, |slot| {
            let slot = *slot as usize;
            spine[slot / CHUNK][slot % CHUNK].as_ref().map_or(0, |entry| hasher.hash_one(&entry.key))
        });
        slot
    }

    fn take(&mut self, hash: u64, slot: Slot) -> Option<Entry<P>> {
        if let Ok(found) = self.slots.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        let entry = self.place(slot).take();
        self.bytes -= entry.as_ref().map_or(0, |entry| u64::from(entry.bytes));
        self.free.push(slot);
        let namespace = entry.as_ref().and_then(|entry| entry.key.namespace()).unwrap_or_default();
        if let hashbrown::hash_map::EntryRef::Occupied(mut postings) = self.namespaces.entry_ref(namespace) {
            postings.get_mut().remove(slot);
            if postings.get().is_empty() {
                postings.remove();
            }
        }
        entry
    }
}

#[cfg(test)]
mod tests;
