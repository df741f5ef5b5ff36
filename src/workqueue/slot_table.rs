//! Hash table from keys to slots, with open addressing and linear probing.
//!
//! Invariant: there is no vacant bucket between an entry and its home, the bucket that its hash
//! selects, so a search can stop at the first vacant bucket. Every slot in use has an entry.
//!
//! A *stale* entry is one whose slot was released, or has another key. Releasing a slot does not
//! touch the table, which would be one more cache miss. A key that is added again reuses its stale
//! entry. The others are removed when the table is full and [rebuilt](SlotTable::rebuild).
//!
//! A search or insertion touches one cache line, or two at the boundary. To keep the table small,
//! an entry has four bytes: the number of the slot, and as many bits of the hash as fit. The full
//! hash is in the slot. Slot numbers are less than the number of buckets, so they fit: every slot in
//! use has an entry, at most three quarters of the buckets are taken, the table never shrinks, and a
//! new key gets the free slot with the lowest number.

/// Half of a key's hash, sufficient for a table of at most 2^31 buckets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyHash(u32);

impl KeyHash {
    pub(super) const ZERO: Self = Self(0);

    /// Folds and mixes a 64-bit hash, because homes are taken from the high bits.
    pub(super) fn fold(hash: u64) -> Self {
        Self(((hash ^ (hash >> 32)) as u32).wrapping_mul(0x9E37_79B1))
    }
}

/// Result of comparing a slot with the key of a search.
pub(super) enum Comparison {
    /// The slot has the key.
    Match,
    /// The slot has another key, with this hash.
    Other(KeyHash),
    /// The slot is free.
    Free,
}

/// Bucket without an entry. No slot number has all bits set.
const VACANT: u32 = u32::MAX;

/// Minimum size, so that a queue with few keys does not rebuild the table often.
const MIN_BUCKETS: usize = 64;

#[repr(align(64))]
pub(super) struct SlotTable {
    /// Low bits of the hash, then the slot number. The length is a power of two or 0.
    ///
    /// At most three quarters of the buckets are taken.
    entries: Vec<u32>,
    /// Entries that can be added before a rebuild.
    spare: usize,
    /// Number of low bits to shift out of a hash to get its home.
    shift: u32,
    /// Number of bits of the slot number in an entry.
    bits: u32,
}

