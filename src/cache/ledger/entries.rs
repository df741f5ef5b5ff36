//! Writes that are not shown yet, by key and by revision.
//!
//! Invariant: every entry of a key is listed under that key. An entry that waits for a revision,
//! and a deletion that follows a pending version, is also listed under that revision in the part
//! that receives the object.
//!
//! There are at most [`MAX_ENTRIES`] entries, besides those that a read waits for. Further writes
//! of a part share one entry, which every read of that part waits for: a read may wait for too many
//! writes, but never for too few. Further deletes, whose revision is not known, are not waited for.

use super::{Writer, sync::Instant};
use crate::object::ObjectKey;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Id = u64;

/// Maximum of entries, of about 500 bytes each. An active informer is behind by a few.
pub(super) const MAX_ENTRIES: usize = 16_384;

#[derive(Default)]
pub(super) struct Entries {
    /// Parts by namespace. The empty name is the part of all other objects. Empty before the
    /// informer starts, and when it is closed.
    parts: HashMap<String, PartState>,
    /// Entries in the order of recording.
    all: BTreeMap<Id, Entry>,
    keys: HashMap<ObjectKey, Vec<Id>>,
    last_id: Id,
}

#[derive(Default)]
struct PartState {
    /// Revision of the part, once it is listed.
    reached: Option<u64>,
    revisions: BTreeSet<(u64, Id)>,
    /// Shared entry of the writes beyond the maximum.
    overflow: Option<Id>,
}

pub(super) struct Entry {
    /// Key of the object, or of one of the objects of a shared entry.
    pub(super) key: ObjectKey,
    pub(super) awaited: Awaited,
    pub(super) writer: Writer,
    pub(super) since: Instant,
    pub(super) waiters: Vec<Id>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Revision(u64),
    /// A revision of a version that the informer's selectors exclude.
    ///
    /// The informer does not receive this version, but only that the object left, which may be
    /// earlier.
    LeftSelectors(u64),
    /// Deletion of the object with this uid, or its mark if `or_deleting`.
    Gone {
        uid: String,
        or_deleting: bool,
        /// Revision of the last pending write before the deletion, or 0. Until the informer reaches
        /// it, an object that is not in the store may come back.
        after: u64,
        /// Whether the last event or list of the informer showed the object as gone.
        observed: bool,
    },
}

impl Awaited {
    fn revision(&self) -> Option<u64> {
        match self {
            Self::Revision(revision) | Self::LeftSelectors(revision) => Some(*revision),
            Self::Gone { .. } => None,
        }
    }

    /// Returns the revision from which the informer can show the write.
    fn reached_at(&self) -> Option<u64> {
        match self {
            Self::Revision(revision) | Self::LeftSelectors(revision) => Some(*revision),
            Self::Gone { after, .. } => Some(*after).filter(|after| *after > 0),
        }
    }

    /// Returns whether `newer`, of the same key, is shown only if this one is.
    fn is_contained_in(&self, newer: &Self) -> bool {
        match (self, newer) {
            (Self::Revision(this) | Self::LeftSelectors(this), Self::Revision(newer))
            | (Self::LeftSelectors(this), Self::LeftSelectors(newer)) => this <= newer,
            // Only if another version was written in between: a list that has that version cannot
            // have the deleted object. A deletion without a known revision shows only that the
            // newer object is missing, and the list may be older.
            (
                Self::Gone {
                    uid,
                    or_deleting,
                    after,
                    ..
                },
                Self::Gone {
                    uid: newer,
                    or_deleting: newer_or,
                    after: since,
                    ..
                },
            ) => after < since && (uid != newer || or_deleting >= newer_or),
            _ => false,
        }
    }
}

