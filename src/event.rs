//! Events: changes of objects, as predicates and handlers receive them.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use steersman::event::Event;
//!
//! let (mut old, mut new) = (Pod::default(), Pod::default());
//! old.metadata.generation = Some(1);
//! new.metadata.generation = Some(2);
//! let event = Event::<Pod>::update(old, new);
//! assert_eq!(event.object().meta().generation(), Some(2));
//! assert_eq!(event.old().unwrap().meta().generation(), Some(1));
//! ```

use crate::object::{AnyKind, DecodeError, Object};
use std::fmt;

/// One change of an object, passed to predicates and handlers.
///
/// A reconciler never receives events. It receives only the key of the object.
///
/// # Slow handlers
///
/// When thousands of events wait for a handler, the cache combines the events of each object:
///
/// * several changes are one event with the last state;
/// * an object that was created and deleted is one [`Delete`](Self::Delete). The handler receives
///   it without a `Create` before it, because readers of the cache may have seen the object;
/// * an object that was deleted and created again is one [`Update`](Self::Update). Its `old` is the
///   deleted object, also if the handler never received that.
///
/// Every deletion is kept until the handler has received it. For the first 4,096 that wait for a
/// handler, the cache keeps the last state of the object, for further ones only the metadata
/// without `managedFields`. [`Object::decode`] of such an object fails with
/// [`DecodeError::BodyDropped`]. The object can be that of a `Delete`, the `old` of an `Update` if
/// it was created again, and `old` and `new` of the last `Update` before its `Delete`.
/// [`Object::meta`] is always complete, so that `owns()`, the owner handlers and the predicates of
/// this crate work on it. A mapping or predicate that fails on it is logged and counted in
/// [`WatchStats`](crate::source::WatchStats); it is not retried.
pub enum Event<K = AnyKind> {
    /// The object was created, or already existed when the watch started.
    Create {
        /// Current state of the object.
        object: Object<K>,
        /// Whether the object is part of the list with which the watch started.
        initial: bool,
    },
    /// The object changed.
    ///
    /// An object that was deleted and recreated while the watch was interrupted is one update whose
    /// old and new objects have different UIDs.
    Update {
        /// State in the previous event; see [slow handlers](Self#slow-handlers) for exceptions.
        old: Object<K>,
        /// Current state of the object.
        new: Object<K>,
    },
    /// The object was deleted.
    Delete {
        /// Last known state of the object.
        object: Object<K>,
        /// Whether the deletion itself was missed.
        ///
        /// The object may have changed before it.
        state_unknown: bool,
    },
    /// An event outside the cluster, or an object that does not decode.
    ///
    /// An informer delivers it for a version of the object that does not decode.
    Generic {
        /// The affected object, often only its name; see [`Object::named`].
        ///
        /// From an informer, it has the metadata of the object, and `decode` returns the error.
        object: Object<K>,
    },
}

/// Creation of an object, as closures for that kind of event receive it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CreateEvent<'a, K> {
    /// Current state of the object.
    pub object: &'a Object<K>,
    /// Whether the object is part of the list with which the watch began.
    pub initial: bool,
}

/// Deletion of an object, as closures for that kind of event receive it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DeleteEvent<'a, K> {
    /// Last known state of the object.
    pub object: &'a Object<K>,
    /// Whether the deletion itself was missed.
    ///
    /// The object may have changed before it.
    pub state_unknown: bool,
}

impl<K> Event<K> {
    /// Creates an event for an object whose creation was observed.
    pub fn create(object: impl Into<Object<K>>) -> Self {
        Self::Create {
            object: object.into(),
            initial: false,
        }
    }

    /// Creates an event for a changed object.
    pub fn update(old: impl Into<Object<K>>, new: impl Into<Object<K>>) -> Self {
        Self::Update {
            old: old.into(),
            new: new.into(),
        }
    }

    /// Creates an event for an object whose deletion was observed.
    pub fn delete(object: impl Into<Object<K>>) -> Self {
        Self::Delete {
            object: object.into(),
            state_unknown: false,
        }
    }

    /// Creates an event for a cause other than a change of the object.
    pub fn generic(object: impl Into<Object<K>>) -> Self {
        Self::Generic {
            object: object.into(),
        }
    }
}

