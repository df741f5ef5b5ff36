//! Failures of lists and watches.

use super::wire::ErrorResponse;
use crate::client;
use std::time::Duration;

/// Reason for the end of a list or watch.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Failure {
    /// The API server rejected the request.
    #[error("{}", .0.message)]
    Rejected(ErrorResponse),
    /// There was no response, or an invalid one.
    #[error("{0}")]
    Broken(String),
    /// Nothing was received for this long.
    #[error("nothing received within {} s", .0.as_secs())]
    Timeout(Duration),
    /// A watch stream ended without an event, before [`MIN_STREAM_LIFE`](super::MIN_STREAM_LIFE).
    #[error("API server closed the watch within {} s and without an event", super::MIN_STREAM_LIFE.as_secs())]
    ClosedAtOnce,
    /// The list had no resource version, so events before the watch may be missing.
    #[error(
        "the API server returns lists without a resource version, so each watch is followed by a \
         list"
    )]
    Unversioned,
    /// The kind's type, the client or this crate panicked with this message.
    #[error("reflector panicked and restarts: {0}")]
    Panicked(String),
}

impl Failure {
    /// Returns the failure of a watch that the server closed before the requested time. `worked` is
    /// whether the stream had lived for [`MIN_STREAM_LIFE`](super::MIN_STREAM_LIFE) or delivered an
    /// event.
    pub(super) fn closed(worked: bool) -> Self {
        if worked {
            return Self::Broken("API server closed the watch".into());
        }
        Self::ClosedAtOnce
    }

    /// Returns whether the rejection is not caused by an overload or server error.
    pub(crate) fn is_rejection(&self) -> bool {
        matches!(self, Self::Rejected(rejection) if rejection.code != 429 && rejection.code < 500)
    }

    /// Appends text to the message of a rejection.
    pub(crate) fn with_explanation(mut self, explanation: &str) -> Self {
        if let Self::Rejected(rejection) = &mut self {
            rejection.message.push_str(explanation);
        }
        self
    }

    /// Returns whether the response was 404: the kind may be missing.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Rejected(rejection) if rejection.code == 404)
    }
}

pub(super) fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::Broken(error.to_string())
}

/// Converts the error of a request that failed or timed out.
pub(super) fn request_failed(error: client::Error) -> Failure {
    Failure::Broken(error.describe())
}
