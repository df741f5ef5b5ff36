//! Tracks requests, controllers and watchers, so that a test can wait until the server is idle.
//!
//! Invariant: every operation that writes or starts a watcher holds an [`ActivityGuard`] until its
//! consequences are either guarded themselves or unread by a registered [`Reader`]. If no guard is
//! held, every reader has read everything, and no guard was taken while that was checked, then
//! nothing more happens by itself.

use crate::store::{Store, TableRef};
use parking_lot::Mutex;
use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
use tokio::sync::Notify;

/// Requests in flight, running controllers, and the revision that each watcher has read.
#[derive(Default)]
pub(crate) struct Activity {
    busy: AtomicUsize,
    /// Number of guards taken so far.
    begun: AtomicU64,
    readers: Mutex<Vec<Weak<Reader>>>,
    changed: Notify,
}

/// Progress of one watcher of a table's changes.
pub(crate) struct Reader {
    /// `None` for a reader of all tables.
    table: Option<TableRef>,
    /// Revision up to which changes were delivered. 0 before the first delivery.
    seen: AtomicU64,
    activity: Arc<Activity>,
}

/// Marks the server as busy until it is dropped.
pub(crate) struct ActivityGuard(Arc<Activity>);

impl Activity {
    /// Marks the server as busy until the returned guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> ActivityGuard {
        self.busy.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        ActivityGuard(self.clone())
    }

    /// Registers a reader of `table`, until it is dropped. It is behind until its first
    /// [`Reader::record_seen`].
    pub(crate) fn reader(self: &Arc<Self>, table: TableRef) -> Arc<Reader> {
        self.add(Some(table))
    }

    /// Registers a reader of all tables.
    pub(crate) fn reader_of_all_tables(self: &Arc<Self>) -> Arc<Reader> {
        self.add(None)
    }

    fn add(self: &Arc<Self>, table: Option<TableRef>) -> Arc<Reader> {
        let reader = Arc::new(Reader {
            table,
            seen: AtomicU64::new(0),
            activity: self.clone(),
        });
        let mut readers = self.readers.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(&reader));
        reader
    }

    /// Waits until the server is idle.
    pub(crate) async fn wait_idle(&self, store: &Store) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.is_idle(store) {
                return;
            }
            changed.await;
            // Without this, a busy server could starve other tasks of the thread by notifying
            // constantly.
            tokio::task::yield_now().await;
        }
    }

    /// Waits until `poll` returns a value, and returns that.
    ///
    /// `poll` runs again after each progress of a reader. Its argument is the revision that all
    /// readers of all tables have seen, `None` if none is registered.
    pub(crate) async fn wait_until<T>(&self, mut poll: impl FnMut(Option<u64>) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let readers: Vec<_> = self
                .readers
                .lock()
                .iter()
                .filter_map(Weak::upgrade)
                .collect();
            let all = readers.iter().filter(|reader| reader.table.is_none());
            if let Some(result) = poll(all.map(|reader| reader.seen.load(Ordering::SeqCst)).min()) {
                return result;
            }
            changed.await;
        }
    }

    fn is_idle(&self, store: &Store) -> bool {
        let begun = self.begun.load(Ordering::SeqCst);
        if self.busy.load(Ordering::SeqCst) > 0 {
            return false;
        }
        let readers: Vec<_> = self
            .readers
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        readers.iter().all(|reader| reader.is_up_to_date(store))
            // A guard taken and dropped in between may have written or registered a reader.
            && self.begun.load(Ordering::SeqCst) == begun
    }
}

impl Reader {
    /// Records that everything up to `seen` was read and delivered.
    pub(crate) fn record_seen(&self, seen: u64) {
        self.seen.store(seen, Ordering::SeqCst);
        self.activity.changed.notify_waiters();
    }

    /// Returns `false` if the table was removed: the reader has yet to report that to its client.
    fn is_up_to_date(&self, store: &Store) -> bool {
        let last = match &self.table {
            Some(table) => table.last_change(),
            None => Some(store.last_in_feed()),
        };
        let seen = self.seen.load(Ordering::SeqCst);
        seen > 0 && last.is_some_and(|last| seen >= last)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.activity.changed.notify_waiters();
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}
