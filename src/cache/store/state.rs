//! What a store has at one moment: objects in slots, and where to find them.

use super::{
    entry::{CHUNK, Entry, Spine, chunk},
    index::Table,
    postings::{Postings, Slot},
    snapshot::Snapshot,
};
use crate::object::ObjectKey;
use hashbrown::{HashMap, HashTable, hash_map::EntryRef};
use std::{mem, sync::Arc};

pub(super) struct State<P> {
    spine: Spine<P>,
    slots: HashTable<Slot>,
    free: Vec<Slot>,
    /// How many slots were ever in use: all from there on are free as well.
    used: Slot,
    pub(super) namespaces: HashMap<String, Postings>,
    /// By the numbers of their indexes; a gap where one was removed.
    pub(super) tables: Vec<Option<Box<dyn Table>>>,
    /// Of all objects.
    pub(super) bytes: u64,
    pub(super) revision: u64,
}

impl<P> Default for State<P> {
    fn default() -> Self {
        Self {
            spine: Spine::default(),
            slots: HashTable::new(),
            free: Vec::new(),
            used: 0,
            namespaces: HashMap::new(),
            tables: Vec::new(),
            bytes: 0,
            revision: 0,
        }
    }
}

/// A key's hash as the table wants it: it looks at both ends.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl<P> State<P> {
    /// With room for so many objects.
    pub(super) fn with_capacity(objects: usize) -> Self {
        Self { slots: HashTable::with_capacity(objects), ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether one more object would make the table of slots grow.
    pub(super) fn is_full(&self) -> bool {
        self.slots.len() == self.slots.capacity()
    }

    /// All objects, or those in these slots.
    pub(super) fn snapshot(&self, some: Option<Postings>) -> Snapshot<P> {
        Snapshot::new(self.spine.clone(), self.len(), some)
    }

    pub(super) fn find(&self, hash: u32, key: &ObjectKey) -> Option<Slot> {
        self.slots.find(spread(hash), |slot| self.entry(*slot).is(hash, key)).copied()
    }

    pub(super) fn get(&self, hash: u32, key: &ObjectKey) -> Option<&Entry<P>> {
        self.find(hash, key).map(|slot| self.entry(slot))
    }

    /// Of a slot that is not free.
    pub(super) fn entry(&self, slot: Slot) -> &Entry<P> {
        entry(&self.spine, slot)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry<P>> {
        self.spine.iter().flat_map(|chunk| chunk.iter().flatten())
    }

    /// To be changed: copied first if a snapshot has it.
    fn place(&mut self, slot: Slot) -> &mut Option<Entry<P>> {
        let slot = slot as usize;
        let chunk = &mut Arc::make_mut(&mut self.spine)[slot / CHUNK];
        &mut Arc::make_mut(chunk)[slot % CHUNK]
    }

    /// Another object of the same key in a slot that is not free; gives what was there.
    pub(super) fn change(&mut self, slot: Slot, hash: u32, entry: Entry<P>) -> Entry<P> {
        let bytes = entry.bytes;
        let place = self.place(slot).as_mut().expect("a slot in the table holds an object");
        // The new key too: what keeps its key in itself keeps this one.
        let old = mem::replace(place, Entry { hash, ..entry });
        self.bytes = self.bytes + u64::from(bytes) - u64::from(old.bytes);
        old
    }

    /// The slots in a larger table.
    pub(super) fn grown(&self) -> HashTable<Slot> {
        let hash = |slot: &Slot| spread(self.entry(*slot).hash);
        let mut grown = HashTable::with_capacity(2 * self.slots.len() + 1);
        // Not in the table's order: entries lie in that of their slots.
        for (slot, entry) in self.snapshot(None).slots() {
            grown.insert_unique(spread(entry.hash), slot, hash);
        }
        grown
    }

    /// Gives the smaller one.
    pub(super) fn grow(&mut self, grown: HashTable<Slot>) -> HashTable<Slot> {
        mem::replace(&mut self.slots, grown)
    }

    /// Of a key that is not there.
    pub(super) fn insert(&mut self, hash: u32, entry: Entry<P>) -> Slot {
        self.bytes += u64::from(entry.bytes);
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.used;
            self.used = slot.checked_add(1).expect("fewer than four thousand million objects");
            slot
        });
        self.namespaces.entry_ref(entry.key.namespace().unwrap_or_default()).or_default().insert(slot);
        if slot as usize / CHUNK == self.spine.len() {
            Arc::make_mut(&mut self.spine).push(chunk());
        }
        *self.place(slot) = Some(Entry { hash, ..entry });
        let spine = &self.spine;
        self.slots.insert_unique(spread(hash), slot, |slot| spread(self::entry(spine, *slot).hash));
        slot
    }

    pub(super) fn take(&mut self, hash: u32, slot: Slot) -> Option<Entry<P>> {
        if let Ok(found) = self.slots.find_entry(spread(hash), |other| *other == slot) {
            found.remove();
        }
        let entry = self.place(slot).take();
        self.bytes -= entry.as_ref().map_or(0, |entry| u64::from(entry.bytes));
        self.free.push(slot);
        let namespace = entry.as_ref().and_then(|entry| entry.key.namespace()).unwrap_or_default();
        if let EntryRef::Occupied(mut postings) = self.namespaces.entry_ref(namespace) {
            postings.get_mut().remove(slot);
            if postings.get().is_empty() {
                postings.remove();
            }
        }
        entry
    }
}

fn entry<P>(spine: &Spine<P>, slot: Slot) -> &Entry<P> {
    let slot = slot as usize;
    spine[slot / CHUNK][slot % CHUNK].as_ref().expect("a slot in the table holds an object")
}
