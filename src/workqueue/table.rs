//! From a key's hash to its slot: an open table of (hash, slot), probed one by one from where the hash belongs.
//!
//! Invariant: between an entry and its home, the place its hash names, there is no vacant place; so a search may end at the
//! first one. Every slot in use has an entry. What is *left over* is an entry whose slot was given up since, or has
//! another key: giving up a slot does not touch the table, which for many keys would be one more access that misses the caches. A key that
//! comes back takes the entry it left; the others go when the table is full, which is then [made anew](Table::rebuild).
//!
//! Searching and adding touch one line of the cache, two at the edge of one. Growing, with nothing left over, reads and writes from front to
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

/// What a slot is to a search that has met an entry with the hash it looks for.
pub(super) enum Seen {
    /// What is looked for.
    It,
    /// Another key's.
    Other,
    /// Not in use, or in use for a key with another hash: the entry is left over.
    LeftOver,
}

/// Large enough that a queue of few keys, which come and go, does not make it anew all the time.
const SMALLEST: usize = 64;

#[repr(align(64))]
pub(super) struct Table {
    /// A power of two of them, or none; at most three quarters are taken.
    entries: Vec<Entry>,
    /// How many more may be added before it is made anew.
    room: usize,
    /// A hash without this many of its low bits is its home.
    shift: u32,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), room: 0, shift: 0 }
    }

    /// The slot under `hash` that is looked for; or the place where it is to be [inserted](Self::insert).
    #[inline(always)]
    pub(super) fn find(&self, hash: KeyHash, mut look: impl FnMut(u32) -> Seen) -> Result<u32, usize> {
        let mut at = self.home(hash);
        let mut left_over = None;
        // There is nothing to get only in a table without any place.
        while let Some(entry) = self.entries.get(at).filter(|entry| entry.slot != NIL) {
            if entry.hash == hash {
                match look(entry.slot) {
                    Seen::It => return Ok(entry.slot),
                    Seen::Other => {}
                    Seen::LeftOver => left_over = left_over.or(Some(at)),
                }
            }
            at = self.after(at);
        }
        Err(left_over.unwrap_or(at))
    }

    /// The slot that the entry at this place, where [`Self::find`] missed what it looked for, was left over from.
    #[inline]
    pub(super) fn left_over(&self, at: usize) -> Option<u32> {
        self.entries.get(at).map(|entry| entry.slot).filter(|slot| *slot != NIL)
    }

    /// Add an entry that is not there, at the place where [`Self::find`] missed it. False if there is no room: then it has to be [made
    /// anew](Self::rebuild) first, and searched again.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, hash: KeyHash, slot: u32) -> bool {
        match self.entries.get_mut(at) {
            Some(left_over) if left_over.slot != NIL => left_over.slot = slot,
            Some(vacant) if self.room > 0 => {
                self.room -= 1;
                *vacant = Entry { hash, slot };
            }
            _ => return false,
        }
        true
    }

    /// Make it anew for the slots in use, of which there are `used`: at most half full, so that it lasts for a while.
    /// `slots` are asked for only if something is left over.
    #[cold]
    pub(super) fn rebuild<I: Iterator<Item = (KeyHash, u32)>>(&mut self, used: usize, slots: impl FnOnce() -> I) {
        let taken = limit(self.entries.len()) - self.room;
        let mut places = self.entries.len().max(SMALLEST);
        while used > limit(places) / 2 {
            places *= 2;
        }
        if taken == used {
            let old = std::mem::replace(&mut self.entries, vec![Entry::VACANT; places]);
            self.fill(old.into_iter().filter(|entry| entry.slot != NIL).map(|entry| (entry.hash, entry.slot)));
        } else {
            self.entries.clear();
            self.entries.resize(places, Entry::VACANT);
            self.fill(slots());
        }
    }

    /// It is vacant.
    fn fill(&mut self, slots: impl Iterator<Item = (KeyHash, u32)>) {
        self.shift = u32::BITS - self.entries.len().ilog2();
        self.room = limit(self.entries.len());
        for (hash, slot) in slots {
            let at = self.vacant(hash);
            self.entries[at] = Entry { hash, slot };
            self.room -= 1;
        }
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
            self.entries.iter().filter(|entry| entry.slot != NIL).count()
        }

        /// How many places a search for what is there looks at, on average.
        fn probes(&self) -> f64 {
            let taken = self.entries.iter().enumerate().filter(|(_, entry)| entry.slot != NIL);
            let distance = |from: usize, to: usize| to.wrapping_sub(from) & (self.entries.len() - 1);
            let probes: usize = taken.map(|(at, entry)| distance(self.home(entry.hash), at) + 1).sum();
            probes as f64 / self.len() as f64
        }
    }

    /// Slots that are used again as soon as they can be: the last one given up first.
    #[derive(Default)]
    struct Slots {
        keys: Vec<Option<u32>>,
        free: Vec<u32>,
    }

    proptest! {
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
                Some(key) if hash(key) == hash(wanted) => Seen::Other,
                _ => Seen::LeftOver,
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
                            table.rebuild(model.len(), || slots.keys.iter().zip(0..).filter_map(used));
                            prop_assert_eq!(table.len(), model.len(), "nothing is left over");
                            let at = table.find(hash(key), |_| Seen::Other).unwrap_err();
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
        table.rebuild(0, std::iter::empty);
        for slot in 0..1000 {
            let at = table.find(KeyHash(7), |_| Seen::LeftOver).unwrap_err();
            assert!(table.insert(at, KeyHash(7), slot));
        }
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_table_does_not_grow_with_keys_that_have_gone() {
        let mut table = Table::new();
        for n in 0..100_000u64 {
            let hash = KeyHash::fold(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let at = table.find(hash, |_| Seen::LeftOver).unwrap_err();
            if !table.insert(at, hash, 0) {
                table.rebuild(0, std::iter::empty);
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
            for slot in 0..3 << 18 {
                let hash = KeyHash::fold(hash(slot));
                let mut at = table.find(hash, |_| Seen::Other).unwrap_err();
                if !table.insert(at, hash, slot) {
                    table.rebuild(slot as usize, || -> std::iter::Empty<_> { unreachable!("nothing is left over") });
                    at = table.find(hash, |_| Seen::Other).unwrap_err();
                    assert!(table.insert(at, hash, slot));
                }
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
