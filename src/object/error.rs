//! What can go wrong with an object's body, and with a message that should be an object.

use super::key::ObjectKey;
use std::fmt;

/// An object cannot be read as the type that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// What is in memory does not fit the type.
    #[error(
        "{kind} {key} does not fit the type it is read as: {error}: let the type accept what the server sends, or read a \
         DynamicObject"
    )]
    Mismatch {
        /// The object's kind.
        kind: String,
        /// The object.
        key: ObjectKey,
        /// What does not fit, and where.
        #[source]
        error: serde_json::Error,
    },
    /// Only metadata is in memory.
    #[error("only the metadata of {kind} {key} is in memory: read it as Metadata<_>, or declare the kind itself")]
    MetadataOnly {
        /// The object's kind.
        kind: String,
        /// The object.
        key: ObjectKey,
    },
    /// The object is deleted, and only its metadata was kept until the event was delivered. See [`Event`](crate::event::Event).
    #[error(
        "cannot decode deleted {kind} {key}: its body was dropped because the handler was behind by more than 4,096 \
         deletions; use `Object::meta`, or make the handler faster"
    )]
    BodyDropped {
        /// The object's kind.
        kind: String,
        /// The object.
        key: ObjectKey,
    },
    /// The object is in memory as another type.
    #[error(
        "{kind} {key} is in memory as another type than it is read as: declare the kind with `.compact()` to have both"
    )]
    OtherType {
        /// The object's kind.
        kind: String,
        /// The object.
        key: ObjectKey,
    },
}

impl DecodeError {
    /// The object that cannot be read.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Mismatch { key, .. }
            | Self::MetadataOnly { key, .. }
            | Self::BodyDropped { key, .. }
            | Self::OtherType { key, .. } => key,
        }
    }
}

/// A message that cannot be stored. What could be found in it all the same is said, so that the kind can live on.
#[derive(Debug)]
pub(crate) struct Undecodable {
    pub(crate) kind: String,
    pub(crate) key: Option<ObjectKey>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<u64>,
    pub(crate) error: serde_json::Error,
}

impl std::error::Error for Undecodable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, key, error, .. } = self;
        match key {
            Some(key) => write!(f, "{kind} {key} is left out of the cache: {error}")?,
            None => write!(f, "an object of kind {kind} is left out of the cache: {error}")?,
        }
        f.write_str(": let the type accept what the server sends, or declare the kind with `.compact()`")
    }
}
