//! Object as passed to predicates, handlers and readers.

use super::{
    compact::Compact,
    error::DecodeError,
    key::ObjectKey,
    kind::{AnyKind, KubeObject},
    meta::Meta,
    payload::{MetadataOnly, Payload, Typed},
    undecoded::Undecoded,
};
use kube_core::{GroupVersionKind, TypeMeta};
use std::{
    any::TypeId,
    fmt,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Object in memory: key and metadata, and the body through [`Object::decode`].
///
/// Predicates and handlers receive it, so that those that read only metadata never decode the body.
/// Cloning is cheap. Create one from an object with `Object::from(pod)`.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::object::Object;
///
/// let mut pod = Pod::default();
/// pod.metadata.name = Some("web-0".into());
/// let object = Object::from(pod.clone());
/// assert_eq!(object.name(), "web-0");
/// assert_eq!(object.gvk().unwrap().kind, "Pod");
/// assert_eq!(*object.decode()?, pod);
/// # Ok::<_, steersman::object::DecodeError>(())
/// ```
pub struct Object<K = AnyKind> {
    key: ObjectKey,
    body: Body,
    kind: PhantomData<fn() -> K>,
}

/// Identity of an object among the events of one source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId {
    /// Kind of the object, if the type of the events does not determine it.
    pub(crate) kind: Option<Box<GroupVersionKind>>,
    pub(crate) key: ObjectKey,
}

/// Object in the representation of its store.
#[derive(Clone)]
pub(crate) enum Body {
    Typed(Arc<dyn Typed>),
    Compact(Arc<Compact>),
    Metadata(Arc<MetadataOnly>),
    /// Object that failed to decode, with its metadata.
    Undecoded(Arc<Undecoded>),
    Dropped(Arc<DroppedBody>),
}

/// Metadata of an object whose body was dropped before the event was delivered.
pub(crate) struct DroppedBody {
    metadata: Arc<MetadataOnly>,
    /// Whether a predicate or handler tried to decode the object.
    decode_failed: AtomicBool,
}

impl DroppedBody {
    fn decode<K: KubeObject>(&self) -> Result<Arc<K>, DecodeError> {
        if K::metadata_api() {
            return self.metadata.decode();
        }
        self.decode_failed.store(true, Relaxed);
        Err(self.error())
    }

    fn error(&self) -> DecodeError {
        DecodeError::BodyDropped {
            kind: self.metadata.types().kind.clone(),
            key: self.metadata.key(),
        }
    }
}

impl<K> Object<K> {
    /// Creates an object from an entry of a store.
    pub(crate) fn stored(key: ObjectKey, payload: Arc<impl Payload>) -> Self {
        Self {
            key,
            body: payload.into_body(),
            kind: PhantomData,
        }
    }

    /// Creates a deleted object whose body was dropped.
    pub(crate) fn dropped(key: ObjectKey, metadata: Arc<MetadataOnly>) -> Self {
        let body = Body::Dropped(Arc::new(DroppedBody {
            metadata,
            decode_failed: AtomicBool::new(false),
        }));
        Self {
            key,
            body,
            kind: PhantomData,
        }
    }

    /// Returns the error if a [`Object::decode`] failed because the body was dropped.
    ///
    /// Includes calls on clones of this object.
    pub(crate) fn failed_decode(&self) -> Option<DecodeError> {
        match &self.body {
            Body::Dropped(object) => object.decode_failed.load(Relaxed).then(|| object.error()),
            _ => None,
        }
    }

    /// Returns the key of the object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        self.key.name()
    }

    /// Returns the namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.key.namespace()
    }

    /// Returns the metadata of the object.
    pub fn meta(&self) -> Meta<'_> {
        self.body.meta()
    }

    /// Returns the kind without decoding the body; `None` if it is unknown.
    ///
    /// The kind of an object that [`Object::named`] created is unknown. Use it in predicates and
    /// handlers for every kind.
    pub fn gvk(&self) -> Option<GroupVersionKind> {
        let of = |types: &TypeMeta| {
            (!types.kind.is_empty())
                .then(|| types.try_into().ok())
                .flatten()
        };
        match &self.body {
            Body::Typed(object) => object.kind(),
            Body::Compact(object) => of(object.types()),
            Body::Metadata(object) => of(object.types()),
            Body::Undecoded(object) => of(object.metadata().types()),
            Body::Dropped(object) => of(object.metadata.types()),
        }
    }

    /// Returns the object without its static kind, for code that handles every kind.
    pub fn erase(&self) -> Object {
        Object {
            key: self.key.clone(),
            body: self.body.clone(),
            kind: PhantomData,
        }
    }
}

