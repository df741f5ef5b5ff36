//! From a key's hash to its slot: an open table of slots, probed one by one from where the hash belongs.
//!
//! Invariant: between an entry and its home, the place its hash names, there is no vacant place; so a search may end at the
//! first one. Every slot in use has an entry. What is *left over* is an entry whose slot was given up since, or has
//! another key: giving up a slot does not touch the table, which for many keys would be one more access that misses the caches. A key that
//! comes back takes the entry it left; the others go when the table is full, which is then [made anew](Table::rebuild).
//!
//! The number of a slot is less than that of the places, so that it fits into an entry: slots in use have an entry each, at most three quarters of the places
//! are taken, there are never fewer places than before, and a new key gets the free slot with the lowest number.
//!
//! Searching and adding touch one line of the cache, two at the edge of one. To have as much as possible of the table in the caches, an entry is four
//! bytes: the number of the slot, and what there is room for of the hash. The whole hash is in the slot, which has to be looked at anyway if those bits are
//! the right ones.

/// Half of a key's hash: enough for a table of at most 2^31 places, and cheap to keep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyHash(u32);

impl KeyHash {
    pub(super) const ZERO: Self = Self(0);

    /// Homes are taken from the high bits. The hasher leaves less in them than in all of its bits together; so those are mixed.
    pub(super) fn fold(hash: u64) -> Self {
        Self(((hash ^ (hash >> 32)) as u32).wrapping_mul(0x9E37_79B1))
    }
}

/// What a slot is to a search that has met an entry which may be that of what it looks for.
pub(super) enum Seen {
    /// What is looked for.
    It,
    /// In use for another key, with this hash.
    Other(KeyHash),
    /// Not in use.
    Free,
}

/// A place without an entry. No slot has a number of nothing but ones.
const VACANT: u32 = u32::MAX;

/// Large enough that a queue of few keys, which come and go, does not make it anew all the time.
const SMALLEST: usize = 64;

#[repr(align(64))]
pub(super) struct Table {
    /// The low bits of a hash, then the number of its slot. A power of two of them, or none; at most three quarters are taken.
    entries: Vec<u32>,
    /// How many more may be added before it is made anew.
    room: usize,
    /// A hash without this many of its low bits is its home.
    shift: u32,
    /// Those of an entry that are the slot's.
    bits: u32,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), room: 0, shift: 0, bits: 0 }
    }

    /// The slot under `hash` that is looked for; or the place where it is to be [inserted](Self::insert).
    #[inline(always)]
    pub(super) fn find(&self, hash: KeyHash, mut look: impl FnMut(u32) -> Seen) -> Result<u32, usize> {
        let tag = self.entry(hash, 0);
        let mut at = self.home(hash);
        let mut left_over = None;
        // There is nothing to get only in a table without any place.
        while let Some(&entry) = self.entries.get(at).filter(|entry| **entry != VACANT) {
            let slot = entry ^ tag;
            if slot >> self.bits == 0 {
                match look(slot) {
                    Seen::It => return Ok(slot),
                    // It may be its entry.
                    Seen::Other(other) if self.entry(other, 0) == tag => {}
                    Seen::Other(_) | Seen::Free => left_over = left_over.or(Some(at)),
                }
            }
            at = self.after(at);
        }
        Err(left_over.unwrap_or(at))
    }

    /// The slot that the entry at this place, where [`Self::find`] missed what it looked for, was left over from.
    #[inline]
    pub(super) fn left_over(&self, at: usize) -> Option<u32> {
        self.entries.get(at).filter(|entry| **entry != VACANT).map(|entry| entry & !(u32::MAX << self.bits))
    }

    /// Add an entry that is not there, at the place where [`Self::find`] missed it. False if there is no room: then it has to be [made
    /// anew](Self::rebuild) first, and searched again.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, hash: KeyHash, slot: u32) -> bool {
        let Some(&old) = self.entries.get(at) else { return false };
        if old == VACANT {
            if self.room == 0 {
                return false;
            }
            self.room -= 1;
        }
        self.entries[at] = self.entry(hash, slot);
        true
    }

    /// Make it anew for the slots in use, of which there are `used`: at most half full, so that it lasts for a while.
    #[cold]
    pub(super) fn rebuild(&mut self, used: usize, slots: impl Iterator<Item = (KeyHash, u32)>) {
        let mut places = self.entries.len().max(SMALLEST);
        while used > limit(places) / 2 {
            places *= 2;
        }
        self.entries.clear();
        self.entries.resize(places, VACANT);
        self.shift = u32::BITS - places.ilog2();
        self.bits = places.ilog2();
        self.room = limit(places);
        for (hash, slot) in slots {
            let at = self.vacant(hash);
            self.entries[at] = self.entry(hash, slot);
            self.room -= 1;
        }
    }

    fn vacant(&self, hash: KeyHash) -> usize {
        let mut at = self.home(hash);
        while self.entries[at] != VACANT {
            at = self.after(at);
        }
        at
    }

    #[inline]
    fn entry(&self, hash: KeyHash, slot: u32) -> u32 {
        debug_assert!(slot >> self.bits == 0, "a slot's number fits");
        (hash.0 << self.bits) | slot
    }

    #[inline]
    fn home(&self, hash: KeyHash) -> usize {
        (hash.0 >> self.shift) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }
}

