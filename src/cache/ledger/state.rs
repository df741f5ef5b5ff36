//! The ledger itself, without its lock: entries, who waits for them, and what the informer was told.
//!
//! What holds: an entry is here exactly as long as the informer does not show its write; a waiter counts the entries it waits for, and is woken when
//! there are none left. Wakers are handed out, to be called without the lock.

use super::{OwnWrites, Token, Writer, sync::Instant};
use crate::object::ObjectKey;
use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    task::Waker,
    time::Duration,
};

pub(super) type Id = u64;

type Parts = HashMap<String, Option<u64>>;

#[derive(Default)]
pub(super) struct State {
    /// Up to where each part is, if it was listed; that of no namespace is the empty one. None before the informer begins, and when it has ended.
    parts: Parts,
    /// In the order of recording.
    entries: BTreeMap<Id, Entry>,
    /// The entries that want a revision.
    revisions: BTreeSet<(u64, Id)>,
    /// The entries of each key.
    keys: HashMap<ObjectKey, Vec<Id>>,
    /// Deletes that were sent and are not answered.
    announced: HashMap<Id, Announced>,
    waiters: HashMap<Id, Waiter>,
    last_id: Id,
    pub(super) stats: OwnWrites,
}

struct Entry {
    key: ObjectKey,
    wants: Wants,
    writer: Writer,
    since: Instant,
    waiters: Vec<Id>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    Revision(u64),
    /// No object with this uid; or, for some, one that is marked. A list before `after` does not have it yet.
    Gone {
        uid: String,
        or_deleting: bool,
        after: u64,
    },
}

