//! One informer's events, on their way to its handlers.
//!
//! One log per informer, and a cursor per handler in it. What holds, whatever happens:
//! * publishing never waits for a handler, and costs the same whether handlers keep up or not;
//! * a cursor tells of every object in the order of its changes: the state replayed when it was made, and from there every change,
//!   none lost, none twice. Across objects it is the order of the log, as long as the cursor keeps up;
//! * an event is told after the store shows it, and no lock is held while an object is freed or a task is woken;
//! * in memory are at most the log's capacity of events, and per lagging cursor one event per object that lives or whose deletion it
//!   has still to tell. Without cursors, or with all of them at the end, there are none.
//!
//! The log overwrites its oldest event when it is full. A cursor that has not read it keeps it in a backlog, coalesced per key, and reads that,
//! in the order in which its objects were first touched, before it goes on in the log:
//!
//! | pending      | Create(c)        | Update(b, c)     | Delete(c, s)           |
//! |--------------|------------------|------------------|------------------------|
//! | nothing      | Create(c)        | Update(b, c)     | Delete(c, s)           |
//! | Create(a, i) | Create(c, i)     | Create(c, i)     | nothing                |
//! | Update(a, b) | Update(a, c)     | Update(a, c)     | Delete(c, s), after a  |
//! | Delete(a)    | Update(a, c)     | Update(a, c)     | Delete(c, s), after a  |
//! | … after z    | Update(z, c)     | Update(z, c)     | Delete(c, s), after z  |
//!
//! `i` is the initial flag and `s` the one for a state that is unknown: they stay with the event they came with. *After z*: the handler was told of z last; if
//! the object comes back before the deletion is told, z is the update's old state, so that old is always what the handler knows, and
//! a predicate that compares the two misses nothing. An object deleted and recreated unseen is so one update with two uids. (A create on top of a create or an
//! update, and an update or a delete on top of a delete, do not come from a store; they are there so that every pair has an answer.)
//!
//! Coalescing keeps what a handler needs to know the state, not to know the past: who looked into the store itself and saw an
//! object there that was created and deleted while its handler lagged, is told neither.

mod backlog;
mod cursor;
mod event;
mod hub;
mod log;
mod wakes;

#[cfg(test)]
use self::log::CursorStats;
pub(crate) use self::{
    cursor::Cursor,
    event::{Event, Item},
    hub::{Fan, Publisher},
};
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
