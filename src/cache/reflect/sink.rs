//! Where objects go.

use super::Failure;
use crate::{
    cache::store::Entry,
    object::{Decoder, ObjectKey, Payload, Undecodable, Undecoded},
};
use std::sync::Arc;

/// Who is told what the server has. A revision of 0 is one that is not known.
pub(crate) trait Sink: Send + Sync {
    type Payload: Payload;

    fn decoder(&self) -> &Decoder;
    /// Replaces all objects by these, at this revision. Those `undecoded` are on the server as
    /// well.
    fn all(&self, entries: Vec<Entry<Self::Payload>>, undecoded: Vec<Arc<Undecoded>>, revision: u64);
    /// It is there, and so is what [`deleted`](Self::deleted) says: handlers need not hear of either before [`tell`](Self::tell).
    fn put(&self, entry: Entry<Self::Payload>, revision: u64);
    /// Records that the object was created or changed, and does not decode.
    fn put_undecoded(&self, object: Arc<Undecoded>, revision: u64);
    /// Gone; as it was last, if that could be read.
    fn deleted(&self, key: &ObjectKey, last: Option<Self::Payload>, revision: u64);
    /// Handlers are to hear of what was put and deleted.
    fn tell(&self);
    /// Nothing else happened up to this revision.
    fn nothing_up_to(&self, revision: u64);
    /// Logs and counts a message that does not decode.
    fn undecodable(&self, what: &Undecodable);
    /// The server watches.
    fn watching(&self);
    /// The server answers.
    fn well(&self);
    /// It does not, or not as it should.
    fn failed(&self, failure: &Failure);
}
