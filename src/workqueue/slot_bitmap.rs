//! Bitmap of the slots in use, with a second level that marks full words.
//!
//! Invariant: the bit of a word in the second level is set exactly if the word is full. No word of
//! the second level before `hint` has a clear bit.
//!
//! The free slot with the lowest number is used first, so that new keys are close together in
//! memory.

const WORD: u32 = u64::BITS;

/// Padded to its own cache line: rarely written, unlike the slots.
#[repr(align(64))]
pub(super) struct SlotBitmap {
    words: Vec<u64>,
    /// One bit per word; set beyond the last word.
    full: Vec<u64>,
    hint: usize,
}

/// Returns the word and the mask of a bit.
#[inline]
fn bit(number: u32) -> (usize, u64) {
    ((number / WORD) as usize, 1 << (number % WORD))
}

impl SlotBitmap {
    pub(super) const fn new() -> Self {
        Self {
            words: Vec::new(),
            full: Vec::new(),
            hint: 0,
        }
    }

    /// Adds `slots` free slots, a multiple of 64.
    pub(super) fn grow(&mut self, slots: usize) {
        let from = self.words.len();
        self.words.resize(from + slots / WORD as usize, 0);
        self.full
            .resize(self.words.len().div_ceil(WORD as usize), u64::MAX);
        for word in from..self.words.len() {
            self.open(word);
        }
    }

    fn open(&mut self, word: usize) {
        let (above, bit) = bit(word as u32);
        self.full[above] &= !bit;
        self.hint = self.hint.min(above);
    }

    #[inline]
    pub(super) fn has(&self, slot: u32) -> bool {
        let (word, bit) = bit(slot);
        self.words[word] & bit != 0
    }

    #[inline]
    pub(super) fn insert(&mut self, slot: u32) {
        let (word, bit) = bit(slot);
        self.words[word] |= bit;
        if self.words[word] == u64::MAX {
            let (above, bit) = self::bit(word as u32);
            self.full[above] |= bit;
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let (word, bit) = bit(slot);
        if self.words[word] == u64::MAX {
            self.open(word);
        }
        self.words[word] &= !bit;
    }

    /// Returns the free slot with the lowest number.
    #[inline]
    pub(super) fn first_free(&mut self) -> Option<u32> {
        while *self.full.get(self.hint)? == u64::MAX {
            self.hint += 1;
        }
        let word = self.hint as u32 * WORD + self.full[self.hint].trailing_ones();
        Some(word * WORD + self.words[word as usize].trailing_ones())
    }

    pub(super) fn count(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.words
            .iter()
            .zip(0..)
            .flat_map(|(word, number)| ones(*word).map(move |bit| number * WORD + bit))
    }
}

/// Returns the positions of the ones in a word.
fn ones(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let first = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    steersman_testkit::properties! {
        #[test]
        fn a_bitmap_behaves_like_a_set_with_a_known_first_gap(
            // Enough for several words in the second level.
            chunks in 1..40usize, taken in 0..10_240u32, steps in prop::collection::vec((any::<bool>(), any::<u32>()), 0..200)
        ) {
            let (mut used, mut model) = (SlotBitmap::new(), BTreeSet::new());
            let mut slots = 0;
            let grow = |used: &mut SlotBitmap| used.grow(256);
            for _ in 0..chunks {
                grow(&mut used);
                slots += 256;
            }
            for slot in 0..taken.min(slots) {
                prop_assert_eq!(used.first_free(), Some(slot));
                used.insert(slot);
                model.insert(slot);
            }
            for (add, slot) in steps {
                let slot = slot % slots;
                if add && model.insert(slot) {
                    used.insert(slot);
                } else if !add && model.remove(&slot) {
                    used.remove(slot);
                }
                prop_assert_eq!(used.has(slot), model.contains(&slot));
                let gap = (0..slots).find(|slot| !model.contains(slot));
                prop_assert_eq!(used.first_free(), gap);
                if gap.is_none() {
                    grow(&mut used);
                    slots += 256;
                }
            }
            prop_assert_eq!(used.count(), model.len());
            prop_assert!(used.iter().eq(model));
        }
    }
}
