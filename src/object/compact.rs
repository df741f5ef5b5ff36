//! An object kept compact: metadata parsed, the rest of the message [packed](super::packed), decoded when somebody reads it.

use super::{
    assemble::assemble,
    compact_meta::CompactMeta,
    decode::{Decoder, Parts, ReadParts},
    decoded::{Forms, Registry},
    error::DecodeError,
    handle::Body,
    key::ObjectKey,
    kind::KubeObject,
    meta::Meta,
    packed::{Names, Packed},
    payload::Payload,
};
use kube_core::TypeMeta;
use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error},
};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Compact {
    types: Arc<TypeMeta>,
    common: Arc<Common>,
    meta: CompactMeta,
    /// An object of all fields but `apiVersion`, `kind` and `metadata`, packed.
    body: Box<str>,
    forms: Forms,
}

/// What the compact objects of one informer have in common.
#[derive(Debug, Default)]
pub(super) struct Common {
    pub(super) registry: Registry,
    names: Names,
}

impl Compact {
    pub(super) fn forms(&self) -> &Forms {
        &self.forms
    }

    pub(super) fn types(&self) -> &TypeMeta {
        &self.types
    }

    /// All of it as JSON, which nobody keeps.
    pub(super) fn to_json(&self) -> Result<serde_json::Value, DecodeError> {
        self.assemble(true).map_err(|error| self.mismatch(error))
    }

    fn assemble<K: DeserializeOwned>(&self, whole: bool) -> Result<K, serde_json::Error> {
        let names = self.common.names.known();
        let body = if whole { Packed::new(&self.body, &names) } else { Packed::EMPTY };
        assemble(&self.types, &self.meta, body)
    }

    fn mismatch(&self, error: serde_json::Error) -> DecodeError {
        DecodeError::Mismatch { kind: self.types.kind.clone(), key: self.key(), error }
    }

    /// As it came.
    fn plain<'de, D: Deserializer<'de>>(decoder: &Decoder, deserializer: D) -> Result<Self, D::Error> {
        let common = decoder.common().clone();
        let mut pen = common.names.pen();
        let Parts { types, meta } = ReadParts { decoder, rest: Some(&mut pen) }.deserialize(deserializer)?;
        let body = pen.finish();
        Ok(Self { types, common, meta, body, forms: Forms::default() })
    }

    /// As JSON.
    #[cfg(test)]
    pub(super) fn body(&self) -> String {
        Packed::new(&self.body, &self.common.names.known()).into_json().expect("it can be read")
    }
}

impl Payload for Compact {
    const WALKED: bool = false;

    fn read<'de, D: Deserializer<'de>>(decoder: &Decoder, deserializer: D) -> Result<Self, D::Error> {
        let plain = Self::plain(decoder, deserializer)?;
        let Some(transform) = decoder.transforms() else { return Ok(plain) };
        let names = plain.common.names.known();
        let body = Packed::new(&plain.body, &names);
        let json = transform.change_parts(&plain.types, &plain.meta, body).map_err(Error::custom)?;
        let again = &mut serde_json::Deserializer::from_slice(&json);
        let changed = Self::plain(decoder, again).map_err(Error::custom)?;
        let body = if transform.is_of_metadata() { plain.body } else { changed.body };
        Ok(Self { types: plain.types, body, ..changed })
    }

    fn key(&self) -> ObjectKey {
        self.meta.key().clone()
    }

    fn meta(&self) -> Meta<'_> {
        Meta::from(&self.meta)
    }

    /// Without decoded forms: those are the readers'.
    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.meta.heap_bytes() + self.body.len()
    }

    fn decode<K: KubeObject>(self: &Arc<Self>) -> Result<Arc<K>, DecodeError> {
        let (form, made) =
            self.forms.get(|| self.assemble(!K::metadata_api())).map_err(|error| self.mismatch(error))?;
        if made {
            self.common.registry.add(self);
        }
        Ok(form)
    }

    fn into_body(self: Arc<Self>) -> Body {
        Body::Compact(self)
    }
}
