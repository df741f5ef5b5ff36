//! Objects as they were at one moment. Holding one keeps them in memory, and delays nobody.

use super::{
    entry::{CHUNK, Chunk, Entry, Spine},
    postings::{Postings, Slot},
    state::at,
};
use std::{slice, sync::Arc};

/// All objects of a store, or some of them.
pub(crate) struct Snapshot<P> {
    spine: Spine<P>,
    len: usize,
    /// All if there are none.
    some: Option<Arc<Vec<Slot>>>,
}

impl<P> Snapshot<P> {
    /// Of a store that has so many objects.
    pub(super) fn new(spine: Spine<P>, len: usize, some: Option<Postings>) -> Self {
        let snapshot = Self { spine, len, some: None };
        match some {
            Some(some) => snapshot.only(some.into()),
            None => snapshot,
        }
    }

    /// The objects in these slots, in this order. Each shows one.
    pub(crate) fn only(self, slots: Arc<Vec<Slot>>) -> Self {
        Self { len: slots.len(), some: Some(slots), ..self }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// In no order, if none was said.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<P>> {
        self.slots().map(|(_, entry)| entry)
    }

    /// The same, and where they are.
    pub(crate) fn slots(&self) -> Slots<'_, P> {
        Slots { spine: &self.spine, some: self.some.as_ref().map(|some| some.iter()), chunk: [].iter(), next: 0 }
    }

    /// The same, by whoever takes the snapshot along.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = Entry<P>> + use<P> {
        let slots = match &self.some {
            Some(some) => some.len(),
            None => self.spine.len() * CHUNK,
        };
        (0..slots).filter_map(move |number| {
            let slot = self.some.as_ref().map_or(number, |some| some[number] as usize);
            self.spine.get(slot / CHUNK)?[slot % CHUNK].clone()
        })
    }

    /// How many chunks are others than in that one.
    #[cfg(test)]
    pub(super) fn chunks_not_in(&self, other: &Self) -> usize {
        let is_new = |(number, chunk): &(usize, &Chunk<P>)| {
            other.spine.get(*number).is_none_or(|other| !Arc::ptr_eq(other, chunk))
        };
        self.spine.iter().enumerate().filter(is_new).count()
    }

    /// What is in a slot.
    pub(super) fn at(&self, slot: Slot) -> Option<&Entry<P>> {
        at(&self.spine, slot)
    }
}

/// See [`Snapshot::slots`].
pub(crate) struct Slots<'a, P> {
    /// From the chunk on that comes next.
    spine: &'a [Chunk<P>],
    some: Option<slice::Iter<'a, Slot>>,
    /// What is left of the one before that.
    chunk: slice::Iter<'a, Option<Entry<P>>>,
    /// The slot of the first in it.
    next: Slot,
}

impl<'a, P> Iterator for Slots<'a, P> {
    type Item = (Slot, &'a Entry<P>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(some) = &mut self.some {
            // An index whose function does not say the same each time finds slots that show nothing.
            return some.find_map(|slot| Some((*slot, at(self.spine, *slot)?)));
        }
        loop {
            for place in self.chunk.by_ref() {
                let slot = self.next;
                self.next += 1;
                if let Some(entry) = place {
                    return Some((slot, entry));
                }
            }
            let (first, rest) = self.spine.split_first()?;
            (self.spine, self.chunk) = (rest, first.iter());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        cache::store::{Entry, Store},
        object::ObjectKey,
    };
    use std::sync::Arc;

    #[test]
    fn a_snapshot_can_show_some_in_an_order_of_their_own() {
        let store = Store::default();
        for number in 0..200 {
            let key = ObjectKey::cluster_scoped(&number.to_string());
            store.put(Entry::new(key, Arc::new(number), 0), 1);
        }
        let all = store.snapshot();
        let mut slots: Vec<_> = all.slots().filter(|(slot, _)| slot % 50 == 0).map(|(slot, _)| slot).collect();
        slots.reverse();
        let wanted: Vec<_> = slots.iter().filter_map(|slot| Some(*all.at(*slot)?.object)).collect();
        let some = all.only(slots.into());
        assert_eq!((some.len(), some.iter().map(|entry| *entry.object).collect::<Vec<_>>()), (4, wanted));
    }
}
