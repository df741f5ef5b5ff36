//! What handlers are told.

use crate::{
    cache::store::{Change, Entry},
    object::{MetadataOnly, ObjectKey},
};
use std::sync::Arc;

/// State of an object in an event.
#[derive(Debug)]
pub(crate) enum ObjectState<P> {
    Full(Arc<P>),
    /// The object is deleted, and its body was dropped from a [backlog](super::backlog).
    Metadata(Arc<MetadataOnly>),
}

impl<P> Clone for ObjectState<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Full(object) => Self::Full(object.clone()),
            Self::Metadata(object) => Self::Metadata(object.clone()),
        }
    }
}

#[cfg(test)]
impl<P> ObjectState<P> {
    /// Panics: if only metadata is left.
    pub(crate) fn full(&self) -> &Arc<P> {
        match self {
            Self::Full(object) => object,
            Self::Metadata(metadata) => panic!("only metadata is left: {metadata:?}"),
        }
    }
}

/// Returns the metadata of an object, so that the object can be freed. Called under the log's lock.
pub(crate) type Reduce<P> = Arc<dyn Fn(&ObjectKey, &Arc<P>) -> Arc<MetadataOnly> + Send + Sync>;

/// One change of an object.
#[derive(Debug)]
pub(crate) enum Event<P> {
    /// `initial`: part of what was there when the handler, or the informer, began.
    Create { key: ObjectKey, object: ObjectState<P>, initial: bool },
    /// An object deleted and recreated unseen arrives as one update with two uids; a resync as one with twice the same object.
    Update { key: ObjectKey, old: ObjectState<P>, new: ObjectState<P> },
    /// `state_unknown`: the deletion itself was missed, `object` is the last state known.
    Delete { key: ObjectKey, object: ObjectState<P>, state_unknown: bool },
}

impl<P> Clone for Event<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Create { key, object, initial } => {
                Self::Create { key: key.clone(), object: object.clone(), initial: *initial }
            }
            Self::Update { key, old, new } => Self::Update { key: key.clone(), old: old.clone(), new: new.clone() },
            Self::Delete { key, object, state_unknown } => {
                Self::Delete { key: key.clone(), object: object.clone(), state_unknown: *state_unknown }
            }
        }
    }
}

impl<P> Event<P> {
    pub(crate) fn create(object: Entry<P>, initial: bool) -> Self {
        Self::Create { key: object.key, object: ObjectState::Full(object.object), initial }
    }

    pub(crate) fn update(old: Arc<P>, new: Entry<P>) -> Self {
        Self::Update { key: new.key, old: ObjectState::Full(old), new: ObjectState::Full(new.object) }
    }

    pub(crate) fn delete(object: Entry<P>, state_unknown: bool) -> Self {
        Self::Delete { key: object.key, object: ObjectState::Full(object.object), state_unknown }
    }

    /// What a list showed to have changed. Of the informer's `first` list all is initial; a deletion found by listing was missed.
    pub(crate) fn listed(change: Change<P>, first: bool) -> Self {
        match change {
            Change::Created(object) => Self::create(object, first),
            Change::Updated { old, new } => Self::update(old, new),
            Change::Deleted(object) => Self::delete(object, true),
        }
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        match self {
            Self::Create { key, .. } | Self::Update { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    /// Its objects, to be freed where no lock is held.
    pub(super) fn discard(self, trash: &mut Trash<P>) {
        match self {
            Self::Create { object, .. } | Self::Delete { object, .. } => trash.push(object),
            Self::Update { old, new, .. } => trash.extend([old, new]),
        }
    }
}

/// What is no longer needed, kept until the lock is released: it may be the last of an object, and freeing one takes time and may run
/// its type's own code.
pub(super) type Trash<P> = Vec<ObjectState<P>>;

/// What a cursor hands over.
#[derive(Debug)]
pub(crate) enum Item<P> {
    Event(Event<P>),
    /// Once, when all that was there in the beginning has been handed over: the informer has synced, and its first list, or what was in the
    /// store when the cursor was made, came before this.
    InitialDone,
}
