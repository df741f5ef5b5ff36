//! Events of the fan-out.

use crate::{
    cache::store::{Change, Entry},
    object::{MetadataOnly, ObjectKey},
};
use std::sync::Arc;

/// State of an object in an event.
#[derive(Debug)]
pub(crate) enum ObjectState<P> {
    Full(Arc<P>),
    /// Metadata of a deleted object whose body a [backlog](super::backlog) dropped.
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
    /// `initial` is set for objects of the first list, or of a subscription's snapshot.
    Create {
        key: ObjectKey,
        object: ObjectState<P>,
        initial: bool,
    },
    /// An object that was deleted and recreated unseen is one update with two uids. A resync is an
    /// update whose states are the same object.
    Update {
        key: ObjectKey,
        old: ObjectState<P>,
        new: ObjectState<P>,
    },
    /// `state_unknown` is set if the deletion itself was missed. `object` is the last known state.
    Delete {
        key: ObjectKey,
        object: ObjectState<P>,
        state_unknown: bool,
    },
}

impl<P> Clone for Event<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Create {
                key,
                object,
                initial,
            } => Self::Create {
                key: key.clone(),
                object: object.clone(),
                initial: *initial,
            },
            Self::Update { key, old, new } => Self::Update {
                key: key.clone(),
                old: old.clone(),
                new: new.clone(),
            },
            Self::Delete {
                key,
                object,
                state_unknown,
            } => Self::Delete {
                key: key.clone(),
                object: object.clone(),
                state_unknown: *state_unknown,
            },
        }
    }
}

impl<P> Event<P> {
    pub(crate) fn create(object: Entry<P>, initial: bool) -> Self {
        Self::Create {
            key: object.key,
            object: ObjectState::Full(object.object),
            initial,
        }
    }

    pub(crate) fn update(old: Arc<P>, new: Entry<P>) -> Self {
        Self::Update {
            key: new.key,
            old: ObjectState::Full(old),
            new: ObjectState::Full(new.object),
        }
    }

    pub(crate) fn delete(object: Entry<P>, state_unknown: bool) -> Self {
        Self::Delete {
            key: object.key,
            object: ObjectState::Full(object.object),
            state_unknown,
        }
    }

    /// Creates the event of a change found by a list.
    ///
    /// All objects of the informer's `first` list are initial. A deletion found by a list was
    /// missed.
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

    /// Moves the states to `freed`, to be freed without a lock.
    pub(super) fn discard(self, freed: &mut FreedObjects<P>) {
        match self {
            Self::Create { object, .. } | Self::Delete { object, .. } => freed.push(object),
            Self::Update { old, new, .. } => freed.extend([old, new]),
        }
    }
}

/// States to be freed after the lock is released.
///
/// It may be the last reference to an object. Freeing it takes time and may run code of its type.
pub(super) type FreedObjects<P> = Vec<ObjectState<P>>;

/// Item of a subscription.
#[derive(Debug)]
pub(crate) enum Item<P> {
    Event(Event<P>),
    /// The informer has synced, and the initial objects were delivered before this. Occurs once.
    InitialDone,
}
