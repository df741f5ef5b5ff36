//! Who is at work, so that a test can wait until nobody is.
//!
//! Invariant: whoever has something to do is counted before it can be seen to have nothing left to read. So when nobody is counted
//! and every reader has read everything, nothing more will happen by itself.

use crate::store::{Store, TableName};
use parking_lot::Mutex;
use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
use tokio::sync::Notify;

/// Requests in flight, controllers at work, and how far each watcher has read.
#[derive(Default)]
pub(crate) struct Activity {
    busy: AtomicUsize,
    readers: Mutex<Vec<Weak<Reader>>>,
    changed: Notify,
}

/// Somebody who reads a table's changes.
pub(crate) struct Reader {
    /// `None` for one who reads all tables.
    table: Option<TableName>,
    seen: AtomicU64,
    activity: Arc<Activity>,
}

/// Something is being done.
pub(crate) struct Busy(Arc<Activity>);

impl Activity {
    /// Until the guard is dropped, something is being done.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::SeqCst);
        Busy(self.clone())
    }

    /// A reader of a table, up to `seen` so far; gone when it is dropped.
    pub(crate) fn reader(self: &Arc<Self>, table: &TableName, seen: u64) -> Arc<Reader> {
        self.add(Some(table.clone()), seen)
    }

    /// A reader of all tables.
    pub(crate) fn reader_of_all(self: &Arc<Self>) -> Arc<Reader> {
        self.add(None, 0)
    }

    fn add(self: &Arc<Self>, table: Option<TableName>, seen: u64) -> Arc<Reader> {
        let reader = Arc::new(Reader { table, seen: AtomicU64::new(seen), activity: self.clone() });
        let mut readers = self.readers.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(&reader));
        reader
    }

    /// Wait until nothing is being done and every reader has read everything.
    pub(crate) async fn wait_idle(&self, store: &Store) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.is_idle(store) {
                return;
            }
            changed.await;
        }
    }

    fn is_idle(&self, store: &Store) -> bool {
        let readers: Vec<_> = self.readers.lock().iter().filter_map(Weak::upgrade).collect();
        let revision = store.revision();
        self.busy.load(Ordering::SeqCst) == 0
            && readers.iter().all(|reader| {
                let last = reader.table.as_ref().map_or(revision, |table| store.last_change(table));
                reader.seen.load(Ordering::SeqCst) >= last
            })
            // Whoever was done in between may have written.
            && store.revision() == revision
            && self.busy.load(Ordering::SeqCst) == 0
    }
}

impl Reader {
    /// Everything up to `seen` was read, and handed on.
    pub(crate) fn has_seen(&self, seen: u64) {
        self.seen.store(seen, Ordering::SeqCst);
        self.activity.changed.notify_waiters();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.activity.changed.notify_waiters();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}
