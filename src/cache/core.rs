//! One informer's objects: what the list and watch loop says goes into the store, and from there to the handlers.
//!
//! The store changes and the change is published under the fan's gate, so that a handler that joins sees every object once: as it was, or as it
//! became. What comes twice, or too late, is nothing: an object's revision only grows.

use super::{
    fan::{Cursor, Event, Fan},
    reflect::{Failure, Sink},
    store::{Change, Entry, Store},
};
use crate::object::{Decoder, ObjectKey, Payload, Undecodable};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};
use tokio::sync::watch;

/// How an informer is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    /// Nothing is known yet.
    Starting,
    /// Up to date, as far as the server has told.
    Synced,
    /// It serves what it had. Since when, and what the server said last.
    Degraded { since: SystemTime, error: String },
}

pub(crate) struct Core<P> {
    pub(crate) store: Store<P>,
    fan: Fan<P>,
    decoder: Decoder,
    condition: watch::Sender<Condition>,
    /// Whether the first list has come: from then on, reads are served.
    listed: watch::Sender<bool>,
    events: AtomicU64,
    relists: AtomicU64,
    decode_errors: AtomicU64,
    last_decode_error: Mutex<Option<Undecodable>>,
}

impl<P: Payload> Core<P> {
    pub(crate) fn new(decoder: Decoder) -> Self {
        Self {
            store: Store::default(),
            fan: Fan::default(),
            decoder,
            condition: watch::Sender::new(Condition::Starting),
            listed: watch::Sender::new(false),
            events: AtomicU64::new(0),
            relists: AtomicU64::new(0),
            decode_errors: AtomicU64::new(0),
            last_decode_error: Mutex::default(),
        }
    }

    pub(crate) fn condition(&self) -> Condition {
        self.condition.borrow().clone()
    }

    /// Until the first list has come.
    pub(crate) async fn synced(&self) {
        // The sender is here, so that it cannot be gone.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// The state as it is, and then what happens.
    pub(crate) fn subscribe(&self) -> Cursor<P> {
        self.fan.subscribe(|| self.store.snapshot().into_entries())
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            events: self.events.load(Relaxed),
            relists: self.relists.load(Relaxed),
            decode_errors: self.decode_errors.load(Relaxed),
        }
    }
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) relists: u64,
    pub(crate) decode_errors: u64,
}

impl<P: Payload> Sink for Core<P> {
    type Payload = P;

    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn all(&self, entries: Vec<Entry<P>>, revision: u64) {
        let first = !*self.listed.borrow();
        let changes = self.fan.write(|publisher| {
            let changes = self.store.replace(entries, revision, |old, new| is_same(old, new));
            let count = changes.len() as u64;
            publisher.publish_all(changes.into_iter().map(|change: Change<P>| Event::listed(change, first)));
            if first {
                publisher.synced();
            }
            count
        });
        self.events.fetch_add(changes, Relaxed);
        if !first {
            self.relists.fetch_add(1, Relaxed);
        }
        self.listed.send_replace(true);
    }

    fn put(&self, entry: Entry<P>, revision: u64) {
        let known = self.store.get(&entry.key);
        if known.is_some_and(|known| known.revision() >= entry.object.revision()) {
            self.store.advance(revision);
            return;
        }
        self.fan.write(|publisher| {
            let old = self.store.put(entry.clone(), revision);
            publisher.publish(match old {
                Some(old) => Event::Update { old, new: entry },
                None => Event::Create { object: entry, initial: false },
            });
        });
        self.events.fetch_add(1, Relaxed);
    }

    fn deleted(&self, key: &ObjectKey, last: Option<P>, revision: u64) {
        self.fan.write(|publisher| {
            let Some(mut entry) = self.store.remove(key, revision) else { return };
            if let Some(last) = last {
                entry.object = Arc::new(last);
            }
            publisher.publish(Event::Delete { object: entry, state_unknown: false });
        });
        self.events.fetch_add(1, Relaxed);
    }

    fn nothing_up_to(&self, revision: u64) {
        self.store.advance(revision);
    }

    fn undecodable(&self, what: Undecodable) {
        self.decode_errors.fetch_add(1, Relaxed);
        *self.last_decode_error.lock() = Some(what);
    }

    fn well(&self) {
        self.condition.send_if_modified(|condition| {
            let was = std::mem::replace(condition, Condition::Synced);
            was != Condition::Synced
        });
    }

    fn failed(&self, failure: &Failure) {
        self.condition.send_modify(|condition| {
            let since = match condition {
                Condition::Degraded { since, .. } => *since,
                Condition::Starting | Condition::Synced => SystemTime::now(),
            };
            *condition = Condition::Degraded { since, error: failure.to_string() };
        });
    }
}

/// Equal versions are equal objects, unless an object was deleted and made anew in a server that counts anew.
fn is_same<P: Payload>(old: &P, new: &P) -> bool {
    let (old, new) = (old.meta(), new.meta());
    old.resource_version() == new.resource_version() && old.uid() == new.uid()
}

#[cfg(test)]
mod tests;
