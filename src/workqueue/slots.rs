//! Slots: one per key, with its whole state, and the table that finds them.
//!
//! Invariant: a key has a slot exactly while it is queued, delayed, parked, held by a worker, or
//! has failed attempts. The table finds every slot in use. Its other entries are stale, see
//! [`SlotTable`].
//!
//! Slots are allocated in chunks, so that growing copies none of them. Chunks are kept until the
//! queue is closed or dropped, but keys are dropped as soon as they are done. A key that is added
//! again reuses its slot if that is free and its stale entry still exists.

use super::{
    linked_list::{Links, Nodes},
    reasons::ReasonIds,
    slot_bitmap::SlotBitmap,
    slot_table::{Comparison, KeyHash, SlotTable},
};
use std::ops::{Index, IndexMut};

/// Whether a worker has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    No,
    Yes,
    /// A worker has the key, and it was unparked since, so that parking has no effect.
    Unparked,
}

/// Condition that a key waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Nothing: a worker has it, or only its attempts are kept.
    Nothing,
    /// A worker, or the end of the current run.
    Worker,
    /// The time `ready_at`.
    Time,
    /// A call of `unpark`, or the time `ready_at`.
    Unpark,
}

pub(super) struct Slot<K> {
    /// `None` only in free slots.
    pub(super) key: Option<K>,
    /// Time of the first add since the key was last handed out.
    pub(super) added_at: u64,
    /// Time at which the key became or becomes ready.
    pub(super) ready_at: u64,
    /// End of the last backoff. A run that starts earlier does not count as the retry.
    pub(super) backoff_until: u64,
    links: Links,
    pub(super) hash: KeyHash,
    pub(super) priority: i32,
    /// Rate-limited requeues since the last success.
    pub(super) attempts: u32,
    /// Position in [`Ready`](super::ready::Ready), or the run if a worker has the key.
    pub(super) position: u32,
    pub(super) reasons: ReasonIds,
    pub(super) pending: Pending,
    pub(super) running: Running,
}

impl<K> Slot<K> {
    const FREE: Self = Self {
        key: None,
        added_at: 0,
        ready_at: 0,
        backoff_until: 0,
        links: Links::UNLINKED,
        hash: KeyHash::ZERO,
        priority: 0,
        attempts: 0,
        position: 0,
        reasons: ReasonIds::EMPTY,
        pending: Pending::Nothing,
        running: Running::No,
    };

    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.running != Running::No
    }

    /// Compares a slot in use with the key of a search.
    #[inline]
    fn compare(&self, hash: KeyHash, key: &K) -> Comparison
    where
        K: Eq,
    {
        if self.hash == hash && self.key.as_ref() == Some(key) {
            Comparison::Match
        } else {
            Comparison::Other(self.hash)
        }
    }

    /// Returns whether the slot can be released.
    fn is_idle(&self) -> bool {
        self.pending == Pending::Nothing && !self.is_running() && self.attempts == 0
    }
}

const CHUNK: usize = 256;

/// Maximum number of keys. The table would need more than 2^31 buckets for more.
const MAX_KEYS: usize = 3 << 28;

pub(super) struct Slots<K> {
    chunks: Chunks<K>,
    table: SlotTable,
    /// Slots that have a key.
    used: SlotBitmap,
}

struct Chunks<K>(Vec<Box<[Slot<K>; CHUNK]>>);

