//! What handlers are told.

use crate::{
    cache::store::{Change, Entry},
    object::ObjectKey,
};
use std::sync::Arc;

/// One change of an object.
#[derive(Debug)]
pub(crate) enum Event<P> {
    /// `initial`: part of what was there when the handler, or the informer, began.
    Create { object: Entry<P>, initial: bool },
    /// An object deleted and recreated unseen arrives as one update with two uids; a resync as one with twice the same object.
    Update { old: Arc<P>, new: Entry<P> },
    /// `state_unknown`: the deletion itself was missed, `object` is the last state known.
    Delete { object: Entry<P>, state_unknown: bool },
}

impl<P> Clone for Event<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Create { object, initial } => Self::Create { object: object.clone(), initial: *initial },
            Self::Update { old, new } => Self::Update { old: old.clone(), new: new.clone() },
            Self::Delete { object, state_unknown } => {
                Self::Delete { object: object.clone(), state_unknown: *state_unknown }
            }
        }
    }
}

impl<P> Event<P> {
    /// What a list showed to have changed. Of the informer's `first` list all is initial; a deletion found by listing was missed.
    pub(crate) fn listed(change: Change<P>, first: bool) -> Self {
        match change {
            Change::Created(object) => Self::Create { object, initial: first },
            Change::Updated { old, new } => Self::Update { old, new },
            Change::Deleted(object) => Self::Delete { object, state_unknown: true },
        }
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        match self {
            Self::Create { object, .. } | Self::Delete { object, .. } => &object.key,
            Self::Update { new, .. } => &new.key,
        }
    }

    /// Its objects, to be freed where no lock is held.
    pub(super) fn discard(self, trash: &mut Trash<P>) {
        match self {
            Self::Create { object, .. } | Self::Delete { object, .. } => trash.push(object.object),
            Self::Update { old, new } => trash.extend([old, new.object]),
        }
    }
}

/// What is no longer needed, kept until the lock is released: it may be the last of an object, and freeing one takes time and may run
/// its type's own code.
pub(super) type Trash<P> = Vec<Arc<P>>;

/// What a cursor hands over.
#[derive(Debug)]
pub(crate) enum Item<P> {
    Event(Event<P>),
    /// Once, when all that was there in the beginning has been handed over: the informer has synced, and its first list, or what was in the
    /// store when the cursor was made, came before this.
    InitialDone,
}