/// How many of so many places are taken at most.
fn limit(places: usize) -> usize {
    places / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::DefaultHashBuilder;
    use proptest::prelude::*;
    use std::{collections::HashMap, hash::BuildHasher};

    impl Table {
        fn len(&self) -> usize {
            self.entries.iter().filter(|entry| **entry != VACANT).count()
        }

        /// How many places a search for what is there looks at, on average.
        fn probes(&self, hashes: &[KeyHash]) -> f64 {
            let taken = (0..self.entries.len()).filter_map(|at| self.left_over(at).map(|slot| (at, slot)));
            let distance = |from: usize, to: usize| to.wrapping_sub(from) & (self.entries.len() - 1);
            let probes: usize = taken.map(|(at, slot)| distance(self.home(hashes[slot as usize]), at) + 1).sum();
            probes as f64 / self.len() as f64
        }
    }

    /// Slots that are used again as soon as they can be: the last one given up first.
    #[derive(Default)]
    struct Slots {
        keys: Vec<Option<u32>>,
        free: Vec<u32>,
    }

    steersman_testkit::properties! {
        /// Hashes at the very end wrap round; few different ones make long searches.
        #[test]
        fn a_table_behaves_like_a_map(
            steps in prop::collection::vec((any::<bool>(), 0..60u32), 0..400),
            scatter in prop::sample::select(vec![0, 1, 0x1000_0000, 0x9E37_79B1, u32::MAX]),
        ) {
            let hash = |key: u32| KeyHash(u32::MAX.wrapping_sub((key % 40).wrapping_mul(scatter)));
            let (mut table, mut slots, mut model) = (Table::new(), Slots::default(), HashMap::new());
            let seen = |slots: &Slots, wanted: u32, slot: u32| match slots.keys[slot as usize] {
                Some(key) if key == wanted => Seen::It,
                Some(key) => Seen::Other(hash(key)),
                None => Seen::Free,
            };
            for (add, key) in steps {
                let found = table.find(hash(key), |slot| seen(&slots, key, slot));
                prop_assert_eq!(found.ok(), model.get(&key).copied());
                match found {
                    Err(at) if add => {
                        let slot = slots.free.pop().unwrap_or_else(|| {
                            slots.keys.push(None);
                            slots.keys.len() as u32 - 1
                        });
                        if !table.insert(at, hash(key), slot) {
                            let used = |(key, slot): (&Option<u32>, u32)| key.map(|key| (hash(key), slot));
                            table.rebuild(model.len(), slots.keys.iter().zip(0..).filter_map(used));
                            prop_assert_eq!(table.len(), model.len(), "nothing is left over");
                            let at = table.find(hash(key), |_| Seen::Other(hash(key))).unwrap_err();
                            prop_assert!(table.insert(at, hash(key), slot));
                        }
                        slots.keys[slot as usize] = Some(key);
                        model.insert(key, slot);
                    }
                    Ok(slot) if !add => {
                        slots.keys[slot as usize] = None;
                        slots.free.push(slot);
                        model.remove(&key);
                    }
                    _ => {}
                }
                prop_assert!(table.len() <= limit(table.entries.len()));
            }
            for (&key, &slot) in &model {
                prop_assert_eq!(table.find(hash(key), |slot| seen(&slots, key, slot)), Ok(slot));
            }
        }
    }

    #[test]
    fn a_key_that_comes_and_goes_takes_one_place() {
        let mut table = Table::new();
        table.rebuild(0, std::iter::empty());
        for slot in (0..SMALLEST as u32 - 1).cycle().take(1000) {
            let at = table.find(KeyHash(7), |_| Seen::Free).unwrap_err();
            assert!(table.insert(at, KeyHash(7), slot));
        }
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_table_does_not_grow_with_keys_that_have_gone() {
        let mut table = Table::new();
        for n in 0..100_000u64 {
            let hash = KeyHash::fold(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let at = table.find(hash, |_| Seen::Free).unwrap_err();
            if !table.insert(at, hash, 0) {
                table.rebuild(0, std::iter::empty());
            }
        }
        assert_eq!(table.entries.len(), SMALLEST);
    }

    #[test]
    fn searches_are_short_also_for_keys_that_look_alike() {
        let hasher = DefaultHashBuilder::default();
        let probes = |hash: &dyn Fn(u32) -> u64| {
            let mut table = Table::new();
            // As full as it gets.
            let hashes: Vec<_> = (0..3 << 18).map(|slot| KeyHash::fold(hash(slot))).collect();
            for (&hash, slot) in hashes.iter().zip(0..) {
                let mut at = table.find(hash, |_| Seen::Other(hash)).unwrap_err();
                if !table.insert(at, hash, slot) {
                    table.rebuild(slot as usize, hashes.iter().copied().zip(0..slot));
                    at = table.find(hash, |_| Seen::Other(hash)).unwrap_err();
                    assert!(table.insert(at, hash, slot));
                }
            }
            table.probes(&hashes)
        };
        for probes in [
            probes(&|n| hasher.hash_one(n)),
            probes(&|n| hasher.hash_one(u64::from(n) << 32)),
            probes(&|n| hasher.hash_one((n / 1000, n % 1000))),
            probes(&|n| hasher.hash_one(format!("namespace-{:03}/object-{n:08}", n % 100))),
        ] {
            assert!(probes < 3.5, "{probes}"); // 2.5 if hashes are random.
        }
    }
}