impl<K> Index<u32> for Chunks<K> {
    type Output = Slot<K>;
    #[inline]
    fn index(&self, slot: u32) -> &Slot<K> {
        &self.0[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

impl<K> IndexMut<u32> for Chunks<K> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Slot<K> {
        &mut self.0[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

impl<K> Index<u32> for Slots<K> {
    type Output = Slot<K>;
    #[inline]
    fn index(&self, slot: u32) -> &Slot<K> {
        &self.chunks[slot]
    }
}

impl<K> IndexMut<u32> for Slots<K> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Slot<K> {
        &mut self.chunks[slot]
    }
}

impl<K> Nodes for Slots<K> {
    #[inline]
    fn links(&mut self, node: u32) -> &mut Links {
        &mut self.chunks[node].links
    }
}

impl<K: Eq> Slots<K> {
    pub(super) const fn new() -> Self {
        Self {
            chunks: Chunks(Vec::new()),
            table: SlotTable::new(),
            used: SlotBitmap::new(),
        }
    }

    pub(super) fn find(&self, hash: KeyHash, key: &K) -> Option<u32> {
        let Self {
            chunks,
            table,
            used,
        } = self;
        table
            .find(hash, |slot| compare(chunks, used, slot, (hash, key)))
            .ok()
    }

    /// Returns the slot of a key, or moves the key into a new one.
    ///
    /// # Panics
    /// Without a key.
    #[inline(always)]
    pub(super) fn find_or_insert(&mut self, hash: KeyHash, key: &mut Option<K>) -> u32 {
        let Self {
            chunks,
            table,
            used,
        } = self;
        let wanted = key.as_ref().expect("a key is given");
        match table.find(hash, |slot| compare(chunks, used, slot, (hash, wanted))) {
            Ok(slot) => slot,
            Err(position) => {
                let slot = match table.stale_slot(position) {
                    Some(before) if !used.has(before) => before,
                    _ => self.insert(position, hash),
                };
                self.used.insert(slot);
                let new = &mut self.chunks[slot];
                (new.key, new.hash) = (key.take(), hash);
                slot
            }
        }
    }

    /// Allocates a free slot and inserts it into the table.
    fn insert(&mut self, position: usize, hash: KeyHash) -> u32 {
        let slot = self.used.first_free().unwrap_or_else(|| {
            let first = self.chunks.grow();
            self.used.grow(CHUNK);
            first
        });
        if !self.table.insert(position, hash, slot) {
            self.rebuild_table(hash, slot);
        }
        slot
    }

    /// Rebuilds the table and inserts an entry.
    #[cold]
    fn rebuild_table(&mut self, hash: KeyHash, slot: u32) {
        let Self {
            chunks,
            table,
            used,
        } = self;
        table.rebuild(
            used.count(),
            used.iter().map(|slot| (chunks[slot].hash, slot)),
        );
        let added = table
            .find(hash, |_| Comparison::Other(hash))
            .is_err_and(|position| table.insert(position, hash, slot));
        assert!(added, "a rebuilt table has room");
    }

    /// Releases the slot if it is idle, and returns whether it was.
    ///
    /// Moves the key to `done`, to be dropped without the lock.
    #[inline(always)]
    pub(super) fn free_if_idle(&mut self, at: u32, done: &mut Option<K>) -> bool {
        let slot = &mut self.chunks[at];
        let idle = slot.is_idle();
        if idle {
            *done = slot.key.take();
            slot.backoff_until = 0;
            self.used.remove(at);
        }
        idle
    }

    /// Changes every slot in use, and returns the keys of those that become idle.
    pub(super) fn sweep(&mut self, mut change: impl FnMut(&mut Slot<K>)) -> Vec<K> {
        let mut keys = Vec::new();
        for slot in 0..self.capacity() {
            if self.chunks[slot].key.is_some() {
                change(&mut self.chunks[slot]);
                let mut done = None;
                self.free_if_idle(slot, &mut done);
                keys.extend(done);
            }
        }
        keys
    }

    /// Returns the number of slots, in use or not.
    pub(super) fn capacity(&self) -> u32 {
        (self.chunks.0.len() * CHUNK) as u32
    }

    /// Returns the slots in use in a range.
    pub(super) fn used(
        &self,
        range: std::ops::Range<u32>,
    ) -> impl Iterator<Item = (u32, &K, &Slot<K>)> {
        range.filter_map(|at| {
            let slot = &self.chunks[at];
            slot.key.as_ref().map(|key| (at, key, slot))
        })
    }
}

impl<K> Chunks<K> {
    /// Adds a chunk of free slots and returns the first of them.
    fn grow(&mut self) -> u32 {
        let first = self.0.len() * CHUNK;
        assert!(first < MAX_KEYS, "a queue holds at most {MAX_KEYS} keys");
        let chunk: Box<[Slot<K>]> = (0..CHUNK).map(|_| Slot::FREE).collect();
        self.0.extend(<Box<[Slot<K>; CHUNK]>>::try_from(chunk).ok());
        first as u32
    }
}

/// Compares a slot with the key of a search. Does not read free slots, a cache miss.
#[inline]
fn compare<K: Eq>(
    chunks: &Chunks<K>,
    used: &SlotBitmap,
    slot: u32,
    (hash, key): (KeyHash, &K),
) -> Comparison {
    if used.has(slot) {
        chunks[slot].compare(hash, key)
    } else {
        Comparison::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Releases a key as if it were done.
    fn free(slots: &mut Slots<u32>, at: u32) {
        let mut done = None;
        assert!(slots.free_if_idle(at, &mut done) && done.is_some());
    }

    steersman_testkit::properties! {
        /// Few hashes, so that keys meet stale entries of other keys.
        #[test]
        fn every_key_has_its_own_slot(
            steps in prop::collection::vec((any::<bool>(), 0..600u32), 0..1500), hashes in 1..300u64
        ) {
            let hash = |key: u32| KeyHash::fold((u64::from(key) % hashes).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let (mut slots, mut model) = (Slots::new(), HashMap::new());
            for (add, key) in steps {
                prop_assert_eq!(slots.find(hash(key), &key), model.get(&key).copied());
                if add {
                    let at = slots.find_or_insert(hash(key), &mut Some(key));
                    prop_assert_eq!(slots[at].key, Some(key));
                    prop_assert!(model.iter().all(|(other, position)| *position != at || *other == key), "it was free");
                    model.insert(key, at);
                } else if let Some(at) = model.remove(&key) {
                    free(&mut slots, at);
                }
            }
            for (key, at) in &model {
                prop_assert_eq!(slots.find(hash(*key), key), Some(*at));
            }
            prop_assert_eq!(slots.used(0..slots.capacity()).count(), model.len());
        }
    }

    #[test]
    fn a_re_added_key_reuses_its_slot_if_free() {
        let mut slots = Slots::new();
        let add = |slots: &mut Slots<u32>, key: u32| {
            slots.find_or_insert(KeyHash::fold(u64::from(key) << 7), &mut Some(key))
        };
        let had: Vec<u32> = (0..1000).map(|key| add(&mut slots, key)).collect();
        for at in &had {
            free(&mut slots, *at);
        }
        let again: Vec<u32> = (0..1000).rev().map(|key| add(&mut slots, key)).collect();
        assert!(again.iter().rev().eq(&had));
        free(&mut slots, had[3]);
        assert_eq!(add(&mut slots, 5000), had[3], "the first that is free");
        assert_ne!(add(&mut slots, 3), had[3]);
    }
}
