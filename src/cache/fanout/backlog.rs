//! Unread events of a subscription that the log has dropped, coalesced per object.
//!
//! The module's documentation has the table. Entries are in the order in which their objects were
//! first changed, by the positions in the log.
//!
//! Invariant: at most [`Limits::deletions`] pending deletions hold the last state of their object.
//! The backlog keeps only the metadata of further ones.

use super::event::{Event, FreedObjects, ObjectState, Reduce};
use crate::object::ObjectKey;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// Capacity from which an empty map is freed.
const FREE_ABOVE: usize = 1024;

pub(super) struct Backlog<P> {
    keys: HashMap<ObjectKey, u64>,
    pending: BTreeMap<u64, Pending<P>>,
    coalesced: u64,
    /// Pending deletions with the last state of their object.
    full_deletions: usize,
    /// Pending deletions with the metadata of their object.
    metadata_deletions: usize,
}

/// Pending events of one object.
struct Pending<P> {
    event: Event<P>,
    /// State that the handler received last, if an update precedes a deletion.
    ///
    /// The update from this state to the deleted one is delivered first.
    last_delivered: Option<ObjectState<P>>,
}

/// Limit of deletions with the full state, and the reduction of further ones.
pub(super) struct Limits<P> {
    pub(super) deletions: usize,
    pub(super) reduce: Reduce<P>,
}

