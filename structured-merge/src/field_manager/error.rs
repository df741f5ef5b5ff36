//! Errors of field managers, with the messages of the API server.

use super::{GroupVersionKind, metadata};
use crate::{conflict::Conflicts, managed::DecodeError, updater::UpdateError};
use serde_json::Value;
use std::fmt::Display;

/// Error of [`FieldManager`](super::FieldManager). The text is the API server's message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Other managers own fields that the apply would change: code 409, reason `Conflict`, and a
    /// cause `FieldManagerConflict` for each conflict.
    #[error(transparent)]
    Conflicts(#[from] Conflicts),
    /// The request is malformed: code 400, reason `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// The managed fields of the live object are malformed: code 500.
    #[error("failed to decode managed fields: {0}")]
    ManagedFields(DecodeError),
    /// An object does not fit its schema, or a conversion failed: code 500.
    #[error("{0}")]
    Internal(String),
}

impl ApplyError {
    /// Describes a failure to create the manager of the fields from before the first apply.
    pub(super) fn of_existing_fields(self) -> Self {
        Self::Internal(format!(
            "failed to create manager for existing fields: {self}"
        ))
    }

    pub(super) fn update(error: UpdateError, object: &Value) -> Self {
        match error {
            UpdateError::Conflicts(conflicts) => conflicts.into(),
            error => Self::Internal(format!(
                "failed to update ManagedFields ({}): {error}",
                describe(object)
            )),
        }
    }
}

/// Step of an apply or update that can fail.
#[derive(Clone, Copy)]
pub(super) enum Step {
    ConvertLive,
    ConvertNew,
    TypeLive,
    TypeLivePatch,
    TypeNew,
    TypePatch,
}

impl Step {
    pub(super) fn error(
        self,
        object: &Value,
        api_version: &str,
        cause: &dyn Display,
    ) -> ApplyError {
        self.error_of(&describe(object), api_version, cause)
    }

    pub(super) fn error_of(
        self,
        object: &str,
        api_version: &str,
        cause: &dyn Display,
    ) -> ApplyError {
        ApplyError::Internal(match self {
            Self::ConvertLive => {
                format!("failed to convert live object ({object}) to proper version: {cause}")
            }
            Self::ConvertNew => format!(
                "failed to convert new object ({object}) to proper version ({api_version}): {cause}"
            ),
            Self::TypeLive => {
                format!("failed to convert live object ({object}) to smd typed: {cause}")
            }
            Self::TypeLivePatch => {
                format!("failed to create typed live object ({object}): {cause}")
            }
            Self::TypeNew => {
                format!("failed to convert new object ({object}) to smd typed: {cause}")
            }
            Self::TypePatch => format!("failed to create typed patch object ({object}): {cause}"),
        })
    }
}

/// Returns namespace, name and kind of an object as in the API server's messages.
pub(super) fn describe(object: &Value) -> String {
    let namespace = metadata::text(object, "namespace");
    let name = metadata::text(object, "name");
    format!("{namespace}/{name}; {}", GroupVersionKind::of(object))
}
