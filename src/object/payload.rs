//! What an informer's store keeps of an object, behind one trait: the object itself, [`Compact`], or
//! [`MetadataOnly`].
//!
//! [`Compact`]: super::compact::Compact

use super::{
    assemble::assemble,
    compact_meta::CompactMeta,
    decode::{Decoder, Parts, ReadParts, no_name},
    error::DecodeError,
    handle::Body,
    key::ObjectKey,
    kind::KubeObject,
    lean::Lean,
    meta::Meta,
    packed::Packed,
    size,
    snug::Snug,
};
use kube_core::{GroupVersionKind, TypeMeta};
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error},
};
use std::{any::Any, sync::Arc};

pub(crate) trait Payload: Send + Sync + Sized + 'static {
    /// One object of a message. See [`Decoder::decode`].
    fn read<'de, D: Deserializer<'de>>(decoder: &Decoder, deserializer: D) -> Result<Self, D::Error>;

    /// The same of a message that is one object, if that is in the words that servers use: if it is not, or if anything is wrong, somebody has to
    /// [read](Self::read) it.
    fn read_quickly(_: &Decoder, _: &str) -> Option<Self> {
        None
    }

    fn key(&self) -> ObjectKey;

    fn meta(&self) -> Meta<'_>;

    /// The resource version, where it is a number, as it is on every known server.
    fn revision(&self) -> Option<u64> {
        self.meta().resource_version()?.parse().ok()
    }

    /// Whether [`Self::heap_bytes`] is a walk over all of it.
    const WALKED: bool;

    /// About how much memory it takes.
    fn heap_bytes(&self) -> usize;

    /// As a `K`: the object itself, if it is one.
    fn decode<K: KubeObject>(self: &Arc<Self>) -> Result<Arc<K>, DecodeError>;

    /// For [`Object`](super::Object).
    fn into_body(self: Arc<Self>) -> Body;

    /// Returns the metadata alone, so that the body can be freed. `types` are those of the informer, and `key` is that of the object.
    fn to_metadata(self: &Arc<Self>, types: &Arc<TypeMeta>, key: &ObjectKey) -> Arc<MetadataOnly> {
        Arc::new(MetadataOnly { types: types.clone(), meta: self.meta().pack(key) })
    }
}

/// A typed object is its own payload.
impl<T: KubeObject> Payload for T {
    const WALKED: bool = true;

    fn read<'de, D: Deserializer<'de>>(decoder: &Decoder, deserializer: D) -> Result<Self, D::Error> {
        let deserializer = Lean::new(Snug(deserializer), decoder.types(), decoder.keeps_managed_fields());
        let mut object = T::deserialize(deserializer)?;
        if object.meta().name.as_deref().is_none_or(str::is_empty) {
            return Err(no_name());
        }
        if let Some(transform) = decoder.transform_of(object.meta().namespace.as_deref()) {
            transform.change(decoder.types(), &mut object);
        }
        Ok(object)
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::of(self)
    }

    fn meta(&self) -> Meta<'_> {
        Meta::from(kube_core::Resource::meta(self))
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + size::heap_bytes(self)
    }

    fn decode<K: KubeObject>(self: &Arc<Self>) -> Result<Arc<K>, DecodeError> {
        let typed: Arc<dyn Typed> = self.clone();
        typed.decode()
    }

    fn into_body(self: Arc<Self>) -> Body {
        Body::Typed(self)
    }
}

/// What [`Object`](super::Object) needs of a typed object without knowing its type.
pub(crate) trait Typed: Any + Send + Sync {
    fn object_meta(&self) -> Meta<'_>;

    /// `apiVersion`, `kind` and `metadata` as JSON.
    fn partial(&self) -> Result<serde_json::Value, serde_json::Error>;

    /// All of it as JSON.
    fn json(&self) -> Result<serde_json::Value, serde_json::Error>;

    /// `None` if it does not say.
    fn kind(&self) -> Option<GroupVersionKind>;

    /// For errors.
    fn kind_and_key(&self) -> (String, ObjectKey);
}

