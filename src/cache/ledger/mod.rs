//! Ledger of own writes of clients that an informer has not observed yet.
//!
//! Guarantee: **a read that waits for a client's writes returns every write that this client, or a
//! clone of it, had completed before the read began.** Each informer has its own ledger, because
//! resource versions are ordered per kind only. It has an entry for each write until the informer
//! shows the write:
//!
//! * A create, update or patch, and a delete that only marks the object, is shown once the informer
//!   has reached the resource version of the response, by events or bookmarks. With several
//!   namespaces, the watch of the object's namespace counts.
//! * A delete is shown once the informer was notified that the object with this uid is gone,
//!   because its response has no resource version. A delete is announced before it is sent, and the
//!   events that arrive before the response are kept, so that the removal is never missed. An
//!   informer that is declared in between learns of the delete with the response. An object that
//!   leaves the informer's selectors is also reported as gone, so a delete is not shown before the
//!   informer has reached the last write before it.
//! * A write that removes the last finalizer of an object marked for deletion also deletes the
//!   object.
//! * Deletes of a collection are shown once each object is gone or marked.
//!
//! Writes never wait. A read waits for the entries that concern it and exist when it begins, never
//! for later ones. An entry is removed as soon as its write is shown.
//!
//! A read does not wait for an object that the informer's selectors exclude, unless the informer
//! has the object or is about to receive it. In that case the informer is notified that the object
//! leaves, and the read waits for that. A list that is older than the known state shows that the
//! server was restored to an older state; the ledger then starts empty.
//!
//! A ledger distinguishes some ten thousand writes. If more of them are not shown, because the
//! informer receives nothing, every read waits for the further writes, and no read waits for the
//! further deletes.
//!
//! # Limits
//!
//! In these cases a read may return the state before the write:
//!
//! * The response to the write was lost, for example by a timeout; another client wrote; or the
//!   resource versions of the server are not numbers.
//! * The response is a `Status` without object and resource version, as for `pods/eviction` and
//!   `pods/binding`.
//! * The client deletes an object of another client while a list that is older than the object is
//!   in progress. The list does not have the object, and so seems to show the deletion.
//! * The client deletes an object of another client that an informer with selectors has not
//!   received yet, or has not listed since it was declared. The response has neither the object's
//!   labels nor a resource version, so the ledger cannot know whether and until when the informer
//!   will show the object.
//! * A patch takes an object out of the selectors before the informer has received that another
//!   client created it or let it in. The object is taken for one that is already outside.
//! * The deletion of a collection failed half way.
//! * The server was restored, and no list has shown that yet: the resource version of the write is
//!   lower than the informer's. Before the first list the opposite holds: reads wait for writes
//!   from before the restore until the server reaches them again.

mod api;
mod entries;
mod record;
mod state;
mod stats;
mod token;

use crate::sync;

pub use self::stats::OwnWrites;
pub(crate) use self::{
    api::{DeleteAnnouncement, Ledger, PendingWrites, ServedReads},
    record::DeleteAnnouncements,
    state::{Existence, Observation, ReadScope, RemovedObject, WrittenVersion},
    token::{ReadPolicy, Token, Writer},
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
