//! What happened to an object.
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

/// One change, as predicates and handlers see it. A reconciler never does: it sees only the key.
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
    /// The object is there.
    Create {
        /// As it is now.
        object: Object<K>,
        /// Part of the list with which the watch began: it may have been there for long.
        initial: bool,
    },
    /// The object changed. One deleted and recreated unseen arrives as one update with two uids.
    Update {
        /// State in the previous event; see [slow handlers](Self#slow-handlers) for exceptions.
        old: Object<K>,
        /// What it is now.
        new: Object<K>,
    },
    /// The object is gone.
    Delete {
        /// The last state known.
        object: Object<K>,
        /// The deletion itself was missed: the object may have changed before it went.
        state_unknown: bool,
    },
    /// Something happened outside the cluster that concerns the object, or an informer received a
    /// version of the object that does not decode.
    Generic {
        /// Often only a name, see [`Object::named`]. From an informer: the metadata of the object.
        /// `decode` returns why the rest does not decode.
        object: Object<K>,
    },
}

/// Constructors for tests and for events of your own.
impl<K> Event<K> {
    /// An object was created, and its creation was seen.
    pub fn create(object: impl Into<Object<K>>) -> Self {
        Self::Create { object: object.into(), initial: false }
    }

    /// An object changed.
    pub fn update(old: impl Into<Object<K>>, new: impl Into<Object<K>>) -> Self {
        Self::Update { old: old.into(), new: new.into() }
    }

    /// An object was deleted, and its deletion was seen.
    pub fn delete(object: impl Into<Object<K>>) -> Self {
        Self::Delete { object: object.into(), state_unknown: false }
    }

    /// Something else happened.
    pub fn generic(object: impl Into<Object<K>>) -> Self {
        Self::Generic { object: object.into() }
    }
}

/// What is common to all four.
impl<K> Event<K> {
    /// The object as it is now; of an update the new one.
    pub fn object(&self) -> &Object<K> {
        match self {
            Self::Create { object, .. } | Self::Delete { object, .. } | Self::Generic { object } => object,
            Self::Update { new, .. } => new,
        }
    }

    /// What it was before, of an update.
    pub fn old(&self) -> Option<&Object<K>> {
        if let Self::Update { old, .. } = self { Some(old) } else { None }
    }

    /// Returns the error of a call of [`Object::decode`] that failed because the body was dropped.
    pub(crate) fn failed_decode(&self) -> Option<DecodeError> {
        self.old().into_iter().chain([self.object()]).find_map(Object::failed_decode)
    }

    /// The same event with the kind forgotten: for what serves every kind.
    pub fn erase(&self) -> Event {
        match self {
            Self::Create { object, initial } => Event::Create { object: object.erase(), initial: *initial },
            Self::Update { old, new } => Event::Update { old: old.erase(), new: new.erase() },
            Self::Delete { object, state_unknown } => {
                Event::Delete { object: object.erase(), state_unknown: *state_unknown }
            }
            Self::Generic { object } => Event::Generic { object: object.erase() },
        }
    }
}

impl Event {
    /// With the kind that its informer was declared with.
    pub(crate) fn assume<K>(self) -> Event<K> {
        match self {
            Self::Create { object, initial } => Event::Create { object: object.assume(), initial },
            Self::Update { old, new } => Event::Update { old: old.assume(), new: new.assume() },
            Self::Delete { object, state_unknown } => Event::Delete { object: object.assume(), state_unknown },
            Self::Generic { object } => Event::Generic { object: object.assume() },
        }
    }
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Create { object, initial } => Self::Create { object: object.clone(), initial: *initial },
            Self::Update { old, new } => Self::Update { old: old.clone(), new: new.clone() },
            Self::Delete { object, state_unknown } => {
                Self::Delete { object: object.clone(), state_unknown: *state_unknown }
            }
            Self::Generic { object } => Self::Generic { object: object.clone() },
        }
    }
}

impl<K> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { object, initial } => {
                f.debug_struct("Create").field("object", object).field("initial", initial).finish()
            }
            Self::Update { old, new } => f.debug_struct("Update").field("old", old).field("new", new).finish(),
            Self::Delete { object, state_unknown } => {
                f.debug_struct("Delete").field("object", object).field("state_unknown", state_unknown).finish()
            }
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
    fn an_update_is_about_the_new_object() {
        let event = Event::<Pod>::update(pod("web", 1), pod("web", 2));
        assert_eq!(event.object().meta().generation(), Some(2));
        assert_eq!(event.old().unwrap().meta().generation(), Some(1));
        assert!(Event::<Pod>::delete(pod("web", 1)).old().is_none());
    }

    #[test]
    fn an_erased_event_says_the_same() {
        let object = || Object::from(pod("web", 1));
        let events = [
            Event::create(object()),
            Event::Create { object: object(), initial: true },
            Event::update(object(), object()),
            Event::delete(object()),
            Event::Delete { object: object(), state_unknown: true },
            Event::generic(object()),
        ];
        for event in events {
            assert_eq!(format!("{:?}", event.erase()), format!("{event:?}"));
            assert_eq!(format!("{:?}", event.clone()), format!("{event:?}"));
        }
    }

    #[test]
    fn an_event_from_outside_needs_only_a_name() {
        let event: Event = Event::generic(Object::named(ObjectKey::new("shop", "web")));
        assert_eq!(event.object().key().to_string(), "shop/web");
    }
}