impl<P> Backlog<P> {
    pub(super) fn new() -> Self {
        Self {
            keys: HashMap::new(),
            pending: BTreeMap::new(),
            coalesced: 0,
            full_deletions: 0,
            metadata_deletions: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Returns the number of pending deletions.
    pub(super) fn deletions(&self) -> usize {
        self.full_deletions + self.metadata_deletions
    }

    /// Returns the number of pending deletions that have only metadata.
    pub(super) fn metadata_deletions(&self) -> usize {
        self.metadata_deletions
    }

    /// Returns the number of events that were merged into other events.
    pub(super) fn coalesced(&self) -> u64 {
        self.coalesced
    }

    /// Returns the position of the first event in the log.
    pub(super) fn first(&self) -> Option<u64> {
        self.pending
            .first_key_value()
            .map(|(position, _)| *position)
    }

    /// Adds an event. Calls must be in the order of positions.
    pub(super) fn add(
        &mut self,
        position: u64,
        event: Event<P>,
        limits: &Limits<P>,
        freed: &mut FreedObjects<P>,
    ) {
        let first = self.keys.get(event.key()).copied();
        let first = first.and_then(|first| Some((first, self.pending.remove(&first)?)));
        let (position, mut pending) = if let Some((first, pending)) = first {
            self.uncount(&pending);
            let events = pending.events() + 1;
            let pending = pending.coalesce(event, freed);
            self.coalesced += events - pending.events();
            (first, pending)
        } else {
            self.keys.insert(event.key().clone(), position);
            (
                position,
                Pending {
                    event,
                    last_delivered: None,
                },
            )
        };
        if pending.is_deletion() && self.full_deletions >= limits.deletions {
            pending.reduce(&limits.reduce, freed);
        }
        self.count(&pending);
        self.pending.insert(position, pending);
    }

    pub(super) fn pop(&mut self) -> Option<Event<P>> {
        let mut pending = self.pending.first_entry()?;
        let Pending {
            event,
            last_delivered,
        } = pending.get_mut();
        if let (Event::Delete { key, object, .. }, Some(old)) = (&*event, last_delivered.take()) {
            return Some(Event::Update {
                key: key.clone(),
                old,
                new: object.clone(),
            });
        }
        let pending = pending.remove();
        self.uncount(&pending);
        self.keys.remove(pending.event.key());
        if self.pending.is_empty() && self.keys.capacity() > FREE_ABOVE {
            self.keys = HashMap::new();
        }
        Some(pending.event)
    }

    fn count(&mut self, pending: &Pending<P>) {
        if let Some(deletions) = self.count_of(pending) {
            *deletions += 1;
        }
    }

    fn uncount(&mut self, pending: &Pending<P>) {
        if let Some(deletions) = self.count_of(pending) {
            *deletions -= 1;
        }
    }

    fn count_of(&mut self, pending: &Pending<P>) -> Option<&mut usize> {
        match &pending.event {
            Event::Delete {
                object: ObjectState::Full(_),
                ..
            } => Some(&mut self.full_deletions),
            Event::Delete {
                object: ObjectState::Metadata(_),
                ..
            } => Some(&mut self.metadata_deletions),
            Event::Create { .. } | Event::Update { .. } => None,
        }
    }
}

impl<P> Pending<P> {
    /// Returns the number of events to be delivered.
    fn events(&self) -> u64 {
        1 + u64::from(self.last_delivered.is_some())
    }

    fn is_deletion(&self) -> bool {
        matches!(self.event, Event::Delete { .. })
    }

    /// Replaces the states of a deletion by their metadata.
    fn reduce(&mut self, reduce: &Reduce<P>, freed: &mut FreedObjects<P>) {
        let Event::Delete { key, object, .. } = &mut self.event else {
            return;
        };
        for state in self.last_delivered.iter_mut().chain([object]) {
            if let ObjectState::Full(full) = &*state {
                let metadata = ObjectState::Metadata(reduce(key, full));
                freed.push(std::mem::replace(state, metadata));
            }
        }
    }

    fn coalesce(self, event: Event<P>, freed: &mut FreedObjects<P>) -> Self {
        let (key, between, new) = match event {
            Event::Create { key, object, .. } => (key, None, object),
            Event::Update { key, old, new } => (key, Some(old), new),
            Event::Delete { .. } => {
                let last_delivered = match self.event {
                    Event::Create { object, .. } => {
                        freed.push(object);
                        None
                    }
                    Event::Update { old, new, .. } => {
                        freed.push(new);
                        Some(old)
                    }
                    Event::Delete { object, .. } => {
                        Some(last_delivered_state(self.last_delivered, object, freed))
                    }
                };
                return Self {
                    event,
                    last_delivered,
                };
            }
        };
        freed.extend(between);
        let event = match self.event {
            Event::Create {
                object, initial, ..
            } => {
                freed.push(object);
                Event::Create {
                    key,
                    object: new,
                    initial,
                }
            }
            Event::Update {
                old, new: between, ..
            } => {
                freed.push(between);
                Event::Update { key, old, new }
            }
            Event::Delete { object, .. } => Event::Update {
                key,
                old: last_delivered_state(self.last_delivered, object, freed),
                new,
            },
        };
        Self {
            event,
            last_delivered: None,
        }
    }
}

/// Returns the state that the handler received last, or the deleted state.
fn last_delivered_state<P>(
    delivered: Option<ObjectState<P>>,
    deleted: ObjectState<P>,
    freed: &mut FreedObjects<P>,
) -> ObjectState<P> {
    match delivered {
        Some(delivered) => {
            freed.push(deleted);
            delivered
        }
        None => deleted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cache::store::Entry, object::MetadataOnly};
    use std::sync::Arc;

    fn entry(version: u32) -> Entry<u32> {
        Entry::new(ObjectKey::new("a", "b"), Arc::new(version), 0)
    }
    fn create(version: u32, initial: bool) -> Event<u32> {
        Event::create(entry(version), initial)
    }
    fn update(old: u32, new: u32) -> Event<u32> {
        Event::update(Arc::new(old), entry(new))
    }
    fn delete(version: u32, state_unknown: bool) -> Event<u32> {
        Event::delete(entry(version), state_unknown)
    }

    fn limits(deletions: usize) -> Limits<u32> {
        Limits {
            deletions,
            reduce: Arc::new(|key, _| Arc::new(MetadataOnly::named(key.clone()))),
        }
    }

    /// Returns the version as text, or `metadata`.
    fn state(state: &ObjectState<u32>) -> String {
        match state {
            ObjectState::Full(version) => version.to_string(),
            ObjectState::Metadata(_) => "metadata".into(),
        }
    }

    fn describe(event: &Event<u32>) -> String {
        match event {
            Event::Create {
                object, initial, ..
            } => format!("create {}, initial: {initial}", state(object)),
            Event::Update { old, new, .. } => format!("update {} to {}", state(old), state(new)),
            Event::Delete {
                object,
                state_unknown,
                ..
            } => {
                format!("delete {}, unknown: {state_unknown}", state(object))
            }
        }
    }

    /// Returns the coalesced events as text. At most one deletion keeps the state.
    fn delivered_text(events: impl IntoIterator<Item = Event<u32>>) -> String {
        delivered_text_within(1, events)
    }

    /// Returns the coalesced events as text. At most `deletions` deletions keep the state.
    fn delivered_text_within(
        deletions: usize,
        events: impl IntoIterator<Item = Event<u32>>,
    ) -> String {
        let mut backlog = Backlog::new();
        let mut freed = FreedObjects::new();
        let events: Vec<_> = events.into_iter().collect();
        let objects: usize = events
            .iter()
            .map(|event| {
                if matches!(event, Event::Update { .. }) {
                    2
                } else {
                    1
                }
            })
            .sum();
        let count = events.len() as u64;
        let limits = limits(deletions);
        (7..)
            .zip(events)
            .for_each(|(position, event)| backlog.add(position, event, &limits, &mut freed));
        assert_eq!(backlog.first(), Some(7), "the position of its first event");
        let deletes = backlog
            .pending
            .values()
            .filter(|pending| pending.is_deletion())
            .count();
        assert_eq!(backlog.deletions(), deletes);
        let events: Vec<_> = std::iter::from_fn(|| backlog.pop()).collect();
        assert_eq!(
            events.len() as u64 + backlog.coalesced(),
            count,
            "delivered or coalesced"
        );
        assert!(backlog.keys.is_empty() && backlog.deletions() == 0);
        let texts: Vec<_> = events.iter().map(describe).collect();
        // The deleted state is in both the update and the deletion.
        let twice = if deletions == 0 { 0 } else { events.len() - 1 };
        for event in events {
            event.discard(&mut freed);
        }
        let full = freed
            .iter()
            .filter(|state| matches!(state, ObjectState::Full(_)))
            .count();
        assert_eq!(
            full,
            objects + twice,
            "every object is delivered or dropped, once"
        );
        texts.join(", then ")
    }

    #[test]
    fn a_single_event_is_unchanged() {
        for event in [
            create(1, true),
            create(1, false),
            update(1, 2),
            delete(1, true),
            delete(1, false),
        ] {
            assert_eq!(delivered_text([event.clone()]), describe(&event));
        }
    }

    #[test]
    fn a_create_coalesces_with_later_events() {
        for initial in [true, false] {
            let still = format!("create 3, initial: {initial}");
            assert_eq!(delivered_text([create(1, initial), update(1, 3)]), still);
            assert_eq!(
                delivered_text([create(1, initial), update(1, 2), update(2, 3)]),
                still
            );
            assert_eq!(
                delivered_text([create(1, initial), create(3, !initial)]),
                still
            );
        }
    }

    #[test]
    fn a_create_and_a_delete_coalesce_to_the_delete() {
        for (initial, unknown) in [(true, true), (true, false), (false, true), (false, false)] {
            let gone = format!("delete 3, unknown: {unknown}");
            assert_eq!(
                delivered_text([create(1, initial), delete(3, unknown)]),
                gone
            );
            assert_eq!(
                delivered_text([create(1, initial), update(1, 2), delete(3, unknown)]),
                gone
            );
        }
        let again = [create(1, true), delete(2, false), create(3, false)];
        assert_eq!(
            delivered_text(again.clone()),
            "update 2 to 3",
            "neither was delivered"
        );
        let twice = again.into_iter().chain([delete(4, false)]);
        assert_eq!(
            delivered_text(twice),
            "update 2 to 4, then delete 4, unknown: false"
        );
    }

    #[test]
    fn an_update_coalesces_with_later_events() {
        assert_eq!(
            delivered_text([update(1, 2), update(2, 3)]),
            "update 1 to 3"
        );
        assert_eq!(
            delivered_text([update(1, 2), create(3, true)]),
            "update 1 to 3"
        );
        for unknown in [true, false] {
            let gone = format!("update 1 to 3, then delete 3, unknown: {unknown}");
            assert_eq!(delivered_text([update(1, 2), delete(3, unknown)]), gone);
            assert_eq!(
                delivered_text([update(1, 2), update(2, 3), delete(3, unknown)]),
                gone
            );
        }
    }

    #[test]
    fn a_delete_coalesces_with_later_events() {
        for unknown in [true, false] {
            assert_eq!(
                delivered_text([delete(1, unknown), create(2, false)]),
                "update 1 to 2"
            );
            assert_eq!(
                delivered_text([delete(1, unknown), create(2, true)]),
                "update 1 to 2"
            );
            assert_eq!(
                delivered_text([delete(1, unknown), update(2, 3)]),
                "update 1 to 3"
            );
            let gone = format!("update 1 to 2, then delete 2, unknown: {unknown}");
            assert_eq!(
                delivered_text([delete(1, !unknown), delete(2, unknown)]),
                gone
            );
            assert_eq!(
                delivered_text([delete(1, false), create(2, false), delete(2, unknown)]),
                gone
            );
        }
    }

    #[test]
    fn the_old_state_of_an_update_is_the_last_delivered_one() {
        assert_eq!(
            delivered_text([update(1, 2), delete(3, false), create(4, false)]),
            "update 1 to 4"
        );
        assert_eq!(
            delivered_text([update(1, 2), delete(3, false), update(4, 5)]),
            "update 1 to 5"
        );
        assert_eq!(
            delivered_text([
                update(1, 2),
                delete(3, false),
                delete(4, true),
                create(5, false)
            ]),
            "update 1 to 5"
        );
        let again = [
            delete(1, false),
            create(2, false),
            delete(3, false),
            create(4, false),
        ];
        assert_eq!(delivered_text(again), "update 1 to 4");
    }

    #[test]
    fn a_deletion_beyond_the_limit_is_reduced_to_metadata() {
        let reduced = |events: Vec<_>| delivered_text_within(0, events);
        assert_eq!(
            reduced(vec![delete(1, true)]),
            "delete metadata, unknown: true"
        );
        assert_eq!(
            reduced(vec![create(1, false), delete(1, false)]),
            "delete metadata, unknown: false"
        );
        let both = "update metadata to metadata, then delete metadata, unknown: false";
        assert_eq!(reduced(vec![update(1, 2), delete(3, false)]), both);
        assert_eq!(reduced(vec![delete(1, false), delete(2, false)]), both);
        // The new object is alive.
        assert_eq!(
            reduced(vec![delete(1, false), create(2, false)]),
            "update metadata to 2"
        );
        assert_eq!(
            reduced(vec![
                create(1, false),
                delete(1, false),
                create(2, false),
                update(2, 3)
            ]),
            "update metadata to 3"
        );
        assert_eq!(
            reduced(vec![create(1, false), update(1, 2)]),
            "create 2, initial: false"
        );
    }

    #[test]
    fn a_delivered_deletion_frees_capacity_for_a_full_state() {
        let (mut backlog, mut freed, limits) = (Backlog::new(), FreedObjects::new(), limits(1));
        let named = |name: &str| {
            Event::delete(Entry::new(ObjectKey::new("a", name), Arc::new(1), 0), false)
        };
        let mut add = |backlog: &mut Backlog<u32>, at, name| {
            backlog.add(at, named(name), &limits, &mut freed);
        };
        add(&mut backlog, 0, "a");
        add(&mut backlog, 1, "b");
        assert_eq!((backlog.deletions(), backlog.metadata_deletions()), (2, 1));
        assert_eq!(
            backlog.pop().as_ref().map(describe).as_deref(),
            Some("delete 1, unknown: false")
        );
        add(&mut backlog, 2, "c");
        assert_eq!((backlog.deletions(), backlog.metadata_deletions()), (2, 1));
        for expected in [
            "delete metadata, unknown: false",
            "delete 1, unknown: false",
        ] {
            assert_eq!(
                backlog.pop().as_ref().map(describe).as_deref(),
                Some(expected)
            );
        }
    }

    #[test]
    fn an_event_between_update_and_deletion_coalesces_with_the_update() {
        let mut backlog = Backlog::new();
        let mut freed = FreedObjects::new();
        let limits = limits(1);
        let mut add =
            |backlog: &mut Backlog<_>, at, event| backlog.add(at, event, &limits, &mut freed);
        (0..)
            .zip([update(1, 2), delete(3, false)])
            .for_each(|(at, event)| add(&mut backlog, at, event));
        assert_eq!(
            backlog.pop().as_ref().map(describe).as_deref(),
            Some("update 1 to 3")
        );
        assert_eq!((backlog.first(), backlog.len()), (Some(0), 1));
        add(&mut backlog, 2, create(4, false));
        assert_eq!(
            backlog.pop().as_ref().map(describe).as_deref(),
            Some("update 3 to 4")
        );
        assert!(backlog.pop().is_none() && backlog.keys.is_empty());
        assert_eq!(
            backlog.coalesced(),
            1,
            "three events were added, two delivered"
        );
    }
}
