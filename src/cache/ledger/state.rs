//! State of a ledger: entries, waiting reads and announced deletes.
//!
//! Invariant: an entry exists exactly as long as the informer does not show its write. A waiter has
//! the set of its entries, and is woken when the set is empty. Wakers are returned, to be called
//! without the lock.

use super::{
    OwnWrites, Token, Writer,
    entries::{Awaited, Entries, Entry, Id},
    sync::Instant,
};
use crate::object::ObjectKey;
use hashbrown::HashMap;
use std::{collections::BTreeSet, task::Waker, time::Duration};

#[derive(Default)]
pub(super) struct State {
    entries: Entries,
    /// Deletes without a response.
    announced: HashMap<Id, AnnouncedDelete>,
    waiters: HashMap<Id, Waiter>,
    pub(super) stats: OwnWrites,
}

/// Announced delete, with the events of its key since then.
struct AnnouncedDelete {
    key: ObjectKey,
    /// Uids reported as gone. `None` for one that does not decode.
    gone: Vec<Option<String>>,
    /// Whether there was a list, which has no events for missing objects.
    listed: bool,
}

struct Waiter {
    entries: BTreeSet<Id>,
    waker: Option<Waker>,
}

/// Whether an object exists or is being deleted, as shown by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existence {
    Exists,
    Deleting,
    Gone,
}

/// Returns whether the object, by uid if given, exists or is being deleted.
///
/// Called under the ledger's lock.
pub(crate) type ExistenceFn<'a> = &'a dyn Fn(&ObjectKey, Option<&str>) -> Existence;

/// Written version of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenVersion<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) revision: u64,
    /// Whether the informer's selectors match. `None` if the response is not sufficient.
    pub(crate) selected: Option<bool>,
}

/// Message to the informer whose effect the store shows.
pub(crate) enum Observation<'a> {
    /// A revision without a change of a known object.
    Other,
    /// The object with this uid is in the store.
    Exists {
        key: &'a ObjectKey,
        uid: &'a str,
        deleting: bool,
    },
    /// The object is gone. There is no uid if it does not decode.
    Gone(&'a ObjectKey, Option<&'a str>),
    /// A list replaced all objects.
    All(ExistenceFn<'a>),
}

/// Object that was deleted other than by a delete of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemovedObject<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) uid: &'a str,
    pub(crate) or_deleting: bool,
    /// Revision of the object in the informer; 0 if its first list may have it.
    ///
    /// `None` if the informer's selectors exclude the object.
    pub(crate) since: Option<u64>,
}

