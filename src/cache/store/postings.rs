//! The slots that have something in common: a namespace, or a value of an index. Sorted, so that two are intersected in one pass; shared with
//! the snapshots that show them, and copied only then.

use std::sync::Arc;

/// Where an object is in the store.
pub(crate) type Slot = u32;

/// Sorted slots, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Postings(Arc<Vec<Slot>>);

impl Postings {
    /// Filling the store slot by slot appends.
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

    /// Where the objects are now that were in these slots, sorted, and are in the first ones. Others are left out.
    pub(super) fn moved(&self, from: &[Slot]) -> Self {
        let to = |slot: &Slot| from.binary_search(slot).ok().and_then(|at| Slot::try_from(at).ok());
        Self(Arc::new(self.slots().iter().filter_map(to).collect()))
    }

    /// Those in both: the longer one is searched for each of the shorter one's, from where the last was.
    pub(super) fn and(&self, other: &Self) -> Self {
        let (short, mut long) =
            if self.0.len() <= other.0.len() { (self, other.slots()) } else { (other, self.slots()) };
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

/// Shared with these.
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
    fn slots_are_sorted_and_there_once() {
        assert_eq!(of(&[5, 1, 3, 5, 1, 9]).slots(), [1, 3, 5, 9]);
    }

    #[test]
    fn what_is_removed_is_gone_and_the_rest_stays() {
        let mut postings = of(&[1, 2, 3]);
        postings.remove(2);
        postings.remove(7);
        assert_eq!(postings.slots(), [1, 3]);
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut postings = of(&[1]);
        let before = postings.clone();
        postings.insert(2);
        assert_eq!((before.slots(), postings.slots()), ([1].as_slice(), [1, 2].as_slice()));
    }

    #[test]
    fn an_intersection_is_what_both_have() {
        assert_eq!(of(&[1, 3, 5, 7]).and(&of(&[0, 3, 4, 7, 9])).slots(), [3, 7]);
        assert!(of(&[1]).and(&of(&[])).is_empty());
    }
}
