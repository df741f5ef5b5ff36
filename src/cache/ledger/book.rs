//! The ledger with its lock: what the informer, the writers and the readers have of it. No lock is held while a task is woken.

use super::{
    OwnWrites, Removed, Token, Told, Version, Wanted, Writer,
    entries::Id,
    state::{Fates, State},
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

/// The informer's side.
impl Ledger {
    /// There is a part of this namespace, or of all that have no part of their own.
    pub(crate) fn join(&self, part: Option<&str>) {
        self.0.lock().join(part);
    }

    /// A part has come to this revision. The store shows it.
    ///
    /// If somebody has waited for it, `before` is called before they are told.
    pub(crate) fn told(&self, part: Option<&str>, revision: u64, told: &Told<'_>, before: impl FnOnce()) {
        let wakers = self.0.lock().told(part.unwrap_or_default(), revision, told, Instant::now);
        if !wakers.is_empty() {
            before();
            wake(wakers);
        }
    }

    /// There is no part of this namespace any more: what was written there is nobody's concern.
    pub(crate) fn leave(&self, part: &str) {
        let wakers = self.0.lock().leave(part);
        wake(wakers);
    }

    /// There are these parts, and no others: the empty name is that of all that have no part of their own.
    pub(crate) fn keep(&self, is_part: impl Fn(&str) -> bool) {
        let wakers = self.0.lock().keep(is_part);
        wake(wakers);
    }

    /// The kind is gone, and what was written with it.
    pub(crate) fn forget(&self) {
        let wakers = self.0.lock().forget_all();
        wake(wakers);
    }

    /// Nothing more will be shown: nobody waits any longer.
    pub(crate) fn end(&self) {
        let wakers = self.0.lock().end();
        wake(wakers);
    }

    pub(crate) fn stats(&self) -> OwnWrites {
        self.0.lock().stats()
    }
}

/// The writers' side.
impl Ledger {
    pub(crate) fn wrote(&self, writer: &Writer, version: Version<'_>, fates: Fates<'_>) {
        self.0.lock().wrote(writer.clone(), version, fates, Instant::now());
    }

    pub(crate) fn removed(&self, writer: &Writer, removed: &Removed<'_>, fates: Fates<'_>) {
        self.0.lock().removed(writer.clone(), removed, fates, Instant::now());
    }

    /// Before a delete is sent.
    pub(crate) fn deleting(self: &Arc<Self>, key: &ObjectKey) -> Deleting {
        Deleting { id: self.0.lock().announce(key), ledger: self.clone() }
    }
}

/// The readers' side.
impl Ledger {
    /// To be awaited before a read that began now. `None`: there is nothing to wait for.
    pub(crate) fn pending(self: &Arc<Self>, token: &Token, wanted: Wanted<'_>) -> Option<Pending> {
        let waiter = self.0.lock().wait(token, wanted)?;
        Some(Pending { ledger: self.clone(), waiter })
    }

    /// Whether everything that was written under the token is shown.
    pub(crate) fn is_caught_up(&self, token: &Token) -> bool {
        !self.0.lock().is_waiting(token)
    }
}

/// A delete that is on its way. Dropped, nothing was deleted.
pub(crate) struct Deleting {
    ledger: Arc<Ledger>,
    id: Id,
}

impl Deleting {
    /// The object with this uid is gone on the server. Whether the informer `selects_all`, so that it knows it, or will.
    pub(crate) fn deleted(self, writer: &Writer, uid: &str, selects_all: bool, fates: Fates<'_>) {
        self.ledger.0.lock().deleted(self.id, uid, writer.clone(), selects_all, fates, Instant::now());
    }
}

impl Drop for Deleting {
    fn drop(&mut self) {
        self.ledger.0.lock().retract(self.id);
    }
}

/// Until the informer shows what was written before this was made, or has ended. Dropped, nobody waits.
#[must_use = "it waits when it is awaited"]
pub(crate) struct Pending {
    ledger: Arc<Ledger>,
    waiter: Id,
}

impl Pending {
    /// It took too long: gives an object that is not shown yet, unless all are by now.
    pub(crate) fn give_up(self) -> Option<ObjectKey> {
        let mut state = self.ledger.0.lock();
        let missing = state.waits_for(self.waiter)?;
        state.stats.timeouts += 1;
        Some(missing)
    }
}

impl Future for Pending {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.ledger.0.lock().poll(self.waiter, cx.waker()) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.ledger.0.lock().stop_waiting(self.waiter);
    }
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
