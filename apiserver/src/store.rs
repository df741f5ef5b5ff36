//! Where objects live: tables of objects under one revision counter, and the log of what happened to them.
//!
//! Invariants:
//! - Every write takes the next revision, whatever table it is in.
//! - A table's log has every change after its `floor`, in order and without gaps. So the table as of any revision from `floor` on can
//!   be told, by undoing what came later, and a watcher that reads the log from there misses nothing and sees nothing twice.
//! - Whoever reads sees a whole number of writes: all of it is under one lock.
//!
//! Nothing here knows Kubernetes. A write names the revision of the object that it was made from, and is refused if the object has
//! moved on: the pipeline that makes objects runs without the lock, and once more when it lost the race.

mod durable;
pub(crate) mod feed;
mod scan;
mod tail;

pub(crate) use tail::Tail;

use crate::{
    object::{Content, Key, Object},
    persist::Log,
};
use parking_lot::RwLock;
pub(crate) use scan::{Range, Scan};
use std::{
    collections::{BTreeMap, HashMap, VecDeque, btree_map::Entry},
    sync::Arc,
};
use tokio::sync::watch;

/// One table's name: `widgets.example.com`.
pub(crate) type TableName = Arc<str>;

/// The store. A handle: clones share one.
#[derive(Clone)]
pub(crate) struct Store(Arc<RwLock<State>>);

struct State {
    revision: u64,
    tables: HashMap<TableName, Table>,
    limits: HistoryLimits,
    /// Size of the changes of all tables.
    history_bytes: usize,
    log: Option<Log>,
    /// Which changes the feed is about.
    notable: Notable,
    /// The revision of the last of them.
    last_notable: u64,
    /// Marked changed by each of them.
    grown: watch::Sender<()>,
}

/// Limits of the changes that a store keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryLimits {
    /// Most changes of each table.
    pub(crate) changes: usize,
    /// Most bytes of the changes of all tables together. The last change of each table stays in any case.
    pub(crate) bytes: usize,
}

/// Whether a change to an object of a table, from the one state to the other, is for the feed: most are not, and waking its reader costs
/// more than the change.
pub(crate) type Notable = fn(table: &str, before: Option<&Object>, after: Option<&Object>) -> bool;

struct Table {
    objects: BTreeMap<Key, Arc<Object>>,
    changes: Changes,
    /// Marked changed by every write to the table. Once the table is dropped it has the changes, for those who have not seen them.
    grown: watch::Sender<Option<Changes>>,
}

/// A table's log.
#[derive(Clone)]
struct Changes {
    list: VecDeque<Arc<Change>>,
    /// Size of the list.
    bytes: usize,
    /// What happened after this revision is in `list`.
    floor: u64,
    /// The last change that no longer is. Who has seen it missed nothing, even if `compact` moved the floor further.
    forgotten: u64,
    /// The last notable one of those.
    forgotten_notable: u64,
}

/// What a write did to an object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) before: Option<Arc<Object>>,
    pub(crate) after: Option<Arc<Object>>,
    notable: bool,
}

impl Change {
    pub(crate) fn key(&self) -> &Key {
        let object = self.after.as_ref().or(self.before.as_ref());
        &object.expect("a change has a state before or after it").key
    }

    /// Returns the number of bytes that are freed when history drops the change. The object after it is in use: the table has it,
    /// or the next change.
    fn size(&self) -> usize {
        size_of::<Self>() + self.before.as_ref().map_or(0, |object| object.size())
    }

    /// Returns the size of the object that a watch event of the change shows.
    fn shown_size(&self) -> usize {
        self.after.as_ref().or(self.before.as_ref()).map_or(0, |object| object.size())
    }
}

/// Why a write was refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The object is not at the revision that the write was made from.
    Moved,
    /// The object that the write depends on has moved on.
    Guard,
    /// The table is gone.
    NoTable,
    /// It could not be made durable; nothing was changed.
    Log(std::io::Error),
}

