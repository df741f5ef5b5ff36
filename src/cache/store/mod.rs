//! The objects of one informer, by key: one writer, many readers.
//!
//! What holds, whatever happens:
//! * a key has one slot, a slot holds one object or is free;
//! * what a snapshot shows never changes: what it shares is copied before it changes;
//! * the revision is published with the objects it belongs to;
//! * under the lock nothing is freed, no user's code runs, and no work is done that grows with the number of objects, but for the memory of a
//!   namespace's or an index value's slots being moved (4 bytes each).
//!
//! Objects are in chunks, and a snapshot is the list of the chunks: taking one costs two counts. An update while a snapshot lives copies the
//! one chunk it changes, and the list, once per snapshot.

mod index;
mod postings;
mod snapshot;

use self::{
    index::{ByValue, Said},
    postings::{Postings, Slot},
};
pub(crate) use self::{
    index::{Function, Indexer, Table, Values},
    snapshot::Snapshot,
};
use crate::object::ObjectKey;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use parking_lot::{Mutex, RwLock};
use std::{hash::BuildHasher, hash::Hash, marker::PhantomData, mem, sync::Arc};

/// Objects in a chunk: few enough to be copied in microseconds, many enough that the list of chunks is short.
const CHUNK: usize = 512;

/// An object and its key.
#[derive(Debug)]
pub(crate) struct Entry<P> {
    pub(crate) key: ObjectKey,
    pub(crate) object: Arc<P>,
}

impl<P> Clone for Entry<P> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), object: self.object.clone() }
    }
}

/// What became of an object in [`Store::replace`].
#[derive(Debug)]
pub(crate) enum Change<P> {
    Created(Entry<P>),
    Updated { old: Arc<P>, new: Entry<P> },
    Deleted(Entry<P>),
}

/// An index of a store: where it is, and what its values are.
pub(crate) struct IndexId<V> {
    number: usize,
    value: PhantomData<fn(V)>,
}

impl<V> Clone for IndexId<V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V> Copy for IndexId<V> {}

type SharedIndexer<P> = Arc<dyn Indexer<Arc<P>>>;
type Chunk<P> = Vec<Option<Entry<P>>>;
type Spine<P> = Arc<Vec<Arc<Chunk<P>>>>;

pub(crate) struct Store<P> {
    state: RwLock<State<P>>,
    /// Held by whoever writes, so that it may look at the state, take its time, and change it then. Indexes by number; a gap where one was removed.
    indexers: Mutex<Vec<Option<SharedIndexer<P>>>>,
    hasher: DefaultHashBuilder,
}

struct State<P> {
    spine: Spine<P>,
    slots: HashTable<Slot>,
    free: Vec<Slot>,
    namespaces: HashMap<String, Postings>,
    /// As in `indexers`.
    tables: Vec<Option<Box<dyn Table>>>,
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
            revision: 0,
        }
    }
}

