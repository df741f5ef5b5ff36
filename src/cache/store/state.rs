//! State of a store: the visible objects, and the tables that find them.
//!
//! The chunks hold the visible objects. The tables, which are those of slots, namespaces and
//! indexes, may contain slots that are still or already empty. So a list can be added and removed
//! object by object, and becomes visible at once.

use super::{
    entry::{CHUNK, Chunk, Entry, Spine, chunk},
    index::Table,
    postings::{Postings, Slot},
    snapshot::Snapshot,
};
use crate::object::ObjectKey;
use hashbrown::{HashMap, HashTable, hash_map::EntryRef};
use std::{mem, sync::Arc};

/// Number of chunks below which memory is not freed.
const MIN_COMPACTED_CHUNKS: usize = 4;

pub(super) struct State<P> {
    pub(super) visible: VisibleObjects<P>,
    slots: HashTable<Slot>,
    free: Vec<Slot>,
    /// Number of slots that were ever used. All later ones are free.
    used: Slot,
    pub(super) namespaces: HashMap<String, Postings>,
    /// Index tables by number. `None` if the index was removed.
    pub(super) tables: Vec<Option<Box<dyn Table>>>,
    /// Whether the tables may contain empty slots.
    pub(super) has_empty_slots: bool,
    pub(super) revision: u64,
}

impl<P> Default for State<P> {
    fn default() -> Self {
        Self {
            visible: VisibleObjects::default(),
            slots: HashTable::new(),
            free: Vec::new(),
            used: 0,
            namespaces: HashMap::new(),
            tables: Vec::new(),
            has_empty_slots: false,
            revision: 0,
        }
    }
}

/// Spreads a hash to 64 bits, because `HashTable` uses both ends.
pub(super) fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl<P> State<P> {
    /// Creates an empty state with these empty tables.
    pub(super) fn empty(tables: Vec<Option<Box<dyn Table>>>, revision: u64) -> Self {
        Self {
            tables,
            revision,
            ..Self::default()
        }
    }

    /// Returns how many objects fit before the table of slots grows.
    pub(super) fn spare_capacity(&self) -> usize {
        self.slots.capacity() - self.slots.len()
    }

    /// Returns a snapshot of all objects, or of those in these slots.
    pub(super) fn snapshot(&self, some: Option<Postings>) -> Snapshot<P> {
        Snapshot::new(self.visible.spine.clone(), self.visible.len, some)
    }

    pub(super) fn find(&self, hash: u32, key: &ObjectKey) -> Option<Slot> {
        let is = |slot: &Slot| {
            self.visible
                .at(*slot)
                .is_some_and(|entry| entry.is(hash, key))
        };
        self.slots.find(spread(hash), is).copied()
    }

    pub(super) fn get(&self, hash: u32, key: &ObjectKey) -> Option<&Entry<P>> {
        self.find(hash, key).and_then(|slot| self.visible.at(slot))
    }

    /// Returns a copy of the table of slots with room for `more` objects.
    ///
    /// The tables must not contain empty slots.
    pub(super) fn grown(&self, more: usize) -> HashTable<Slot> {
        let mut grown = HashTable::with_capacity(2 * self.slots.len() + more);
        // In the order of slots, which is that of the entries in memory.
        for (slot, entry) in self.snapshot(None).slots() {
            grown.insert_unique(spread(entry.hash), slot, |slot| {
                self.visible.rehashed(*slot)
            });
        }
        grown
    }

    /// Replaces the table of slots, and returns the old one.
    pub(super) fn grow(&mut self, grown: HashTable<Slot>) -> HashTable<Slot> {
        mem::replace(&mut self.slots, grown)
    }

    /// Returns a copy with all objects in the first slots, if most slots are free.
    ///
    /// The chunks of an earlier large list take memory, and are scanned by lists of all objects.
    /// The tables must not contain empty slots.
    pub(super) fn compacted(&self) -> Option<Self> {
        let (used, len) = (self.used as usize, self.visible.len);
        if used <= MIN_COMPACTED_CHUNKS * CHUNK || len >= used / 4 {
            return None;
        }
        let mut compacted = Self {
            slots: HashTable::with_capacity(len),
            ..Self::default()
        };
        let mut from = Vec::with_capacity(len);
        for (slot, entry) in self.snapshot(None).slots() {
            compacted.insert(entry.hash, entry.clone());
            from.push(slot);
        }
        let moved = |table: &Option<Box<dyn Table>>| Some(table.as_ref()?.moved(&from));
        compacted.tables = self.tables.iter().map(moved).collect();
        Some(compacted)
    }

    /// Adds an object whose key is new. There must be room.
    pub(super) fn insert(&mut self, hash: u32, entry: Entry<P>) -> Slot {
        let slot = self.add_slot(hash, &entry.key);
        self.visible.put(slot, Some(Entry { hash, ..entry }));
        slot
    }

    pub(super) fn take(&mut self, hash: u32, slot: Slot) -> Option<Entry<P>> {
        let entry = self.visible.put(slot, None)?;
        self.remove_slot(slot, hash, &entry.key);
        Some(entry)
    }

    /// Adds an empty slot for a key to the tables. There must be room.
    pub(super) fn add_slot(&mut self, hash: u32, key: &ObjectKey) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.used;
            self.used = slot
                .checked_add(1)
                .expect("fewer than four thousand million objects");
            slot
        });
        self.namespaces
            .entry_ref(key.namespace().unwrap_or_default())
            .or_default()
            .insert(slot);
        let visible = &self.visible;
        self.slots
            .insert_unique(spread(hash), slot, |slot| visible.rehashed(*slot));
        slot
    }

    /// Removes an empty slot from the tables.
    pub(super) fn remove_slot(&mut self, slot: Slot, hash: u32, key: &ObjectKey) {
        if let Ok(found) = self.slots.find_entry(spread(hash), |other| *other == slot) {
            found.remove();
        }
        self.free.push(slot);
        if let EntryRef::Occupied(mut postings) = self
            .namespaces
            .entry_ref(key.namespace().unwrap_or_default())
        {
            postings.get_mut().remove(slot);
            if postings.get().is_empty() {
                postings.remove();
            }
        }
    }
}

