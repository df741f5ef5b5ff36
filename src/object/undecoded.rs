//! Object that an informer received and could not decode.

use super::{
    error::DecodeError,
    key::ObjectKey,
    kind::KubeObject,
    meta::Meta,
    payload::{MetadataOnly, Payload},
};
use serde::de::Error;
use std::sync::Arc;

/// Object that does not decode as the informer's representation.
///
/// Predicates and handlers see its metadata, so mapping by key, labels and owners works. Decoding
/// it returns the reason.
#[derive(Debug)]
pub(crate) struct Undecoded {
    metadata: Arc<MetadataOnly>,
    reason: String,
}

impl Undecoded {
    /// Creates it from the metadata and the [redacted](super::redact) message of the decoder.
    pub(super) fn new(metadata: MetadataOnly, reason: String) -> Self {
        Self {
            metadata: Arc::new(metadata),
            reason,
        }
    }

    /// Creates an undecoded object of which only the key and the UID are known.
    #[cfg(test)]
    pub(crate) fn named(key: ObjectKey, uid: Option<&str>) -> Self {
        Self::new(
            MetadataOnly::identified(Arc::default(), key, uid, None),
            "it does not decode".into(),
        )
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

    /// Returns the UID, if it is not empty.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.meta().uid().filter(|uid| !uid.is_empty())
    }

    /// Returns the resource version as a number.
    pub(crate) fn revision(&self) -> Option<u64> {
        self.meta().resource_version()?.parse().ok()
    }

    /// Returns the decoder's message, without values of the object's fields.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns whether this can be a version of the `known` object.
    ///
    /// A different UID means that the known object was deleted and created again.
    pub(crate) fn may_be(&self, known: Meta<'_>) -> bool {
        self.uid()
            .zip(known.uid())
            .is_none_or(|(uid, known)| uid == known)
    }

    /// Returns whether this is the same version of the same object.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let (this, that) = (self.meta(), other.meta());
        this.uid() == that.uid()
            && this.resource_version() == that.resource_version()
            && self.reason == other.reason
    }

    pub(super) fn decode<K: KubeObject>(&self) -> Result<Arc<K>, DecodeError> {
        if K::metadata_api() {
            self.metadata.decode()
        } else {
            Err(self.error())
        }
    }

    pub(super) fn error(&self) -> DecodeError {
        let error = serde_json::Error::custom(&self.reason);
        DecodeError::Mismatch {
            kind: self.metadata.types().kind.clone(),
            key: self.key(),
            error,
        }
    }
}
