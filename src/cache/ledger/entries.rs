//! The writes that are not shown yet: by key, and by what their part has to reach.
//!
//! Invariant: every entry of a key is listed under that key. An entry that waits for a revision,
//! and a deletion that follows a pending version, is also listed under that revision in the part
//! that receives the object.
//!
//! There are at most [`MOST`] entries, besides those that a read waits for. Further writes of a
//! part share one entry, which every read of that part waits for: a read may wait for too many
//! writes, but never for too few. Further deletes, whose revision is not known, are not waited for.

use super::{Writer, sync::Instant};
use crate::object::ObjectKey;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Id = u64;

/// Half a kilobyte each. An informer that hears something is behind by a few.
pub(super) const MOST: usize = 16_384;

#[derive(Default)]
pub(super) struct Entries {
    /// That of no namespace is the empty one. None before the informer begins, and when it has ended.
    parts: HashMap<String, Part>,
    /// In the order of recording.
    all: BTreeMap<Id, Entry>,
    keys: HashMap<ObjectKey, Vec<Id>>,
    last_id: Id,
}

#[derive(Default)]
struct Part {
    /// Up to where it is, if it was listed.
    reached: Option<u64>,
    revisions: BTreeSet<(u64, Id)>,
    /// The entry that stands for those that were too many.
    crowd: Option<Id>,
}

pub(super) struct Entry {
    /// One of them, if it stands for many.
    pub(super) key: ObjectKey,
    pub(super) wants: Wants,
    pub(super) writer: Writer,
    pub(super) since: Instant,
    pub(super) waiters: Vec<Id>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    Revision(u64),
    /// The same of a version that the informer's selectors leave out: it is not told of it, but only of when the object left, which may be before.
    Left(u64),
    /// The object with this uid is not in the store, or is being deleted if `or_deleting`.
    Gone {
        uid: String,
        or_deleting: bool,
        /// Revision of the last write before the deletion that the informer has not reached yet, or
        /// 0. Until the informer reaches it, an object that is not in the store may come back.
        after: u64,
        /// Whether the informer was last told, by an event or a list, that the object is gone.
        told: bool,
    },
}

impl Wants {
    fn revision(&self) -> Option<u64> {
        match self {
            Self::Revision(revision) | Self::Left(revision) => Some(*revision),
            Self::Gone { .. } => None,
        }
    }

    /// Returns the revision that the informer has to reach before the write can be shown.
    fn reached_at(&self) -> Option<u64> {
        match self {
            Self::Revision(revision) | Self::Left(revision) => Some(*revision),
            Self::Gone { after, .. } => Some(*after).filter(|after| *after > 0),
        }
    }

    /// Whether who shows the newer one, of the same key, shows this one, too.
    fn is_contained_in(&self, newer: &Self) -> bool {
        match (self, newer) {
            (Self::Revision(this) | Self::Left(this), Self::Revision(newer))
            | (Self::Left(this), Self::Left(newer)) => this <= newer,
            // Only if another version was written since: a list that has that one cannot have the object that was deleted before it. Of one that is from an unknown
            // time nothing is known but that the newer object is not in it, and it may be too old for that.
            (
                Self::Gone { uid, or_deleting, after, .. },
                Self::Gone { uid: newer, or_deleting: newer_or, after: since, .. },
            ) => after < since && (uid != newer || or_deleting >= newer_or),
            _ => false,
        }
    }
}

/// The parts.
impl Entries {
    pub(super) fn join(&mut self, part: &str) {
        let moved = match self.parts.get("") {
            Some(rest) if !part.is_empty() => {
                let is_there = |id: &Id| self.all[id].key.namespace() == Some(part) && rest.crowd != Some(*id);
                rest.revisions.iter().copied().filter(|(_, id)| is_there(id)).collect()
            }
            _ => BTreeSet::new(),
        };
        if let Some(rest) = self.parts.get_mut("") {
            rest.revisions.retain(|one| !moved.contains(one));
        }
        let joined = self.parts.entry_ref(part).or_default();
        joined.reached = None;
        joined.revisions.extend(moved);
    }

    /// What is still expected of a part that is no more is to be [taken](Self::take) first.
    pub(super) fn leave(&mut self, part: &str) {
        self.parts.remove(part);
    }

    pub(super) fn end(&mut self) {
        self.parts.clear();
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    /// Where a part is, to be said anew; nothing if there is none.
    pub(super) fn reached_mut(&mut self, part: &str) -> Option<&mut Option<u64>> {
        self.parts.get_mut(part).map(|part| &mut part.reached)
    }

    /// Whether there is one that an object would come from.
    pub(super) fn has_part_of(&self, key: &ObjectKey) -> bool {
        self.parts.contains_key(self.part_of(key))
    }

    /// Where it is, if it was listed.
    pub(super) fn reached(&self, key: &ObjectKey) -> Option<u64> {
        self.parts.get(self.part_of(key))?.reached
    }

    /// The part that an object would come from.
    pub(super) fn part_of<'a>(&self, key: &'a ObjectKey) -> &'a str {
        key.namespace().filter(|namespace| self.parts.contains_key(*namespace)).unwrap_or_default()
    }

    /// Whether it comes from where all come that have no part of their own.
    pub(super) fn is_of_rest(&self, key: &ObjectKey) -> bool {
        self.part_of(key).is_empty()
    }

    /// Moves a part to this revision, and returns the entries that it shows there.
    ///
    /// A deletion is among them if the informer was told of it. Otherwise it waits for that alone
    /// from now on.
    pub(super) fn reach(&mut self, part: &str, revision: u64) -> Vec<Id> {
        let Some(part) = self.parts.get_mut(part) else { return Vec::new() };
        let mut reached: Vec<_> = part.revisions.range(..=(revision, Id::MAX)).copied().collect();
        reached.retain(|(at, id)| match self.all.get_mut(id).map(|entry| &mut entry.wants) {
            Some(Wants::Gone { after, told: false, .. }) => {
                *after = 0;
                part.revisions.remove(&(*at, *id));
                false
            }
            _ => true,
        });
        reached.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn of_part(&self, part: &str) -> Vec<Id> {
        self.all.iter().filter(|(_, entry)| self.part_of(&entry.key) == part).map(|(id, _)| *id).collect()
    }
}

