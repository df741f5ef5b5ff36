//! The ledger itself, without its lock: entries, who waits for them, and what the informer was told.
//!
//! What holds: an entry is here exactly as long as the informer does not show its write; a waiter counts the entries it waits for, and is woken when
//! there are none left. Wakers are handed out, to be called without the lock.

use super::{
    OwnWrites, Token, Writer,
    entries::{Entries, Entry, Id, Wants},
    sync::Instant,
};
use crate::object::ObjectKey;
use hashbrown::HashMap;
use std::{collections::BTreeSet, task::Waker, time::Duration};

#[derive(Default)]
pub(super) struct State {
    entries: Entries,
    /// Deletes that were sent and are not answered.
    announced: HashMap<Id, Announced>,
    waiters: HashMap<Id, Waiter>,
    pub(super) stats: OwnWrites,
}

/// What is told of a key while its deletion is on its way.
struct Announced {
    key: ObjectKey,
    /// Uids that were told gone; `None` for one that could not be read.
    gone: Vec<Option<String>>,
    /// Whether there was a list, which does not tell what it does not have.
    listed: bool,
}

struct Waiter {
    left: BTreeSet<Id>,
    waker: Option<Waker>,
}

/// What became of an object, as far as the store shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    There,
    Deleting,
    Gone,
}

/// Says what became of the object with this key and uid; without a uid, of whichever has the key. Called under the ledger's lock.
pub(crate) type Fates<'a> = &'a dyn Fn(&ObjectKey, Option<&str>) -> Fate;

/// A version that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) revision: u64,
    /// Whether the informer's selectors let it in; `None` if the answer does not say enough.
    pub(crate) selected: Option<bool>,
}

/// What the informer was told, and shows.
pub(crate) enum Told<'a> {
    /// A revision and nothing else.
    Other,
    /// The object with this uid is in the store.
    There { key: &'a ObjectKey, uid: &'a str, deleting: bool },
    /// It is gone. Without a uid if it could not be read.
    Gone(&'a ObjectKey, Option<&'a str>),
    /// Everything anew.
    All(Fates<'a>),
}

/// An object that a write which was no delete of it has deleted; or has marked, if that is enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removed<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) uid: &'a str,
    pub(crate) or_deleting: bool,
    /// A revision at which the informer has it, or had it, or will have it; 0 if its first list may have it. `None` for one that its selectors leave out.
    pub(crate) since: Option<u64>,
}

/// Which writes a read must show.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    Key(&'a ObjectKey),
    Namespace(&'a str),
    All,
}

impl State {
    /// There is a part of this namespace, or of all that have none of their own.
    pub(super) fn join(&mut self, part: Option<&str>) {
        self.entries.join(part.unwrap_or_default());
    }

    /// It is no more.
    pub(super) fn leave(&mut self, part: &str) -> Vec<Waker> {
        let wakers = self.forget(self.entries.of_part(part));
        self.entries.leave(part);
        wakers
    }

    /// The others are no more.
    pub(super) fn keep(&mut self, is_part: impl Fn(&str) -> bool) -> Vec<Waker> {
        let gone: Vec<_> = self.entries.parts().filter(|part| !is_part(part)).map(str::to_owned).collect();
        gone.iter().flat_map(|part| self.leave(part)).collect()
    }

    pub(super) fn forget_all(&mut self) -> Vec<Waker> {
        self.forget(self.entries.all().map(|(id, _)| id).collect())
    }

