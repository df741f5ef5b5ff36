//! An object as predicates, handlers and readers get it: a key, metadata, and a body on request.

use super::{
    compact::Compact,
    error::DecodeError,
    key::ObjectKey,
    kind::{AnyKind, KubeObject},
    meta::Meta,
    payload::{MetadataOnly, Payload, Typed},
};
use kube_core::{GroupVersionKind, TypeMeta};
use std::{
    fmt,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// An object in memory: key and metadata for free, the whole of it through [`Object::decode`]. A clone is counts only.
///
/// Predicates and handlers get it, so that one that looks only at metadata never causes an object to be parsed. Make
/// one from an object in hand with `Object::from(pod)`.
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

/// What a store keeps, whatever it is.
#[derive(Clone)]
pub(crate) enum Body {
    Typed(Arc<dyn Typed>),
    Compact(Arc<Compact>),
    Metadata(Arc<MetadataOnly>),
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
        DecodeError::BodyDropped { kind: self.metadata.types().kind.clone(), key: self.metadata.key() }
    }
}

impl<K> Object<K> {
    /// What a store has under a key.
    pub(crate) fn stored(key: ObjectKey, payload: Arc<impl Payload>) -> Self {
        Self { key, body: payload.into_body(), kind: PhantomData }
    }

    /// Creates a deleted object whose body was dropped.
    pub(crate) fn dropped(key: ObjectKey, metadata: Arc<MetadataOnly>) -> Self {
        let body = Body::Dropped(Arc::new(DroppedBody { metadata, decode_failed: AtomicBool::new(false) }));
        Self { key, body, kind: PhantomData }
    }

    /// Returns the error of [`Object::decode`] if that was called on this object or a clone, and failed because the body was dropped.
    pub(crate) fn failed_decode(&self) -> Option<DecodeError> {
        match &self.body {
            Body::Dropped(object) => object.decode_failed.load(Relaxed).then(|| object.error()),
            _ => None,
        }
    }

    /// What names the object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.key.name()
    }

    /// `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.key.namespace()
    }

    /// The object's metadata.
    pub fn meta(&self) -> Meta<'_> {
        self.body.meta()
    }

    /// The object's own kind, without decoding it; `None` if it does not say, as one made by [`Object::named`].
    ///
    /// For what serves every kind: predicates and handlers of an [`Object`] whose kind was forgotten.
    pub fn gvk(&self) -> Option<GroupVersionKind> {
        let of = |types: &TypeMeta| (!types.kind.is_empty()).then(|| types.try_into().ok()).flatten();
        match &self.body {
            Body::Typed(object) => object.kind(),
            Body::Compact(object) => of(object.types()),
            Body::Metadata(object) => of(object.types()),
            Body::Dropped(object) => of(object.metadata.types()),
        }
    }

    /// The same object with its kind forgotten: for what serves every kind.
    pub fn erase(&self) -> Object {
        Object { key: self.key.clone(), body: self.body.clone(), kind: PhantomData }
    }
}

impl Body {
    pub(crate) fn meta(&self) -> Meta<'_> {
        match self {
            Self::Typed(object) => object.object_meta(),
            Self::Compact(object) => object.meta(),
            Self::Metadata(object) => object.meta(),
            Self::Dropped(object) => object.metadata.meta(),
        }
    }

    pub(crate) fn decode<K: KubeObject>(&self) -> Result<Arc<K>, DecodeError> {
        match self {
            Self::Typed(object) => object.decode(),
            Self::Compact(object) => object.decode(),
            Self::Metadata(object) => object.decode(),
            Self::Dropped(object) => object.decode(),
        }
    }
}

impl Body {
    /// All that is in memory of it. A parse, or its reverse, each time.
    pub(crate) fn json(&self) -> Result<serde_json::Value, DecodeError> {
        match self {
            Self::Typed(object) => object.to_json(),
            Self::Compact(object) => object.to_json(),
            Self::Metadata(object) => {
                Err(DecodeError::MetadataOnly { kind: object.types().kind.clone(), key: object.key() })
            }
            Self::Dropped(object) => Err(object.error()),
        }
    }
}

impl<K: KubeObject> Object<K> {
    /// The whole object: free from a typed informer; from a compact one parsed at most once at a time, and shared by all
    /// who hold it.
    ///
    /// Errors: besides objects that do not fit `K`, deleted objects of events that a slow handler receives late. See
    /// [`Event`](crate::event::Event).
    pub fn decode(&self) -> Result<Arc<K>, DecodeError> {
        self.body.decode()
    }
}

impl Object {
    /// With the kind that its informer was declared with.
    pub(crate) fn assume<K>(self) -> Object<K> {
        Object { key: self.key, body: self.body, kind: PhantomData }
    }

    /// A name without a body: for events from outside the cluster.
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
        Self { key: self.key.clone(), body: self.body.clone(), kind: PhantomData }
    }
}

/// Key and metadata; the body may be secret.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("key", &self.key).field("meta", &self.meta()).finish_non_exhaustive()
    }
}