/// An object that has to be as it was looked at for a write to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard<'a> {
    pub(crate) table: &'a str,
    pub(crate) object: &'a Object,
}

/// History does not go back that far: it begins at `floor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) floor: u64,
}

impl Store {
    /// Creates an empty store. Its feed has the changes that are `notable`.
    pub(crate) fn new(limits: HistoryLimits, notable: Notable) -> Self {
        Self(Arc::new(RwLock::new(State {
            revision: 1,
            tables: HashMap::new(),
            limits,
            history_bytes: 0,
            log: None,
            notable,
            last_notable: 0,
            grown: watch::Sender::default(),
        })))
    }

    /// A copy that goes its own way, history included. It is not durable.
    pub(crate) fn fork(&self) -> Self {
        let state = self.0.read();
        let tables = state.tables.iter().map(|(name, table)| (name.clone(), table.fork())).collect();
        Self(Arc::new(RwLock::new(State {
            revision: state.revision,
            tables,
            limits: state.limits,
            history_bytes: state.history_bytes,
            log: None,
            notable: state.notable,
            last_notable: state.last_notable,
            grown: watch::Sender::default(),
        })))
    }

    /// Make a table, if it is not there.
    pub(crate) fn create_table(&self, name: &TableName) {
        let mut state = self.0.write();
        let floor = state.revision;
        state.tables.entry(name.clone()).or_insert_with(|| Table::new(floor));
    }

    /// Drop a table. What is in it is removed; its watchers come to an end once they have read that too. On error it is still there.
    pub(crate) fn drop_table(&self, name: &str) -> std::io::Result<()> {
        let mut state = self.0.write();
        let State { revision, tables, log, limits, history_bytes, .. } = &mut *state;
        let Some(table) = tables.get(name) else { return Ok(()) };
        if let Some(log) = log {
            log.drop_table(name, *revision + table.objects.len() as u64)?;
        }
        let Some(mut table) = tables.remove(name) else { return Ok(()) };
        *history_bytes -= table.changes.bytes;
        for object in std::mem::take(&mut table.objects).into_values() {
            *revision += 1;
            let removal = Change { revision: *revision, before: Some(object), after: None, notable: false };
            table.changes.push(Arc::new(removal), limits.changes);
        }
        table.grown.send_replace(Some(table.changes));
        Ok(())
    }

    /// Write objects down in another way, at the revision that they have: nobody is told, for nothing happened to them.
    pub(crate) fn rewrite(&self, name: &str, change: impl Fn(&Object) -> Option<Content>) -> std::io::Result<()> {
        let mut state = self.0.write();
        let State { tables, log, .. } = &mut *state;
        let Some(table) = tables.get_mut(name) else { return Ok(()) };
        for (key, object) in &mut table.objects {
            let Some(content) = change(object) else { continue };
            if let Some(log) = log {
                log.append(name, key, object.revision, Some(&content))?;
            }
            *object = Arc::new(Object::new(key.clone(), object.revision, content));
        }
        Ok(())
    }

