//! Log of unread events, and the position of each subscription.
//!
//! Invariant: the count of an event is the number of subscribers at or before it. Counts
//! therefore do not decrease from the oldest to the newest event, the oldest has at least 1, and the
//! last subscriber of an event finds it in front and removes it.
//!
//! Nothing here waits or locks. The caller frees objects and wakes tasks.

use super::{
    backlog::{Backlog, Limits},
    event::{Event, FreedObjects, Item},
    pending_count::PendingCount,
    wakes::WakeList,
};
use crate::cache::HandlerStats;
use std::{collections::VecDeque, task::Waker};

pub(super) struct Log<P> {
    slots: VecDeque<Slot<P>>,
    /// Position of the oldest event.
    base: u64,
    capacity: usize,
    limits: Limits<P>,
    /// Subscribers by number. `None` if the subscriber was removed.
    subscribers: Vec<Option<Subscriber<P>>>,
    subscriber_count: usize,
    waiting: usize,
    /// Position after the informer's first list.
    synced: Option<u64>,
    closed: bool,
}

struct Slot<P> {
    event: Event<P>,
    /// Number of subscribers that have not read the event.
    unread_by: usize,
}

pub(super) struct Subscriber<P> {
    /// Position of the next event, once the backlog is empty.
    position: u64,
    backlog: Backlog<P>,
    initial_done: bool,
    /// Waker of the task that waits for events.
    waker: Option<Waker>,
    delivered: u64,
    pending_count: PendingCount,
}

/// Result of [`Log::pull`].
pub(super) enum Pulled {
    Items,
    Empty,
    Closed,
}

impl<P> Log<P> {
    pub(super) fn new(capacity: usize, limits: Limits<P>) -> Self {
        Self {
            slots: VecDeque::new(),
            base: 0,
            capacity: capacity.max(1),
            limits,
            subscribers: Vec::new(),
            subscriber_count: 0,
            waiting: 0,
            synced: None,
            closed: false,
        }
    }

    /// Returns the number of events in the log.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    fn end(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Appends an event. Drops it if there are no subscribers.
    pub(super) fn append(&mut self, event: Event<P>, freed: &mut FreedObjects<P>) {
        if self.subscriber_count == 0 || self.closed {
            return event.discard(freed);
        }
        if self.slots.len() == self.capacity {
            self.spill(freed);
        }
        self.slots.push_back(Slot {
            event,
            unread_by: self.subscriber_count,
        });
    }

    /// Moves the oldest event to the backlogs of the subscribers that have not read it.
    fn spill(&mut self, freed: &mut FreedObjects<P>) {
        let Some(Slot {
            event,
            unread_by: mut left,
        }) = self.slots.pop_front()
        else {
            return;
        };
        let position = self.base;
        self.base += 1;
        let mut event = Some(event);
        for subscriber in self
            .subscribers
            .iter_mut()
            .flatten()
            .filter(|subscriber| subscriber.position == position)
        {
            left -= 1;
            let event = if left == 0 {
                event.take()
            } else {
                event.clone()
            };
            if let Some(event) = event {
                subscriber.backlog.add(position, event, &self.limits, freed);
            }
            subscriber.position += 1;
        }
    }

    /// Collects the wakers of all waiting subscribers.
    pub(super) fn wake(&mut self, wakes: &mut WakeList) {
        if self.waiting > 0 {
            self.waiting = 0;
            self.subscribers
                .iter_mut()
                .flatten()
                .filter_map(|subscriber| subscriber.waker.take())
                .for_each(|it| wakes.push(it));
        }
    }

    pub(super) fn synced(&mut self) {
        let end = self.end();
        self.synced.get_or_insert(end);
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Adds a subscriber of all later events, and returns its number.
    pub(super) fn subscribe(&mut self, pending_count: PendingCount) -> usize {
        let (position, backlog) = (self.end(), Backlog::new());
        let subscriber = Subscriber {
            position,
            backlog,
            initial_done: false,
            waker: None,
            delivered: 0,
            pending_count,
        };
        let number = self
            .subscribers
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.subscribers.len());
        if number == self.subscribers.len() {
            self.subscribers.push(None);
        }
        self.subscribers[number] = Some(subscriber);
        self.subscriber_count += 1;
        number
    }