impl<T: KubeObject> Typed for T {
    fn object_meta(&self) -> Meta<'_> {
        Payload::meta(self)
    }

    fn partial(&self) -> Result<serde_json::Value, serde_json::Error> {
        let mut partial = serde_json::Map::new();
        if let Some(gvk) = self.gvk() {
            partial.insert("apiVersion".into(), gvk.api_version().into());
            partial.insert("kind".into(), gvk.kind.into());
        }
        partial.insert("metadata".into(), serde_json::to_value(kube_core::Resource::meta(self))?);
        Ok(partial.into())
    }

    fn json(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::to_value(self)
    }

    fn kind(&self) -> Option<GroupVersionKind> {
        self.gvk()
    }

    fn kind_and_key(&self) -> (String, ObjectKey) {
        (self.gvk().map_or_else(|| "object".into(), |gvk| gvk.kind), ObjectKey::of(self))
    }
}

impl dyn Typed {
    pub(super) fn to_json(&self) -> Result<serde_json::Value, DecodeError> {
        self.json().map_err(|error| {
            let (kind, key) = self.kind_and_key();
            DecodeError::Mismatch { kind, key, error }
        })
    }

    /// The object itself, or only its metadata. It serves no other type: a type drops the fields it does not know.
    pub(super) fn decode<K: KubeObject>(self: &Arc<Self>) -> Result<Arc<K>, DecodeError> {
        let any: Arc<dyn Any + Send + Sync> = self.clone();
        any.downcast().or_else(|_| {
            if !K::metadata_api() {
                let (kind, key) = self.kind_and_key();
                return Err(DecodeError::OtherType { kind, key });
            }
            self.partial().and_then(serde_json::from_value).map(Arc::new).map_err(|error| {
                let (kind, key) = self.kind_and_key();
                DecodeError::Mismatch { kind, key, error }
            })
        })
    }
}

/// An object of which only the metadata is kept.
#[derive(Debug)]
pub(crate) struct MetadataOnly {
    types: Arc<TypeMeta>,
    meta: CompactMeta,
}

impl MetadataOnly {
    /// An object of which only the name is known.
    pub(crate) fn named(key: ObjectKey) -> Self {
        Self { types: Arc::default(), meta: CompactMeta::named(key) }
    }

    pub(super) fn types(&self) -> &TypeMeta {
        &self.types
    }
}

impl Payload for MetadataOnly {
    const WALKED: bool = false;

    fn read<'de, D: Deserializer<'de>>(decoder: &Decoder, deserializer: D) -> Result<Self, D::Error> {
        let Parts { mut meta, .. } = ReadParts { decoder, rest: None }.deserialize(deserializer)?;
        if let Some(transform) = decoder.transform_of(meta.key().namespace()) {
            let json = transform.change_parts(decoder.types(), &meta, Packed::EMPTY).map_err(Error::custom)?;
            let again = &mut serde_json::Deserializer::from_slice(&json);
            meta = ReadParts { decoder, rest: None }.deserialize(again).map_err(Error::custom)?.meta;
        }
        // Servers say `PartialObjectMetadata`; the kind it is the metadata of says more.
        Ok(Self { types: decoder.types().clone(), meta })
    }

    fn key(&self) -> ObjectKey {
        self.meta.key().clone()
    }

    fn meta(&self) -> Meta<'_> {
        Meta::from(&self.meta)
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.meta.heap_bytes()
    }

    fn decode<K: KubeObject>(self: &Arc<Self>) -> Result<Arc<K>, DecodeError> {
        let (kind, key) = (|| self.types.kind.clone(), || self.key());
        if !K::metadata_api() {
            return Err(DecodeError::MetadataOnly { kind: kind(), key: key() });
        }
        assemble(&self.types, &self.meta, Packed::EMPTY).map(Arc::new).map_err(|error| DecodeError::Mismatch {
            kind: kind(),
            key: key(),
            error,
        })
    }

    fn into_body(self: Arc<Self>) -> Body {
        Body::Metadata(self)
    }

    fn to_metadata(self: &Arc<Self>, _: &Arc<TypeMeta>, _: &ObjectKey) -> Arc<MetadataOnly> {
        self.clone()
    }
}
