//! Objects as they were at one moment. Holding one keeps them in memory, and delays nobody.

use super::{
    CHUNK, Entry, Spine,
    postings::{Postings, Slot},
};

/// All objects of a store, or some of them.
pub(crate) struct Snapshot<P> {
    spine: Spine<P>,
    /// All if there are none.
    some: Option<Postings>,
}

impl<P> Snapshot<P> {
    pub(super) fn new(spine: Spine<P>, some: Option<Postings>) -> Self {
        Self { spine, some }
    }

    /// The same, by whoever takes the snapshot along.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = Entry<P>> + use<P> {
        let slots = match &self.some {
            Some(some) => some.slots().len(),
            None => self.spine.iter().map(|chunk| chunk.len()).sum(),
        };
        (0..slots).filter_map(move |number| {
            let slot = self.some.as_ref().map_or(number, |some| some.slots()[number] as usize);
            self.spine[slot / CHUNK].get(slot % CHUNK)?.clone()
        })
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<P>> {
        let some = self.some.as_ref().map(|some| some.slots().iter().map(|slot| *slot as usize));
        let all = self.some.is_none().then(|| self.spine.iter().flat_map(|chunk| chunk.iter().flatten()));
        let some = some.into_iter().flatten().filter_map(|slot| self.spine[slot / CHUNK][slot % CHUNK].as_ref());
        all.into_iter().flatten().chain(some)
    }

    /// Of all objects of the store, and where they are in it.
    pub(super) fn slots_and_entries(&self) -> impl Iterator<Item = (Slot, &Entry<P>)> {
        let places = self.spine.iter().flat_map(|chunk| chunk.iter());
        (0..).zip(places).filter_map(|(slot, place)| Some((slot, place.as_ref()?)))
    }

    /// What is in a slot.
    pub(super) fn at(&self, slot: Slot) -> Option<&Entry<P>> {
        let slot = slot as usize;
        self.spine[slot / CHUNK][slot % CHUNK].as_ref()
    }
}
