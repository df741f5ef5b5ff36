//! The events that some cursor has still to read, and how far each cursor is.
//!
//! What holds between any two calls: an event's count is the number of readers at or before it. So counts do not fall from the oldest
//! to the newest, the oldest is at least 1, and whoever reads an event last finds it in front and takes it out.
//!
//! Here nothing waits and nothing is locked; what is to be freed or woken is handed to the caller.

use super::{
    backlog::{Backlog, Limits},
    beside::Beside,
    event::{Event, Item, Trash},
    wakes::Wakes,
};
use crate::cache::HandlerStats;
use std::{collections::VecDeque, task::Waker};

pub(super) struct Log<P> {
    slots: VecDeque<Slot<P>>,
    /// Position of the oldest.
    base: u64,
    capacity: usize,
    limits: Limits<P>,
    /// By number; a gap where one left.
    readers: Vec<Option<Reader<P>>>,
    present: usize,
    sleeping: usize,
    /// The first position after the informer's first list.
    synced: Option<u64>,
    closed: bool,
}

struct Slot<P> {
    event: Event<P>,
    /// How many have still to read it.
    readers: usize,
}

pub(super) struct Reader<P> {
    /// What it reads next in the log, once the backlog is empty.
    position: u64,
    backlog: Backlog<P>,
    initial_done: bool,
    /// Of the task that found nothing.
    waker: Option<Waker>,
    delivered: u64,
    beside: Beside,
}

/// What [`Log::pull`] found.
pub(super) enum Pulled {
    Something,
    Nothing,
    Ended,
}

impl<P> Log<P> {
    pub(super) fn new(capacity: usize, limits: Limits<P>) -> Self {
        Self {
            slots: VecDeque::new(),
            base: 0,
            capacity: capacity.max(1),
            limits,
            readers: Vec::new(),
            present: 0,
            sleeping: 0,
            synced: None,
            closed: false,
        }
    }

    /// Events held.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    fn end(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// If nobody is there to read it, it is thrown away.
    pub(super) fn append(&mut self, event: Event<P>, trash: &mut Trash<P>) {
        if self.present == 0 || self.closed {
            return event.discard(trash);
        }
        if self.slots.len() == self.capacity {
            self.spill(trash);
        }
        self.slots.push_back(Slot { event, readers: self.present });
    }

    /// Move the oldest event into the backlogs of those who have not read it.
    fn spill(&mut self, trash: &mut Trash<P>) {
        let Some(Slot { event, readers: mut left }) = self.slots.pop_front() else { return };
        let position = self.base;
        self.base += 1;
        let mut event = Some(event);
        for reader in self.readers.iter_mut().flatten().filter(|reader| reader.position == position) {
            left -= 1;
            let event = if left == 0 { event.take() } else { event.clone() };
            if let Some(event) = event {
                reader.backlog.add(position, event, &self.limits, trash);
            }
            reader.position += 1;
        }
    }

    /// Something is new for everybody.
    pub(super) fn wake(&mut self, wakes: &mut Wakes) {
        if self.sleeping > 0 {
            self.sleeping = 0;
            self.readers.iter_mut().flatten().filter_map(|reader| reader.waker.take()).for_each(|it| wakes.push(it));
        }
    }

    pub(super) fn synced(&mut self) {
        let end = self.end();
        self.synced.get_or_insert(end);
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// A reader of all that comes from now on, and of what it has beside that.
    pub(super) fn join(&mut self, beside: Beside) -> usize {
        let (position, backlog) = (self.end(), Backlog::new());
        let reader = Reader { position, backlog, initial_done: false, waker: None, delivered: 0, beside };
        let number = self.readers.iter().position(Option::is_none).unwrap_or(self.readers.len());
        if number == self.readers.len() {
            self.readers.push(None);
        }
        self.readers[number] = Some(reader);
        self.present += 1;
        number
    }

    /// A reader is gone; what it had is to be dropped where no lock is held.
    pub(super) fn leave(&mut self, number: usize, trash: &mut Trash<P>) -> Option<Reader<P>> {
        let reader = self.readers[number].take()?;
        self.present -= 1;
        self.sleeping -= usize::from(reader.waker.is_some());
        for slot in self.slots.iter_mut().skip((reader.position - self.base) as usize) {
            slot.readers -= 1;
        }
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.readers == 0) {
            self.base += 1;
            slot.event.discard(trash);
        }
        if self.present == 0 {
            self.slots = VecDeque::new();
            self.readers = Vec::new();
        }
        Some(reader)
    }

    /// Put what is next for a reader into `items`, `most` at most. It is awake: what it slept with is put into `waker`.
    pub(super) fn pull(
        &mut self,
        number: usize,
        most: usize,
        items: &mut VecDeque<Item<P>>,
        waker: &mut Option<Waker>,
    ) -> Pulled {
        let Self { slots, base, readers, sleeping, synced, .. } = self;
        let Some(reader) = &mut readers[number] else { return Pulled::Ended };
        *waker = reader.waker.take();
        *sleeping -= usize::from(waker.is_some());
        let (before, mut events) = (items.len(), 0);
        while items.len() - before < most {
            let next = reader.backlog.first().unwrap_or(reader.position);
            if !reader.initial_done && synced.is_some_and(|synced| next >= synced) {
                reader.initial_done = true;
                items.push_back(Item::InitialDone);
                continue;
            }
            let event = reader.backlog.pop().or_else(|| {
                let slot = slots.get_mut((reader.position - *base) as usize)?;
                reader.position += 1;
                if slot.readers > 1 {
                    slot.readers -= 1;
                    return Some(slot.event.clone());
                }
                // The last to read it, so that it is in front.
                *base += 1;
                slots.pop_front().map(|slot| slot.event)
            });
            let Some(event) = event else { break };
            items.push_back(Item::Event(event));
            events += 1;
        }
        reader.beside.add(events);
        match items.len() - before {
            0 if self.closed => Pulled::Ended,
            0 => Pulled::Nothing,
            _ => Pulled::Something,
        }
    }

    /// The reader found nothing: wake it when something comes. Gives the waker it had.
    pub(super) fn sleep(&mut self, number: usize, waker: Waker) -> Option<Waker> {
        let Some(reader) = &mut self.readers[number] else { return Some(waker) };
        let old = reader.waker.replace(waker);
        self.sleeping += usize::from(old.is_none());
        old
    }

    pub(super) fn count(&mut self, number: usize, delivered: u64) {
        if let Some(reader) = &mut self.readers[number] {
            reader.delivered = delivered;
        }
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = HandlerStats> {
        self.readers.iter().flatten().map(|reader| self.stats_of(reader))
    }

    fn stats_of(&self, reader: &Reader<P>) -> HandlerStats {
        HandlerStats {
            behind: (self.end() - reader.position) as usize + reader.beside.get(),
            pending: reader.backlog.len(),
            delivered: reader.delivered,
            coalesced: reader.backlog.coalesced(),
            deletions: reader.backlog.deletions(),
            metadata_only_deletions: reader.backlog.metadata_deletions(),
        }
    }

    #[cfg(test)]
    pub(super) fn stats_of_number(&self, number: usize) -> HandlerStats {
        self.readers[number].as_ref().map(|reader| self.stats_of(reader)).unwrap_or_default()
    }
}
