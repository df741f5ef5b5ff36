//! Snapshots of a store. A snapshot keeps its objects in memory, and blocks no writer.

use super::{
    entry::{CHUNK, Chunk, Entry, Spine},
    postings::{Postings, Slot},
    state::at,
};
use std::{slice, sync::Arc};

/// Immutable view of all or some objects of a store.
pub(crate) struct Snapshot<P> {
    spine: Spine<P>,
    len: usize,
    /// Selected slots. `None` for all objects.
    some: Option<Arc<Vec<Slot>>>,
}

impl<P> Snapshot<P> {
    /// Creates a snapshot of a store with `len` objects.
    pub(super) fn new(spine: Spine<P>, len: usize, some: Option<Postings>) -> Self {
        let snapshot = Self {
            spine,
            len,
            some: None,
        };
        match some {
            Some(some) => snapshot.only(some.into()),
            None => snapshot,
        }
    }

    /// Restricts the snapshot to these slots, in this order. Each must have an object.
    pub(crate) fn only(self, slots: Arc<Vec<Slot>>) -> Self {
        Self {
            len: slots.len(),
            some: Some(slots),
            ..self
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the entries, in the order of [`only`](Self::only) if called.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<P>> {
        self.slots().map(|(_, entry)| entry)
    }

    /// Iterates over the entries with their slots.
    pub(crate) fn slots(&self) -> Slots<'_, P> {
        Slots {
            spine: &self.spine,
            some: self.some.as_ref().map(|some| some.iter()),
            chunk: [].iter(),
            next: 0,
        }
    }

    /// Converts the snapshot to an iterator over its entries.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = Entry<P>> + use<P> {
        let slots = match &self.some {
            Some(some) => some.len(),
            None => self.spine.len() * CHUNK,
        };
        (0..slots).filter_map(move |number| {
            let slot = self
                .some
                .as_ref()
                .map_or(number, |some| some[number] as usize);
            self.spine.get(slot / CHUNK)?[slot % CHUNK].clone()
        })
    }

    /// Returns the number of chunks that differ from those of `other`.
    #[cfg(test)]
    pub(super) fn chunks_not_in(&self, other: &Self) -> usize {
        let is_new = |(number, chunk): &(usize, &Chunk<P>)| {
            other
                .spine
                .get(*number)
                .is_none_or(|other| !Arc::ptr_eq(other, chunk))
        };
        self.spine.iter().enumerate().filter(is_new).count()
    }

    /// Returns the entry in a slot.
    pub(super) fn at(&self, slot: Slot) -> Option<&Entry<P>> {
        at(&self.spine, slot)
    }
}

/// Iterator of [`Snapshot::slots`].
pub(crate) struct Slots<'a, P> {
    /// Chunks after the current one.
    spine: &'a [Chunk<P>],
    some: Option<slice::Iter<'a, Slot>>,
    /// Rest of the current chunk.
    chunk: slice::Iter<'a, Option<Entry<P>>>,
    /// Slot of the first entry of `chunk`.
    next: Slot,
}

impl<'a, P> Iterator for Slots<'a, P> {
    type Item = (Slot, &'a Entry<P>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(some) = &mut self.some {
            // An index whose function is not deterministic may find empty slots.
            return some.find_map(|slot| Some((*slot, at(self.spine, *slot)?)));
        }
        loop {
            for entry in self.chunk.by_ref() {
                let slot = self.next;
                self.next += 1;
                if let Some(entry) = entry {
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
    fn a_snapshot_of_selected_slots_keeps_their_order() {
        let store = Store::default();
        for number in 0..200 {
            let key = ObjectKey::cluster_scoped(number.to_string());
            store.put(Entry::new(key, Arc::new(number), 0), 1);
        }
        let all = store.snapshot();
        let mut slots: Vec<_> = all
            .slots()
            .filter(|(slot, _)| slot % 50 == 0)
            .map(|(slot, _)| slot)
            .collect();
        slots.reverse();
        let wanted: Vec<_> = slots
            .iter()
            .filter_map(|slot| Some(*all.at(*slot)?.object))
            .collect();
        let some = all.only(slots.into());
        assert_eq!(
            (
                some.len(),
                some.iter().map(|entry| *entry.object).collect::<Vec<_>>()
            ),
            (4, wanted)
        );
    }
}
