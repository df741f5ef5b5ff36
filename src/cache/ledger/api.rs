//! The ledger with its lock, as informers, writers and readers use it.
//!
//! No lock is held while a task is woken.

use super::{
    Observation, OwnWrites, ReadScope, RemovedObject, Token, Writer, WrittenVersion,
    entries::Id,
    state::{ExistenceFn, State},
    sync::{Instant, Mutex},
};
use crate::object::ObjectKey;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

#[derive(Default)]
pub(crate) struct Ledger(Mutex<State>);

/// Calls of the informer.
impl Ledger {
    /// Adds a part: a namespace, or all objects that have no part of their own.
    pub(crate) fn join(&self, part: Option<&str>) {
        self.0.lock().join(part);
    }

    /// Records that a part has reached a revision, which the store shows.
    ///
    /// Calls `before` before reads that wait for it are woken, if there are any.
    pub(crate) fn observe(
        &self,
        part: Option<&str>,
        revision: u64,
        observation: &Observation<'_>,
        before: impl FnOnce(),
    ) {
        self.observe_without_wake(part, revision, observation)
            .wake(before);
    }

    /// Records the same as [`observe`](Self::observe), for callers that hold a lock.
    pub(crate) fn observe_without_wake(
        &self,
        part: Option<&str>,
        revision: u64,
        observation: &Observation<'_>,
    ) -> ServedReads {
        ServedReads(self.0.lock().observe(
            part.unwrap_or_default(),
            revision,
            observation,
            Instant::now,
        ))
    }

    /// Removes a part and its entries.
    pub(crate) fn leave(&self, part: &str) {
        let wakers = self.0.lock().leave(part);
        wake(wakers);
    }

    /// Removes all other parts. The empty name is the part of all other objects.
    pub(crate) fn keep(&self, is_part: impl Fn(&str) -> bool) {
        let wakers = self.0.lock().keep(is_part);
        wake(wakers);
    }

    /// Removes all entries, because the kind is not served any more.
    pub(crate) fn forget(&self) {
        let wakers = self.0.lock().forget_all();
        wake(wakers);
    }

    /// Closes the ledger. All waits end.
    pub(crate) fn end(&self) {
        let wakers = self.0.lock().end();
        wake(wakers);
    }

    pub(crate) fn stats(&self) -> OwnWrites {
        self.0.lock().stats()
    }
}

/// Calls of writers.
impl Ledger {
    pub(crate) fn wrote(
        &self,
        writer: &Writer,
        version: WrittenVersion<'_>,
        existence: ExistenceFn<'_>,
    ) {
        self.0
            .lock()
            .wrote(writer.clone(), version, existence, Instant::now());
    }

    pub(crate) fn removed(
        &self,
        writer: &Writer,
        removed: &RemovedObject<'_>,
        existence: ExistenceFn<'_>,
    ) {
        self.0
            .lock()
            .removed(writer.clone(), removed, existence, Instant::now());
    }

    /// Announces a delete before it is sent.
    pub(crate) fn announce_delete(self: &Arc<Self>, key: &ObjectKey) -> DeleteAnnouncement {
        DeleteAnnouncement {
            id: self.0.lock().announce(key),
            ledger: self.clone(),
        }
    }
}

/// Calls of readers.
impl Ledger {
    /// Returns a future to await before a read. `None` if there is nothing to wait for.
    pub(crate) fn pending(
        self: &Arc<Self>,
        token: &Token,
        wanted: ReadScope<'_>,
    ) -> Option<PendingWrites> {
        let waiter = self.0.lock().wait(token, wanted)?;
        Some(PendingWrites {
            ledger: self.clone(),
            waiter,
        })
    }

    /// Returns whether all writes under the token are shown.
    pub(crate) fn is_caught_up(&self, token: &Token) -> bool {
        !self.0.lock().is_waiting(token)
    }
}

/// Reads whose wait has ended. They continue when they are woken.
#[must_use = "the reads wait until they are woken"]
#[derive(Default)]
pub(crate) struct ServedReads(Vec<Waker>);

impl ServedReads {
    /// Wakes the reads. Calls `before` first, if there are any.
    pub(crate) fn wake(self, before: impl FnOnce()) {
        if !self.0.is_empty() {
            before();
            wake(self.0);
        }
    }
}

/// Announced delete. Dropping it retracts the announcement.
pub(crate) struct DeleteAnnouncement {
    ledger: Arc<Ledger>,
    id: Id,
}

impl DeleteAnnouncement {
    /// Records that the object with this uid was deleted.
    ///
    /// `selects_all` is set if the informer has no selectors, so that it has the object or will
    /// receive it.
    pub(crate) fn deleted(
        self,
        writer: &Writer,
        uid: &str,
        selects_all: bool,
        existence: ExistenceFn<'_>,
    ) {
        self.ledger.0.lock().deleted(
            self.id,
            uid,
            writer.clone(),
            selects_all,
            existence,
            Instant::now(),
        );
    }
}

impl Drop for DeleteAnnouncement {
    fn drop(&mut self) {
        self.ledger.0.lock().retract(self.id);
    }
}

/// Wait until the informer shows the earlier writes or is closed. Dropping it ends the wait.
#[must_use = "it waits when it is awaited"]
pub(crate) struct PendingWrites {
    ledger: Arc<Ledger>,
    waiter: Id,
}

impl PendingWrites {
    /// Counts a timeout, and returns an object whose write is not shown, if any.
    pub(crate) fn time_out(self) -> Option<ObjectKey> {
        let mut state = self.ledger.0.lock();
        let missing = state.waits_for(self.waiter)?;
        state.stats.timeouts += 1;
        Some(missing)
    }
}

impl Future for PendingWrites {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.ledger.0.lock().poll(self.waiter, cx.waker()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for PendingWrites {
    fn drop(&mut self) {
        self.ledger.0.lock().stop_waiting(self.waiter);
    }
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
