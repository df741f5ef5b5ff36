//! An object kept as text: metadata parsed, the rest of the message as it came, decoded when somebody reads it.

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
    payload::Payload,
};
use kube_core::TypeMeta;
use serde::{Deserializer, de::DeserializeSeed};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Compact {
    types: Arc<TypeMeta>,
    registry: Arc<Registry>,
    meta: CompactMeta,
    /// A JSON object of all fields but `apiVersion`, `kind` and `metadata`.
    body: Box<str>,
    forms: Forms,
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
        assemble(&self.types, &self.meta, &self.body).map_err(|error| self.mismatch(error))
    }

    fn mismatch(&self, error: serde_json::Error) -> DecodeError {
        DecodeError::Mismatch { kind: self.types.kind.clone(), key: self.key(), error }
    }

    #[cfg(test)]
    pub(super) fn body(&self) -> &str {
        &self.body
    }
}

impl Payload for Compact {
    const WALKED: bool = false;

    fn read<'de, D: Deserializer<'de>>(decoder: &Decoder, deserializer: D) -> Result<Self, D::Error> {
        let Parts { types, meta, rest } = ReadParts { decoder, rest: true }.deserialize(deserializer)?;
        // Braces, and for each field two quotes, a colon and a comma; more only for a name with escapes.
        let length = 2 + rest.iter().map(|(name, value)| name.0.len() + value.get().len() + 4).sum::<usize>();
        let mut body = Vec::with_capacity(length - usize::from(!rest.is_empty()));
        body.push(b'{');
        for (name, value) in &rest {
            if body.len() > 1 {
                body.push(b',');
            }
            serde_json::to_writer(&mut body, &name.0).map_err(serde::de::Error::custom)?;
            body.push(b':');
            body.extend_from_slice(value.get().as_bytes());
        }
        body.push(b'}');
        let body = String::from_utf8(body).map_err(serde::de::Error::custom)?.into_boxed_str();
        Ok(Self { types, registry: decoder.registry().clone(), meta, body, forms: Forms::default() })
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
        let body = if K::metadata_api() { "{}" } else { &*self.body };
        let (form, made) =
            self.forms.get(|| assemble(&self.types, &self.meta, body)).map_err(|error| self.mismatch(error))?;
        if made {
            self.registry.add(self);
        }
        Ok(form)
    }

    fn into_body(self: Arc<Self>) -> Body {
        Body::Compact(self)
    }
}