impl Wants {
    /// Whether who shows the newer one, of the same key, shows this one, too.
    fn is_contained_in(&self, newer: &Self) -> bool {
        match (self, newer) {
            (Self::Revision(this), Self::Revision(newer)) => this <= newer,
            // Only if another version was written since: a list that has that one cannot have the object that was deleted before it. Of one that is from an unknown
            // time nothing is known but that the newer object is not in it, and it may be too old for that.
            (
                Self::Gone { uid, or_deleting, after },
                Self::Gone { uid: newer, or_deleting: newer_or, after: since },
            ) => after < since && (uid != newer || or_deleting >= newer_or),
            _ => false,
        }
    }
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

/// Says what became of the object with this key and uid. Called under the ledger's lock.
pub(crate) type Fates<'a> = &'a dyn Fn(&ObjectKey, &str) -> Fate;

/// What the informer was told, and shows.
pub(crate) enum Told<'a> {
    /// Nothing that concerns a deletion.
    Other,
    /// It was marked.
    Deleting(&'a ObjectKey, &'a str),
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
        self.parts.insert(part.unwrap_or_default().to_owned(), None);
    }

    /// It is no more.
    pub(super) fn leave(&mut self, part: &str) -> Vec<Waker> {
        let left = self.of_part(part);
        self.parts.remove(part);
        self.forget(left)
    }

    /// The others are no more.
    pub(super) fn keep(&mut self, is_part: impl Fn(&str) -> bool) -> Vec<Waker> {
        let gone: Vec<_> = self.parts.keys().filter(|part| !is_part(part)).cloned().collect();
        gone.iter().flat_map(|part| self.leave(part)).collect()
    }

    pub(super) fn forget_all(&mut self) -> Vec<Waker> {
        self.forget(self.entries.keys().copied().collect())
    }

    /// Nothing is shown any more.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        self.parts.clear();
        self.forget_all()
    }

    /// A part is at this revision, and the store shows it.
    pub(super) fn told(&mut self, part: &str, revision: u64, told: &Told<'_>, now: fn() -> Instant) -> Vec<Waker> {
        self.note(part, told);
        let Some(reached) = self.parts.get_mut(part) else { return Vec::new() };
        let before = reached.replace(revision);
        if !matches!(told, Told::All(_)) {
            // What comes late is nothing new.
            *reached = before.max(*reached);
        } else if *reached < before {
            // The server was set back: what was written is gone, or will be.
            let lost = self.of_part(part);
            return self.forget(lost);
        }
        if self.entries.is_empty() {
            return Vec::new();
        }
        let now = now();
        let shown = self.revisions.range(..=(revision, Id::MAX)).map(|(_, id)| *id);
        let shown = shown.filter(|id| self.part_of(&self.entries[id].key) == part).collect();
        let mut wakers = self.shown(shown, now);
        let gone = self.gone(part, told);
        wakers.extend(self.shown(gone, now));
        wakers
    }

    /// For the deletes that are not answered, whatever becomes of the others.
    fn note(&mut self, part: &str, told: &Told<'_>) {
        let parts = &self.parts;
        for announced in self.announced.values_mut() {
            match told {
                Told::Gone(key, uid) if announced.key == **key => announced.gone.push(uid.map(Into::into)),
                Told::All(_) if part_of(parts, &announced.key) == part => announced.listed = true,
                Told::Other | Told::Deleting(..) | Told::Gone(..) | Told::All(_) => {}
            }
        }
    }

    /// The deletions that this shows.
    fn gone(&self, part: &str, told: &Told<'_>) -> Vec<Id> {
        let is_shown = |entry: &Entry| {
            let Wants::Gone { uid, or_deleting, after } = &entry.wants else { return false };
            match told {
                Told::Other => false,
                Told::Deleting(_, it) => *or_deleting && uid == it,
                Told::Gone(_, it) => it.is_none_or(|it| uid == it),
                Told::All(fates) => match fates(&entry.key, uid) {
                    Fate::There => false,
                    Fate::Deleting => *or_deleting,
                    Fate::Gone => self.parts.get(part).is_some_and(|reached| *reached >= Some(*after)),
                },
            }
        };
        let candidates = match told {
            Told::Deleting(key, _) | Told::Gone(key, _) => self.keys.get(*key).cloned().unwrap_or_default(),
            Told::All(_) => self.of_part(part),
            Told::Other => Vec::new(),
        };
        candidates.into_iter().filter(|id| is_shown(&self.entries[id])).collect()
    }

    /// A write was answered. What is not `inside` of what the informer keeps only counts if more is expected of its key.
    pub(super) fn wrote(&mut self, writer: Writer, key: &ObjectKey, revision: u64, inside: bool, now: Instant) {
        let Some(&reached) = self.parts.get(self.part_of(key)) else { return };
        if !inside && !self.keys.contains_key(key) {
            return;
        }
        self.stats.writes += 1;
        if Some(revision) <= reached {
            self.stats.last_lag = Duration::ZERO;
            return;
        }
        self.insert(key, Wants::Revision(revision), writer, now);
    }

    pub(super) fn announce(&mut self, key: &ObjectKey) -> Id {
        let id = self.id();
        self.announced.insert(id, Announced { key: key.clone(), gone: Vec::new(), listed: false });
        id
    }

    pub(super) fn retract(&mut self, id: Id) {
        self.announced.remove(&id);
    }

    /// A delete that was announced was answered: the object with this uid is gone.
    pub(super) fn deleted(&mut self, id: Id, uid: &str, writer: Writer, inside: bool, fates: Fates<'_>, now: Instant) {
        let Some(Announced { key, gone, listed }) = self.announced.remove(&id) else { return };
        if !self.parts.contains_key(self.part_of(&key)) || !inside && !self.keys.contains_key(&key) {
            return;
        }
        self.stats.writes += 1;
        let told = gone.iter().any(|gone| gone.as_deref().is_none_or(|gone| gone == uid));
        let after = self.expected(&key);
        if told || listed && after.is_none() && fates(&key, uid) == Fate::Gone {
            self.stats.last_lag = Duration::ZERO;
        } else {
            let (uid, after) = (uid.to_owned(), after.unwrap_or_default());
            self.insert(&key, Wants::Gone { uid, or_deleting: false, after }, writer, now);
        }
    }

    /// A write that was not announced has deleted an object, or, if that is enough, marked it: as one of many, or with its last finalizer.
    pub(super) fn removed(&mut self, writer: Writer, removed: &Removed<'_>, fates: Fates<'_>, now: Instant) {
        let Removed { key, uid, or_deleting, since } = *removed;
        let Some(&reached) = self.parts.get(self.part_of(key)) else { return };
        self.stats.writes += 1;
        let after = self.expected(key).max(since.filter(|since| Some(*since) > reached));
        let is_shown = match fates(key, uid) {
            Fate::There => false,
            Fate::Deleting => or_deleting,
            // Or it has not come yet, and that much is known.
            Fate::Gone => after.is_none(),
        };
        if is_shown {
            self.stats.last_lag = Duration::ZERO;
        } else {
            let (uid, after) = (uid.to_owned(), after.unwrap_or_default());
            self.insert(key, Wants::Gone { uid, or_deleting, after }, writer, now);
        }
    }

    /// Begin to wait for what is there now; `None` if that is nothing.
    pub(super) fn wait(&mut self, token: &Token, wanted: Wanted<'_>) -> Option<Id> {
        let left: BTreeSet<Id> = self.matching(token, wanted).collect();
        if left.is_empty() {
            return None;
        }
        let waiter = self.id();
        for id in &left {
            self.entries.entry(*id).and_modify(|entry| entry.waiters.push(waiter));
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
        let (some, all) = match wanted {
            Wanted::Key(key) => (self.keys.get(key), None),
            Wanted::Namespace(_) | Wanted::All => (None, Some(&self.entries)),
        };
        let some = some.into_iter().flatten().map(|id| (id, &self.entries[id]));
        let all = all.into_iter().flatten().filter(move |(_, entry)| match wanted {
            Wanted::Namespace(namespace) => entry.key.namespace().unwrap_or_default() == namespace,
            Wanted::Key(_) | Wanted::All => true,
        });
        some.chain(all).filter(|(_, entry)| entry.writer.is(token)).map(|(id, _)| *id)
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
        Some(self.entries[entry].key.clone())
    }

    pub(super) fn stop_waiting(&mut self, waiter: Id) {
        for id in self.waiters.remove(&waiter).into_iter().flat_map(|waiter| waiter.left) {
            self.entries.entry(id).and_modify(|entry| entry.waiters.retain(|other| *other != waiter));
        }
    }

    pub(super) fn stats(&self) -> OwnWrites {
        OwnWrites { pending: self.entries.len(), ..self.stats.clone() }
    }

    /// The last version of this object that is still to come.
    fn expected(&self, key: &ObjectKey) -> Option<u64> {
        let ids = self.keys.get(key).into_iter().flatten();
        let revisions = ids.filter_map(|id| match self.entries[id].wants {
            Wants::Revision(revision) => Some(revision),
            Wants::Gone { .. } => None,
        });
        revisions.max()
    }

    fn part_of<'a>(&self, key: &'a ObjectKey) -> &'a str {
        part_of(&self.parts, key)
    }

    fn of_part(&self, part: &str) -> Vec<Id> {
        let of_part = self.entries.iter().filter(|(_, entry)| self.part_of(&entry.key) == part);
        of_part.map(|(id, _)| *id).collect()
    }

    fn id(&mut self) -> Id {
        self.last_id += 1;
        self.last_id
    }

    /// What nobody waits for and is contained in this one is taken out. So one client that makes and deletes a key has at most two entries of it, however long
    /// nothing is heard; and one more for each delete of what others make anew. There is no bound to the number of keys: a process that writes ever new ones while
    /// its informer is refused remembers all of their names.
    fn insert(&mut self, key: &ObjectKey, wants: Wants, writer: Writer, now: Instant) {
        let is_contained = |id: &Id| {
            let entry = &self.entries[id];
            entry.wants.is_contained_in(&wants) && entry.waiters.is_empty() && writer.stands_for(&entry.writer)
        };
        let contained: Vec<_> = self.keys.get(key).into_iter().flatten().copied().filter(is_contained).collect();
        for id in contained {
            self.take(id);
        }
        let id = self.id();
        if let Wants::Revision(revision) = wants {
            self.revisions.insert((revision, id));
        }
        self.keys.entry_ref(key).or_default().push(id);
        self.entries.insert(id, Entry { key: key.clone(), wants, writer, since: now, waiters: Vec::new() });
    }

    fn take(&mut self, id: Id) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        if let Wants::Revision(revision) = entry.wants {
            self.revisions.remove(&(revision, id));
        }
        if let Some(ids) = self.keys.get_mut(&entry.key) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.keys.remove(&entry.key);
            }
        }
        Some(entry)
    }

    fn shown(&mut self, ids: Vec<Id>, now: Instant) -> Vec<Waker> {
        for id in &ids {
            let lag = now.saturating_duration_since(self.entries[id].since);
            self.stats.last_lag = lag;
            self.stats.longest_lag = self.stats.longest_lag.max(lag);
        }
        self.forget(ids)
    }

    fn forget(&mut self, ids: Vec<Id>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for id in ids {
            for waiter in self.take(id).into_iter().flat_map(|entry| entry.waiters) {
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

/// The part that an object would come from.
fn part_of<'a>(parts: &Parts, key: &'a ObjectKey) -> &'a str {
    key.namespace().filter(|namespace| parts.contains_key(*namespace)).unwrap_or_default()
}
