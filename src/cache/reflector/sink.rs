//! Receiver of a reflector's lists and events.

use super::Failure;
use crate::{
    cache::store::Entry,
    object::{Decoder, ObjectKey, Payload, Undecodable, Undecoded},
};
use std::sync::Arc;

/// Receiver of a reflector's lists and events. A revision of 0 is unknown.
pub(crate) trait Sink: Send + Sync {
    type Payload: Payload;

    fn decoder(&self) -> &Decoder;
    /// Replaces all objects by these, at this revision. Those `undecoded` are on the server as
    /// well.
    fn replace(
        &self,
        entries: Vec<Entry<Self::Payload>>,
        undecoded: Vec<Arc<Undecoded>>,
        revision: u64,
    );
    /// Adds or updates an object.
    ///
    /// Handlers need not be notified of this, nor of [`delete`](Self::delete), before
    /// [`wake_handlers`](Self::wake_handlers).
    fn put(&self, entry: Entry<Self::Payload>, revision: u64);
    /// Records that the object was created or changed, and does not decode.
    fn put_undecoded(&self, object: Arc<Undecoded>, revision: u64);
    /// Deletes an object. `last` is its final state, if it decodes.
    fn delete(&self, key: &ObjectKey, last: Option<Self::Payload>, revision: u64);
    /// Wakes handlers for the changes since the last call.
    fn wake_handlers(&self);
    /// Moves to a revision without a change.
    fn advance(&self, revision: u64);
    /// Logs and counts a message that does not decode.
    fn report_undecodable(&self, what: &Undecodable);
    /// Records that a watch was opened.
    fn watch_opened(&self);
    /// Records that the last request succeeded.
    fn succeeded(&self);
    /// Records that a list or watch failed and is retried.
    fn failed(&self, failure: &Failure);
}
