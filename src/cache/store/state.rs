//! What a store has at one moment: what is shown, and where to find it.
//!
//! What is shown is what is in the chunks. Where to find it, which is the table of slots, the namespaces and the indexes, may name slots that show nothing yet, or nothing
//! any more: so a list comes in object by object, is shown all at once, and what it does not have goes out object by object.

use super::{
    entry::{CHUNK, Chunk, Entry, Spine, chunk},
    index::Table,
    postings::{Postings, Slot},
    snapshot::Snapshot,
};
use crate::object::ObjectKey;
use hashbrown::{HashMap, HashTable, hash_map::EntryRef};
use std::{mem, sync::Arc};

/// Chunks that are not worth giving back.
const FEW: usize = 4;

pub(super) struct State<P> {
    pub(super) shown: Shown<P>,
    slots: HashTable<Slot>,
    free: Vec<Slot>,
    /// How many slots were ever in use: all from there on are free as well.
    used: Slot,
    pub(super) namespaces: HashMap<String, Postings>,
    /// By the numbers of their indexes; a gap where one was removed.
    pub(super) tables: Vec<Option<Box<dyn Table>>>,
    /// Whether slots may be found that show nothing.
    pub(super) between: bool,
    pub(super) revision: u64,
}

impl<P> Default for State<P> {
    fn default() -> Self {
        Self {
            shown: Shown::default(),
            slots: HashTable::new(),
            free: Vec::new(),
            used: 0,
            namespaces: HashMap::new(),
            tables: Vec::new(),
            between: false,
            revision: 0,
        }
    }
}

/// A key's hash as a table wants it: it looks at both ends.
pub(super) fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl<P> State<P> {
    /// Nothing, and nothing in these tables.
    pub(super) fn empty(tables: Vec<Option<Box<dyn Table>>>, revision: u64) -> Self {
        Self { tables, revision, ..Self::default() }
    }

    /// How many objects can be added before the table of slots would grow.
    pub(super) fn room(&self) -> usize {
        self.slots.capacity() - self.slots.len()
    }

    /// All objects, or those in these slots.
    pub(super) fn snapshot(&self, some: Option<Postings>) -> Snapshot<P> {
        Snapshot::new(self.shown.spine.clone(), self.shown.len, some)
    }

    pub(super) fn find(&self, hash: u32, key: &ObjectKey) -> Option<Slot> {
        let is = |slot: &Slot| self.shown.at(*slot).is_some_and(|entry| entry.is(hash, key));
        self.slots.find(spread(hash), is).copied()
    }

    pub(super) fn get(&self, hash: u32, key: &ObjectKey) -> Option<&Entry<P>> {
        self.find(hash, key).and_then(|slot| self.shown.at(slot))
    }

    /// The slots in a table with room for so many more. For when all that are found show something.
    pub(super) fn grown(&self, more: usize) -> HashTable<Slot> {
        let mut grown = HashTable::with_capacity(2 * self.slots.len() + more);
        // Not in the table's order: entries lie in that of their slots.
        for (slot, entry) in self.snapshot(None).slots() {
            grown.insert_unique(spread(entry.hash), slot, |slot| self.shown.rehashed(*slot));
        }
        grown
    }

    /// Gives the smaller one.
    pub(super) fn grow(&mut self, grown: HashTable<Slot>) -> HashTable<Slot> {
        mem::replace(&mut self.slots, grown)
    }

    /// The same objects in the first slots, if most of those that were ever used show nothing any more: the chunks that a large list has left are memory,
    /// and each list of all objects walks them. For when all that are found show something.
    pub(super) fn compacted(&self) -> Option<Self> {
        let (used, len) = (self.used as usize, self.shown.len);
        if used <= FEW * CHUNK || len >= used / 4 {
            return None;
        }
        let mut compacted = Self { slots: HashTable::with_capacity(len), ..Self::default() };
        let mut from = Vec::with_capacity(len);
        for (slot, entry) in self.snapshot(None).slots() {
            compacted.insert(entry.hash, entry.clone());
            from.push(slot);
        }
        let moved = |table: &Option<Box<dyn Table>>| Some(table.as_ref()?.moved(&from));
        compacted.tables = self.tables.iter().map(moved).collect();
        Some(compacted)
    }

    /// Of a key that is not there, if there is room.
    pub(super) fn insert(&mut self, hash: u32, entry: Entry<P>) -> Slot {
        let slot = self.file(hash, &entry.key);
        self.shown.put(slot, Some(Entry { hash, ..entry }));
        slot
    }

    pub(super) fn take(&mut self, hash: u32, slot: Slot) -> Option<Entry<P>> {
        let entry = self.shown.put(slot, None)?;
        self.unfile(slot, hash, &entry.key);
        Some(entry)
    }

    /// A slot for an object of this key, to be found from now on, though it shows nothing yet. If there is room.
    pub(super) fn file(&mut self, hash: u32, key: &ObjectKey) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.used;
            self.used = slot.checked_add(1).expect("fewer than four thousand million objects");
            slot
        });
        self.namespaces.entry_ref(key.namespace().unwrap_or_default()).or_default().insert(slot);
        let shown = &self.shown;
        self.slots.insert_unique(spread(hash), slot, |slot| shown.rehashed(*slot));
        slot
    }

    /// It shows nothing any more, and is found no longer.
    pub(super) fn unfile(&mut self, slot: Slot, hash: u32, key: &ObjectKey) {
        if let Ok(found) = self.slots.find_entry(spread(hash), |other| *other == slot) {
            found.remove();
        }
        self.free.push(slot);
        if let EntryRef::Occupied(mut postings) = self.namespaces.entry_ref(key.namespace().unwrap_or_default()) {
            postings.get_mut().remove(slot);
            if postings.get().is_empty() {
                postings.remove();
            }
        }
    }
}

