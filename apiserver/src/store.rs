//! The store: tables of objects under one revision counter, and the history of their changes.
//!
//! Invariants:
//! - Every write takes the next revision, in all tables.
//! - The history of a table has every change after its `floor`, in order and without gaps. The
//!   table as of any revision from `floor` on is therefore reconstructed by undoing later changes,
//!   and a watcher that starts there sees each change exactly once.
//! - One lock protects everything, so a reader never sees part of a write.
//!
//! The store does not know Kubernetes. A write names the revision of the object that it is based on
//! and is rejected if the object has changed since. The registry computes objects without the lock,
//! and repeats that after a conflict.

mod durable;
pub(crate) mod feed;
mod scan;
mod table_ref;

pub(crate) use table_ref::TableRef;

use crate::{
    object::{Content, Key, Object},
    persist::Log,
};
use parking_lot::{Mutex, MutexGuard, RwLock};
pub(crate) use scan::{Range, Scan};
use std::{
    collections::{BTreeMap, HashMap, VecDeque, btree_map::Entry},
    sync::{Arc, Weak},
};
use tokio::sync::watch;

/// Name of a table, such as `widgets.example.com`.
pub(crate) type TableName = Arc<str>;

/// Handle of a store. Clones share it.
#[derive(Clone)]
pub(crate) struct Store(Arc<RwLock<State>>);

struct State {
    revision: u64,
    tables: HashMap<TableName, Table>,
    limits: HistoryLimits,
    /// Size of the changes of all tables.
    history_bytes: usize,
    /// History of dropped tables that watchers still read. It counts towards the limit of bytes.
    dropped: Vec<Weak<Mutex<Changes>>>,
    log: Option<Log>,
    /// Selects the changes that the feed delivers.
    feed_filter: FeedFilter,
    /// Revision of the last change for the feed.
    last_in_feed: u64,
    /// Notified of each change for the feed.
    changed: watch::Sender<()>,
}

/// Limits of the changes that a store keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryLimits {
    /// Maximum number of changes of each table.
    pub(crate) changes: usize,
    /// Maximum bytes of the changes of all tables together. The last change of each table is always
    /// kept.
    pub(crate) bytes: usize,
}

/// Returns whether a change of an object from `before` to `after` belongs to the feed.
///
/// Most changes do not, and waking the reader of the feed costs more than the change.
pub(crate) type FeedFilter =
    fn(table: &str, before: Option<&Object>, after: Option<&Object>) -> bool;

struct Table {
    objects: BTreeMap<Key, Arc<Object>>,
    changes: Changes,
    /// Notified of each write to the table. Holds the history once the table is dropped, for
    /// watchers that have not read all of it.
    changed: watch::Sender<Option<DroppedLog>>,
}

/// History of a table.
#[derive(Clone)]
struct Changes {
    list: VecDeque<Arc<Change>>,
    /// Size of the changes in `list`.
    bytes: usize,
    /// `list` has every change after this revision.
    floor: u64,
    /// Revision of the last change that was dropped from `list`. A watcher that has seen it missed
    /// nothing, even if `compact` moved the floor further.
    last_dropped: u64,
    /// Revision of the last dropped change for the feed.
    last_dropped_in_feed: u64,
}

/// History of a dropped table, shared by its watchers.
type DroppedLog = Arc<Mutex<Changes>>;

/// A write to an object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) before: Option<Arc<Object>>,
    pub(crate) after: Option<Arc<Object>>,
    in_feed: bool,
}

impl Change {
    pub(crate) fn key(&self) -> &Key {
        let object = self.after.as_ref().or(self.before.as_ref());
        &object
            .expect("a change has an object before or after it")
            .key
    }

    /// Returns the number of bytes that are freed when the history drops the change.
    ///
    /// The object after it does not count, because the table or the next change refers to it.
    fn size(&self) -> usize {
        size_of::<Self>() + self.before.as_ref().map_or(0, |object| object.size())
    }

    /// Returns the size of the object that a watch event of the change contains.
    fn event_size(&self) -> usize {
        self.after
            .as_ref()
            .or(self.before.as_ref())
            .map_or(0, |object| object.size())
    }
}

/// Error of a write, which has then changed nothing.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The object is not at the revision that the write is based on.
    Conflict,
    /// The object of the [`Precondition`] has changed.
    PreconditionFailed,
    /// The table was dropped.
    NoTable,
    /// The log could not be written.
    Log(std::io::Error),
}

/// An object that must be unchanged for a write to succeed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Precondition<'a> {
    pub(crate) table: &'a str,
    pub(crate) object: &'a Object,
}

/// The requested revision is older than the history, which begins at `floor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) floor: u64,
}

