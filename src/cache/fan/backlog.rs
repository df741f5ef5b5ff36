//! What a cursor has not read and the log no longer holds: per object one event, which stands for all that happened to it, or two if it is gone.
//!
//! The table is in the module's docs. Entries are in the order in which their objects were first touched, by the log's positions.

use super::event::{Event, Trash};
use crate::object::ObjectKey;
use hashbrown::HashMap;
use std::{collections::BTreeMap, mem, sync::Arc};

/// Keys whose memory is worth giving back once they are all gone.
const MANY: usize = 1024;

pub(super) struct Backlog<P> {
    keys: HashMap<ObjectKey, u64>,
    pending: BTreeMap<u64, Pending<P>>,
    coalesced: u64,
    /// A resync began here.
    resync: u64,
    /// What came before the resync and will never be told.
    vanished: Vec<ObjectKey>,
}

/// What is to be told of an object.
struct Pending<P> {
    event: Event<P>,
    /// Of a deletion: what the handler was told last, if something came between. An update from that to what is deleted is told before.
    told: Option<Arc<P>>,
}

impl<P> Backlog<P> {
    pub(super) fn new() -> Self {
        Self { keys: HashMap::new(), pending: BTreeMap::new(), coalesced: 0, resync: 0, vanished: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Events that were never told as such: they went into others, or a create and a delete made up for each other.
    pub(super) fn coalesced(&self) -> u64 {
        self.coalesced
    }

    /// Where the first of it was in the log.
    pub(super) fn first(&self) -> Option<u64> {
        self.pending.first_key_value().map(|(position, _)| *position)
    }

    /// Events are added in the order of their positions.
    pub(super) fn add(&mut self, position: u64, event: Event<P>, trash: &mut Trash<P>) {
        let first = self.keys.get(event.key()).copied();
        let Some((first, pending)) = first.and_then(|first| Some((first, self.pending.remove(&first)?))) else {
            self.keys.insert(event.key().clone(), position);
            self.pending.insert(position, Pending { event, told: None });
            return;
        };
        if let (Event::Create { object, .. }, Event::Delete { .. }) = (&pending.event, &event) {
            if let Some((key, first)) = self.keys.remove_entry(&object.key)
                && first < self.resync
            {
                self.vanished.push(key);
            }
            self.coalesced += 2;
            pending.event.discard(trash);
            event.discard(trash);
        } else {
            let events = pending.events() + 1;
            let pending = pending.followed_by(event, trash);
            self.coalesced += events - pending.events();
            self.pending.insert(first, pending);
        }
    }

    /// From now on, keep in mind what was created before this position and vanishes untold: it was there when the resync began, and must not be told of by it.
    pub(super) fn resync(&mut self, position: u64) {
        self.resync = position;
    }

    pub(super) fn vanished(&mut self) -> Vec<ObjectKey> {
        mem::take(&mut self.vanished)
    }

    pub(super) fn pop(&mut self) -> Option<Event<P>> {
        let mut pending = self.pending.first_entry()?;
        let Pending { event, told } = pending.get_mut();
        if let (Event::Delete { object, .. }, Some(old)) = (&*event, told.take()) {
            return Some(Event::Update { old, new: object.clone() });
        }
        let Pending { event, .. } = pending.remove();
        self.keys.remove(event.key());
        if self.pending.is_empty() && self.keys.capacity() > MANY {
            self.keys = HashMap::new();
        }
        Some(event)
    }
}

impl<P> Pending<P> {
    /// How many are told of it.
    fn events(&self) -> u64 {
        1 + u64::from(self.told.is_some())
    }

    /// Of a create and a delete nothing is left: that is not for here.
    fn followed_by(self, event: Event<P>, trash: &mut Trash<P>) -> Self {
        let (between, new) = match event {
            Event::Create { object, .. } => (None, object),
            Event::Update { old, new } => (Some(old), new),
            Event::Delete { .. } => {
                let told = match self.event {
                    Event::Update { old, new } => {
                        trash.push(new.object);
                        old
                    }
                    Event::Create { object, .. } | Event::Delete { object, .. } => match self.told {
                        Some(told) => {
                            trash.push(object.object);
                            told
                        }
                        None => object.object,
                    },
                };
                return Self { event, told: Some(told) };
            }
        };
        trash.extend(between);
        let event = match self.event {
            Event::Create { object, initial } => {
                trash.push(object.object);
                Event::Create { object: new, initial }
            }
            Event::Update { old, new: between } => {
                trash.push(between.object);
                Event::Update { old, new }
            }
            Event::Delete { object, .. } => match self.told {
                Some(old) => {
                    trash.push(object.object);
                    Event::Update { old, new }
                }
                None => Event::Update { old: object.object, new },
            },
        };
        Self { event, told: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::store::Entry;

    fn entry(version: u32) -> Entry<u32> {
        Entry::new(ObjectKey::new("a", "b"), Arc::new(version), 0)
    }
    fn create(version: u32, initial: bool) -> Event<u32> {
        Event::Create { object: entry(version), initial }
    }
    fn update(old: u32, new: u32) -> Event<u32> {
        Event::Update { old: Arc::new(old), new: entry(new) }
    }
    fn delete(version: u32, state_unknown: bool) -> Event<u32> {
        Event::Delete { object: entry(version), state_unknown }
    }

    fn said(event: &Event<u32>) -> String {
        match event {
            Event::Create { object, initial } => format!("create {}, initial: {initial}", object.object),
            Event::Update { old, new } => format!("update {old} to {}", new.object),
            Event::Delete { object, state_unknown } => format!("delete {}, unknown: {state_unknown}", object.object),
        }
    }

    /// What these events come to.
    fn told(events: impl IntoIterator<Item = Event<u32>>) -> String {
        let mut backlog = Backlog::new();
        let mut trash = Trash::new();
        let events: Vec<_> = events.into_iter().collect();
        let objects: usize = events.iter().map(|event| if matches!(event, Event::Update { .. }) { 2 } else { 1 }).sum();
        let count = events.len() as u64;
        (7..).zip(events).for_each(|(position, event)| backlog.add(position, event, &mut trash));
        assert_eq!(backlog.first(), (backlog.len() > 0).then_some(7), "where it was first touched");
        let events: Vec<_> = std::iter::from_fn(|| backlog.pop()).collect();
        assert_eq!(events.len() as u64 + backlog.coalesced(), count, "told or coalesced");
        assert!(backlog.keys.is_empty());
        let said: Vec<_> = events.iter().map(said).collect();
        // What is deleted after an update is in both.
        let twice = events.len().saturating_sub(1);
        for event in events {
            event.discard(&mut trash);
        }
        assert_eq!(trash.len(), objects + twice, "every object is told or thrown away, once");
        if said.is_empty() { "nothing".into() } else { said.join(", then ") }
    }

    #[test]
    fn an_event_alone_stays_as_it_is() {
        for event in [create(1, true), create(1, false), update(1, 2), delete(1, true), delete(1, false)] {
            assert_eq!(told([event.clone()]), said(&event));
        }
    }

    #[test]
    fn a_create_with_what_comes_after_it() {
        for initial in [true, false] {
            let still = format!("create 3, initial: {initial}");
            assert_eq!(told([create(1, initial), update(1, 3)]), still);
            assert_eq!(told([create(1, initial), update(1, 2), update(2, 3)]), still);
            assert_eq!(told([create(1, initial), create(3, !initial)]), still);
            for unknown in [true, false] {
                assert_eq!(told([create(1, initial), delete(1, unknown)]), "nothing");
            }
        }
    }

    #[test]
    fn an_update_with_what_comes_after_it() {
        assert_eq!(told([update(1, 2), update(2, 3)]), "update 1 to 3");
        assert_eq!(told([update(1, 2), create(3, true)]), "update 1 to 3");
        for unknown in [true, false] {
            let gone = format!("update 1 to 3, then delete 3, unknown: {unknown}");
            assert_eq!(told([update(1, 2), delete(3, unknown)]), gone);
            assert_eq!(told([update(1, 2), update(2, 3), delete(3, unknown)]), gone);
        }
    }

    #[test]
    fn a_delete_with_what_comes_after_it() {
        for unknown in [true, false] {
            assert_eq!(told([delete(1, unknown), create(2, false)]), "update 1 to 2");
            assert_eq!(told([delete(1, unknown), create(2, true)]), "update 1 to 2");
            assert_eq!(told([delete(1, unknown), update(2, 3)]), "update 1 to 3");
            let gone = format!("update 1 to 2, then delete 2, unknown: {unknown}");
            assert_eq!(told([delete(1, !unknown), delete(2, unknown)]), gone);
            assert_eq!(told([delete(1, false), create(2, false), delete(2, unknown)]), gone);
        }
    }

    #[test]
    fn the_old_state_of_an_update_is_what_the_handler_knows() {
        assert_eq!(told([update(1, 2), delete(3, false), create(4, false)]), "update 1 to 4");
        assert_eq!(told([update(1, 2), delete(3, false), update(4, 5)]), "update 1 to 5");
        assert_eq!(told([update(1, 2), delete(3, false), delete(4, true), create(5, false)]), "update 1 to 5");
        let again = [delete(1, false), create(2, false), delete(3, false), create(4, false)];
        assert_eq!(told(again), "update 1 to 4");
    }

    #[test]
    fn what_comes_between_the_two_events_of_a_deletion_goes_on_from_the_first() {
        let mut backlog = Backlog::new();
        let mut trash = Trash::new();
        (0..).zip([update(1, 2), delete(3, false)]).for_each(|(at, event)| backlog.add(at, event, &mut trash));
        assert_eq!(backlog.pop().as_ref().map(said).as_deref(), Some("update 1 to 3"));
        assert_eq!((backlog.first(), backlog.len()), (Some(0), 1));
        backlog.add(2, create(4, false), &mut trash);
        assert_eq!(backlog.pop().as_ref().map(said).as_deref(), Some("update 3 to 4"));
        assert!(backlog.pop().is_none() && backlog.keys.is_empty());
        assert_eq!(backlog.coalesced(), 1, "three came, two were told");
    }

    #[test]
    fn what_was_nothing_begins_anew() {
        let again = [create(1, true), delete(1, false), create(2, false)];
        let mut backlog = Backlog::new();
        (0..).zip(again).for_each(|(position, event)| backlog.add(position, event, &mut Trash::new()));
        assert_eq!((backlog.first(), backlog.len(), backlog.coalesced()), (Some(2), 1, 2));
        let event = backlog.pop().expect("the second create");
        assert_eq!(said(&event), "create 2, initial: false");
    }
}