    /// Nothing is shown any more.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        let wakers = self.forget_all();
        self.entries.end();
        wakers
    }

    /// A part is at this revision, and the store shows it.
    pub(super) fn told(&mut self, part: &str, revision: u64, told: &Told<'_>, now: fn() -> Instant) -> Vec<Waker> {
        self.note(part, told);
        let Some(reached) = self.entries.reached_mut(part) else { return Vec::new() };
        let before = reached.replace(revision);
        if !matches!(told, Told::All(_)) {
            // What comes late is nothing new.
            *reached = before.max(*reached);
        } else if *reached < before {
            // The server was set back: what was written is gone, or will be.
            return self.forget(self.entries.of_part(part));
        }
        if self.entries.len() == 0 {
            return Vec::new();
        }
        let now = now();
        let gone = self.gone(part, told);
        let mut wakers = self.shown(gone, now);
        let reached = self.entries.reach(part, revision);
        wakers.extend(self.shown(reached, now));
        if before <= Some(revision) {
            wakers.extend(self.shown(self.left(part, revision, told), now));
        }
        wakers
    }

    /// For the deletes that are not answered, whatever becomes of the others.
    fn note(&mut self, part: &str, told: &Told<'_>) {
        let entries = &self.entries;
        for announced in self.announced.values_mut() {
            match told {
                Told::Gone(key, uid) if announced.key == **key => announced.gone.push(uid.map(Into::into)),
                Told::All(_) if entries.part_of(&announced.key) == part => announced.listed = true,
                Told::Other | Told::There { .. } | Told::Gone(..) | Told::All(_) => {}
            }
        }
    }

    /// What may be shown by this.
    fn candidates(&self, part: &str, told: &Told<'_>) -> Vec<Id> {
        match told {
            Told::There { key, .. } | Told::Gone(key, _) => self.entries.of(key).map(|(id, _)| id).collect(),
            Told::All(_) => self.entries.of_part(part),
            Told::Other => Vec::new(),
        }
    }

    /// Updates the pending deletions with what the informer was told, and returns those now shown.
    ///
    /// An object that left the informer's selectors and came back is reported as gone before it is
    /// deleted. So a deletion is not shown while the informer has not reached the last version
    /// before it.
    fn gone(&mut self, part: &str, told: &Told<'_>) -> Vec<Id> {
        let mut shown = self.candidates(part, told);
        shown.retain(|id| {
            let Some(Entry { key, wants: Wants::Gone { uid, or_deleting, after, told: was_told }, .. }) =
                self.entries.get_mut(*id)
            else {
                return false;
            };
            let fate = match told {
                Told::There { uid: it, deleting, .. } if it == uid => {
                    if *deleting {
                        Fate::Deleting
                    } else {
                        Fate::There
                    }
                }
                Told::Gone(_, it) if it.is_none_or(|it| it == uid) => Fate::Gone,
                Told::All(fates) => fates(key, Some(uid)),
                Told::Other | Told::There { .. } | Told::Gone(..) => return false,
            };
            *was_told = fate == Fate::Gone;
            match fate {
                Fate::There => false,
                Fate::Deleting => *or_deleting,
                Fate::Gone => *after == 0,
            }
        });
        shown
    }

    /// The versions outside of the selectors of which nothing more will be told, because this shows that the object had left before; unless it is to come and leave
    /// again before that.
    fn left(&self, part: &str, revision: u64, told: &Told<'_>) -> Vec<Id> {
        let is_shown = |entry: &Entry| {
            let Wants::Left(at) = entry.wants else { return false };
            let has_left = match told {
                Told::Other | Told::There { .. } => false,
                Told::Gone(..) => true,
                Told::All(fates) => fates(&entry.key, None) == Fate::Gone,
            };
            has_left && !self.entries.expects_between(&entry.key, revision, at)
        };
        let mut shown = self.candidates(part, told);
        shown.retain(|id| self.entries.get(*id).is_some_and(is_shown));
        shown
    }

    /// A write was answered. A version that the informer's selectors leave out only counts if the informer has the object, or more is expected of it: then it
    /// will be told that it leaves.
    pub(super) fn wrote(&mut self, writer: Writer, version: Version<'_>, fates: Fates<'_>, now: Instant) {
        let Version { key, revision, selected } = version;
        if !self.entries.has_part_of(key) {
            return;
        }
        let is_known = || self.entries.of(key).next().is_some() || fates(key, None) != Fate::Gone;
        if selected != Some(true) && !is_known() {
            return;
        }
        self.stats.writes += 1;
        if Some(revision) <= self.entries.reached(key) {
            self.stats.last_lag = Duration::ZERO;
            return;
        }
        let wants = if selected == Some(false) { Wants::Left(revision) } else { Wants::Revision(revision) };
        self.entries.insert(key, wants, writer, now);
    }

    pub(super) fn announce(&mut self, key: &ObjectKey) -> Id {
        let id = self.entries.id();
        self.announced.insert(id, Announced { key: key.clone(), gone: Vec::new(), listed: false });
        id
    }

    pub(super) fn retract(&mut self, id: Id) {
        self.announced.remove(&id);
    }

    /// A delete that was announced was answered: the object with this uid is gone. The informer may be one that `selects_all`: of others it counts only if it is
    /// there, or its last version is to come. By uid: the informer may have another one of that name.
    pub(super) fn deleted(
        &mut self,
        id: Id,
        uid: &str,
        writer: Writer,
        selects_all: bool,
        fates: Fates<'_>,
        now: Instant,
    ) {
        let Some(Announced { key, gone, listed }) = self.announced.remove(&id) else { return };
        if !self.entries.has_part_of(&key) {
            return;
        }
        let told = gone.iter().any(|gone| gone.as_deref().is_none_or(|gone| gone == uid));
        let (after, is_gone) = (self.entries.expected(&key), fates(&key, Some(uid)) == Fate::Gone);
        if !selects_all && !told && !self.entries.will_have(&key) && is_gone {
            return;
        }
        self.stats.writes += 1;
        let told = (told || listed) && is_gone;
        if told && after.is_none() {
            self.stats.last_lag = Duration::ZERO;
        } else {
            let (uid, after) = (uid.to_owned(), after.unwrap_or_default());
            self.entries.insert(&key, Wants::Gone { uid, or_deleting: false, after, told }, writer, now);
        }
    }

    /// A write that was not announced has deleted an object, or, if that is enough, marked it: as one of many, or with its last finalizer.
    pub(super) fn removed(&mut self, writer: Writer, removed: &Removed<'_>, fates: Fates<'_>, now: Instant) {
        let Removed { key, uid, or_deleting, since } = *removed;
        if !self.entries.has_part_of(key) {
            return;
        }
        self.stats.writes += 1;
        let reached = self.entries.reached(key);
        let since = since.filter(|since| Some(*since) > reached);
        let is_shown = match fates(key, Some(uid)) {
            Fate::There => false,
            Fate::Deleting => or_deleting,
            // Or it has not come yet, and that much is known.
            Fate::Gone => since.is_none() && !self.entries.will_have(key),
        };
        let after = self.entries.expected(key).max(since);
        if is_shown {
            self.stats.last_lag = Duration::ZERO;
        } else {
            let (uid, after) = (uid.to_owned(), after.unwrap_or_default());
            self.entries.insert(key, Wants::Gone { uid, or_deleting, after, told: false }, writer, now);
        }
    }

    /// Begin to wait for what is there now; `None` if that is nothing.
    pub(super) fn wait(&mut self, token: &Token, wanted: Wanted<'_>) -> Option<Id> {
        let left: BTreeSet<Id> = self.matching(token, wanted).collect();
        if left.is_empty() {
            return None;
        }
        let waiter = self.entries.id();
        for id in &left {
            self.entries.get_mut(*id).into_iter().for_each(|entry| entry.waiters.push(waiter));
        }
        self.waiters.insert(waiter, Waiter { left, waker: None });
        self.stats.waits += 1;
        Some(waiter)
    }

    pub(super) fn is_waiting(&self, token: &Token) -> bool {
        self.matching(token, Wanted::All).next().is_some()
    }

    fn matching(&self, token: &Token, wanted: Wanted<'_>) -> impl Iterator<Item = Id> {
        // Of one key without looking at the others.
        let key = if let Wanted::Key(key) = wanted { Some(key) } else { None };
        let some = key.into_iter().flat_map(|key| self.entries.of(key).chain(self.entries.crowd_of(key)));
        let all = key.is_none().then(|| self.entries.all()).into_iter().flatten();
        let all = all.filter(move |(_, entry)| match wanted {
            Wanted::Namespace(namespace) => self.concerns(entry, namespace),
            Wanted::Key(_) | Wanted::All => true,
        });
        some.chain(all).filter(|(_, entry)| entry.writer.is(token)).map(|(id, _)| id)
    }

    /// Whether an entry is of an object in this namespace, or may be.
    fn concerns(&self, entry: &Entry, namespace: &str) -> bool {
        let is_there = entry.key.namespace().unwrap_or_default() == namespace;
        is_there || entry.writer.is_everybody() && self.entries.is_of_rest(&entry.key)
    }

    /// Whether all is shown that the waiter waits for; if not, whom to wake.
    pub(super) fn poll(&mut self, waiter: Id, waker: &Waker) -> bool {
        let Some(waiter) = self.waiters.get_mut(&waiter) else { return true };
        if !waiter.left.is_empty() {
            waiter.waker = Some(waker.clone());
        }
        waiter.left.is_empty()
    }

    /// What the waiter still waits for.
    pub(super) fn waits_for(&self, waiter: Id) -> Option<ObjectKey> {
        let entry = self.waiters.get(&waiter)?.left.first()?;
        Some(self.entries.get(*entry)?.key.clone())
    }

    pub(super) fn stop_waiting(&mut self, waiter: Id) {
        for id in self.waiters.remove(&waiter).into_iter().flat_map(|waiter| waiter.left) {
            self.entries.get_mut(id).into_iter().for_each(|entry| entry.waiters.retain(|other| *other != waiter));
        }
    }

    pub(super) fn stats(&self) -> OwnWrites {
        OwnWrites { pending: self.entries.len(), ..self.stats.clone() }
    }

    fn shown(&mut self, ids: Vec<Id>, now: Instant) -> Vec<Waker> {
        for id in &ids {
            let Some(entry) = self.entries.get(*id) else { continue };
            let lag = now.saturating_duration_since(entry.since);
            self.stats.last_lag = lag;
            self.stats.longest_lag = self.stats.longest_lag.max(lag);
        }
        self.forget(ids)
    }

    fn forget(&mut self, ids: Vec<Id>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for id in ids {
            for waiter in self.entries.take(id).into_iter().flat_map(|entry| entry.waiters) {
                let Some(waiter) = self.waiters.get_mut(&waiter) else { continue };
                waiter.left.remove(&id);
                if waiter.left.is_empty() {
                    wakers.extend(waiter.waker.take());
                }
            }
        }
        wakers
    }
}