impl Store {
    /// Creates an empty store. Its feed delivers the changes that `feed_filter` selects.
    pub(crate) fn new(limits: HistoryLimits, feed_filter: FeedFilter) -> Self {
        Self(Arc::new(RwLock::new(State {
            revision: 1,
            tables: HashMap::new(),
            limits,
            history_bytes: 0,
            dropped: Vec::new(),
            log: None,
            feed_filter,
            last_in_feed: 0,
            changed: watch::Sender::default(),
        })))
    }

    /// Creates an independent copy with the same history and without a log.
    pub(crate) fn fork(&self) -> Self {
        let state = self.0.read();
        let tables = state
            .tables
            .iter()
            .map(|(name, table)| (name.clone(), table.fork()))
            .collect();
        Self(Arc::new(RwLock::new(State {
            revision: state.revision,
            tables,
            limits: state.limits,
            history_bytes: state.history_bytes,
            dropped: Vec::new(),
            log: None,
            feed_filter: state.feed_filter,
            last_in_feed: state.last_in_feed,
            changed: watch::Sender::default(),
        })))
    }

    /// Creates a table unless it exists.
    pub(crate) fn create_table(&self, name: &TableName) {
        let mut state = self.0.write();
        let floor = state.revision;
        state
            .tables
            .entry(name.clone())
            .or_insert_with(|| Table::new(floor));
    }

    /// Drops a table and removes its objects. Its watchers end after they have read the removals.
    ///
    /// Errors: the log cannot be written. The table then still exists.
    pub(crate) fn drop_table(&self, name: &str) -> std::io::Result<()> {
        let mut state = self.0.write();
        let State {
            revision,
            tables,
            log,
            limits,
            history_bytes,
            dropped,
            ..
        } = &mut *state;
        let Some(table) = tables.get(name) else {
            return Ok(());
        };
        if let Some(log) = log {
            log.drop_table(name, *revision + table.objects.len() as u64)?;
        }
        let Some(mut table) = tables.remove(name) else {
            return Ok(());
        };
        *history_bytes -= table.changes.bytes;
        for object in std::mem::take(&mut table.objects).into_values() {
            *revision += 1;
            let removal = Change {
                revision: *revision,
                before: Some(object),
                after: None,
                in_feed: false,
            };
            table.changes.push(Arc::new(removal), limits.changes);
        }
        let changes = Arc::new(Mutex::new(table.changes));
        dropped.push(Arc::downgrade(&changes));
        table.changed.send_replace(Some(changes));
        // Only watchers keep the history alive.
        drop(table.changed);
        trim(tables, dropped, history_bytes, limits.bytes);
        Ok(())
    }

    /// Replaces the encoded content of objects at their current revision. Watchers are not
    /// notified.
    pub(crate) fn rewrite(
        &self,
        name: &str,
        change: impl Fn(&Object) -> Option<Content>,
    ) -> std::io::Result<()> {
        let mut state = self.0.write();
        let State { tables, log, .. } = &mut *state;
        let Some(table) = tables.get_mut(name) else {
            return Ok(());
        };
        for (key, object) in &mut table.objects {
            let Some(content) = change(object) else {
                continue;
            };
            if let Some(log) = log {
                log.append(name, key, object.revision, Some(&content))?;
            }
            *object = Arc::new(Object::new(key.clone(), object.revision, content));
        }
        Ok(())
    }

