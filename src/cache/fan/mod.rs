//! One informer's events, on their way to its handlers.
//!
//! One log per informer, and a cursor per handler in it. What holds, whatever happens:
//! * publishing never waits for a handler, and costs the same whether handlers keep up or not;
//! * a cursor tells of every object in the order of its changes: the state replayed when it was made, and from there every change,
//!   none lost, none twice. Across objects it is the order of the log, as long as the cursor keeps up;
//! * an event is told after the store shows it, and no lock is held while an object is freed or a task is woken;
//! * memory is bounded by the live objects plus the deletions that are not delivered yet. The log
//!   holds at most its capacity of events. The backlog of a lagging cursor holds one event for each
//!   object, or an update and a deletion. The last state is kept for 4,096 deletions of a backlog,
//!   beyond that only the metadata (see [`ObjectState::Metadata`]). Without cursors, or with all of
//!   them at the end, nothing is held.
//!
//! The log overwrites its oldest event when it is full. A cursor that has not read it keeps it in a backlog, coalesced per key, and reads that,
//! in the order in which its objects were first touched, before it goes on in the log:
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
//! An update and a deletion stay two events, because handlers map an event to those whom it concerns. A child told of with owner A went to B, and is
//! gone: A, who was told of it, must hear that it is lost, and so must B, who may have found it in the store. One deletion with either state would keep it from
//! the other, and it costs no memory to tell both: the two states are held anyway.

mod backlog;
mod beside;
mod cursor;
mod event;
mod hub;
mod log;
mod wakes;

#[cfg(test)]
use self::event::Reduce;
pub(crate) use self::{
    cursor::Cursor,
    event::{Event, Item, ObjectState},
    hub::{Fan, Publisher},
};
#[cfg(test)]
use crate::cache::HandlerStats;
/// By this name for the files of this module: the model check has another one in its place.
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
