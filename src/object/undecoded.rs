//! An object that an informer received and could not decode: its metadata, and why.

use super::{
    error::DecodeError,
    key::ObjectKey,
    kind::KubeObject,
    meta::Meta,
    payload::{MetadataOnly, Payload},
};
use serde::de::Error;
use std::sync::Arc;

/// An object that does not decode as the informer's representation.
///
/// Predicates and handlers see its metadata, so mapping by key, labels and owners works. Decoding
/// it returns the reason.
#[derive(Debug)]
pub(crate) struct Undecoded {
    metadata: Arc<MetadataOnly>,
    reason: String,
}

impl Undecoded {
    /// Creates an undecoded object from its metadata and the decoder's [redacted](super::redact)
    /// message.
    pub(super) fn new(metadata: MetadataOnly, reason: String) -> Self {
        Self { metadata: Arc::new(metadata), reason }
    }

    /// Creates an undecoded object of which only the key and the uid are known.
    #[cfg(test)]
    pub(crate) fn named(key: ObjectKey, uid: Option<&str>) -> Self {
        Self::new(MetadataOnly::identified(Arc::default(), key, uid, None), "it does not decode".into())
    }

    pub(crate) fn key(&self) -> ObjectKey {
        self.metadata.key()
    }

    pub(crate) fn meta(&self) -> Meta<'_> {
        self.metadata.meta()
    }

    pub(super) fn metadata(&self) -> &MetadataOnly {
        &self.metadata
    }

    /// Returns the object's uid, if it has one that is not empty.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.meta().uid().filter(|uid| !uid.is_empty())
    }

    /// Returns the decoder's message, without values of the object's fields.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns whether this can be a version of the `known` object.
    ///
    /// A different uid means that the known object was deleted and created again.
    pub(crate) fn may_be(&self, known: Meta<'_>) -> bool {
        self.uid().zip(known.uid()).is_none_or(|(uid, known)| uid == known)
    }

    /// Whether this is the same version of the same object.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let (this, that) = (self.meta(), other.meta());
        this.uid() == that.uid() && this.resource_version() == that.resource_version() && self.reason == other.reason
    }

    pub(super) fn decode<K: KubeObject>(&self) -> Result<Arc<K>, DecodeError> {
        if K::metadata_api() { self.metadata.decode() } else { Err(self.error()) }
    }

    pub(super) fn error(&self) -> DecodeError {
        let error = serde_json::Error::custom(&self.reason);
        DecodeError::Mismatch { kind: self.metadata.types().kind.clone(), key: self.key(), error }
    }
}
