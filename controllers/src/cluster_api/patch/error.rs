//! Errors of the patch helper.

use crate::cluster_api::aggregate::Aggregate;
use std::fmt;
use steersman::{client, object::ObjectKey};

/// Error of a [`PatchHelper`](super::PatchHelper).
///
/// The failed steps are its source: print it with `{:#}` of `anyhow`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The object has another kind than the snapshot.
    #[error(
        "failed to patch {kind} {key}: unmatched GroupVersionKind, expected {expected:?} got {got:?}"
    )]
    Kind {
        /// Kind of the object.
        kind: String,
        /// Key of the snapshot.
        key: ObjectKey,
        /// Group, version and kind of the object.
        expected: String,
        /// Group, version and kind of the snapshot.
        got: String,
    },
    /// The object cannot be converted to JSON or back.
    #[error("failed to patch {kind} {key}")]
    Encode {
        /// Kind of the object.
        kind: String,
        /// Key of the snapshot.
        key: ObjectKey,
        /// Error of the conversion.
        source: serde_json::Error,
    },
    /// One of the patches failed. The others were sent.
    #[error("failed to patch {kind} {key}")]
    Step {
        /// Kind of the object.
        kind: String,
        /// Key of the snapshot.
        key: ObjectKey,
        /// Patch that failed.
        source: Box<PatchStepError>,
    },
    /// Several patches failed.
    #[error("failed to patch {kind} {key}")]
    Steps {
        /// Kind of the object.
        kind: String,
        /// Key of the snapshot.
        key: ObjectKey,
        /// Patches that failed, as [`PatchStepError`].
        source: Aggregate,
    },
}

/// Failed patch of a [`PatchHelper`](super::PatchHelper).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchStepError {
    /// The patch of the conditions failed.
    #[error("failed to patch status conditions")]
    Conditions(#[source] ConditionsError),
    /// The patch of everything but the status failed.
    #[error("failed to patch spec and metadata")]
    SpecAndMetadata(#[source] client::Error),
    /// The patch of the status without conditions failed.
    #[error("failed to patch status")]
    Status(#[source] client::Error),
}

impl PatchStepError {
    /// Returns the error of the request, unless the conditions could not be merged.
    pub fn request(&self) -> Option<&client::Error> {
        match self {
            Self::SpecAndMetadata(error)
            | Self::Status(error)
            | Self::Conditions(ConditionsError::Client(error)) => Some(error),
            Self::Conditions(_) => None,
        }
    }
}

/// Reason why conditions were not patched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionsError {
    /// The object could not be read or patched.
    #[error(transparent)]
    Client(client::Error),
    /// Another process changed the same condition.
    #[error(transparent)]
    Conflict(ConditionConflict),
    /// The object changed between read and patch in every attempt.
    #[error("timed out waiting for the condition")]
    Attempts(#[source] client::Error),
    /// The object cannot be converted to JSON or back.
    #[error(transparent)]
    Encode(serde_json::Error),
}

/// Condition that two processes changed in different ways.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionConflict {
    /// Another process changed the condition.
    #[error(
        "error patching conditions: The condition {type_:?} was modified by a different process \
         and this caused a merge/{operation}Condition conflict: {differences}"
    )]
    Modified {
        /// Type of the condition.
        type_: String,
        /// Change of the condition that could not be applied.
        operation: Operation,
        /// Fields that differ between the latest and the wanted state.
        differences: String,
    },
    /// Another process removed the condition.
    #[error(
        "error patching conditions: The condition {type_:?} was deleted by a different process \
         and this caused a merge/ChangeCondition conflict"
    )]
    Deleted {
        /// Type of the condition.
        type_: String,
    },
}

/// Change of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The condition was added.
    Add,
    /// The condition was changed.
    Change,
    /// The condition was removed.
    Remove,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "Add",
            Self::Change => "Change",
            Self::Remove => "Remove",
        })
    }
}
