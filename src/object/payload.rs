//! Representations of objects in a store, behind one trait.
//!
//! The object itself, [`Compact`], or [`MetadataOnly`].
//!
//! [`Compact`]: super::compact::Compact

use super::{
    assemble::assemble,
    compact_meta::CompactMeta,
    decode::{Decoder, Parts, ReadParts, no_name},
    error::DecodeError,
    exact_vec::ExactVec,
    handle::Body,
    key::ObjectKey,
    kind::KubeObject,
    meta::Meta,
    packed::Packed,
    size,
    skip_managed_fields::SkipManagedFields,
    wire_meta::{Text, WireMeta},
};
use kube_core::{GroupVersionKind, TypeMeta};
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error},
};
use std::{any::Any, sync::Arc};

pub(crate) trait Payload: Send + Sync + Sized + 'static {
    /// Reads one object of a message. See [`Decoder::decode`].
    fn read<'de, D: Deserializer<'de>>(
        decoder: &Decoder,
        deserializer: D,
    ) -> Result<Self, D::Error>;

    /// Reads a message in the usual format of API servers; `None` for any other.
    ///
    /// The caller then uses [`read`](Self::read).
    fn read_quickly(_: &Decoder, _: &str) -> Option<Self> {
        None
    }

    fn key(&self) -> ObjectKey;

    fn meta(&self) -> Meta<'_>;

    /// Returns the resource version as a number, as used by all known API servers.
    fn revision(&self) -> Option<u64> {
        self.meta().resource_version()?.parse().ok()
    }

    /// Whether [`Self::heap_bytes`] traverses the whole object.
    const WALKED: bool;

    /// Returns the approximate memory of the object.
    fn heap_bytes(&self) -> usize;

    /// Returns the object as a `K`, without a copy if it is one.
    fn decode<K: KubeObject>(self: &Arc<Self>) -> Result<Arc<K>, DecodeError>;

    /// Converts the payload for [`Object`](super::Object).
    fn into_body(self: Arc<Self>) -> Body;

    /// Returns only the metadata, so that the body can be freed.
    ///
    /// `types` are those of the informer, and `key` is that of the object.
    fn to_metadata(self: &Arc<Self>, types: &Arc<TypeMeta>, key: &ObjectKey) -> Arc<MetadataOnly> {
        Arc::new(MetadataOnly {
            types: types.clone(),
            meta: self.meta().pack(key),
        })
    }
}

/// Typed representation: the object itself.
impl<T: KubeObject> Payload for T {
    const WALKED: bool = true;

    fn read<'de, D: Deserializer<'de>>(
        decoder: &Decoder,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let deserializer = SkipManagedFields::new(
            ExactVec(deserializer),
            decoder.types(),
            decoder.keeps_managed_fields(),
        );
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

/// Object-safe interface of typed objects, for [`Object`](super::Object).
pub(crate) trait Typed: Any + Send + Sync {
    fn object_meta(&self) -> Meta<'_>;

    /// Returns `apiVersion`, `kind` and `metadata` as JSON.
    fn partial(&self) -> Result<serde_json::Value, serde_json::Error>;

    /// Returns the whole object as JSON.
    fn json(&self) -> Result<serde_json::Value, serde_json::Error>;

    /// Returns the kind; `None` if the object does not contain it.
    fn kind(&self) -> Option<GroupVersionKind>;

    /// Returns kind and key for errors.
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
        partial.insert(
            "metadata".into(),
            serde_json::to_value(kube_core::Resource::meta(self))?,
        );
        Ok(partial.into())
    }

    fn json(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::to_value(self)
    }

    fn kind(&self) -> Option<GroupVersionKind> {
        self.gvk()
    }

    fn kind_and_key(&self) -> (String, ObjectKey) {
        (
            self.gvk().map_or_else(|| "object".into(), |gvk| gvk.kind),
            ObjectKey::of(self),
        )
    }
}

impl dyn Typed {
    pub(super) fn to_json(&self) -> Result<serde_json::Value, DecodeError> {
        self.json().map_err(|error| {
            let (kind, key) = self.kind_and_key();
            DecodeError::Mismatch { kind, key, error }
        })
    }

    /// Returns the object itself, or only its metadata.
    ///
    /// Other types are an error, because a Rust type drops fields that it does not know.
    pub(super) fn decode<K: KubeObject>(self: &Arc<Self>) -> Result<Arc<K>, DecodeError> {
        let any: Arc<dyn Any + Send + Sync> = self.clone();
        any.downcast().or_else(|_| {
            if !K::metadata_api() {
                let (kind, key) = self.kind_and_key();
                return Err(DecodeError::OtherType { kind, key });
            }
            self.partial()
                .and_then(serde_json::from_value)
                .map(Arc::new)
                .map_err(|error| {
                    let (kind, key) = self.kind_and_key();
                    DecodeError::Mismatch { kind, key, error }
                })
        })
    }
}

/// Metadata-only representation of an object.
#[derive(Debug)]
pub(crate) struct MetadataOnly {
    types: Arc<TypeMeta>,
    meta: CompactMeta,
}

impl MetadataOnly {
    /// Creates an object of which only the name is known.
    pub(crate) fn named(key: ObjectKey) -> Self {
        Self {
            types: Arc::default(),
            meta: CompactMeta::named(key),
        }
    }

    /// Creates the metadata of an object of which only these are known.
    pub(super) fn identified(
        types: Arc<TypeMeta>,
        key: ObjectKey,
        uid: Option<&str>,
        resource_version: Option<&str>,
    ) -> Self {
        let text = |text: &str| Text(text.to_owned().into());
        let mut wire = WireMeta {
            uid: uid.map(text),
            resource_version: resource_version.map(text),
            ..WireMeta::default()
        };
        Self {
            types,
            meta: CompactMeta::pack(key, &mut wire),
        }
    }

    /// Reads the metadata of one object's JSON, without the decoder's transform.
    pub(super) fn untransformed(decoder: &Decoder, json: &[u8]) -> Result<Self, serde_json::Error> {
        let parts = ReadParts {
            decoder,
            rest: None,
        }
        .deserialize(&mut serde_json::Deserializer::from_slice(json))?;
        Ok(Self {
            types: decoder.types().clone(),
            meta: parts.meta,
        })
    }

    pub(super) fn types(&self) -> &TypeMeta {
        &self.types
    }
}

impl Payload for MetadataOnly {
    const WALKED: bool = false;

    fn read<'de, D: Deserializer<'de>>(
        decoder: &Decoder,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let Parts { mut meta, .. } = ReadParts {
            decoder,
            rest: None,
        }
        .deserialize(deserializer)?;
        if let Some(transform) = decoder.transform_of(meta.key().namespace()) {
            let json = transform
                .change_parts(decoder.types(), &meta, Packed::EMPTY)
                .map_err(Error::custom)?;
            let again = &mut serde_json::Deserializer::from_slice(&json);
            meta = ReadParts {
                decoder,
                rest: None,
            }
            .deserialize(again)
            .map_err(Error::custom)?
            .meta;
        }
        // API servers send `PartialObjectMetadata`; keep the kind of the object instead.
        Ok(Self {
            types: decoder.types().clone(),
            meta,
        })
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
            return Err(DecodeError::MetadataOnly {
                kind: kind(),
                key: key(),
            });
        }
        assemble(&self.types, &self.meta, Packed::EMPTY)
            .map(Arc::new)
            .map_err(|error| DecodeError::Mismatch {
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