    /// Returns the revision of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.0.read().revision
    }

    pub(crate) fn get(&self, table: &str, key: &str) -> Option<Arc<Object>> {
        self.0.read().tables.get(table)?.objects.get(key).cloned()
    }

    /// Writes an object whose current revision is `seen`, `None` if it does not exist. `content` is
    /// `None` to remove it.
    pub(crate) fn write(
        &self,
        table: &str,
        key: &Key,
        seen: Option<u64>,
        content: Option<Content>,
    ) -> Result<Arc<Change>, WriteError> {
        self.write_with_precondition(table, key, seen, content, None)
    }

    /// Writes an object as [`Self::write`] does, if the object of the precondition is unchanged.
    pub(crate) fn write_with_precondition(
        &self,
        table: &str,
        key: &Key,
        seen: Option<u64>,
        content: Option<Content>,
        precondition: Option<Precondition<'_>>,
    ) -> Result<Arc<Change>, WriteError> {
        let mut state = self.0.write();
        let State {
            revision,
            tables,
            limits,
            history_bytes,
            dropped,
            log,
            feed_filter,
            last_in_feed,
            changed,
        } = &mut *state;
        if let Some(Precondition { table, object }) = precondition {
            let now = tables
                .get(table)
                .and_then(|table| table.objects.get(&object.key));
            if now.map(|now| now.revision) != Some(object.revision) {
                return Err(WriteError::PreconditionFailed);
            }
        }
        let name = table;
        let table = tables.get_mut(name).ok_or(WriteError::NoTable)?;
        let entry = table.objects.entry(key.clone());
        let before = match &entry {
            Entry::Occupied(entry) => Some(entry.get().clone()),
            Entry::Vacant(_) => None,
        };
        if before.as_ref().map(|object| object.revision) != seen
            || (before.is_none() && content.is_none())
        {
            return Err(WriteError::Conflict);
        }
        let next = *revision + 1;
        if let Some(log) = log {
            log.append(name, key, next, content.as_ref())
                .map_err(WriteError::Log)?;
        }
        *revision = next;
        let after = content.map(|content| Arc::new(Object::new(key.clone(), next, content)));
        let in_feed = feed_filter(name, before.as_deref(), after.as_deref());
        match (&after, entry) {
            (Some(object), entry) => drop(entry.insert_entry(object.clone())),
            (None, Entry::Occupied(entry)) => drop(entry.remove()),
            (None, Entry::Vacant(_)) => {}
        }
        let change = Arc::new(Change {
            revision: next,
            before,
            after,
            in_feed,
        });
        *history_bytes -= table.changes.bytes;
        table.changes.push(change.clone(), limits.changes);
        *history_bytes += table.changes.bytes;
        if in_feed {
            *last_in_feed = next;
        }
        let table_changed = table.changed.clone();
        trim(tables, dropped, history_bytes, limits.bytes);
        let changed = in_feed.then(|| changed.clone());
        if let Some(log) = log
            && log.wants_snapshot()
        {
            let objects = tables
                .iter()
                .flat_map(|(name, table)| table.objects.values().map(move |object| (name, object)));
            log.snapshot(next, objects);
        }
        drop(state);
        table_changed.send_modify(|_| ());
        if let Some(changed) = changed {
            changed.send_modify(|()| ());
        }
        Ok(change)
    }

    /// Returns the objects in `range` as of revision `at`, or the current ones.
    pub(crate) fn scan(
        &self,
        table: &str,
        range: Range<'_>,
        at: Option<u64>,
    ) -> Result<Scan, Expired> {
        let state = self.0.read();
        let revision = at.unwrap_or(state.revision);
        match state.tables.get(table) {
            Some(table) => table.scan(range, revision),
            None => Ok(Scan {
                revision,
                objects: Vec::new(),
                remaining: 0,
            }),
        }
    }

    /// Returns a cursor over all changes of a table after revision `from`, `None` if the table does
    /// not exist.
    pub(crate) fn watch(&self, table: &str, from: u64) -> Option<Result<Cursor, Expired>> {
        let state = self.0.read();
        let (name, table) = state.tables.get_key_value(table)?;
        let floor = table.changes.floor;
        Some(if from < floor {
            Err(Expired { floor })
        } else {
            Ok(self.cursor(name, table, from))
        })
    }

    /// Returns the objects in `range` and a cursor over all changes after them.
    pub(crate) fn scan_and_watch(&self, table: &str, range: Range<'_>) -> Option<(Scan, Cursor)> {
        let state = self.0.read();
        let (name, table) = state.tables.get_key_value(table)?;
        let scan = table.scan(range, state.revision).ok()?;
        Some((scan, self.cursor(name, table, state.revision)))
    }

    fn cursor(&self, name: &TableName, table: &Table, from: u64) -> Cursor {
        Cursor {
            store: self.clone(),
            table: name.clone(),
            seen: from,
            changed: table.changed.subscribe(),
        }
    }

    /// Drops the history up to `revision`. The objects stay.
    pub(crate) fn compact(&self, revision: u64) {
        let mut state = self.0.write();
        let revision = revision.min(state.revision);
        for table in state.tables.values_mut() {
            table.changes.drop_until(revision);
        }
        state.history_bytes = state.tables.values().map(|table| table.changes.bytes).sum();
    }
}

