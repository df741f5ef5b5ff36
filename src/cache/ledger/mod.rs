//! What was written through a client and is not in the informer yet, so that a read can wait for it.
//!
//! What holds: **a read that waits for a client's writes shows every one that this client, or a clone of it, had completed before the read began.** Each
//! informer has a ledger of its own, since the server's order is that of one kind. In it is an entry for each write until the informer shows it:
//!
//! * a create, update or patch, and a delete that only marked the object, is shown once the informer is at the answer's resource version: the server tells
//!   versions in order, and bookmarks count. Of several namespaces, each with a watch of its own, the one of the object counts;
//! * a delete is shown once the informer was told that the object with this uid is gone, because
//!   its response has no resource version. A delete is announced before it is sent, and the events
//!   that arrive before the response are kept, so that the removal is never missed. An informer
//!   that is declared in between learns of the delete with the response. An object that leaves the
//!   informer's selectors is also reported as gone, so a delete is not shown before the informer
//!   has reached the last write before it;
//! * a write that removes the last finalizer of an object marked for deletion also deletes the
//!   object;
//! * deletes of a collection are shown once each object is gone, or marked.
//!
//! Writes never wait. A read waits for the entries that concern it and exist when it begins, never
//! for later ones. An entry is removed as soon as its write is shown.
//!
//! A read does not wait for an object that the informer's selectors leave out, unless the informer
//! has the object or is about to receive it. In that case the informer is told that the object
//! leaves, and the read waits for that. A list that is older than the known state shows that the
//! server was set back to an older state; the ledger then starts empty.
//!
//! A ledger distinguishes some ten thousand writes. If more of them are not shown, because the
//! informer receives nothing, every read waits for the further writes, and no read waits for the
//! further deletes.
//!
//! Not covered, so that a read may show the state before the write:
//! * a write whose response was lost, such as one that timed out, writes of other clients, and
//!   servers whose resource versions are not numbers;
//! * a write that is answered by a `Status` which names no object and no version: `pods/eviction`, `pods/binding`;
//! * a delete of what another client has made, while a list that is older than that is on its way: it does not have the object, and so is taken to show that it is gone;
//! * a delete of what another client has made, and an informer with selectors has not heard of yet, or has not listed since it was declared: the answer does not say what
//!   labels the object had, nor at which version it went, so that nobody knows whether the informer will show it for a moment, nor when that moment is over;
//! * a patch that takes an object out of the informer's selectors before the informer has heard that another client made it, or let it in again: it is taken for one
//!   that is outside already;
//! * objects of a collection whose deletion was refused half way;
//! * a write to a server that was set back, until a list shows that it was: its version is lower than what the informer had. Before the first list it is the other
//!   way round: what was written before the server was set back is waited for until the server is there again.

mod book;
mod entries;
mod record;
mod state;
mod stats;
mod token;

use crate::sync;

pub use self::stats::OwnWrites;
pub(crate) use self::{
    book::{Deleting, Ledger, Pending},
    record::Announced,
    state::{Fate, Removed, Told, Version, Wanted},
    token::{Reads, Token, Writer},
};

#[cfg(test)]
#[allow(
    clippy::duplicate_mod,
    dead_code,
    reason = "the same files against another lock; the checks use a part of them"
)]
mod model;
#[cfg(test)]
mod tests;