/// Writes that a read must show.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadScope<'a> {
    Key(&'a ObjectKey),
    Namespace(&'a str),
    All,
}

impl State {
    /// Adds a part: a namespace, or all objects that have no part of their own.
    pub(super) fn join(&mut self, part: Option<&str>) {
        self.entries.join(part.unwrap_or_default());
    }

    /// Removes a part and its entries.
    pub(super) fn leave(&mut self, part: &str) -> Vec<Waker> {
        let wakers = self.forget(self.entries.of_part(part));
        self.entries.leave(part);
        wakers
    }

    /// Removes the parts that `is_part` rejects.
    pub(super) fn keep(&mut self, is_part: impl Fn(&str) -> bool) -> Vec<Waker> {
        let gone: Vec<_> = self
            .entries
            .parts()
            .filter(|part| !is_part(part))
            .map(str::to_owned)
            .collect();
        gone.iter().flat_map(|part| self.leave(part)).collect()
    }

    pub(super) fn forget_all(&mut self) -> Vec<Waker> {
        self.forget(self.entries.all().map(|(id, _)| id).collect())
    }

    /// Removes all entries and parts, because the informer is closed.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        let wakers = self.forget_all();
        self.entries.end();
        wakers
    }

    /// Records that a part has reached a revision, and returns the reads to wake.
    pub(super) fn observe(
        &mut self,
        part: &str,
        revision: u64,
        observation: &Observation<'_>,
        now: fn() -> Instant,
    ) -> Vec<Waker> {
        self.record_for_announced(part, observation);
        let Some(reached) = self.entries.reached_mut(part) else {
            return Vec::new();
        };
        let before = reached.replace(revision);
        if !matches!(observation, Observation::All(_)) {
            // A late message does not move the part back.
            *reached = before.max(*reached);
        } else if *reached < before {
            // The server was restored to an older state. The writes are lost, or will be.
            return self.forget(self.entries.of_part(part));
        }
        if self.entries.len() == 0 {
            return Vec::new();
        }
        let now = now();
        let gone = self.shown_deletions(part, observation);
        let mut wakers = self.shown(gone, now);
        let reached = self.entries.reach(part, revision);
        wakers.extend(self.shown(reached, now));
        if before <= Some(revision) {
            wakers.extend(self.shown(self.shown_by_leaving(part, revision, observation), now));
        }
        wakers
    }

    /// Records the message for announced deletes.
    fn record_for_announced(&mut self, part: &str, observation: &Observation<'_>) {
        let entries = &self.entries;
        for announced in self.announced.values_mut() {
            match observation {
                Observation::Gone(key, uid) if announced.key == **key => {
                    announced.gone.push(uid.map(Into::into));
                }
                Observation::All(_) if entries.part_of(&announced.key) == part => {
                    announced.listed = true;
                }
                Observation::Other
                | Observation::Exists { .. }
                | Observation::Gone(..)
                | Observation::All(_) => {}
            }
        }
    }

    /// Returns the entries that the message may show.
    fn candidates(&self, part: &str, observation: &Observation<'_>) -> Vec<Id> {
        match observation {
            Observation::Exists { key, .. } | Observation::Gone(key, _) => {
                self.entries.of(key).map(|(id, _)| id).collect()
            }
            Observation::All(_) => self.entries.of_part(part),
            Observation::Other => Vec::new(),
        }
    }

    /// Updates the pending deletions by a message, and returns those now shown.
    ///
    /// An object that left the informer's selectors and came back is reported as gone before it is
    /// deleted. So a deletion is not shown while the informer has not reached the last version
    /// before it.
    fn shown_deletions(&mut self, part: &str, observation: &Observation<'_>) -> Vec<Id> {
        let mut shown = self.candidates(part, observation);
        shown.retain(|id| {
            let Some(Entry {
                key,
                awaited:
                    Awaited::Gone {
                        uid,
                        or_deleting,
                        after,
                        observed: was_told,
                    },
                ..
            }) = self.entries.get_mut(*id)
            else {
                return false;
            };
            let existence = match observation {
                Observation::Exists {
                    uid: it, deleting, ..
                } if it == uid => {
                    if *deleting {
                        Existence::Deleting
                    } else {
                        Existence::Exists
                    }
                }
                Observation::Gone(_, it) if it.is_none_or(|it| it == uid) => Existence::Gone,
                Observation::All(existence) => existence(key, Some(uid)),
                Observation::Other | Observation::Exists { .. } | Observation::Gone(..) => {
                    return false;
                }
            };
            *was_told = existence == Existence::Gone;
            match existence {
                Existence::Exists => false,
                Existence::Deleting => *or_deleting,
                Existence::Gone => *after == 0,
            }
        });
        shown
    }

    /// Returns the versions outside of the selectors that the message shows.
    ///
    /// It shows that the object had left before, so no further events of these versions follow,
    /// unless the object enters and leaves the selectors again in between.
    fn shown_by_leaving(
        &self,
        part: &str,
        revision: u64,
        observation: &Observation<'_>,
    ) -> Vec<Id> {
        let is_shown = |entry: &Entry| {
            let Awaited::LeftSelectors(at) = entry.awaited else {
                return false;
            };
            let has_left = match observation {
                Observation::Other | Observation::Exists { .. } => false,
                Observation::Gone(..) => true,
                Observation::All(existence) => existence(&entry.key, None) == Existence::Gone,
            };
            has_left && !self.entries.expects_between(&entry.key, revision, at)
        };
        let mut shown = self.candidates(part, observation);
        shown.retain(|id| self.entries.get(*id).is_some_and(is_shown));
        shown
    }

    /// Records the response to a write.
    ///
    /// A version outside of the informer's selectors counts only if the informer has the object or
    /// is expected to receive it, because only then it is notified that the object leaves.
    pub(super) fn wrote(
        &mut self,
        writer: Writer,
        version: WrittenVersion<'_>,
        existence: ExistenceFn<'_>,
        now: Instant,
    ) {
        let WrittenVersion {
            key,
            revision,
            selected,
        } = version;
        if !self.entries.has_part_of(key) {
            return;
        }
        let is_known =
            || self.entries.of(key).next().is_some() || existence(key, None) != Existence::Gone;
        if selected != Some(true) && !is_known() {
            return;
        }
        self.stats.writes += 1;
        if Some(revision) <= self.entries.reached(key) {
            self.stats.last_lag = Duration::ZERO;
            return;
        }
        let awaited = if selected == Some(false) {
            Awaited::LeftSelectors(revision)
        } else {
            Awaited::Revision(revision)
        };
        self.entries.insert(key, awaited, writer, now);
    }

    pub(super) fn announce(&mut self, key: &ObjectKey) -> Id {
        let id = self.entries.id();
        self.announced.insert(
            id,
            AnnouncedDelete {
                key: key.clone(),
                gone: Vec::new(),
                listed: false,
            },
        );
        id
    }

    pub(super) fn retract(&mut self, id: Id) {
        self.announced.remove(&id);
    }

    /// Records the response to an announced delete: the object with this uid is gone.
    ///
    /// If the informer has selectors (`selects_all` is `false`), the delete counts only if the
    /// informer has the object or will receive its last version. Compared by uid, because the
    /// informer may have another object of that name.
    pub(super) fn deleted(
        &mut self,
        id: Id,
        uid: &str,
        writer: Writer,
        selects_all: bool,
        existence: ExistenceFn<'_>,
        now: Instant,
    ) {
        let Some(AnnouncedDelete { key, gone, listed }) = self.announced.remove(&id) else {
            return;
        };
        if !self.entries.has_part_of(&key) {
            return;
        }
        let observation = gone
            .iter()
            .any(|gone| gone.as_deref().is_none_or(|gone| gone == uid));
        let (after, is_gone) = (
            self.entries.expected(&key),
            existence(&key, Some(uid)) == Existence::Gone,
        );
        if !selects_all && !observation && !self.entries.will_have(&key) && is_gone {
            return;
        }
        self.stats.writes += 1;
        let observation = (observation || listed) && is_gone;
        if observation && after.is_none() {
            self.stats.last_lag = Duration::ZERO;
        } else {
            let (uid, after) = (uid.to_owned(), after.unwrap_or_default());
            self.entries.insert(
                &key,
                Awaited::Gone {
                    uid,
                    or_deleting: false,
                    after,
                    observed: observation,
                },
                writer,
                now,
            );
        }
    }

    /// Records that a write without an announcement deleted or marked an object.
    ///
    /// The write deleted a collection, or removed the last finalizer.
    pub(super) fn removed(
        &mut self,
        writer: Writer,
        removed: &RemovedObject<'_>,
        existence: ExistenceFn<'_>,
        now: Instant,
    ) {
        let RemovedObject {
            key,
            uid,
            or_deleting,
            since,
        } = *removed;
        if !self.entries.has_part_of(key) {
            return;
        }
        self.stats.writes += 1;
        let reached = self.entries.reached(key);
        let since = since.filter(|since| Some(*since) > reached);
        let is_shown = match existence(key, Some(uid)) {
            Existence::Exists => false,
            Existence::Deleting => or_deleting,
            // The object may also not have arrived yet, which is known if it is expected.
            Existence::Gone => since.is_none() && !self.entries.will_have(key),
        };
        let after = self.entries.expected(key).max(since);
        if is_shown {
            self.stats.last_lag = Duration::ZERO;
        } else {
            let (uid, after) = (uid.to_owned(), after.unwrap_or_default());
            self.entries.insert(
                key,
                Awaited::Gone {
                    uid,
                    or_deleting,
                    after,
                    observed: false,
                },
                writer,
                now,
            );
        }
    }

    /// Starts to wait for the current entries. Returns `None` if there are none.
    pub(super) fn wait(&mut self, token: &Token, wanted: ReadScope<'_>) -> Option<Id> {
        let left: BTreeSet<Id> = self.matching(token, wanted).collect();
        if left.is_empty() {
            return None;
        }
        let waiter = self.entries.id();
        for id in &left {
            self.entries
                .get_mut(*id)
                .into_iter()
                .for_each(|entry| entry.waiters.push(waiter));
        }
        self.waiters.insert(
            waiter,
            Waiter {
                entries: left,
                waker: None,
            },
        );
        self.stats.waits += 1;
        Some(waiter)
    }

    pub(super) fn is_waiting(&self, token: &Token) -> bool {
        self.matching(token, ReadScope::All).next().is_some()
    }

    fn matching(&self, token: &Token, wanted: ReadScope<'_>) -> impl Iterator<Item = Id> {
        // Uses the index by key instead of all entries.
        let key = if let ReadScope::Key(key) = wanted {
            Some(key)
        } else {
            None
        };
        let some = key
            .into_iter()
            .flat_map(|key| self.entries.of(key).chain(self.entries.overflow_of(key)));
        let all = key
            .is_none()
            .then(|| self.entries.all())
            .into_iter()
            .flatten();
        let all = all.filter(move |(_, entry)| match wanted {
            ReadScope::Namespace(namespace) => self.concerns(entry, namespace),
            ReadScope::Key(_) | ReadScope::All => true,
        });
        some.chain(all)
            .filter(|(_, entry)| entry.writer.matches(token))
            .map(|(id, _)| id)
    }

    /// Returns whether an entry is, or may be, of an object in this namespace.
    fn concerns(&self, entry: &Entry, namespace: &str) -> bool {
        let is_there = entry.key.namespace().unwrap_or_default() == namespace;
        is_there || entry.writer.is_any() && self.entries.is_in_rest(&entry.key)
    }

    /// Returns whether all entries of the waiter are shown. Registers the waker otherwise.
    pub(super) fn poll(&mut self, waiter: Id, waker: &Waker) -> bool {
        let Some(waiter) = self.waiters.get_mut(&waiter) else {
            return true;
        };
        if !waiter.entries.is_empty() {
            waiter.waker = Some(waker.clone());
        }
        waiter.entries.is_empty()
    }

    /// Returns an object that the waiter still waits for.
    pub(super) fn waits_for(&self, waiter: Id) -> Option<ObjectKey> {
        let entry = self.waiters.get(&waiter)?.entries.first()?;
        Some(self.entries.get(*entry)?.key.clone())
    }

    pub(super) fn stop_waiting(&mut self, waiter: Id) {
        for id in self
            .waiters
            .remove(&waiter)
            .into_iter()
            .flat_map(|waiter| waiter.entries)
        {
            self.entries
                .get_mut(id)
                .into_iter()
                .for_each(|entry| entry.waiters.retain(|other| *other != waiter));
        }
    }

    pub(super) fn stats(&self) -> OwnWrites {
        OwnWrites {
            pending: self.entries.len(),
            ..self.stats.clone()
        }
    }

    fn shown(&mut self, ids: Vec<Id>, now: Instant) -> Vec<Waker> {
        for id in &ids {
            let Some(entry) = self.entries.get(*id) else {
                continue;
            };
            let lag = now.saturating_duration_since(entry.since);
            self.stats.last_lag = lag;
            self.stats.longest_lag = self.stats.longest_lag.max(lag);
        }
        self.forget(ids)
    }

    fn forget(&mut self, ids: Vec<Id>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for id in ids {
            for waiter in self
                .entries
                .take(id)
                .into_iter()
                .flat_map(|entry| entry.waiters)
            {
                let Some(waiter) = self.waiters.get_mut(&waiter) else {
                    continue;
                };
                waiter.entries.remove(&id);
                if waiter.entries.is_empty() {
                    wakers.extend(waiter.waker.take());
                }
            }
        }
        wakers
    }
}
