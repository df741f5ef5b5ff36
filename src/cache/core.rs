//! One informer's objects: what the list and watch loops say goes into the store, and from there to the handlers.
//!
//! There is a loop for the whole kind, or one for each namespace; each speaks through its [`Part`]. The informer is synced when all parts are, and
//! the revision it publishes is the smallest of theirs: whatever was written up to it is in the store, in whichever namespace. A part that joins later
//! has nothing to say before it was listed; the objects of one that leaves are gone, as if a list had not shown them any more.
//!
//! The store changes and the change is published under the fan's gate, so that a handler that joins sees every object once: as it was, or as it
//! became. What comes twice, or too late, is nothing: an object's revision only grows.

use super::{
    fan::{Cursor, Event, Fan, Publisher},
    life::first,
    parts::Parts,
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
    parts: Mutex<Parts>,
    condition: watch::Sender<Condition>,
    /// Whether the first list of every part has come: from then on, reads are served.
    listed: watch::Sender<bool>,
    events: AtomicU64,
    relists: AtomicU64,
    decode_errors: AtomicU64,
    last_decode_error: Mutex<Option<Undecodable>>,
    last_event: Mutex<Option<Instant>>,
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

    /// Where the loop of this namespace, or of all that have none of their own, puts what it is told. It begins anew if it was there before, and
    /// must not be any more.
    pub(crate) fn join(self: &Arc<Self>, namespace: Option<String>) -> Part<P> {
        let mut parts = self.parts.lock();
        parts.begin(namespace.as_deref());
        self.judge(&parts);
        drop(parts);
        Part { core: self.clone(), namespace }
    }

    /// The namespace is kept no longer: its objects are gone, and whether they are on the server, nobody knows.
    pub(crate) fn leave(&self, namespace: &str) {
        let mut parts = self.parts.lock();
        if parts.remove(namespace).is_none() {
            return;
        }
        let reached = if self.is_listed() { parts.reached() } else { None };
        let about = |key: &ObjectKey| parts.has(Some(namespace), key);
        let revision = reached.unwrap_or_else(|| self.store.revision());
        let changes = self.replace(about, Vec::new(), revision, false);
        self.judge(&parts);
        drop(parts);
        self.happened(changes);
    }

    /// All parts that there are in the beginning have joined: when each was listed, so is the whole.
    pub(crate) fn all_joined(&self) {
        let mut parts = self.parts.lock();
        parts.all_joined();
        self.judge(&parts);
    }

    /// The conditions that it comes to be in.
    pub(crate) fn conditions(&self) -> watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    /// How that is which says what parts there are.
    pub(crate) fn parts_are(&self, condition: Condition) {
        let mut parts = self.parts.lock();
        parts.set(condition);
        self.judge(&parts);
    }

    /// Up to where a namespace's objects are; `None` if they are not kept, or were not listed yet.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the ledger of writes, which comes next"))]
    pub(crate) fn revision_of(&self, namespace: &str) -> Option<u64> {
        self.parts.lock().revision_of(namespace)
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

    /// A list of what it is `about`, in the store and told.
    fn replace(&self, about: impl Fn(&ObjectKey) -> bool, entries: Vec<Entry<P>>, revision: u64, first: bool) -> u64 {
        self.fan.write(|publisher| {
            let changes = self.store.replace(about, entries, revision, is_same);
            let count = changes.len() as u64;
            publisher.publish_all(changes.into_iter().map(|change: Change<P>| Event::listed(change, first)));
            count
        })
    }

    /// A part has changed: what that says of the whole.
    fn judge(&self, parts: &Parts) {
        // Before anybody is told of a sync, so that who was told finds it so.
        self.set_condition(parts.worst().clone());
        if parts.are_listed() && !self.is_listed() {
            self.fan.write(|publisher| Publisher::synced(publisher));
            self.listed.send_replace(true);
        }
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

/// One loop's end of the informer: the objects of one namespace, or all that are in none of the others. Once that has left, it says nothing.
pub(crate) struct Part<P> {
    core: Arc<Core<P>>,
    namespace: Option<String>,
}

impl<P: Payload> Part<P> {
    /// This part has reached a revision: change the store at the one that all have, which is 0 until all were listed.
    fn at<R: Default>(&self, revision: u64, change: impl FnOnce(u64, &Parts) -> R) -> R {
        let mut parts = self.core.parts.lock();
        let Some(state) = parts.get_mut(self.namespace.as_deref()) else { return R::default() };
        state.revision = Some(revision);
        let all = self.core.is_listed() || parts.are_listed();
        change(parts.reached().filter(|_| all).unwrap_or_default(), &parts)
    }

    fn is_listed(&self) -> bool {
        let mut parts = self.core.parts.lock();
        parts.get_mut(self.namespace.as_deref()).is_some_and(|part| part.revision.is_some())
    }

    fn is(&self, change: impl FnOnce(&mut Condition)) {
        let mut parts = self.core.parts.lock();
        if let Some(state) = parts.get_mut(self.namespace.as_deref()) {
            change(&mut state.condition);
            self.core.judge(&parts);
        }
    }
}

impl<P: Payload> Sink for Part<P> {
    type Payload = P;

    fn decoder(&self) -> &Decoder {
        &self.core.decoder
    }

    fn all(&self, entries: Vec<Entry<P>>, revision: u64) {
        let core = &self.core;
        let again = self.is_listed();
        let first = !again && !core.is_listed();
        let changes = self.at(revision, |reached, parts| {
            let about = |key: &ObjectKey| parts.has(self.namespace.as_deref(), key);
            core.replace(about, entries, reached, first)
        });
        core.happened(changes);
        core.relists.fetch_add(u64::from(again), Relaxed);
        self.well();
    }

    fn put(&self, entry: Entry<P>, revision: u64) {
        let core = &self.core;
        let known = core.store.get(&entry.key).and_then(|known| known.revision());
        if known.zip(entry.object.revision()).is_some_and(|(known, new)| known >= new) {
            return self.at(revision, |reached, _| core.store.advance(reached));
        }
        self.at(revision, |reached, _| {
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
        let deleted = self.at(revision, |reached, _| {
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
        self.at(revision, |reached, _| self.core.store.advance(reached));
    }

    fn undecodable(&self, what: Undecodable) {
        self.core.decode_errors.fetch_add(1, Relaxed);
        *self.core.last_decode_error.lock() = Some(what);
    }

    fn well(&self) {
        self.is(|condition| *condition = Condition::Synced);
    }

    fn failed(&self, failure: &Failure) {
        let error = failure.to_string();
        self.is(|condition| {
            *condition = match condition {
                _ if failure.is_absent() => Condition::Absent { error },
                Condition::Degraded { since, .. } => Condition::Degraded { since: *since, error },
                _ => Condition::Degraded { since: SystemTime::now(), error },
            };
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