/// The entries.
impl Entries {
    pub(super) fn id(&mut self) -> Id {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Id, &Entry)> {
        self.all.iter().map(|(id, entry)| (*id, entry))
    }

    /// Those of one key, without a look at the others.
    pub(super) fn of(&self, key: &ObjectKey) -> impl Iterator<Item = (Id, &Entry)> {
        self.keys.get(key).into_iter().flatten().map(|id| (*id, &self.all[id]))
    }

    /// The one that stands for many, of the part that the object would come from.
    pub(super) fn crowd_of(&self, key: &ObjectKey) -> Option<(Id, &Entry)> {
        let id = self.parts.get(self.part_of(key))?.crowd?;
        Some((id, &self.all[&id]))
    }

    pub(super) fn get(&self, id: Id) -> Option<&Entry> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Entry> {
        self.all.get_mut(&id)
    }

    /// Returns whether the informer will have the object after all pending writes: the last one is
    /// inside its selectors.
    pub(super) fn will_have(&self, key: &ObjectKey) -> bool {
        let versions = self.of(key).filter_map(|(_, entry)| Some((entry.wants.revision()?, &entry.wants)));
        let last = versions.max_by_key(|(revision, _)| *revision);
        last.is_some_and(|(_, wants)| matches!(wants, Wants::Revision(_)))
    }

    /// Returns the last version of this object that the informer has still to be told of.
    pub(super) fn expected(&self, key: &ObjectKey) -> Option<u64> {
        let versions = self.of(key).filter_map(|(_, entry)| match entry.wants {
            Wants::Revision(revision) => Some(revision),
            Wants::Left(_) | Wants::Gone { .. } => None,
        });
        versions.max()
    }

    /// Whether the informer is still to be told of a version between those.
    pub(super) fn expects_between(&self, key: &ObjectKey, after: u64, before: u64) -> bool {
        let between =
            |wants: &Wants| matches!(wants, Wants::Revision(version) if after < *version && *version < before);
        self.of(key).any(|(_, entry)| between(&entry.wants))
    }

    /// What nobody waits for and is contained in this one is taken out. So one client that makes and deletes a key has at most three entries of it, however long
    /// nothing is heard; and one more for each delete of what others make anew.
    pub(super) fn insert(&mut self, key: &ObjectKey, wants: Wants, writer: Writer, now: Instant) {
        let is_contained = |entry: &Entry| {
            entry.wants.is_contained_in(&wants) && entry.waiters.is_empty() && writer.stands_for(&entry.writer)
        };
        // Who waits until it has left must know whether it comes again before that.
        let is_held = |entry: &Entry| matches!(entry.wants, Wants::Left(_)) && !entry.waiters.is_empty();
        if !self.of(key).any(|(_, entry)| is_held(entry)) {
            let contained = self.of(key).filter(|(_, entry)| is_contained(entry)).map(|(id, _)| id);
            for id in contained.collect::<Vec<_>>() {
                self.take(id);
            }
        }
        let entry = Entry { key: key.clone(), wants, writer, since: now, waiters: Vec::new() };
        if self.all.len() < MOST {
            let id = self.add(entry);
            self.keys.entry_ref(key).or_default().push(id);
        } else if let Some(revision) = entry.wants.revision() {
            self.crowd(entry, revision);
        }
    }

    /// Into the entry that stands for many; into another one if somebody waits for that.
    fn crowd(&mut self, entry: Entry, revision: u64) {
        let before = self.crowd_of(&entry.key).filter(|(_, crowd)| crowd.waiters.is_empty()).map(|(id, _)| id);
        let before = before.and_then(|id| self.take(id)).and_then(|crowd| crowd.wants.revision());
        let wants = Wants::Revision(before.map_or(revision, |before| before.max(revision)));
        let key = entry.key.clone();
        let id = self.add(Entry { wants, writer: Writer::everybody(), ..entry });
        let part = self.part_of(&key);
        if let Some(part) = self.parts.get_mut(part) {
            part.crowd = Some(id);
        }
    }

    fn add(&mut self, entry: Entry) -> Id {
        let id = self.id();
        let part = self.part_of(&entry.key);
        if let Some((revision, part)) = entry.wants.reached_at().zip(self.parts.get_mut(part)) {
            part.revisions.insert((revision, id));
        }
        self.all.insert(id, entry);
        id
    }

    pub(super) fn take(&mut self, id: Id) -> Option<Entry> {
        let entry = self.all.remove(&id)?;
        let part = self.part_of(&entry.key);
        if let Some((revision, part)) = entry.wants.reached_at().zip(self.parts.get_mut(part)) {
            part.revisions.remove(&(revision, id));
            part.crowd = part.crowd.filter(|crowd| *crowd != id);
        }
        if let Some(ids) = self.keys.get_mut(&entry.key) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.keys.remove(&entry.key);
            }
        }
        Some(entry)
    }
}
