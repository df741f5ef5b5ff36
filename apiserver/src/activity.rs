//! Who is at work, so that a test can wait until nobody is.
//!
//! Invariant: whoever writes, or begins to read, is counted while doing so, and what it leads to is counted, or unread, before it is
//! done. So when nobody is counted, every reader has read everything, and nobody began while that was looked at, nothing more will
//! happen by itself.

use crate::store::{Store, Tail};
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
    /// How often something has begun.
    begun: AtomicU64,
    readers: Mutex<Vec<Weak<Reader>>>,
    changed: Notify,
}

/// Somebody who reads a table's changes.
pub(crate) struct Reader {
    /// `None` for one who reads all tables.
    table: Option<Tail>,
    /// 0 as long as nothing was handed on.
    seen: AtomicU64,
    activity: Arc<Activity>,
}

/// Something is being done.
pub(crate) struct Busy(Arc<Activity>);

impl Activity {
    /// Until the guard is dropped, something is being done.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        Busy(self.clone())
    }

    /// A reader of a table, who has yet to be told what it begins with; gone when it is dropped.
    pub(crate) fn reader(self: &Arc<Self>, table: Tail) -> Arc<Reader> {
        self.add(Some(table))
    }

    /// A reader of all tables.
    pub(crate) fn reader_of_all(self: &Arc<Self>) -> Arc<Reader> {
        self.add(None)
    }

    fn add(self: &Arc<Self>, table: Option<Tail>) -> Arc<Reader> {
        let reader = Arc::new(Reader { table, seen: AtomicU64::new(0), activity: self.clone() });
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
            // On a busy server this may be woken faster than it goes to sleep: others want the thread too.
            tokio::task::yield_now().await;
        }
    }

    /// Wait until `done` says what came of it. It is told how far those who read all tables have read, `None` if there are none any more,
    /// and asked again whenever somebody has read on.
    pub(crate) async fn until<T>(&self, mut done: impl FnMut(Option<u64>) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let readers: Vec<_> = self.readers.lock().iter().filter_map(Weak::upgrade).collect();
            let all = readers.iter().filter(|reader| reader.table.is_none());
            if let Some(result) = done(all.map(|reader| reader.seen.load(Ordering::SeqCst)).min()) {
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
        let readers: Vec<_> = self.readers.lock().iter().filter_map(Weak::upgrade).collect();
        readers.iter().all(|reader| reader.is_up_to_date(store))
            // Whoever came and went in between may have written, or be another reader.
            && self.begun.load(Ordering::SeqCst) == begun
    }
}

impl Reader {
    /// Everything up to `seen` was read, and handed on.
    pub(crate) fn has_seen(&self, seen: u64) {
        self.seen.store(seen, Ordering::SeqCst);
        self.activity.changed.notify_waiters();
    }

    /// One whose table is gone never is: it has to be told, and ends by that.
    fn is_up_to_date(&self, store: &Store) -> bool {
        let last = match &self.table {
            Some(table) => table.last_change(),
            None => Some(store.last_notable()),
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

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}
