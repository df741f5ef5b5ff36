//! What can go wrong between this process and the server.

use super::wire::Refusal;
use crate::client;
use std::time::Duration;

/// Why a list or watch did not go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Failure {
    /// In the server's own words.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// There was no answer, or none that could be read.
    #[error("{0}")]
    Broken(String),
    /// Nothing was received for this long.
    #[error("nothing came within {} s", .0.as_secs())]
    Silent(Duration),
    /// A watch stream ended before it had lived for [`LIVED`](super::LIVED), and without an event.
    #[error("API server closed the watch within {} s and without an event", super::LIVED.as_secs())]
    EndedAtOnce,
    /// What a watch that was to begin at no version has not told, nobody can ask for.
    #[error("the server gives its lists no version, so that everything is asked for again after each watch")]
    Unversioned,
    /// Code of the kind's type, of the client, or of this crate: with its words.
    #[error("code that the watch calls has panicked, and it begins anew: {0}")]
    Panicked(String),
}

impl Failure {
    /// The server's own no: it can be asked, and has not said that it cannot answer just now.
    pub(crate) fn is_no(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code != 429 && refusal.code < 500)
    }

    /// The same, with more words after the server's own.
    pub(crate) fn explained(mut self, words: &str) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.message.push_str(words);
        }
        self
    }

    /// The server has no such kind, or not any more.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == 404)
    }
}

pub(super) fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::Broken(error.to_string())
}

/// A request that failed or timed out.
pub(super) fn unanswered(error: client::Error) -> Failure {
    Failure::Broken(error.describe())
}