impl<K: 'static> Object<K> {
    /// Returns the identity of the object. It has a kind if `K` is [`AnyKind`].
    pub(crate) fn id(&self) -> ObjectId {
        let is_any = TypeId::of::<K>() == TypeId::of::<AnyKind>();
        ObjectId {
            kind: is_any.then(|| self.gvk()).flatten().map(Box::new),
            key: self.key.clone(),
        }
    }
}

impl Body {
    pub(crate) fn meta(&self) -> Meta<'_> {
        match self {
            Self::Typed(object) => object.object_meta(),
            Self::Compact(object) => object.meta(),
            Self::Metadata(object) => object.meta(),
            Self::Undecoded(object) => object.meta(),
            Self::Dropped(object) => object.metadata.meta(),
        }
    }

    pub(crate) fn decode<K: KubeObject>(&self) -> Result<Arc<K>, DecodeError> {
        match self {
            Self::Typed(object) => object.decode(),
            Self::Compact(object) => object.decode(),
            Self::Metadata(object) => object.decode(),
            Self::Undecoded(object) => object.decode(),
            Self::Dropped(object) => object.decode(),
        }
    }
}

impl Body {
    /// Returns the object as JSON. Parses or serializes it on each call.
    pub(crate) fn json(&self) -> Result<serde_json::Value, DecodeError> {
        match self {
            Self::Typed(object) => object.to_json(),
            Self::Compact(object) => object.to_json(),
            Self::Metadata(object) => Err(DecodeError::MetadataOnly {
                kind: object.types().kind.clone(),
                key: object.key(),
            }),
            Self::Undecoded(object) => Err(object.error()),
            Self::Dropped(object) => Err(object.error()),
        }
    }
}

impl<K: KubeObject> Object<K> {
    /// Returns the whole object.
    ///
    /// This is free for a typed representation. A compact object is decoded, and callers share the
    /// result while one of them holds it.
    ///
    /// # Errors
    /// If the object does not match `K`, or its body was dropped. In the events of a typed
    /// informer, only [`Event::Generic`](crate::event::Event::Generic) has an object that does not
    /// match. The body is dropped for deleted objects of events that a slow handler receives late,
    /// see [`Event`](crate::event::Event).
    pub fn decode(&self) -> Result<Arc<K>, DecodeError> {
        self.body.decode()
    }
}

impl Object {
    /// Creates the object of an event for one that failed to decode.
    pub(crate) fn undecoded(object: Arc<Undecoded>) -> Self {
        Self {
            key: object.key(),
            body: Body::Undecoded(object),
            kind: PhantomData,
        }
    }

    /// Restores the kind with which the informer was declared.
    pub(crate) fn assume<K>(self) -> Object<K> {
        Object {
            key: self.key,
            body: self.body,
            kind: PhantomData,
        }
    }

    /// Creates an object with a key and no body, for events from outside the cluster.
    ///
    /// ```
    /// use steersman::object::{Object, ObjectKey};
    ///
    /// let object = Object::named(ObjectKey::new("shop", "web"));
    /// assert_eq!((object.namespace(), object.name()), (Some("shop"), "web"));
    /// assert_eq!(object.meta().uid(), None);
    /// ```
    pub fn named(key: ObjectKey) -> Self {
        Self::stored(key.clone(), Arc::new(MetadataOnly::named(key)))
    }
}

impl<K: KubeObject> From<K> for Object<K> {
    fn from(object: K) -> Self {
        Self::from(Arc::new(object))
    }
}

impl<K: KubeObject> From<Arc<K>> for Object<K> {
    fn from(object: Arc<K>) -> Self {
        Self::stored(ObjectKey::of(&*object), object)
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            body: self.body.clone(),
            kind: PhantomData,
        }
    }
}

/// Prints key and metadata. The body may be secret.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", &self.key)
            .field("meta", &self.meta())
            .finish_non_exhaustive()
    }
}
