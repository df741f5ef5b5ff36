//! One informer's objects: what the list and watch loops say goes into the store, and from there to the handlers.
//!
//! There is a loop for the whole kind, or one for each namespace; each speaks through its [`Part`]. The informer is synced when all parts are, and
//! the revision it publishes is the smallest of theirs: whatever was written up to it is in the store, in whichever namespace. A part that joins later
//! has nothing to say before it was listed; the objects of one that leaves are gone, as if a list had not shown them any more.
//!
//! The store changes and the change is published under the fan's gate, so that a handler that joins sees every object once: as it was, or as it
//! became. An object that does not decode keeps its last good state in the store, if it had one,
//! until it decodes again or is gone. Meanwhile it is among the [undecoded
//! objects](super::undecoded).

use super::{
    erased::Settled,
    fan::{Cursor, Event, Fan, Publisher},
    ledger::{Fate, Ledger},
    life::first,
    part::Part,
    parts::Parts,
    stats::{InformerStats, LARGEST, Misfit, Misfits, ObjectSize, Tally, Trouble},
    store::{About, Change, Entry, Store},
    undecoded::UndecodedObjects,
};
use crate::object::{Decoder, Meta, ObjectKey, Payload, Undecoded};
use hashbrown::HashSet;
use kube_core::TypeMeta;
use parking_lot::{RwLock, RwLockWriteGuard};
use std::{
    cmp::Reverse,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
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
    /// The informer serves the last known objects and retries.
    ///
    /// `refused` is set if an immediate retry cannot succeed, so that a lazy read does not wait for
    /// one: the server has rejected the list or watch, the kind is cluster-scoped and declared for
    /// some namespaces, or a panic has ended a loop of the informer.
    Degraded { since: SystemTime, error: String, refused: bool },
    /// It has ended, and will not be started again.
    Ended,
}

impl Condition {
    /// The server was asked, and why there is nothing is known: who can do without it waits for nothing more.
    pub(crate) fn is_no(&self) -> bool {
        matches!(self, Self::Absent { .. } | Self::Degraded { .. } | Self::Ended)
    }

    /// The same, in the server's own words: to ask at once again is no use.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Absent { .. } | Self::Degraded { refused: true, .. } | Self::Ended)
    }
}

pub(crate) struct Core<P> {
    pub(crate) store: Store<P>,
    pub(super) undecoded: UndecodedObjects,
    pub(super) fan: Fan<P>,
    /// Told of every change once the store shows it.
    pub(crate) ledger: Arc<Ledger>,
    pub(super) decoder: Decoder,
    /// How each part is. Who changes the store holds it, so that revisions are published in order, but lets others read it, because it takes as long
    /// as the users' index functions do.
    pub(super) parts: RwLock<Parts>,
    condition: watch::Sender<Condition>,
    /// Whether the first list of every part has come: from then on, reads are served.
    listed: watch::Sender<bool>,
    /// The same: every read asks, and readers must not meet at a lock.
    is_listed: AtomicBool,
    pub(super) tally: Tally,
    pub(super) decode_errors: Trouble<String>,
    misfits: Misfits,
}

impl<P: Payload> Core<P> {
    pub(crate) fn new(decoder: Decoder) -> Self {
        let types = decoder.types().clone();
        Self {
            store: Store::default(),
            undecoded: UndecodedObjects::default(),
            fan: Fan::new(Arc::new(move |key, object: &Arc<P>| object.to_metadata(&types, key))),
            ledger: Arc::default(),
            decoder,
            parts: RwLock::default(),
            condition: watch::Sender::new(Condition::Idle),
            listed: watch::Sender::new(false),
            is_listed: AtomicBool::new(false),
            tally: Tally::default(),
            decode_errors: Trouble::default(),
            misfits: Misfits::default(),
        }
    }

    /// There are no loops, and now there will be: which ones, [`join`](Self::join) says. The revision never falls because of it, and what was told is not
    /// told as initial again. What was wrong is so until it is not.
    pub(crate) fn begin(&self) {
        let start = match self.condition() {
            degraded @ Condition::Degraded { .. } => degraded,
            _ => Condition::Starting,
        };
        let mut parts = self.parts.write();
        *parts = parts.anew(start);
    }

    /// Where the loop of this namespace, or of all that have none of their own, puts what it is told. It begins anew if it was there before, and
    /// must not be any more.
    pub(crate) fn join(self: &Arc<Self>, namespace: Option<String>) -> Part<P> {
        let mut parts = self.parts.write();
        parts.begin(namespace.as_deref());
        self.ledger.join(namespace.as_deref());
        self.judge(&parts);
        drop(parts);
        Part { core: self.clone(), namespace }
    }