    /// Of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.0.read().revision
    }

    pub(crate) fn get(&self, table: &str, key: &str) -> Option<Arc<Object>> {
        self.0.read().tables.get(table)?.objects.get(key).cloned()
    }

    /// Write an object that is at revision `seen`, `None` if it is not there; `content` is `None` to remove it.
    pub(crate) fn write(
        &self,
        table: &str,
        key: &Key,
        seen: Option<u64>,
        content: Option<Content>,
    ) -> Result<Arc<Change>, Refused> {
        self.write_guarded(table, key, seen, content, None)
    }

    /// The same, if another object is as it was looked at.
    pub(crate) fn write_guarded(
        &self,
        table: &str,
        key: &Key,
        seen: Option<u64>,
        content: Option<Content>,
        guard: Option<Guard<'_>>,
    ) -> Result<Arc<Change>, Refused> {
        let mut state = self.0.write();
        let State { revision, tables, limits, history_bytes, log, notable, last_notable, grown } = &mut *state;
        if let Some(Guard { table, object }) = guard {
            let now = tables.get(table).and_then(|table| table.objects.get(&object.key));
            if now.map(|now| now.revision) != Some(object.revision) {
                return Err(Refused::Guard);
            }
        }
        let name = table;
        let table = tables.get_mut(name).ok_or(Refused::NoTable)?;
        let entry = table.objects.entry(key.clone());
        let before = match &entry {
            Entry::Occupied(entry) => Some(entry.get().clone()),
            Entry::Vacant(_) => None,
        };
        if before.as_ref().map(|object| object.revision) != seen || (before.is_none() && content.is_none()) {
            return Err(Refused::Moved);
        }
        let next = *revision + 1;
        if let Some(log) = log {
            log.append(name, key, next, content.as_ref()).map_err(Refused::Log)?;
        }
        *revision = next;
        let after = content.map(|content| Arc::new(Object::new(key.clone(), next, content)));
        let notable = notable(name, before.as_deref(), after.as_deref());
        match (&after, entry) {
            (Some(object), entry) => drop(entry.insert_entry(object.clone())),
            (None, Entry::Occupied(entry)) => drop(entry.remove()),
            (None, Entry::Vacant(_)) => {}
        }
        let change = Arc::new(Change { revision: next, before, after, notable });
        *history_bytes -= table.changes.bytes;
        table.changes.push(change.clone(), limits.changes);
        *history_bytes += table.changes.bytes;
        if notable {
            *last_notable = next;
        }
        let table_grown = table.grown.clone();
        trim(tables, history_bytes, limits.bytes);
        let grown = notable.then(|| grown.clone());
        if let Some(log) = log
            && log.wants_snapshot()
        {
            let objects =
                tables.iter().flat_map(|(name, table)| table.objects.values().map(move |object| (name, object)));
            log.snapshot(next, objects);
        }
        drop(state);
        table_grown.send_modify(|_| ());
        if let Some(grown) = grown {
            grown.send_modify(|()| ());
        }
        Ok(change)
    }

    /// The objects in `range`, as of revision `at` or now.
    pub(crate) fn scan(&self, table: &str, range: Range<'_>, at: Option<u64>) -> Result<Scan, Expired> {
        let state = self.0.read();
        let revision = at.unwrap_or(state.revision);
        match state.tables.get(table) {
            Some(table) => table.scan(range, revision),
            None => Ok(Scan { revision, objects: Vec::new(), remaining: 0 }),
        }
    }

    /// All changes of a table after revision `from`. `None` if there is no such table.
    pub(crate) fn watch(&self, table: &str, from: u64) -> Option<Result<Cursor, Expired>> {
        let state = self.0.read();
        let (name, table) = state.tables.get_key_value(table)?;
        let floor = table.changes.floor;
        Some(if from < floor { Err(Expired { floor }) } else { Ok(self.cursor(name, table, from)) })
    }

    /// The objects in `range`, and all changes from then on: nothing falls in between.
    pub(crate) fn scan_and_watch(&self, table: &str, range: Range<'_>) -> Option<(Scan, Cursor)> {
        let state = self.0.read();
        let (name, table) = state.tables.get_key_value(table)?;
        let scan = table.scan(range, state.revision).ok()?;
        Some((scan, self.cursor(name, table, state.revision)))
    }

    fn cursor(&self, name: &TableName, table: &Table, from: u64) -> Cursor {
        Cursor { store: self.clone(), table: name.clone(), seen: from, grown: table.grown.subscribe() }
    }

    /// Forget what happened up to `revision`; what is there now stays.
    pub(crate) fn compact(&self, revision: u64) {
        let mut state = self.0.write();
        let revision = revision.min(state.revision);
        for table in state.tables.values_mut() {
            table.changes.forget(revision);
        }
        state.history_bytes = state.tables.values().map(|table| table.changes.bytes).sum();
    }
}

