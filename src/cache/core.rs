//! One informer's objects: what the list and watch loops say goes into the store, and from there to the handlers.
//!
//! There is a loop for the whole kind, or one for each namespace; each speaks through its [`Part`]. The informer is synced when all parts are, and
//! the revision it publishes is the smallest of theirs: whatever was written up to it is in the store, in whichever namespace.
//!
//! The store changes and the change is published under the fan's gate, so that a handler that joins sees every object once: as it was, or as it
//! became. What comes twice, or too late, is nothing: an object's revision only grows.

use super::{
    fan::{Cursor, Event, Fan, Publisher},
    life::first,
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
use tokio::{sync::watch, time::Instant};

/// How an informer is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    /// Declared; nobody asks the server.
    Idle,
    /// Nothing is known yet.
    Starting,
    /// The server has no such kind, in its own words.
    Absent { error: String },
    /// Up to date, as far as the server has told.
    Synced,
    /// It serves what it had. Since when, and what the server said last.
    Degraded { since: SystemTime, error: String },
    /// It has ended, and will not be started again.
    Ended,
}

pub(crate) struct Core<P> {
    pub(crate) store: Store<P>,
    fan: Fan<P>,
    decoder: Decoder,
    /// How each part is. Held while the store changes, so that revisions are published in order.
    parts: Mutex<Vec<State>>,
    condition: watch::Sender<Condition>,
    /// Whether the first list of every part has come: from then on, reads are served.
    listed: watch::Sender<bool>,
    events: AtomicU64,
    relists: AtomicU64,
    decode_errors: AtomicU64,
    last_decode_error: Mutex<Option<Undecodable>>,
    last_event: Mutex<Option<Instant>>,
}

/// What is known of one part.
struct State {
    /// Up to where it is, once it was listed.
    revision: Option<u64>,
    condition: Condition,
}

impl<P: Payload> Core<P> {
    pub(crate) fn new(decoder: Decoder) -> Self {
        Self {
            store: Store::default(),
            fan: Fan::default(),
            decoder,
            parts: Mutex::default(),
            condition: watch::Sender::new(Condition::Idle),
            listed: watch::Sender::new(false),
            events: AtomicU64::new(0),
            relists: AtomicU64::new(0),
            decode_errors: AtomicU64::new(0),
            last_decode_error: Mutex::default(),
            last_event: Mutex::default(),
        }
    }

    /// Where the loops of these namespaces, or the one of everything, put what they are told. Once.
    pub(crate) fn parts(self: &Arc<Self>, namespaces: impl IntoIterator<Item = Option<String>>) -> Vec<Part<P>> {
        let part = |(number, namespace)| Part { core: self.clone(), number, namespace };
        let parts: Vec<_> = namespaces.into_iter().enumerate().map(part).collect();
        let begin = || State { revision: None, condition: Condition::Starting };
        *self.parts.lock() = parts.iter().map(|_| begin()).collect();
        parts
    }

    pub(crate) fn condition(&self) -> Condition {
        self.condition.borrow().clone()
    }

    /// For what is not a part's: before there are any. What has ended stays so.
    pub(crate) fn set_condition(&self, condition: Condition) {
        self.condition.send_if_modified(|current| {
            let changes = *current != condition && *current != Condition::Ended;
            if changes {
                *current = condition;
            }
            changes
        });
    }

    /// Ended for good: handlers are told what is left, and that it is over.
    pub(crate) fn end(&self) {
        self.fan.close();
        self.set_condition(Condition::Ended);
    }

    pub(crate) fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    /// Until the first list has come; or until it never will: then this is false.
    pub(crate) async fn synced(&self) -> bool {
        let (mut listed, mut condition) = (self.listed.subscribe(), self.condition.subscribe());
        // The senders are here, so that they cannot be gone.
        let listed = async { drop(listed.wait_for(|listed| *listed).await) };
        let ended = async { drop(condition.wait_for(|condition| *condition == Condition::Ended).await) };
        first(listed, ended).await
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
            last_decode_error: self.last_decode_error.lock().as_ref().map(ToString::to_string),
            last_event: *self.last_event.lock(),
        }
    }

    fn happened(&self, events: u64) {
        if events > 0 {
            self.events.fetch_add(events, Relaxed);
            *self.last_event.lock() = Some(Instant::now());
        }
    }

    /// A part has changed: what that says of the whole. The worst of them is how the informer is.
    fn judge(&self, parts: &[State]) {
        let rank = |condition: &Condition| match condition {
            Condition::Idle | Condition::Synced => 0,
            Condition::Starting => 1,
            Condition::Absent { .. } => 2,
            Condition::Degraded { .. } => 3,
            Condition::Ended => 4,
        };
        let Some(worst) = parts.iter().map(|part| &part.condition).max_by_key(|condition| rank(condition)) else {
            return;
        };
        self.set_condition(worst.clone());
    }
}