    /// The namespace is kept no longer: its objects are gone, and whether they are on the server, nobody knows.
    pub(crate) fn leave(&self, namespace: &str) {
        let mut parts = self.parts.write();
        if parts.remove(namespace).is_none() {
            return;
        }
        let parts = RwLockWriteGuard::downgrade_to_upgradable(parts);
        let revision = parts.revision(self.published());
        let changes = self.replace(About::Namespace(namespace), Vec::new(), Vec::new(), revision, Listing::Again);
        self.ledger.leave(namespace);
        self.judge(&parts);
        drop(parts);
        self.tally.happened(changes, Instant::now());
    }

    /// All parts that there are in the beginning have joined: when each was listed, so is the whole. What is of none of them, from before, is gone.
    pub(crate) fn all_joined(&self) {
        let mut parts = self.parts.write();
        parts.all_joined();
        let parts = RwLockWriteGuard::downgrade_to_upgradable(parts);
        let of_none = |key: &ObjectKey| !parts.have(key);
        let revision = parts.revision(self.published());
        let changes = self.replace(About::Those(&of_none), Vec::new(), Vec::new(), revision, Listing::Again);
        self.ledger.keep(|part| parts.are(part));
        self.judge(&parts);
        drop(parts);
        self.tally.happened(changes, Instant::now());
    }

    /// The revision that readers were told, if they are served.
    pub(super) fn published(&self) -> Option<u64> {
        self.is_listed().then(|| self.store.revision())
    }

    /// The conditions that it comes to be in.
    pub(crate) fn conditions(&self) -> watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    /// How that is which says what parts there are.
    pub(crate) fn parts_are(&self, condition: Condition) {
        let mut parts = self.parts.write();
        parts.set(condition);
        self.judge(&parts);
    }

    /// Whether a namespace's objects are kept, and were listed: what is not there then is not on the server.
    pub(crate) fn knows(&self, namespace: &str) -> bool {
        self.settled().know(namespace)
    }