impl<K> Event<K> {
    /// Returns the object; for an update, the new state.
    pub fn object(&self) -> &Object<K> {
        match self {
            Self::Create { object, .. }
            | Self::Delete { object, .. }
            | Self::Generic { object } => object,
            Self::Update { new, .. } => new,
        }
    }

    /// Returns the previous state, if the event is an update.
    pub fn old(&self) -> Option<&Object<K>> {
        if let Self::Update { old, .. } = self {
            Some(old)
        } else {
            None
        }
    }

    /// Returns the error if a decode failed because the body was dropped.
    ///
    /// See [`Object::decode`].
    pub(crate) fn failed_decode(&self) -> Option<DecodeError> {
        self.old()
            .into_iter()
            .chain([self.object()])
            .find_map(Object::failed_decode)
    }

    /// Returns the event without its static kind, for code that handles every kind.
    pub fn erase(&self) -> Event {
        match self {
            Self::Create { object, initial } => Event::Create {
                object: object.erase(),
                initial: *initial,
            },
            Self::Update { old, new } => Event::Update {
                old: old.erase(),
                new: new.erase(),
            },
            Self::Delete {
                object,
                state_unknown,
            } => Event::Delete {
                object: object.erase(),
                state_unknown: *state_unknown,
            },
            Self::Generic { object } => Event::Generic {
                object: object.erase(),
            },
        }
    }
}

impl Event {
    /// Restores the kind with which the informer was declared.
    pub(crate) fn assume<K>(self) -> Event<K> {
        match self {
            Self::Create { object, initial } => Event::Create {
                object: object.assume(),
                initial,
            },
            Self::Update { old, new } => Event::Update {
                old: old.assume(),
                new: new.assume(),
            },
            Self::Delete {
                object,
                state_unknown,
            } => Event::Delete {
                object: object.assume(),
                state_unknown,
            },
            Self::Generic { object } => Event::Generic {
                object: object.assume(),
            },
        }
    }
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Create { object, initial } => Self::Create {
                object: object.clone(),
                initial: *initial,
            },
            Self::Update { old, new } => Self::Update {
                old: old.clone(),
                new: new.clone(),
            },
            Self::Delete {
                object,
                state_unknown,
            } => Self::Delete {
                object: object.clone(),
                state_unknown: *state_unknown,
            },
            Self::Generic { object } => Self::Generic {
                object: object.clone(),
            },
        }
    }
}

impl<K> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { object, initial } => f
                .debug_struct("Create")
                .field("object", object)
                .field("initial", initial)
                .finish(),
            Self::Update { old, new } => f
                .debug_struct("Update")
                .field("old", old)
                .field("new", new)
                .finish(),
            Self::Delete {
                object,
                state_unknown,
            } => f
                .debug_struct("Delete")
                .field("object", object)
                .field("state_unknown", state_unknown)
                .finish(),
            Self::Generic { object } => f.debug_struct("Generic").field("object", object).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectKey;
    use k8s_openapi::api::core::v1::Pod;

    fn pod(name: &str, generation: i64) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.into());
        pod.metadata.generation = Some(generation);
        pod
    }

    #[test]
    fn the_object_of_an_update_is_the_new_one() {
        let event = Event::<Pod>::update(pod("web", 1), pod("web", 2));
        assert_eq!(event.object().meta().generation(), Some(2));
        assert_eq!(event.old().unwrap().meta().generation(), Some(1));
        assert!(Event::<Pod>::delete(pod("web", 1)).old().is_none());
    }

    #[test]
    fn an_erased_event_has_the_same_content() {
        let object = || Object::from(pod("web", 1));
        let events = [
            Event::create(object()),
            Event::Create {
                object: object(),
                initial: true,
            },
            Event::update(object(), object()),
            Event::delete(object()),
            Event::Delete {
                object: object(),
                state_unknown: true,
            },
            Event::generic(object()),
        ];
        for event in events {
            assert_eq!(format!("{:?}", event.erase()), format!("{event:?}"));
            assert_eq!(format!("{:?}", event.clone()), format!("{event:?}"));
        }
    }

    #[test]
    fn a_generic_event_needs_only_a_name() {
        let event: Event = Event::generic(Object::named(ObjectKey::new("shop", "web")));
        assert_eq!(event.object().key().to_string(), "shop/web");
    }
}