    /// Removes a subscriber. The caller frees its state without a lock.
    pub(super) fn unsubscribe(
        &mut self,
        number: usize,
        freed: &mut FreedObjects<P>,
    ) -> Option<Subscriber<P>> {
        let subscriber = self.subscribers[number].take()?;
        self.subscriber_count -= 1;
        self.waiting -= usize::from(subscriber.waker.is_some());
        for slot in self
            .slots
            .iter_mut()
            .skip((subscriber.position - self.base) as usize)
        {
            slot.unread_by -= 1;
        }
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.unread_by == 0) {
            self.base += 1;
            slot.event.discard(freed);
        }
        if self.subscriber_count == 0 {
            self.slots = VecDeque::new();
            self.subscribers = Vec::new();
        }
        Some(subscriber)
    }

    /// Moves up to `most` items of a subscriber to `items`, and its waker to `waker`.
    pub(super) fn pull(
        &mut self,
        number: usize,
        most: usize,
        items: &mut VecDeque<Item<P>>,
        waker: &mut Option<Waker>,
    ) -> Pulled {
        let Self {
            slots,
            base,
            subscribers,
            waiting,
            synced,
            ..
        } = self;
        let Some(subscriber) = &mut subscribers[number] else {
            return Pulled::Closed;
        };
        *waker = subscriber.waker.take();
        *waiting -= usize::from(waker.is_some());
        let (before, mut events) = (items.len(), 0);
        while items.len() - before < most {
            let next = subscriber.backlog.first().unwrap_or(subscriber.position);
            if !subscriber.initial_done && synced.is_some_and(|synced| next >= synced) {
                subscriber.initial_done = true;
                items.push_back(Item::InitialDone);
                continue;
            }
            let event = subscriber.backlog.pop().or_else(|| {
                let slot = slots.get_mut((subscriber.position - *base) as usize)?;
                subscriber.position += 1;
                if slot.unread_by > 1 {
                    slot.unread_by -= 1;
                    return Some(slot.event.clone());
                }
                // This is the last subscriber, so the event is in front.
                *base += 1;
                slots.pop_front().map(|slot| slot.event)
            });
            let Some(event) = event else { break };
            items.push_back(Item::Event(event));
            events += 1;
        }
        subscriber.pending_count.add(events);
        match items.len() - before {
            0 if self.closed => Pulled::Closed,
            0 => Pulled::Empty,
            _ => Pulled::Items,
        }
    }

    /// Registers the waker of a subscriber, and returns the previous one.
    pub(super) fn set_waker(&mut self, number: usize, waker: Waker) -> Option<Waker> {
        let Some(subscriber) = &mut self.subscribers[number] else {
            return Some(waker);
        };
        let old = subscriber.waker.replace(waker);
        self.waiting += usize::from(old.is_none());
        old
    }

    pub(super) fn set_delivered(&mut self, number: usize, delivered: u64) {
        if let Some(subscriber) = &mut self.subscribers[number] {
            subscriber.delivered = delivered;
        }
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = HandlerStats> {
        self.subscribers
            .iter()
            .flatten()
            .map(|subscriber| self.stats_of(subscriber))
    }

    fn stats_of(&self, subscriber: &Subscriber<P>) -> HandlerStats {
        HandlerStats {
            behind: (self.end() - subscriber.position) as usize + subscriber.pending_count.get(),
            pending: subscriber.backlog.len(),
            delivered: subscriber.delivered,
            coalesced: subscriber.backlog.coalesced(),
            deletions: subscriber.backlog.deletions(),
            metadata_only_deletions: subscriber.backlog.metadata_deletions(),
        }
    }

    #[cfg(test)]
    pub(super) fn stats_of_number(&self, number: usize) -> HandlerStats {
        self.subscribers[number]
            .as_ref()
            .map(|subscriber| self.stats_of(subscriber))
            .unwrap_or_default()
    }
}