/// Parts of the informer.
impl Entries {
    pub(super) fn join(&mut self, part: &str) {
        let moved = match self.parts.get("") {
            Some(rest) if !part.is_empty() => {
                let is_there = |id: &Id| {
                    self.all[id].key.namespace() == Some(part) && rest.overflow != Some(*id)
                };
                rest.revisions
                    .iter()
                    .copied()
                    .filter(|(_, id)| is_there(id))
                    .collect()
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

    /// Removes a part. The caller [takes](Self::take) its entries before.
    pub(super) fn leave(&mut self, part: &str) {
        self.parts.remove(part);
    }

    pub(super) fn end(&mut self) {
        self.parts.clear();
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    /// Returns the revision of a part, to be updated. `None` if there is no such part.
    pub(super) fn reached_mut(&mut self, part: &str) -> Option<&mut Option<u64>> {
        self.parts.get_mut(part).map(|part| &mut part.reached)
    }

    /// Returns whether the object belongs to an existing part.
    pub(super) fn has_part_of(&self, key: &ObjectKey) -> bool {
        self.parts.contains_key(self.part_of(key))
    }

    /// Returns the revision of the object's part, if it is listed.
    pub(super) fn reached(&self, key: &ObjectKey) -> Option<u64> {
        self.parts.get(self.part_of(key))?.reached
    }

    /// Returns the name of the object's part.
    pub(super) fn part_of<'a>(&self, key: &'a ObjectKey) -> &'a str {
        key.namespace()
            .filter(|namespace| self.parts.contains_key(*namespace))
            .unwrap_or_default()
    }

    /// Returns whether the object's namespace has no part of its own.
    pub(super) fn is_in_rest(&self, key: &ObjectKey) -> bool {
        self.part_of(key).is_empty()
    }

    /// Moves a part to this revision, and returns the entries that it shows there.
    ///
    /// A deletion is returned if the informer has received the delete event. Otherwise its entry
    /// stays and waits for that event only.
    pub(super) fn reach(&mut self, part: &str, revision: u64) -> Vec<Id> {
        let Some(part) = self.parts.get_mut(part) else {
            return Vec::new();
        };
        let mut reached: Vec<_> = part
            .revisions
            .range(..=(revision, Id::MAX))
            .copied()
            .collect();
        reached.retain(
            |(at, id)| match self.all.get_mut(id).map(|entry| &mut entry.awaited) {
                Some(Awaited::Gone {
                    after,
                    observed: false,
                    ..
                }) => {
                    *after = 0;
                    part.revisions.remove(&(*at, *id));
                    false
                }
                _ => true,
            },
        );
        reached.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn of_part(&self, part: &str) -> Vec<Id> {
        self.all
            .iter()
            .filter(|(_, entry)| self.part_of(&entry.key) == part)
            .map(|(id, _)| *id)
            .collect()
    }
}

/// Entries of the ledger.
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

    /// Returns the entries of a key.
    pub(super) fn of(&self, key: &ObjectKey) -> impl Iterator<Item = (Id, &Entry)> {
        self.keys
            .get(key)
            .into_iter()
            .flatten()
            .map(|id| (*id, &self.all[id]))
    }

    /// Returns the shared entry of the object's part.
    pub(super) fn overflow_of(&self, key: &ObjectKey) -> Option<(Id, &Entry)> {
        let id = self.parts.get(self.part_of(key))?.overflow?;
        Some((id, &self.all[&id]))
    }

    pub(super) fn get(&self, id: Id) -> Option<&Entry> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Entry> {
        self.all.get_mut(&id)
    }

    /// Returns whether the informer will have the object after all pending writes.
    ///
    /// It will if its selectors match the last one.
    pub(super) fn will_have(&self, key: &ObjectKey) -> bool {
        let versions = self
            .of(key)
            .filter_map(|(_, entry)| Some((entry.awaited.revision()?, &entry.awaited)));
        let last = versions.max_by_key(|(revision, _)| *revision);
        last.is_some_and(|(_, awaited)| matches!(awaited, Awaited::Revision(_)))
    }

    /// Returns the last version of the object that the informer will receive.
    pub(super) fn expected(&self, key: &ObjectKey) -> Option<u64> {
        let versions = self.of(key).filter_map(|(_, entry)| match entry.awaited {
            Awaited::Revision(revision) => Some(revision),
            Awaited::LeftSelectors(_) | Awaited::Gone { .. } => None,
        });
        versions.max()
    }

    /// Returns whether a version between these revisions is pending.
    pub(super) fn expects_between(&self, key: &ObjectKey, after: u64, before: u64) -> bool {
        let between = |awaited: &Awaited| matches!(awaited, Awaited::Revision(version) if after < *version && *version < before);
        self.of(key).any(|(_, entry)| between(&entry.awaited))
    }

    /// Adds an entry, and removes the entries that it contains and no read waits for.
    ///
    /// A client that creates and deletes a key repeatedly therefore has at most three entries of it
    /// while the informer receives nothing, plus one for each delete of an object that another
    /// client recreated.
    pub(super) fn insert(
        &mut self,
        key: &ObjectKey,
        awaited: Awaited,
        writer: Writer,
        now: Instant,
    ) {
        let is_contained = |entry: &Entry| {
            entry.awaited.is_contained_in(&awaited)
                && entry.waiters.is_empty()
                && writer.covers(&entry.writer)
        };
        // A waiter for `Awaited::LeftSelectors` needs the entries that show whether the object
        // comes back before.
        let is_held = |entry: &Entry| {
            matches!(entry.awaited, Awaited::LeftSelectors(_)) && !entry.waiters.is_empty()
        };
        if !self.of(key).any(|(_, entry)| is_held(entry)) {
            let contained = self
                .of(key)
                .filter(|(_, entry)| is_contained(entry))
                .map(|(id, _)| id);
            for id in contained.collect::<Vec<_>>() {
                self.take(id);
            }
        }
        let entry = Entry {
            key: key.clone(),
            awaited,
            writer,
            since: now,
            waiters: Vec::new(),
        };
        if self.all.len() < MAX_ENTRIES {
            let id = self.add(entry);
            self.keys.entry_ref(key).or_default().push(id);
        } else if let Some(revision) = entry.awaited.revision() {
            self.add_to_overflow(entry, revision);
        }
    }

    /// Adds a write to the shared entry of its part. Creates a new one if a read waits for it.
    fn add_to_overflow(&mut self, entry: Entry, revision: u64) {
        let before = self
            .overflow_of(&entry.key)
            .filter(|(_, overflow)| overflow.waiters.is_empty())
            .map(|(id, _)| id);
        let before = before
            .and_then(|id| self.take(id))
            .and_then(|overflow| overflow.awaited.revision());
        let awaited = Awaited::Revision(before.map_or(revision, |before| before.max(revision)));
        let key = entry.key.clone();
        let id = self.add(Entry {
            awaited,
            writer: Writer::any(),
            ..entry
        });
        let part = self.part_of(&key);
        if let Some(part) = self.parts.get_mut(part) {
            part.overflow = Some(id);
        }
    }

    fn add(&mut self, entry: Entry) -> Id {
        let id = self.id();
        let part = self.part_of(&entry.key);
        if let Some((revision, part)) = entry.awaited.reached_at().zip(self.parts.get_mut(part)) {
            part.revisions.insert((revision, id));
        }
        self.all.insert(id, entry);
        id
    }

    pub(super) fn take(&mut self, id: Id) -> Option<Entry> {
        let entry = self.all.remove(&id)?;
        let part = self.part_of(&entry.key);
        if let Some((revision, part)) = entry.awaited.reached_at().zip(self.parts.get_mut(part)) {
            part.revisions.remove(&(revision, id));
            part.overflow = part.overflow.filter(|overflow| *overflow != id);
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
