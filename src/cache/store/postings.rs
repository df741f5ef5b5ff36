//! Slots of a namespace or of an index value.
//!
//! Sorted, so that two sets are intersected in one pass. Shared with snapshots, and copied only on
//! a change.

use std::sync::Arc;

/// Position of an object in the store.
pub(crate) type Slot = u32;

/// Sorted set of slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Postings(Arc<Vec<Slot>>);

impl Postings {
    /// Adds a slot. Ascending slots are appended.
    pub(super) fn insert(&mut self, slot: Slot) {
        let slots = Arc::make_mut(&mut self.0);
        match slots.last() {
            Some(last) if *last >= slot => {
                if let Err(at) = slots.binary_search(&slot) {
                    slots.insert(at, slot);
                }
            }
            _ => slots.push(slot),
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        if let Ok(at) = self.0.binary_search(&slot) {
            Arc::make_mut(&mut self.0).remove(at);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.0
    }

    /// Returns the slots after a move from the sorted slots `from` to the first ones.
    ///
    /// Drops slots that are not in `from`.
    pub(super) fn moved(&self, from: &[Slot]) -> Self {
        let to = |slot: &Slot| {
            from.binary_search(slot)
                .ok()
                .and_then(|at| Slot::try_from(at).ok())
        };
        Self(Arc::new(self.slots().iter().filter_map(to).collect()))
    }

    /// Returns the intersection, by binary searches in the longer set.
    pub(super) fn and(&self, other: &Self) -> Self {
        let (short, mut long) = if self.0.len() <= other.0.len() {
            (self, other.slots())
        } else {
            (other, self.slots())
        };
        let mut both = Vec::with_capacity(short.0.len());
        for slot in short.slots() {
            let (Ok(at) | Err(at)) = long.binary_search(slot);
            if long.get(at) == Some(slot) {
                both.push(*slot);
            }
            long = &long[at..];
        }
        Self(Arc::new(both))
    }
}

/// Shares the slots with the set.
impl From<Postings> for Arc<Vec<Slot>> {
    fn from(postings: Postings) -> Self {
        postings.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(slots: &[Slot]) -> Postings {
        let mut postings = Postings::default();
        for slot in slots {
            postings.insert(*slot);
        }
        postings
    }

    #[test]
    fn slots_are_sorted_and_unique() {
        assert_eq!(of(&[5, 1, 3, 5, 1, 9]).slots(), [1, 3, 5, 9]);
    }

    #[test]
    fn removing_a_slot_keeps_the_others() {
        let mut postings = of(&[1, 2, 3]);
        postings.remove(2);
        postings.remove(7);
        assert_eq!(postings.slots(), [1, 3]);
    }

    #[test]
    fn a_clone_is_not_changed() {
        let mut postings = of(&[1]);
        let before = postings.clone();
        postings.insert(2);
        assert_eq!(
            (before.slots(), postings.slots()),
            ([1].as_slice(), [1, 2].as_slice())
        );
    }

    #[test]
    fn an_intersection_has_the_common_slots() {
        assert_eq!(of(&[1, 3, 5, 7]).and(&of(&[0, 3, 4, 7, 9])).slots(), [3, 7]);
        assert!(of(&[1]).and(&of(&[])).is_empty());
    }
}
