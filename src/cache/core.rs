//! One informer's objects: what the list and watch loops say goes into the store, and from there to the handlers.
//!
//! There is a loop for the whole kind, or one for each namespace; each speaks through its [`Part`]. The informer is synced when all parts are, and
//! the revision it publishes is the smallest of theirs: whatever was written up to it is in the store, in whichever namespace. A part that joins later
//! has nothing to say before it was listed; the objects of one that leaves are gone, as if a list had not shown them any more.
//!
//! The store changes and the change is published under the fan's gate, so that a handler that joins sees every object once: as it was, or as it
//! became. What comes twice, or too late, is nothing: a part's revision only grows, but for a list, which says where the server is now. What can no
//! longer be read stays as it was until it can be again, or is gone; what never could is only counted.

use super::{
    fan::{Cursor, Event, Fan, Publisher},
    ledger::{Fate, Ledger, Told},
    life::first,
    parts::Parts,
    reflect::{Failure, Sink},
    stats::{InformerStats, LARGEST, ObjectSize, Tally, Trouble},
    store::{Change, Entry, Store},
};
use crate::object::{Decoder, ObjectKey, Payload, Undecodable};
use parking_lot::Mutex;
use std::{
    cmp::Reverse,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::SystemTime,
};
use tokio::{sync::watch, time::Instant};

/// How many are measured to find the largest.
const CANDIDATES: usize = 64;

/// How an informer is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    /// Declared; nobody asks the server.
    Idle,
    /// Nothing is known yet.
    Starting,
    /// The server has no such kind: in words, and what is done about it.
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
    /// Told of every change once the store shows it.
    pub(crate) ledger: Arc<Ledger>,
    decoder: Decoder,
    /// How each part is. Held while the store changes, so that revisions are published in order.
    parts: Mutex<Parts>,
    condition: watch::Sender<Condition>,
    /// Whether the first list of every part has come: from then on, reads are served.
    listed: watch::Sender<bool>,
    tally: Tally,
    decode_errors: Trouble<Undecodable>,
}

impl<P: Payload> Core<P> {
    pub(crate) fn new(decoder: Decoder) -> Self {
        Self {
            store: Store::default(),
            fan: Fan::default(),
            ledger: Arc::default(),
            decoder,
            parts: Mutex::default(),
            condition: watch::Sender::new(Condition::Idle),
            listed: watch::Sender::new(false),
            tally: Tally::default(),
            decode_errors: Trouble::default(),
        }
    }

    /// There are no loops, and now there will be: which ones, [`join`](Self::join) says. The revision never falls because of it, and what was told is not
    /// told as initial again. What was wrong is so until it is not.
    pub(crate) fn begin(&self) {
        let start = match self.condition() {
            degraded @ Condition::Degraded { .. } => degraded,
            _ => Condition::Starting,
        };
        *self.parts.lock() = Parts::new(start);
    }

    /// Where the loop of this namespace, or of all that have none of their own, puts what it is told. It begins anew if it was there before, and
    /// must not be any more.
    pub(crate) fn join(self: &Arc<Self>, namespace: Option<String>) -> Part<P> {
        let mut parts = self.parts.lock();
        parts.begin(namespace.as_deref());
        self.ledger.join(namespace.as_deref());
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
        let changes = self.replace(about, Vec::new(), &[], revision, false);
        self.ledger.leave(namespace);
        self.judge(&parts);
        drop(parts);
        self.tally.happened(changes);
    }

