//! One informer's objects: what the list and watch loops say goes into the store, and from there to the handlers.
//!
//! There is a loop for the whole kind, or one for each namespace; each speaks through its [`Part`]. The informer is synced when all parts are, and
//! the revision it publishes is the smallest of theirs: whatever was written up to it is in the store, in whichever namespace.
//!
//! The store changes and the change is published under the fan's gate, so that a handler that joins sees every object once: as it was, or as it
//! became. What comes twice, or too late, is nothing: an object's revision only grows. What can no longer be read stays as it was until it can be
//! again, or is gone; what never could is only counted.

use super::{
    fan::{Cursor, Event, Fan, Publisher},
    life::first,
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
    tally: Tally,
    decode_errors: Trouble<Undecodable>,
}

/// What is known of one part.
struct State {
    /// Up to where it is, once it was listed.
    revision: Option<u64>,
    condition: Condition,
    /// When the server last said something of it.
    heard: Option<Instant>,
    watched: bool,
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
            tally: Tally::default(),
            decode_errors: Trouble::default(),
        }
    }

    /// Where the loops of these namespaces, or the one of everything, put what they are told. Once.
    pub(crate) fn parts(self: &Arc<Self>, namespaces: impl IntoIterator<Item = Option<String>>) -> Vec<Part<P>> {
        let part = |(number, namespace)| Part { core: self.clone(), number, namespace };
        let parts: Vec<_> = namespaces.into_iter().enumerate().map(part).collect();
        let begin = || State { revision: None, condition: Condition::Starting, heard: None, watched: false };
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

    pub(crate) fn stats(&self) -> InformerStats {
        let (decode_errors, last_decode_error) = self.decode_errors.read();
        let (index_errors, last_index_error) = self.store.index_errors.read();
        let heard = self.parts.lock().iter().filter_map(|part| part.heard).min();
        InformerStats {
            objects: self.store.len(),
            approximate_bytes: self.store.bytes(),
            since_heard: heard.map(|heard| heard.elapsed()),
            decode_errors,
            last_decode_error,
            index_errors,
            last_index_error,
            handlers: self.fan.stats(),
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

/// One loop's end of the informer: the objects of one namespace, or all of them.
pub(crate) struct Part<P> {
    core: Arc<Core<P>>,
    number: usize,
    namespace: Option<String>,
}

impl<P> Part<P> {
    /// This part has reached a revision: change the store at the one that all have, which is 0 until all were listed.
    fn at<R>(&self, revision: u64, change: impl FnOnce(u64) -> R) -> R {
        let mut parts = self.core.parts.lock();
        parts[self.number].revision = Some(revision);
        parts[self.number].heard = Some(Instant::now());
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

    fn all(&self, entries: Vec<Entry<P>>, unread: Vec<ObjectKey>, revision: u64) {
        let core = &self.core;
        let first = !self.is_listed();
        let changes = self.at(revision, |reached| {
            core.fan.write(|publisher| {
                let changes = core.store.replace(self.namespace.as_deref(), entries, &unread, reached, is_same);
                let count = changes.len() as u64;
                publisher.publish_all(changes.into_iter().map(|change: Change<P>| Event::listed(change, first)));
                count
            })
        });
        core.tally.happened(changes);
        if !first {
            core.tally.relists.fetch_add(1, Relaxed);
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
        core.tally.happened(1);
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
        core.tally.happened(deleted);
    }

    fn nothing_up_to(&self, revision: u64) {
        // Bookmarks come once in a while, and when there is time.
        self.core.decoder.sweep();
        self.at(revision, |reached| self.core.store.advance(reached));
    }

    fn undecodable(&self, what: Undecodable) {
        self.core.decode_errors.note(what);
    }

    fn watching(&self) {
        let part = &mut self.core.parts.lock()[self.number];
        part.heard = Some(Instant::now());
        if std::mem::replace(&mut part.watched, true) {
            self.core.tally.watch_restarts.fetch_add(1, Relaxed);
        }
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
