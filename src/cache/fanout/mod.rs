//! Fan-out of one informer's events to its handlers.
//!
//! There is one log per informer, and one subscription per handler, which is a [`Subscription`] in
//! the log.
//!
//! Invariants:
//! * Publishing never waits for a handler, and its cost does not depend on slow handlers.
//! * A subscription delivers the snapshot at its creation and then every change of each object in
//!   order, without loss or repetition. Across objects the order is that of the log, as long as the
//!   handler keeps up.
//! * An event is delivered after the store shows it. No lock is held while an object is freed or a
//!   task is woken.
//! * Memory is bounded by the live objects plus the deletions that are not delivered yet. The log
//!   holds at most its capacity of events. The backlog of a lagging subscription holds one event
//!   for each object, or an update and a deletion. It keeps the last state for 4,096 deletions, and
//!   only the metadata beyond that (see [`ObjectState::Metadata`]). Without subscriptions, or with
//!   all of them at the end, nothing is held.
//!
//! A full log overwrites its oldest event. A subscription that has not read the event moves it to
//! its backlog, where events are coalesced per key. It reads the backlog, in the order in which
//! objects were first changed, before it continues in the log:
//!
//! | pending                    | Create(c)    | Update(b, c) | Delete(c, s)               |
//! |----------------------------|--------------|--------------|----------------------------|
//! | nothing                    | Create(c)    | Update(b, c) | Delete(c, s)               |
//! | Create(a, i)               | Create(c, i) | Create(c, i) | Delete(c, s)               |
//! | Update(a, b)               | Update(a, c) | Update(a, c) | Update(a, c), Delete(c, s) |
//! | Delete(a)                  | Update(a, c) | Update(a, c) | Update(a, c), Delete(c, s) |
//! | Update(z, a), Delete(a)    | Update(z, c) | Update(z, c) | Update(z, c), Delete(c, s) |
//!
//! `i` is the initial flag and `s` the flag for an unknown state. Both stay with the event that
//! they arrived with. The old state of an update is the state that the handler received last, so
//! that a predicate that compares the two misses no change. An object that is deleted and recreated
//! before the handler receives either event is one update with two uids. If the handler never
//! received the deleted object, `old` is its last state. (A store never publishes a create after a
//! create or an update, nor an update or a delete after a delete. The table lists them so that
//! every pair is defined.)
//!
//! A create and a delete coalesce to the delete, although the handler never received the object. A
//! reader may have seen it in the store: an owner that has counted a child must be notified that
//! the child is gone.
//!
//! An update and a deletion stay two events, because handlers map events to requests by the state
//! of the object. If a child moves from owner A to owner B and is deleted, both owners must be
//! notified: A, which received the child, and B, which may have found it in the store. A deletion
//! with one of the two states would miss the other owner. Two events take no additional memory,
//! because both states are held anyway.

mod backlog;
mod event;
mod hub;
mod log;
mod pending_count;
mod subscription;
mod wakes;

#[cfg(test)]
use self::event::Reduce;
pub(crate) use self::{
    event::{Event, Item, ObjectState},
    hub::{Fanout, Publisher},
    subscription::Subscription,
};
#[cfg(test)]
use crate::cache::HandlerStats;
/// Imported here so that the model check can replace `sync` for these files.
use crate::sync;

#[cfg(test)]
#[allow(
    clippy::duplicate_mod,
    dead_code,
    reason = "the same files against another lock; the checks use a part of them"
)]
mod model;
#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