/// What has happened so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) relists: u64,
    pub(crate) decode_errors: u64,
    pub(crate) last_decode_error: Option<String>,
    pub(crate) last_event: Option<Instant>,
}

/// One loop's end of the informer: the objects of one namespace, or all of them.
pub(crate) struct Part<P> {
    core: Arc<Core<P>>,
    number: usize,
    namespace: Option<String>,
}

impl<P> Part<P> {
    #[cfg(feature = "bench-internals")]
    pub(super) fn core(&self) -> &Core<P> {
        &self.core
    }

    /// This part has reached a revision: change the store at the one that all have, which is 0 until all were listed.
    fn at<R>(&self, revision: u64, change: impl FnOnce(u64) -> R) -> R {
        let mut parts = self.core.parts.lock();
        parts[self.number].revision = Some(revision);
        change(parts.iter().map(|part| part.revision.unwrap_or_default()).min().unwrap_or_default())
    }

    fn is_listed(&self) -> bool {
        self.core.parts.lock()[self.number].revision.is_some()
    }
}

impl<P: Payload> Sink for Part<P> {
    type Payload = P;

    fn decoder(&self) -> &Decoder {
        &self.core.decoder
    }

    fn all(&self, entries: Vec<Entry<P>>, revision: u64) {
        let core = &self.core;
        let first = !self.is_listed();
        let changes = self.at(revision, |reached| {
            core.fan.write(|publisher| {
                let changes = core.store.replace(self.namespace.as_deref(), entries, reached, is_same);
                let count = changes.len() as u64;
                publisher.publish_all(changes.into_iter().map(|change: Change<P>| Event::listed(change, first)));
                count
            })
        });
        core.happened(changes);
        if !first {
            core.relists.fetch_add(1, Relaxed);
        } else if core.parts.lock().iter().all(|part| part.revision.is_some()) {
            core.fan.write(|publisher| Publisher::synced(publisher));
            core.listed.send_replace(true);
        }
    }

    fn put(&self, entry: Entry<P>, revision: u64) {
        let core = &self.core;
        let known = core.store.get(&entry.key).and_then(|known| known.revision());
        if known.zip(entry.object.revision()).is_some_and(|(known, new)| known >= new) {
            return self.at(revision, |reached| core.store.advance(reached));
        }
        self.at(revision, |reached| {
            core.fan.write(|publisher| {
                let old = core.store.put(entry.clone(), reached);
                publisher.publish(match old {
                    Some(old) => Event::Update { old, new: entry },
                    None => Event::Create { object: entry, initial: false },
                });
            });
        });
        core.happened(1);
    }

    fn deleted(&self, key: &ObjectKey, last: Option<P>, revision: u64) {
        let core = &self.core;
        let deleted = self.at(revision, |reached| {
            core.fan.write(|publisher| {
                let Some(mut entry) = core.store.remove(key, reached) else { return 0 };
                if let Some(last) = last {
                    entry.object = Arc::new(last);
                }
                publisher.publish(Event::Delete { object: entry, state_unknown: false });
                1
            })
        });
        core.happened(deleted);
    }

    fn nothing_up_to(&self, revision: u64) {
        // Bookmarks come once in a while, and when there is time.
        self.core.decoder.sweep();
        self.at(revision, |reached| self.core.store.advance(reached));
    }

    fn undecodable(&self, what: Undecodable) {
        self.core.decode_errors.fetch_add(1, Relaxed);
        *self.core.last_decode_error.lock() = Some(what);
    }

    fn well(&self) {
        let mut parts = self.core.parts.lock();
        parts[self.number].condition = Condition::Synced;
        self.core.judge(&parts);
    }

    fn failed(&self, failure: &Failure) {
        let mut parts = self.core.parts.lock();
        let error = failure.to_string();
        let condition = &mut parts[self.number].condition;
        *condition = match condition {
            _ if failure.is_absent() => Condition::Absent { error },
            Condition::Degraded { since, .. } => Condition::Degraded { since: *since, error },
            _ => Condition::Degraded { since: SystemTime::now(), error },
        };
        self.core.judge(&parts);
    }
}

/// Equal versions are equal objects, unless an object was deleted and made anew in a server that counts anew.
fn is_same<P: Payload>(old: &P, new: &P) -> bool {
    let (old, new) = (old.meta(), new.meta());
    old.resource_version() == new.resource_version() && old.uid() == new.uid()
}

#[cfg(test)]
mod tests;