impl SlotTable {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            spare: 0,
            shift: 0,
            bits: 0,
        }
    }

    /// Returns the slot of a key, or the bucket at which to [insert](Self::insert) it.
    #[inline(always)]
    pub(super) fn find(
        &self,
        hash: KeyHash,
        mut look: impl FnMut(u32) -> Comparison,
    ) -> Result<u32, usize> {
        let tag = self.entry(hash, 0);
        let mut at = self.home(hash);
        let mut left_over = None;
        // `get` fails only if the table is empty.
        while let Some(&entry) = self.entries.get(at).filter(|entry| **entry != VACANT) {
            let slot = entry ^ tag;
            if slot >> self.bits == 0 {
                match look(slot) {
                    Comparison::Match => return Ok(slot),
                    // The entry may belong to that key.
                    Comparison::Other(other) if self.entry(other, 0) == tag => {}
                    Comparison::Other(_) | Comparison::Free => left_over = left_over.or(Some(at)),
                }
            }
            at = self.after(at);
        }
        Err(left_over.unwrap_or(at))
    }

    /// Returns the slot of a stale entry, at the bucket that [`Self::find`] returned.
    #[inline]
    pub(super) fn stale_slot(&self, at: usize) -> Option<u32> {
        self.entries
            .get(at)
            .filter(|entry| **entry != VACANT)
            .map(|entry| entry & !(u32::MAX << self.bits))
    }

    /// Inserts an entry at the bucket that [`Self::find`] returned.
    ///
    /// Returns false if the table is full: [rebuild](Self::rebuild) it and search again.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, hash: KeyHash, slot: u32) -> bool {
        let Some(&old) = self.entries.get(at) else {
            return false;
        };
        if old == VACANT {
            if self.spare == 0 {
                return false;
            }
            self.spare -= 1;
        }
        self.entries[at] = self.entry(hash, slot);
        true
    }

    /// Rebuilds the table with the slots in use, at most half full.
    #[cold]
    pub(super) fn rebuild(&mut self, used: usize, slots: impl Iterator<Item = (KeyHash, u32)>) {
        let mut buckets = self.entries.len().max(MIN_BUCKETS);
        while used > limit(buckets) / 2 {
            buckets *= 2;
        }
        self.entries.clear();
        self.entries.resize(buckets, VACANT);
        self.shift = u32::BITS - buckets.ilog2();
        self.bits = buckets.ilog2();
        self.spare = limit(buckets);
        for (hash, slot) in slots {
            let at = self.vacant(hash);
            self.entries[at] = self.entry(hash, slot);
            self.spare -= 1;
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

/// Returns the maximum number of entries for a number of buckets.
fn limit(buckets: usize) -> usize {
    buckets / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::DefaultHashBuilder;
    use proptest::prelude::*;
    use std::{collections::HashMap, hash::BuildHasher};

    impl SlotTable {
        fn len(&self) -> usize {
            self.entries
                .iter()
                .filter(|entry| **entry != VACANT)
                .count()
        }

        /// Returns the average number of buckets that a successful search visits.
        fn probes(&self, hashes: &[KeyHash]) -> f64 {
            let taken =
                (0..self.entries.len()).filter_map(|at| self.stale_slot(at).map(|slot| (at, slot)));
            let distance =
                |from: usize, to: usize| to.wrapping_sub(from) & (self.entries.len() - 1);
            let probes: usize = taken
                .map(|(at, slot)| distance(self.home(hashes[slot as usize]), at) + 1)
                .sum();
            probes as f64 / self.len() as f64
        }
    }

    /// Slots that reuse the last one released first.
    #[derive(Default)]
    struct Slots {
        keys: Vec<Option<u32>>,
        free: Vec<u32>,
    }

    steersman_testkit::properties! {
        /// Hashes at the end wrap around, and few different hashes cause long searches.
        #[test]
        fn a_table_behaves_like_a_map(
            steps in prop::collection::vec((any::<bool>(), 0..60u32), 0..400),
            scatter in prop::sample::select(vec![0, 1, 0x1000_0000, 0x9E37_79B1, u32::MAX]),
        ) {
            let hash = |key: u32| KeyHash(u32::MAX.wrapping_sub((key % 40).wrapping_mul(scatter)));
            let (mut table, mut slots, mut model) = (SlotTable::new(), Slots::default(), HashMap::new());
            let seen = |slots: &Slots, wanted: u32, slot: u32| match slots.keys[slot as usize] {
                Some(key) if key == wanted => Comparison::Match,
                Some(key) => Comparison::Other(hash(key)),
                None => Comparison::Free,
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
                            let at = table.find(hash(key), |_| Comparison::Other(hash(key))).unwrap_err();
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
    fn a_key_that_is_re_added_takes_one_bucket() {
        let mut table = SlotTable::new();
        table.rebuild(0, std::iter::empty());
        for slot in (0..MIN_BUCKETS as u32 - 1).cycle().take(1000) {
            let at = table.find(KeyHash(7), |_| Comparison::Free).unwrap_err();
            assert!(table.insert(at, KeyHash(7), slot));
        }
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_table_does_not_grow_with_removed_keys() {
        let mut table = SlotTable::new();
        for n in 0..100_000u64 {
            let hash = KeyHash::fold(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let at = table.find(hash, |_| Comparison::Free).unwrap_err();
            if !table.insert(at, hash, 0) {
                table.rebuild(0, std::iter::empty());
            }
        }
        assert_eq!(table.entries.len(), MIN_BUCKETS);
    }

    #[test]
    fn searches_are_short_for_similar_hashes() {
        let hasher = DefaultHashBuilder::default();
        let probes = |hash: &dyn Fn(u32) -> u64| {
            let mut table = SlotTable::new();
            // Fill the table to its limit.
            let hashes: Vec<_> = (0..3 << 18).map(|slot| KeyHash::fold(hash(slot))).collect();
            for (&hash, slot) in hashes.iter().zip(0..) {
                let mut at = table.find(hash, |_| Comparison::Other(hash)).unwrap_err();
                if !table.insert(at, hash, slot) {
                    table.rebuild(slot as usize, hashes.iter().copied().zip(0..slot));
                    at = table.find(hash, |_| Comparison::Other(hash)).unwrap_err();
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
            assert!(probes < 3.5, "{probes}"); // 2.5 for random hashes.
        }
    }
}