/// Drops changes until the history of all tables, dropped ones included, has at most `limit` bytes.
///
/// Each time it drops the oldest change of the table with the most bytes, so that large objects of
/// one table do not expire the watchers of others. The last change of a table stays, because
/// watchers have not read it yet. `bytes` is the size of the history of `tables`.
fn trim(
    tables: &mut HashMap<TableName, Table>,
    dropped: &mut Vec<Weak<Mutex<Changes>>>,
    bytes: &mut usize,
    limit: usize,
) {
    dropped.retain(|log| log.strong_count() > 0);
    let logs: Vec<_> = dropped.iter().filter_map(Weak::upgrade).collect();
    let mut logs: Vec<_> = logs.iter().map(|log| log.lock()).collect();
    let size = |logs: &[MutexGuard<'_, Changes>]| logs.iter().map(|log| log.bytes).sum::<usize>();
    let mut total = *bytes + size(&logs);
    while total > limit {
        let tables = tables.values_mut().map(|table| &mut table.changes);
        let largest = tables
            .chain(logs.iter_mut().map(|log| &mut **log))
            .filter(|changes| changes.list.len() > 1)
            .max_by_key(|changes| changes.bytes);
        let Some(changes) = largest else { break };
        let Some(oldest) = changes.list.front().map(|change| change.revision) else {
            break;
        };
        total -= changes.bytes;
        changes.drop_until(oldest);
        total += changes.bytes;
    }
    *bytes = total - size(&logs);
}

impl Changes {
    /// Returns the changes after a revision.
    fn after(&self, revision: u64) -> impl Iterator<Item = &Arc<Change>> {
        self.list.range(
            self.list
                .partition_point(|change| change.revision <= revision)..,
        )
    }

    fn push(&mut self, change: Arc<Change>, history: usize) {
        self.bytes += change.size();
        self.list.push_back(change);
        while self.list.len() > history
            && let Some(first) = self.list.front()
        {
            self.drop_until(first.revision);
        }
    }

    fn drop_until(&mut self, revision: u64) {
        while let Some(change) = self.list.pop_front_if(|change| change.revision <= revision) {
            self.bytes -= change.size();
            self.last_dropped = change.revision;
            if change.in_feed {
                self.last_dropped_in_feed = change.revision;
            }
        }
        self.floor = self.floor.max(revision);
    }
}

impl Table {
    fn new(floor: u64) -> Self {
        let changes = Changes {
            list: VecDeque::new(),
            bytes: 0,
            floor,
            last_dropped: 0,
            last_dropped_in_feed: 0,
        };
        Self {
            objects: BTreeMap::new(),
            changes,
            changed: watch::Sender::default(),
        }
    }

    fn fork(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            changes: self.changes.clone(),
            changed: watch::Sender::default(),
        }
    }
}

/// Position of a watcher in the history of a table.
pub(crate) struct Cursor {
    store: Store,
    table: TableName,
    /// Every change up to this revision was returned or belongs to another table.
    seen: u64,
    changed: watch::Receiver<Option<DroppedLog>>,
}

/// Result of reading on from a [`Cursor`].
#[derive(Debug)]
pub(crate) enum Next {
    /// The next changes in order, at least one.
    Changes(Vec<Arc<Change>>),
    /// Changes that were not read yet have been dropped.
    Expired(Expired),
    /// The table was dropped and everything was read.
    End,
}

impl Cursor {
    /// Returns the revision up to which changes were returned.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns whether the cursor starts at a revision that the store has not reached yet.
    pub(crate) fn is_ahead(&self) -> bool {
        self.seen > self.store.revision()
    }

    /// Returns at most `limit` changes without waiting, and no more once their objects have
    /// `bytes`.
    ///
    /// Returns `None` if there are none. [`Self::seen`] is then the store's revision.
    pub(crate) fn try_next(&mut self, limit: usize, bytes: usize) -> Option<Next> {
        let state = self.store.0.read();
        let last = self.changed.borrow_and_update();
        let last = last.as_ref().map(|log| log.lock());
        let log = match &last {
            Some(changes) => changes,
            None => &state.tables.get(&self.table)?.changes,
        };
        if self.seen < log.last_dropped {
            return Some(Next::Expired(Expired { floor: log.floor }));
        }
        let first = log
            .list
            .partition_point(|change| change.revision <= self.seen);
        let mut size = 0;
        let fits = |change: &&Arc<Change>| {
            let fits = size < bytes;
            size += change.event_size();
            fits
        };
        let changes: Vec<_> = log
            .list
            .range(first..)
            .take(limit)
            .take_while(fits)
            .cloned()
            .collect();
        match changes.last() {
            Some(last) => self.seen = last.revision,
            None if last.is_some() => return Some(Next::End),
            // A watch may start at a future revision.
            None => self.seen = self.seen.max(state.revision),
        }
        if changes.is_empty() {
            None
        } else {
            Some(Next::Changes(changes))
        }
    }

    /// Waits until there may be more changes.
    ///
    /// Cancel safety: dropping the future loses no change.
    pub(crate) async fn wait_for_changes(&mut self) {
        // An error means that the table was dropped, which the next `try_next` reports.
        _ = self.changed.changed().await;
    }
}

#[cfg(test)]
mod tests;