    /// While this is held no part comes, goes, or is said to be listed; a list is in the store before that.
    pub(super) fn settled(&self) -> Settled<'_> {
        self.parts.read()
    }

    /// Up to where they are; `None` if they are not kept, or were not listed yet.
    #[cfg(test)]
    pub(crate) fn revision_of(&self, namespace: &str) -> Option<u64> {
        self.parts.read().revision_of(namespace)
    }

    pub(crate) fn condition(&self) -> Condition {
        self.condition.borrow().clone()
    }

    /// For what is not a part's: before there are any. What has ended stays so.
    pub(crate) fn set_condition(&self, condition: Condition) {
        let mut before = None;
        self.condition.send_if_modified(|current| {
            let changes = *current != condition && *current != Condition::Ended;
            if changes {
                before = Some(std::mem::replace(current, condition.clone()));
            }
            changes
        });
        if let Some(before) = before {
            self.log(&before, &condition);
        }
    }

    /// Once for each change, however often the same is tried and refused.
    fn log(&self, before: &Condition, now: &Condition) {
        let TypeMeta { api_version, kind } = &**self.decoder.types();
        match (before, now) {
            (Condition::Degraded { .. }, Condition::Degraded { .. })
            | (Condition::Absent { .. }, Condition::Absent { .. }) => {}
            (_, Condition::Degraded { error, .. }) => {
                tracing::warn!(
                    api_version,
                    kind,
                    error,
                    "an informer is degraded: it serves what it had, and tries again"
                );
            }
            (_, Condition::Absent { error }) => {
                tracing::info!(api_version, kind, error, "the server has no such kind: its informer waits for it");
            }
            (Condition::Degraded { .. }, Condition::Starting | Condition::Synced) => {
                tracing::info!(api_version, kind, "an informer is no longer degraded");
            }
            (Condition::Absent { .. }, Condition::Starting | Condition::Synced) => {
                tracing::info!(api_version, kind, "the kind that an informer waits for is there");
            }
            _ => {}
        }
    }

    /// There is no such kind any more, nor are there objects. For when no loop runs.
    pub(crate) fn clear(&self) {
        let revision = self.store.revision();
        let deleted = self.replace(About::Those(&|_| true), Vec::new(), Vec::new(), revision, Listing::Again);
        self.tally.happened(deleted, Instant::now());
        self.ledger.forget();
    }

    /// Ended for good: handlers are told what is left, and that it is over.
    pub(crate) fn end(&self) {
        self.fan.close();
        self.set_condition(Condition::Ended);
        self.ledger.end();
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed.load(Acquire)
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
        self.fan.subscribe(|| {
            let snapshot = self.store.snapshot();
            (snapshot.len(), snapshot.into_entries())
        })
    }

    /// What became of the object with this uid; without one, of whichever has the key.
    pub(crate) fn fate(&self, key: &ObjectKey, uid: Option<&str>) -> Fate {
        let fate = |object: Meta<'_>| match object {
            object if uid.is_some() && object.uid() != uid => Fate::Gone,
            object if object.is_deleting() => Fate::Deleting,
            _ => Fate::There,
        };
        match self.undecoded.get(key) {
            Some(object) => fate(object.meta()),
            None => self.store.get(key).map_or(Fate::Gone, |object| fate(object.meta())),
        }
    }

    /// A reader could not read an object as what it asked for: what is kept packed is not looked at before. It counts once, until it changes.
    pub(super) fn misfit(&self, misfit: &Misfit) {
        if self.misfits.is_new(misfit) {
            self.decode_errors.note(misfit.error.to_string());
        }
    }

    pub(crate) fn stats(&self) -> InformerStats {
        let (decode_errors, last_decode_error) = self.decode_errors.read();
        let (index_errors, last_index_error) = self.store.index_errors.read();
        let heard = self.parts.read().heard();
        InformerStats {
            objects: self.store.len(),
            approximate_bytes: self.store.bytes(),
            since_heard: heard.map(|heard| heard.elapsed()),
            undecoded: self.undecoded.len(),
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
        let size = |entry: &Entry<P>| ObjectSize { key: entry.key.clone(), approximate_bytes: measured(entry) };
        let mut largest: Vec<_> = entries.into_iter().map(size).collect();
        largest.sort_by(|a, b| (Reverse(a.approximate_bytes), &a.key).cmp(&(Reverse(b.approximate_bytes), &b.key)));
        largest.truncate(LARGEST);
        largest
    }

    /// How much the largest one takes, by what was guessed when it came: a walk over all entries, and a look at one object.
    pub(crate) fn largest_bytes(&self) -> Option<u64> {
        self.store.snapshot().iter().max_by_key(|entry| entry.bytes).map(measured)
    }

    /// Replaces the objects that a list is `about`, and publishes the changes. Returns their
    /// number.
    ///
    /// An object that does not decode keeps its last good state, unless its uid shows that it was
    /// created again.
    pub(super) fn replace(
        &self,
        about: About<'_>,
        entries: Vec<Entry<P>>,
        undecoded: Vec<Arc<Undecoded>>,
        revision: u64,
        listing: Listing,
    ) -> u64 {
        let keys: HashSet<_> = undecoded.iter().map(|object| object.key()).collect();
        let is_known = |one: &&Arc<Undecoded>| self.store.get(&one.key()).is_some_and(|known| one.may_be(known.meta()));
        let kept: Vec<_> = undecoded.iter().filter(is_known).map(|one| one.key()).collect();
        let mut is_new = false;
        for object in undecoded {
            is_new |= self.undecoded.put(object);
        }
        let is_same = |old: &P, new: &P| listing != Listing::SetBack && is_same(old, new);
        let count = self.fan.write(|publisher| {
            let changes = self.store.replace(about, entries, &kept, revision, is_same);
            let count = changes.len() as u64;
            let first = listing == Listing::First;
            publisher.publish_all(changes.into_iter().map(|change: Change<P>| Event::listed(change, first)));
            count
        });
        self.undecoded.retain(|key| keys.contains(key) || !about.is_about(key));
        if is_new {
            self.fan.wake();
        }
        count
    }

    /// A part has changed: what that says of the whole. Whoever hears of a sync, in whichever way, is served by then; who only looks may be served a moment
    /// before the condition says so.
    pub(super) fn judge(&self, parts: &Parts) {
        let syncs = parts.are_listed() && !self.is_listed();
        if syncs {
            self.is_listed.store(true, Release);
        }
        self.set_condition(parts.worst().clone());
        if syncs {
            self.fan.write(|publisher| Publisher::synced(publisher));
            self.listed.send_replace(true);
        }
    }
}

/// How much memory an object takes.
fn measured<P: Payload>(entry: &Entry<P>) -> u64 {
    Decoder::measure(&*entry.object).map_or(entry.bytes.into(), |bytes| bytes as u64)
}

/// What a list is to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// There was none: all of it is initial.
    First,
    Again,
    /// The server is behind what it had told, as one that was restored from a backup: it gives out versions a second time, and of two objects with the same one
    /// only the new one is on the server.
    SetBack,
}

/// Equal versions are equal objects, unless an object was deleted and made anew in a server that counts anew; and unless the server was
/// [set back](Listing::SetBack).
fn is_same<P: Payload>(old: &P, new: &P) -> bool {
    let (old, new) = (old.meta(), new.meta());
    old.resource_version() == new.resource_version() && old.uid() == new.uid()
}

#[cfg(test)]
mod tests;
