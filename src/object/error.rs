//! Errors of decoding objects.

use super::{key::ObjectKey, redact::redacted, undecoded::Undecoded};
use std::{fmt, sync::Arc};

/// Error of reading an object as a type.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The object does not match the type.
    #[error(
        "cannot decode {kind} {key}: {error}; make the type accept what the API server returns, or \
         read a `DynamicObject`"
    )]
    Mismatch {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
        /// Field that does not match, and its position.
        error: serde_json::Error,
    },
    /// The informer stores only metadata.
    #[error(
        "cannot decode {kind} {key}: only its metadata is cached; read it as `Metadata<_>`, or \
         declare the kind itself"
    )]
    MetadataOnly {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
    },
    /// Only the metadata of the object was kept until the event was delivered.
    ///
    /// See [`Event`](crate::event::Event) and, for `source::stream`, `StreamSource::keep_objects`.
    #[error(
        "cannot decode {kind} {key}: only its metadata was kept; use `Object::meta`, make the \
         handler faster if it is behind, or call `keep_objects` of a stream source"
    )]
    BodyDropped {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
    },
    /// The informer stores the object as another type.
    #[error(
        "cannot decode {kind} {key}: it is cached as another Rust type; declare the kind with \
         `.compact()` to serve both"
    )]
    OtherType {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
    },
}

impl DecodeError {
    /// Returns the key of the object.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Mismatch { key, .. }
            | Self::MetadataOnly { key, .. }
            | Self::BodyDropped { key, .. }
            | Self::OtherType { key, .. } => key,
        }
    }
}

/// Message that cannot be decoded, with the identity of the object if it was found.
#[derive(Debug)]
pub(crate) struct Undecodable {
    pub(crate) kind: String,
    pub(crate) key: Option<ObjectKey>,
    pub(crate) revision: Option<u64>,
    /// Metadata that a cache keeps. `None` if the message does not name an object.
    pub(crate) object: Option<Arc<Undecoded>>,
    pub(crate) error: serde_json::Error,
}

impl Undecodable {
    /// Returns the decoder's message, without values of the object's fields.
    pub(crate) fn reason(&self) -> String {
        redacted(&self.kind, &self.error)
    }
}

impl std::error::Error for Undecodable {}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind, key, error, ..
        } = self;
        match key {
            Some(key) => write!(f, "cannot decode {kind} {key}: ")?,
            None => write!(f, "cannot decode an object of kind {kind}: ")?,
        }
        if kind == "Secret" {
            f.write_str(&self.reason())?;
        } else {
            write!(f, "{error}")?;
        }
        f.write_str(
            "; make the type accept what the API server returns, or declare the kind with `.compact()` and read a `DynamicObject`",
        )
    }
}
