//! From a key's hash to its slot: an open table of (hash, slot), probed one by one from where the hash belongs.
//!
//! Invariant: between an entry and its home, the place its hash names, there is no vacant place; so a search may end at the
//! first one. Removing an entry moves later ones back instead of leaving a mark: what was once full does not slow down.
//!
//! Searching, adding and removing touch one line of the cache, two at the edge of one. Growing reads and writes from front to
//! back, because homes are in the order of the hashes, and looks at no key.

use super::list::NIL;

/// Half of a key's hash: enough for a table of at most 2^32 keys, and cheap to keep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyHash(u32);

impl KeyHash {
    pub(super) const ZERO: Self = Self(0);

    /// Homes are taken from the high bits. The hasher leaves less in them than in all of its bits together; so those are mixed.
    pub(super) fn fold(hash: u64) -> Self {
        Self(((hash ^ (hash >> 32)) as u32).wrapping_mul(0x9E37_79B1))
    }
}

#[derive(Clone, Copy)]
struct Entry {
    hash: KeyHash,
    /// [`NIL`] in a vacant place.
    slot: u32,
}

impl Entry {
    const VACANT: Self = Self { hash: KeyHash::ZERO, slot: NIL };
}

const SMALLEST: usize = 16;

pub(super) struct Table {
    /// A power of two of them, or none; at most three quarters are taken.
    entries: Vec<Entry>,
    /// How many more may be added before it grows.
    room: usize,
    /// A hash without this many of its low bits is its home.
    shift: u32,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), room: 0, shift: 0 }
    }

    /// The slot under `hash` that `is_it`; or the place where it is to be [inserted](Self::insert).
    #[inline]
    pub(super) fn find(&self, hash: KeyHash, mut is_it: impl FnMut(u32) -> bool) -> Result<u32, usize> {
        let mut at = self.home(hash);
        // There is nothing to get only in a table without any place.
        while let Some(entry) = self.entries.get(at).filter(|entry| entry.slot != NIL) {
            if entry.hash == hash && is_it(entry.slot) {
                return Ok(entry.slot);
            }
            at = self.after(at);
        }
        Err(at)
    }

    /// Add an entry that is not there, at the place where [`Self::find`] missed it.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, hash: KeyHash, slot: u32) {
        let at = if self.room == 0 { self.grow(hash) } else { at };
        self.room -= 1;
        self.entries[at] = Entry { hash, slot };
    }

    #[inline]
    pub(super) fn remove(&mut self, hash: KeyHash, slot: u32) {
        let mut at = self.home(hash);
        while self.entries[at].slot != slot {
            at = self.after(at);
        }
        // Whoever may be nearer to home moves into the gap, and leaves one.
        let mut next = self.after(at);
        while self.entries[next].slot != NIL {
            let entry = self.entries[next];
            if self.distance(self.home(entry.hash), next) >= self.distance(at, next) {
                self.entries[at] = entry;
                at = next;
            }
            next = self.after(next);
        }
        self.entries[at] = Entry::VACANT;
        self.room += 1;
    }

    /// Make room, and find the place for `hash`.
    #[cold]
    fn grow(&mut self, hash: KeyHash) -> usize {
        let places = (self.entries.len() * 2).max(SMALLEST);
        let entries = std::mem::replace(&mut self.entries, vec![Entry::VACANT; places]);
        self.shift = u32::BITS - places.ilog2();
        self.room = places / 4 * 3;
        for entry in entries.into_iter().filter(|entry| entry.slot != NIL) {
            let at = self.vacant(entry.hash);
            self.entries[at] = entry;
            self.room -= 1;
        }
        self.vacant(hash)
    }

    fn vacant(&self, hash: KeyHash) -> usize {
        let mut at = self.home(hash);
        while self.entries[at].slot != NIL {
            at = self.after(at);
        }
        at
    }

    #[inline]
    fn home(&self, hash: KeyHash) -> usize {
        (hash.0 >> self.shift) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    /// From `from` forwards to `to`.
    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.entries.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::DefaultHashBuilder;
    use proptest::prelude::*;
    use std::{collections::HashMap, hash::BuildHasher};

    impl Table {
        fn len(&self) -> usize {
            self.entries.iter().filter(|entry| entry.slot != NIL).count()
        }

        /// How many places a search for what is there looks at, on average.
        fn probes(&self) -> f64 {
            let taken = self.entries.iter().enumerate().filter(|(_, entry)| entry.slot != NIL);
            let probes: usize = taken.map(|(at, entry)| self.distance(self.home(entry.hash), at) + 1).sum();
            probes as f64 / self.len() as f64
        }
    }

    proptest! {
        /// Hashes at the very end wrap round; few different ones make long searches.
        #[test]
        fn a_table_behaves_like_a_map(
            steps in prop::collection::vec((any::<bool>(), 0..60u32), 0..400),
            scatter in prop::sample::select(vec![0, 1, 0x1000_0000, 0x9E37_79B1, u32::MAX]),
        ) {
            let hash = |key: u32| KeyHash(u32::MAX.wrapping_sub((key % 40).wrapping_mul(scatter)));
            let (mut table, mut model) = (Table::new(), HashMap::new());
            for (n, (add, key)) in (0..).zip(steps) {
                let slot = |slot: u32| model.get(&key) == Some(&slot);
                let found = table.find(hash(key), slot);
                prop_assert_eq!(found.ok(), model.get(&key).copied());
                match found {
                    Err(at) if add => {
                        table.insert(at, hash(key), n);
                        model.insert(key, n);
                    }
                    Ok(slot) if !add => {
                        table.remove(hash(key), slot);
                        model.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for (&key, &slot) in &model {
                prop_assert_eq!(table.find(hash(key), |other| other == slot), Ok(slot));
            }
        }
    }

    #[test]
    fn searches_are_short_also_for_keys_that_look_alike() {
        let hasher = DefaultHashBuilder::default();
        let probes = |hash: &dyn Fn(u32) -> u64| {
            let mut table = Table::new();
            // As full as it gets.
            for slot in 0..3 << 18 {
                let hash = KeyHash::fold(hash(slot));
                let at = table.find(hash, |_| false).unwrap_err();
                table.insert(at, hash, slot);
            }
            table.probes()
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
