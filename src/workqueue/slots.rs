//! One slot per key, holding all that the queue knows of it, and the table that finds a key's slot.
//!
//! Invariant: a key has a slot exactly while it waits, runs, is parked or has failed attempts to remember; the table finds
//! every slot in use, and what else it names is left over, see [`Table`].
//!
//! Slots live in chunks, so that growing to a million keys copies none of them. Room once taken is kept
//! for the next burst until the queue is closed or dropped; keys themselves are dropped as soon as they are done. A key that comes back gets the
//! slot it had, if that is free and no other has taken its entry of the table: that says so already, and the two places to look at are one.

use super::{
    list::{Links, Nodes},
    reasons::ReasonIds,
    table::{KeyHash, Seen, Table},
    used::Used,
};
use std::ops::{Index, IndexMut};

/// Whether a worker has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    No,
    Yes,
    /// Yes, and it was unparked since: parking it now does not last.
    Unparked,
}

/// What a key waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Nothing: it runs, or is only remembered for its attempts.
    Nothing,
    /// A worker; or, while it runs, the end of that run.
    Worker,
    /// The time `ready_at`.
    Time,
    /// To be unparked, or the time `ready_at`, whichever comes first.
    Unpark,
}

pub(super) struct Slot<K> {
    /// `None` only in slots that are not in use.
    pub(super) key: Option<K>,
    /// When the key was first added since it was last handed out.
    pub(super) added_at: u64,
    /// When it became ready, or will.
    pub(super) ready_at: u64,
    /// When the last backoff ends: a run that was ready before is not the retry that was waited for.
    pub(super) backoff_until: u64,
    links: Links,
    pub(super) hash: KeyHash,
    pub(super) priority: i32,
    /// Rate-limited requeues since the last success.
    pub(super) attempts: u32,
    /// Ready: its turn, see [`Ready`](super::ready::Ready). Running: the number of its run.
    pub(super) place: u32,
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
        place: 0,
        reasons: ReasonIds::EMPTY,
        pending: Pending::Nothing,
        running: Running::No,
    };

    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.running != Running::No
    }

    /// What it, in use, is to a search for this key that has met its number under what may be this hash.
    #[inline]
    fn seen(&self, hash: KeyHash, key: &K) -> Seen
    where
        K: Eq,
    {
        if self.hash == hash && self.key.as_ref() == Some(key) { Seen::It } else { Seen::Other(self.hash) }
    }

    /// Nothing is left to remember.
    fn is_idle(&self) -> bool {
        self.pending == Pending::Nothing && !self.is_running() && self.attempts == 0
    }
}

const CHUNK: usize = 256;

/// How many keys a queue holds. For more of them the table would have more than 2^31 places, and entries no room for the hash.
const MOST: usize = 3 << 28;