/// Visible objects by slot. A clone shares them.
pub(super) struct VisibleObjects<P> {
    spine: Spine<P>,
    pub(super) len: usize,
    /// Approximate memory of all objects.
    pub(super) bytes: u64,
}

impl<P> VisibleObjects<P> {
    /// Returns the entry in a slot.
    pub(super) fn at(&self, slot: Slot) -> Option<&Entry<P>> {
        at(&self.spine, slot)
    }

    fn rehashed(&self, slot: Slot) -> u64 {
        spread(
            self.at(slot)
                .expect("a table grows before slots are found that show nothing")
                .hash,
        )
    }

    /// Sets the entry of a slot, and returns the previous one.
    ///
    /// Copies what is shared with clones and snapshots.
    pub(super) fn put(&mut self, slot: Slot, entry: Option<Entry<P>>) -> Option<Entry<P>> {
        let (number, offset) = (slot as usize / CHUNK, slot as usize % CHUNK);
        let spine = Arc::make_mut(&mut self.spine);
        while spine.len() <= number {
            spine.push(chunk());
        }
        let bytes =
            |entry: &Option<Entry<P>>| entry.as_ref().map_or(0, |entry| u64::from(entry.bytes));
        let (comes, more) = (usize::from(entry.is_some()), bytes(&entry));
        let old = mem::replace(&mut Arc::make_mut(&mut spine[number])[offset], entry);
        self.len = self.len + comes - usize::from(old.is_some());
        self.bytes = self.bytes + more - bytes(&old);
        old
    }
}

/// Returns the entry in a slot, which may be beyond the chunks.
pub(super) fn at<P>(spine: &[Chunk<P>], slot: Slot) -> Option<&Entry<P>> {
    let slot = slot as usize;
    spine.get(slot / CHUNK)?[slot % CHUNK].as_ref()
}

impl<P> Clone for VisibleObjects<P> {
    fn clone(&self) -> Self {
        Self {
            spine: self.spine.clone(),
            ..*self
        }
    }
}

impl<P> Default for VisibleObjects<P> {
    fn default() -> Self {
        Self {
            spine: Spine::default(),
            len: 0,
            bytes: 0,
        }
    }
}
