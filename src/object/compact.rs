//! Compact representation: parsed metadata and a [packed](super::packed) body.

use super::{
    assemble::assemble,
    compact_meta::CompactMeta,
    decode::{Decoder, Parts, ReadParts},
    decoded::{DecodedValues, Registry},
    error::DecodeError,
    handle::Body,
    key::ObjectKey,
    kind::KubeObject,
    meta::Meta,
    packed::{Names, Packed, Packer},
    payload::Payload,
};
use kube_core::TypeMeta;
use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

#[derive(Debug)]
pub(crate) struct Compact {
    types: Arc<TypeMeta>,
    common: Arc<Common>,
    meta: CompactMeta,
    /// Packed object of all fields but `apiVersion`, `kind` and `metadata`.
    body: Box<str>,
    decoded_values: DecodedValues,
}

/// State shared by the compact objects of one informer.
#[derive(Debug, Default)]
pub(super) struct Common {
    pub(super) registry: Registry,
    names: Names,
}

impl Compact {
    pub(super) fn decoded_values(&self) -> &DecodedValues {
        &self.decoded_values
    }

    pub(super) fn types(&self) -> &TypeMeta {
        &self.types
    }

    /// Returns the whole object as JSON, without caching it.
    pub(super) fn to_json(&self) -> Result<serde_json::Value, DecodeError> {
        self.assemble(true).map_err(|error| self.mismatch(error))
    }

    fn assemble<K: DeserializeOwned>(&self, whole: bool) -> Result<K, serde_json::Error> {
        let names = self.common.names.known();
        let body = if whole {
            Packed::new(&self.body, &names)
        } else {
            Packed::EMPTY
        };
        assemble(&self.types, &self.meta, body)
    }

    fn mismatch(&self, error: serde_json::Error) -> DecodeError {
        DecodeError::Mismatch {
            kind: self.types.kind.clone(),
            key: self.key(),
            error,
        }
    }

    /// Reads an object without the transform.
    fn plain<'de, D: Deserializer<'de>>(
        decoder: &Decoder,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let mut packer = decoder.common().names.packer();
        let parts = ReadParts {
            decoder,
            rest: Some(&mut packer),
        }
        .deserialize(deserializer)?;
        Ok(Self::new(decoder, parts, packer))
    }

    fn new(decoder: &Decoder, Parts { types, meta }: Parts, packer: Packer<'_>) -> Self {
        Self {
            types,
            common: decoder.common().clone(),
            meta,
            body: packer.finish(),
            decoded_values: DecodedValues::default(),
        }
    }

    /// Returns the body as JSON.
    #[cfg(test)]
    pub(super) fn body(&self) -> String {
        Packed::new(&self.body, &self.common.names.known())
            .into_json()
            .expect("readable")
    }
}

impl Payload for Compact {
    const WALKED: bool = false;

    fn read<'de, D: Deserializer<'de>>(
        decoder: &Decoder,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let plain = Self::plain(decoder, deserializer)?;
        let Some(transform) = decoder.transform_of(plain.meta.key().namespace()) else {
            return Ok(plain);
        };
        let names = plain.common.names.known();
        let body = Packed::new(&plain.body, &names);
        let json = transform
            .change_parts(&plain.types, &plain.meta, body)
            .map_err(Error::custom)?;
        let again = &mut serde_json::Deserializer::from_slice(&json);
        let changed = Self::plain(decoder, again).map_err(Error::custom)?;
        let body = if transform.is_of_metadata() {
            plain.body
        } else {
            changed.body
        };
        Ok(Self {
            types: plain.types,
            body,
            ..changed
        })
    }

    fn read_quickly(decoder: &Decoder, text: &str) -> Option<Self> {
        if decoder.transforms() {
            return None;
        }
        let mut packer = decoder.common().names.packer();
        let parts = Parts::read_quickly(decoder, text, &mut packer)?;
        Some(Self::new(decoder, parts, packer))
    }

    fn key(&self) -> ObjectKey {
        self.meta.key().clone()
    }

    fn meta(&self) -> Meta<'_> {
        Meta::from(&self.meta)
    }

    /// Excludes decoded values, which readers own.
    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.meta.heap_bytes() + self.body.len()
    }

    fn decode<K: KubeObject>(self: &Arc<Self>) -> Result<Arc<K>, DecodeError> {
        // A panic of the type's own code is an error of the reader, as with the typed
        // representation.
        let make = || {
            catch_unwind(AssertUnwindSafe(|| self.assemble(!K::metadata_api())))
                .unwrap_or_else(|_| Err(Error::custom("deserializing the type panicked")))
        };
        let (value, decoded) = self
            .decoded_values
            .get(make)
            .map_err(|error| self.mismatch(error))?;
        if decoded {
            self.common.registry.add(self);
        }
        Ok(value)
    }

    fn into_body(self: Arc<Self>) -> Body {
        Body::Compact(self)
    }
}