pub(super) struct Slots<K> {
    chunks: Chunks<K>,
    table: Table,
    /// Those that have a key.
    used: Used,
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
        Self { chunks: Chunks(Vec::new()), table: Table::new(), used: Used::new() }
    }

    pub(super) fn find(&self, hash: KeyHash, key: &K) -> Option<u32> {
        let Self { chunks, table, used } = self;
        table.find(hash, |slot| seen(chunks, used, slot, (hash, key))).ok()
    }

    /// The slot of the key that is given. If it has none, one is made, and the key is taken to stay there.
    ///
    /// # Panics
    /// Without a key.
    #[inline(always)]
    pub(super) fn find_or_insert(&mut self, hash: KeyHash, key: &mut Option<K>) -> u32 {
        let Self { chunks, table, used } = self;
        let wanted = key.as_ref().expect("a key is given");
        match table.find(hash, |slot| seen(chunks, used, slot, (hash, wanted))) {
            Ok(slot) => slot,
            Err(place) => {
                let slot = match table.left_over(place) {
                    Some(before) if !used.has(before) => before,
                    _ => self.insert(place, hash),
                };
                self.used.insert(slot);
                let new = &mut self.chunks[slot];
                (new.key, new.hash) = (key.take(), hash);
                slot
            }
        }
    }

    /// A free slot, which the table names from now on.
    fn insert(&mut self, place: usize, hash: KeyHash) -> u32 {
        let slot = self.used.first_free().unwrap_or_else(|| {
            let first = self.chunks.grow();
            self.used.grow(CHUNK);
            first
        });
        if !self.table.insert(place, hash, slot) {
            self.make_room(hash, slot);
        }
        slot
    }

    /// Make the table anew, and add what it has no room for.
    #[cold]
    fn make_room(&mut self, hash: KeyHash, slot: u32) {
        let Self { chunks, table, used } = self;
        table.rebuild(used.count(), used.iter().map(|slot| (chunks[slot].hash, slot)));
        let added = table.find(hash, |_| Seen::Other(hash)).is_err_and(|place| table.insert(place, hash, slot));
        assert!(added, "there is room in a table made anew");
    }

    /// Give up the slot if nothing is left to remember: true if so. The key is put into `done`, to be dropped without the lock.
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

    /// Change every slot in use, and give up those that become idle.
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

    /// How many slots there are, in use or not: the range that [`Self::used`] takes.
    pub(super) fn capacity(&self) -> u32 {
        (self.chunks.0.len() * CHUNK) as u32
    }

    /// The slots in use among those numbered `range`.
    pub(super) fn used(&self, range: std::ops::Range<u32>) -> impl Iterator<Item = (u32, &K, &Slot<K>)> {
        range.filter_map(|at| {
            let slot = &self.chunks[at];
            slot.key.as_ref().map(|key| (at, key, slot))
        })
    }
}

impl<K> Chunks<K> {
    /// Add a chunk of free slots and return the first of them.
    fn grow(&mut self) -> u32 {
        let first = self.0.len() * CHUNK;
        assert!(first < MOST, "a queue holds at most {MOST} keys");
        let chunk: Box<[Slot<K>]> = (0..CHUNK).map(|_| Slot::FREE).collect();
        self.0.extend(<Box<[Slot<K>; CHUNK]>>::try_from(chunk).ok());
        first as u32
    }
}

/// What a slot that the table names is to a search for a key. One that is free is not looked at: it is far away.
#[inline]
fn seen<K: Eq>(chunks: &Chunks<K>, used: &Used, slot: u32, (hash, key): (KeyHash, &K)) -> Seen {
    if used.has(slot) { chunks[slot].seen(hash, key) } else { Seen::Free }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Give a key up, as if it were done.
    fn free(slots: &mut Slots<u32>, at: u32) {
        let mut done = None;
        assert!(slots.free_if_idle(at, &mut done) && done.is_some());
    }

    steersman_testkit::properties! {
        /// Few hashes, so that keys meet each other's left-over entries.
        #[test]
        fn every_key_has_a_slot_of_its_own_and_is_found_there(
            steps in prop::collection::vec((any::<bool>(), 0..600u32), 0..1500), hashes in 1..300u64
        ) {
            let hash = |key: u32| KeyHash::fold((u64::from(key) % hashes).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let (mut slots, mut model) = (Slots::new(), HashMap::new());
            for (add, key) in steps {
                prop_assert_eq!(slots.find(hash(key), &key), model.get(&key).copied());
                if add {
                    let at = slots.find_or_insert(hash(key), &mut Some(key));
                    prop_assert_eq!(slots[at].key, Some(key));
                    prop_assert!(model.iter().all(|(other, place)| *place != at || *other == key), "it was free");
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
    fn a_key_that_comes_back_gets_the_slot_it_had_if_that_is_free() {
        let mut slots = Slots::new();
        let add =
            |slots: &mut Slots<u32>, key: u32| slots.find_or_insert(KeyHash::fold(u64::from(key) << 7), &mut Some(key));
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