/// Drops changes until all tables together have at most `limit` bytes of them. Each is the oldest one of the table that has the
/// most bytes, so that large objects of one table do not expire the watchers of others. Watchers have not seen the last change
/// of a table yet, so it stays.
fn trim(tables: &mut HashMap<TableName, Table>, bytes: &mut usize, limit: usize) {
    while *bytes > limit {
        let largest = tables.values_mut().map(|table| &mut table.changes).filter(|changes| changes.list.len() > 1);
        let Some(changes) = largest.max_by_key(|changes| changes.bytes) else { return };
        let Some(oldest) = changes.list.front().map(|change| change.revision) else { return };
        *bytes -= changes.bytes;
        changes.forget(oldest);
        *bytes += changes.bytes;
    }
}

impl Changes {
    /// Those after a revision.
    fn after(&self, revision: u64) -> impl Iterator<Item = &Arc<Change>> {
        self.list.range(self.list.partition_point(|change| change.revision <= revision)..)
    }

    fn push(&mut self, change: Arc<Change>, history: usize) {
        self.bytes += change.size();
        self.list.push_back(change);
        while self.list.len() > history
            && let Some(first) = self.list.front()
        {
            self.forget(first.revision);
        }
    }

    fn forget(&mut self, revision: u64) {
        while let Some(change) = self.list.pop_front_if(|change| change.revision <= revision) {
            self.bytes -= change.size();
            self.forgotten = change.revision;
            if change.notable {
                self.forgotten_notable = change.revision;
            }
        }
        self.floor = self.floor.max(revision);
    }
}

impl Table {
    fn new(floor: u64) -> Self {
        let changes = Changes { list: VecDeque::new(), bytes: 0, floor, forgotten: 0, forgotten_notable: 0 };
        Self { objects: BTreeMap::new(), changes, grown: watch::Sender::default() }
    }

    fn fork(&self) -> Self {
        Self { objects: self.objects.clone(), changes: self.changes.clone(), grown: watch::Sender::default() }
    }
}

/// A watcher's place in a table's log.
pub(crate) struct Cursor {
    store: Store,
    table: TableName,
    /// Everything up to this revision was seen, or did not concern the table.
    seen: u64,
    grown: watch::Receiver<Option<Changes>>,
}

/// What a watcher gets next.
#[derive(Debug)]
pub(crate) enum Next {
    /// In order; never empty.
    Changes(Vec<Arc<Change>>),
    /// It was slower than history is long.
    Expired(Expired),
    /// The table is gone, and everything was seen.
    End,
}

impl Cursor {
    /// Everything up to this revision was handed out.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// It begins at a revision that the store has not reached.
    pub(crate) fn is_ahead(&self) -> bool {
        self.seen > self.store.revision()
    }

    /// Returns at most `limit` changes without waiting, and no more once their objects have `bytes`. `None` if there are none; then
    /// [`Self::seen`] is the store's revision.
    pub(crate) fn try_next(&mut self, limit: usize, bytes: usize) -> Option<Next> {
        let state = self.store.0.read();
        let last = self.grown.borrow_and_update();
        let log = match &*last {
            Some(changes) => changes,
            None => &state.tables.get(&self.table)?.changes,
        };
        if self.seen < log.forgotten {
            return Some(Next::Expired(Expired { floor: log.floor }));
        }
        let first = log.list.partition_point(|change| change.revision <= self.seen);
        let mut size = 0;
        let fits = |change: &&Arc<Change>| {
            let fits = size < bytes;
            size += change.shown_size();
            fits
        };
        let changes: Vec<_> = log.list.range(first..).take(limit).take_while(fits).cloned().collect();
        match changes.last() {
            Some(last) => self.seen = last.revision,
            None if last.is_some() => return Some(Next::End),
            // A watcher may ask for a revision that is not reached yet.
            None => self.seen = self.seen.max(state.revision),
        }
        if changes.is_empty() { None } else { Some(Next::Changes(changes)) }
    }

    /// Wait until there may be more. Dropping the future loses nothing.
    pub(crate) async fn grown(&mut self) {
        // An error says that the table is gone, which the next look finds out.
        _ = self.grown.changed().await;
    }
}

#[cfg(test)]
mod tests;