/// The objects, each in its slot. A clone shares them.
pub(super) struct Shown<P> {
    spine: Spine<P>,
    pub(super) len: usize,
    /// Of all objects.
    pub(super) bytes: u64,
}

impl<P> Shown<P> {
    /// What is in a slot.
    pub(super) fn at(&self, slot: Slot) -> Option<&Entry<P>> {
        at(&self.spine, slot)
    }

    fn rehashed(&self, slot: Slot) -> u64 {
        spread(self.at(slot).expect("a table grows before slots are found that show nothing").hash)
    }

    /// Another object in a slot, or none; gives what was there. What a clone or a snapshot has is copied first.
    pub(super) fn put(&mut self, slot: Slot, entry: Option<Entry<P>>) -> Option<Entry<P>> {
        let (number, place) = (slot as usize / CHUNK, slot as usize % CHUNK);
        let spine = Arc::make_mut(&mut self.spine);
        while spine.len() <= number {
            spine.push(chunk());
        }
        let bytes = |entry: &Option<Entry<P>>| entry.as_ref().map_or(0, |entry| u64::from(entry.bytes));
        let (comes, more) = (usize::from(entry.is_some()), bytes(&entry));
        let old = mem::replace(&mut Arc::make_mut(&mut spine[number])[place], entry);
        self.len = self.len + comes - usize::from(old.is_some());
        self.bytes = self.bytes + more - bytes(&old);
        old
    }
}

/// What is in a slot of these, which need not be there yet.
pub(super) fn at<P>(spine: &[Chunk<P>], slot: Slot) -> Option<&Entry<P>> {
    let slot = slot as usize;
    spine.get(slot / CHUNK)?[slot % CHUNK].as_ref()
}

impl<P> Clone for Shown<P> {
    fn clone(&self) -> Self {
        Self { spine: self.spine.clone(), ..*self }
    }
}

impl<P> Default for Shown<P> {
    fn default() -> Self {
        Self { spine: Spine::default(), len: 0, bytes: 0 }
    }
}
