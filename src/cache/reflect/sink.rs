//! Where objects go.

use super::Failure;
use crate::{
    cache::store::Entry,
    object::{Decoder, Meta, ObjectKey, Payload, Undecodable},
};

/// Who is told what the server has. A revision of 0 is one that is not known.
pub(crate) trait Sink: Send + Sync {
    type Payload: Payload;

    fn decoder(&self) -> &Decoder;
    /// These are all there are, at this revision. Those `unread` are there as well, but could not be read.
    fn all(&self, entries: Vec<Entry<Self::Payload>>, unread: Vec<Unread>, revision: u64);
    /// It is there, and so is what [`deleted`](Self::deleted) says: handlers need not hear of either before [`tell`](Self::tell).
    fn put(&self, entry: Entry<Self::Payload>, revision: u64);
    /// Gone; as it was last, if that could be read.
    fn deleted(&self, key: &ObjectKey, last: Option<Self::Payload>, revision: u64);
    /// Handlers are to hear of what was put and deleted.
    fn tell(&self);
    /// Nothing else happened up to this revision.
    fn nothing_up_to(&self, revision: u64);
    fn undecodable(&self, what: Undecodable);
    /// The server watches.
    fn watching(&self);
    /// The server answers.
    fn well(&self);
    /// It does not, or not as it should.
    fn failed(&self, failure: &Failure);
}

/// An object that is there, and could not be read.
#[derive(Debug, PartialEq)]
pub(crate) struct Unread {
    pub(crate) key: ObjectKey,
    /// If that could be.
    pub(crate) uid: Option<String>,
}

impl Unread {
    /// Whether it may be the one that is known: what was deleted and made anew is another one, and says so.
    pub(crate) fn may_be(&self, known: Meta<'_>) -> bool {
        self.uid.as_deref().zip(known.uid()).is_none_or(|(uid, known)| uid == known)
    }
}