    /// All parts that there are in the beginning have joined: when each was listed, so is the whole. What is of none of them, from before, is gone.
    pub(crate) fn all_joined(&self) {
        let mut parts = self.parts.lock();
        parts.all_joined();
        let changes = self.replace(|key| !parts.have(key), Vec::new(), &[], self.store.revision(), false);
        self.ledger.keep(|part| parts.are(part));
        self.judge(&parts);
        drop(parts);
        self.tally.happened(changes);
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

    /// There is no such kind any more, nor are there objects. For when no loop runs.
    pub(crate) fn clear(&self) {
        let deleted = self.replace(|_| true, Vec::new(), &[], self.store.revision(), false);
        self.tally.happened(deleted);
        self.ledger.forget();
    }

    /// Ended for good: handlers are told what is left, and that it is over.
    pub(crate) fn end(&self) {
        self.fan.close();
        self.set_condition(Condition::Ended);
        self.ledger.end();
    }

    pub(crate) fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    /// Until the first list has come; or until it never will: then this is false.
    pub(crate) async fn synced(&self) -> bool {
        let mut listed = self.listed.subscribe();
        // The sender is here, so that it cannot be gone.
        let listed = async { drop(listed.wait_for(|listed| *listed).await) };
        first(listed, self.ended()).await
    }

    pub(crate) async fn ended(&self) {
        let _ = self.condition.subscribe().wait_for(|condition| *condition == Condition::Ended).await;
    }

    /// The state as it is, and then what happens.
    pub(crate) fn subscribe(&self) -> Cursor<P> {
        self.fan.subscribe(|| self.store.snapshot().into_entries())
    }

    /// What became of the object with this uid.
    pub(crate) fn fate(&self, key: &ObjectKey, uid: &str) -> Fate {
        match self.store.get(key) {
            Some(object) if object.meta().uid() != Some(uid) => Fate::Gone,
            Some(object) if object.meta().is_deleting() => Fate::Deleting,
            Some(_) => Fate::There,
            None => Fate::Gone,
        }
    }

    pub(crate) fn stats(&self) -> InformerStats {
        let (decode_errors, last_decode_error) = self.decode_errors.read();
        let (index_errors, last_index_error) = self.store.index_errors.read();
        let heard = self.parts.lock().heard();
        InformerStats {
            objects: self.store.len(),
            approximate_bytes: self.store.bytes(),
            since_heard: heard.map(|heard| heard.elapsed()),
            decode_errors,
            last_decode_error,
            index_errors,
            last_index_error,
            handlers: self.fan.stats(),
            own_writes: self.ledger.stats(),
            ..self.tally.read()
        }
    }

    /// The largest objects. Who may be one of them is told by the sizes that were guessed, who is one by measuring those.
    pub(crate) fn largest(&self) -> Vec<ObjectSize> {
        let snapshot = self.store.snapshot();
        let mut entries: Vec<_> = snapshot.iter().collect();
        if entries.len() > CANDIDATES {
            entries.select_nth_unstable_by_key(CANDIDATES, |entry| Reverse(entry.bytes));
            entries.truncate(CANDIDATES);
        }
        let size = |entry: &Entry<P>| ObjectSize {
            key: entry.key.clone(),
            approximate_bytes: entry.object.heap_bytes() as u64,
        };
        let mut largest: Vec<_> = entries.into_iter().map(size).collect();
        largest.sort_by(|a, b| (Reverse(a.approximate_bytes), &a.key).cmp(&(Reverse(b.approximate_bytes), &b.key)));
        largest.truncate(LARGEST);
        largest
    }

    /// A list of what it is `about`, in the store and told. What could not be read stays as it was.
    fn replace(
        &self,
        about: impl Fn(&ObjectKey) -> bool,
        entries: Vec<Entry<P>>,
        unread: &[ObjectKey],
        revision: u64,
        first: bool,
    ) -> u64 {
        self.fan.write(|publisher| {
            let changes = self.store.replace(about, entries, unread, revision, is_same);
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
        state.heard = Some(Instant::now());
        let all = self.core.is_listed() || parts.are_listed();
        change(parts.reached().filter(|_| all).unwrap_or_default(), &parts)
    }

    /// The revision it is at, or this one if that is later.
    fn reached(&self, revision: u64) -> u64 {
        let mut parts = self.core.parts.lock();
        let at = parts.get_mut(self.namespace.as_deref()).and_then(|part| part.revision);
        at.map_or(revision, |at| at.max(revision))
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

    /// For those who wait for their own writes.
    fn told(&self, revision: u64, told: &Told<'_>) {
        self.core.ledger.told(self.namespace.as_deref(), revision, told);
    }
}

impl<P: Payload> Sink for Part<P> {
    type Payload = P;

    fn decoder(&self) -> &Decoder {
        &self.core.decoder
    }

    fn all(&self, entries: Vec<Entry<P>>, unread: Vec<ObjectKey>, revision: u64) {
        let core = &self.core;
        let again = self.is_listed();
        let first = !again && !core.is_listed();
        let changes = self.at(revision, |reached, parts| {
            let about = |key: &ObjectKey| parts.has(self.namespace.as_deref(), key);
            core.replace(about, entries, &unread, reached, first)
        });
        core.tally.happened(changes);
        core.tally.relists.fetch_add(u64::from(again), Relaxed);
        self.well();
        self.told(revision, &Told::All(&|key, uid| core.fate(key, uid)));
    }

    fn put(&self, entry: Entry<P>, revision: u64) {
        let core = &self.core;
        if entry.object.revision().is_some_and(|new| new <= self.reached(0)) {
            // Told before; it may be gone since.
            return;
        }
        let (key, object) = (entry.key.clone(), entry.object.clone());
        self.at(self.reached(revision), |reached, _| {
            core.fan.write(|publisher| {
                let old = core.store.put(entry.clone(), reached);
                publisher.publish(match old {
                    Some(old) => Event::Update { old, new: entry },
                    None => Event::Create { object: entry, initial: false },
                });
            });
        });
        core.tally.happened(1);
        let meta = object.meta();
        let marked = meta.uid().filter(|_| meta.is_deleting());
        self.told(revision, &marked.map_or(Told::Other, |uid| Told::Deleting(&key, uid)));
    }

    fn deleted(&self, key: &ObjectKey, last: Option<P>, revision: u64) {
        let core = &self.core;
        let known = core.store.get(key).and_then(|known| known.revision());
        if known.is_some_and(|known| known > revision && revision > 0) {
            // Told before; it was made anew since.
            return;
        }
        let uid = last.as_ref().and_then(|last| last.meta().uid().map(str::to_owned));
        let deleted = self.at(self.reached(revision), |reached, _| {
            core.fan.write(|publisher| {
                let Some(mut entry) = core.store.remove(key, reached) else { return 0 };
                if let Some(last) = last {
                    entry.object = Arc::new(last);
                }
                publisher.publish(Event::Delete { object: entry, state_unknown: false });
                1
            })
        });
        core.tally.happened(deleted);
        self.told(revision, &Told::Gone(key, uid.as_deref()));
    }

    fn nothing_up_to(&self, revision: u64) {
        // Bookmarks come once in a while, and when there is time.
        self.core.decoder.sweep();
        self.at(self.reached(revision), |reached, _| self.core.store.advance(reached));
        self.told(revision, &Told::Other);
    }

    fn undecodable(&self, what: Undecodable) {
        self.core.decode_errors.note(what);
    }

    fn watching(&self) {
        let mut parts = self.core.parts.lock();
        let Some(part) = parts.get_mut(self.namespace.as_deref()) else { return };
        part.heard = Some(Instant::now());
        if std::mem::replace(&mut part.watched, true) {
            self.core.tally.watch_restarts.fetch_add(1, Relaxed);
        }
    }

    fn well(&self) {
        self.is(|condition| *condition = Condition::Synced);
    }

    fn failed(&self, failure: &Failure) {
        let error = failure.to_string();
        self.is(|condition| {
            *condition = match condition {
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
