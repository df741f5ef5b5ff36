//! Errors of the updater.

use super::ConvertError;
use crate::{conflict::Conflicts, typed::ValidationErrors};

/// Error of [`Updater`](super::Updater).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// Other managers own fields that the apply would change.
    #[error(transparent)]
    Conflicts(#[from] Conflicts),
    /// A value does not fit its type.
    #[error("{context}{cause}")]
    Invalid {
        /// Steps that failed, each followed by a colon.
        context: String,
        /// Violations.
        cause: ValidationErrors,
    },
    /// A conversion between versions failed.
    #[error("{context}{cause}")]
    Convert {
        /// Steps that failed, each followed by a colon.
        context: String,
        /// Cause.
        cause: ConvertError,
    },
}

impl UpdateError {
    /// Prepends the step that failed to the text.
    pub(super) fn during(mut self, step: &str) -> Self {
        if let Self::Invalid { context, .. } | Self::Convert { context, .. } = &mut self {
            context.insert_str(0, ": ");
            context.insert_str(0, step);
        }
        self
    }
}

impl From<ValidationErrors> for UpdateError {
    fn from(cause: ValidationErrors) -> Self {
        Self::Invalid {
            context: String::new(),
            cause,
        }
    }
}

/// Returns a function that prepends the step that failed to an error.
pub(super) fn during<E: Into<UpdateError>>(step: &'static str) -> impl Fn(E) -> UpdateError {
    move |error| error.into().during(step)
}