impl<P> Default for Store<P> {
    fn default() -> Self {
        Self { state: RwLock::default(), indexers: Mutex::default(), hasher: DefaultHashBuilder::default() }
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

    /// Up to where the objects are.
    pub(crate) fn revision(&self) -> u64 {
        self.state.read().revision
    }

    /// All objects as they are now.
    pub(crate) fn snapshot(&self) -> Snapshot<P> {
        let state = self.state.read();
        Snapshot::all(state.spine.clone(), state.slots.len(), state.revision)
    }

    /// Those of a namespace, and that all the lookups find.
    pub(crate) fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Snapshot<P> {
        let state = self.state.read();
        let namespace = namespace.map(|name| state.namespaces.get(name).cloned().unwrap_or_default());
        let found: Vec<_> =
            namespace.into_iter().chain(lookups.iter().map(|lookup| (lookup.0)(&state.tables))).collect();
        let (spine, len, revision) = (state.spine.clone(), state.slots.len(), state.revision);
        drop(state);
        match found.into_iter().reduce(|a, b| a.and(&b)) {
            Some(slots) => Snapshot::some(spine, slots, revision),
            None => Snapshot::all(spine, len, revision),
        }
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
        let said = Said::of(&indexers, old.as_ref(), Some(&entry.object));
        let mut state = self.state.write();
        state.revision = revision;
        if let Some(slot) = state.find(hash, &entry.key) {
            said.update(slot, &mut state.tables);
            let replaced = state.place(slot).as_mut().map(|place| mem::replace(&mut place.object, entry.object));
            drop(state);
            replaced
        } else {
            let slot = state.insert(hash, entry, &self.hasher);
            said.update(slot, &mut state.tables);
            None
        }
    }

    /// Take an object out, at this revision.
    pub(crate) fn remove(&self, key: &ObjectKey, revision: u64) -> Option<Entry<P>> {
        let hash = self.hasher.hash_one(key);
        let indexers = self.indexers.lock();
        let old = self.get(key);
        let said = Said::of(&indexers, old.as_ref(), None);
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
    /// stays: who holds it holds the current one. With a namespace, only the objects there are replaced, and the others stay; those to be `kept` stay
    /// too, unless they are among the new ones.
    ///
    /// The new state is built beside the old one, which is read meanwhile.
    pub(crate) fn replace(
        &self,
        namespace: Option<&str>,
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
        // Only a writer could change it, so that a reader's lock is enough, and readers are not kept out.
        let now = self.state.read();
        let elsewhere = |entry: &&Entry<P>| namespace.is_some() && entry.key.namespace() != namespace;
        let kept = kept.iter().filter_map(|key| now.find(self.hasher.hash_one(key), key)).map(|slot| now.entry(slot));
        for mut entry in now.entries().filter(elsewhere).chain(kept).cloned().chain(entries) {
            let hash = self.hasher.hash_one(&entry.key);
            if let Some(old) = now.find(hash, &entry.key).map(|slot| now.entry(slot))
                && is_same(&old.object, &entry.object)
            {
                entry = old.clone();
            }
            // Pages that were not of one revision can name an object twice; the last one is the newest.
            if let Some(slot) = next.find(hash, &entry.key) {
                let said = Said::of(&indexers, Some(&next.entry(slot).object), Some(&entry.object));
                said.update(slot, &mut next.tables);
                *next.place(slot) = Some(entry);
            } else {
                let said = Said::of(&indexers, None, Some(&entry.object));
                let slot = next.insert(hash, entry, &self.hasher);
                said.update(slot, &mut next.tables);
            }
        }
        let mut changes = Vec::new();
        for entry in next.entries() {
            match now.find(self.hasher.hash_one(&entry.key), &entry.key).map(|slot| now.entry(slot)) {
                Some(old) if Arc::ptr_eq(&old.object, &entry.object) => {}
                Some(old) => changes.push(Change::Updated { old: old.object.clone(), new: entry.clone() }),
                None => changes.push(Change::Created(entry.clone())),
            }
        }
        let gone = now.entries().filter(|entry| next.find(self.hasher.hash_one(&entry.key), &entry.key).is_none());
        changes.extend(gone.cloned().map(Change::Deleted));
        drop(now);
        let old = mem::replace(&mut *self.state.write(), next);
        drop(indexers);
        drop(old);
        changes
    }

    /// Find objects by what `values` says of them, from now on.
    pub(crate) fn add_index<V: Hash + Eq + Send + Sync + 'static>(
        &self,
        values: impl Fn(&Arc<P>) -> Vec<V> + Send + Sync + 'static,
    ) -> IndexId<V> {
        IndexId::new(self.add_indexer(Arc::new(Function::new(values))))
    }

    /// Gives the number of the index.
    pub(crate) fn add_indexer(&self, indexer: SharedIndexer<P>) -> usize {
        let mut indexers = self.indexers.lock();
        let mut table = indexer.table();
        let now = self.state.read();
        for (slot, entry) in now.slots_and_entries() {
            table.insert(slot, indexer.values(&entry.object));
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

/// Finds the objects an index has under one value.
pub(crate) struct Lookup<'a>(Box<Find<'a>>);

type Find<'a> = dyn Fn(&[Option<Box<dyn Table>>]) -> Postings + 'a;

impl<V: Hash + Eq + Send + Sync + 'static> IndexId<V> {
    /// The index of this number, whose values are of this type: one of another type finds nothing.
    pub(crate) fn new(number: usize) -> Self {
        Self { number, value: PhantomData }
    }

    pub(crate) fn of(self, value: &V) -> Lookup<'_> {
        Lookup(Box::new(move |tables| {
            let table = tables[self.number].as_ref().and_then(|table| table.as_any().downcast_ref::<ByValue<V>>());
            table.map(|table| table.get(value)).unwrap_or_default()
        }))
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
        self.slots_and_entries().map(|(_, entry)| entry)
    }

    fn slots_and_entries(&self) -> impl Iterator<Item = (Slot, &Entry<P>)> {
        let places = self.spine.iter().flat_map(|chunk| chunk.iter());
        (0..).zip(places).filter_map(|(slot, place)| Some((slot, place.as_ref()?)))
    }

    /// To be changed: copied first if a snapshot has it.
    fn place(&mut self, slot: Slot) -> &mut Option<Entry<P>> {
        let slot = slot as usize;
        let chunk = &mut Arc::make_mut(&mut self.spine)[slot / CHUNK];
        &mut Arc::make_mut(chunk)[slot % CHUNK]
    }

    fn insert(&mut self, hash: u64, entry: Entry<P>, hasher: &DefaultHashBuilder) -> Slot {
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
