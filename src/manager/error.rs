//! Errors of a manager.

use super::election::{ElectionError, Lost};
use crate::cache::CacheError;
use std::{sync::Arc, time::Duration};

/// Error of a manager: while it was created, changed or running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The name of a controller or cluster is already in use.
    #[error("cannot add {0}: the manager already has one of this name; choose another name")]
    NameTaken(String),
    /// The manager is stopping and starts no further tasks.
    #[error("cannot add {0}: the manager is stopping")]
    Stopping(String),
    /// The options of the leader election are invalid.
    #[error("cannot start leader election: {0}")]
    Election(ElectionError),
    /// Another process leads, or may lead. End this process, so that it is restarted.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The client could not be created.
    #[error(transparent)]
    Client(#[from] crate::client::Error),
    /// The cache could not be created, or did not sync.
    #[error(transparent)]
    Cache(Arc<CacheError>),
    /// The name of the event recorder is invalid.
    #[error(transparent)]
    Recorder(#[from] crate::recorder::RecorderError),
    /// A task failed and ended the manager.
    #[error("{name}: {error:#}")]
    Failed {
        /// Name of the task.
        name: String,
        /// Error that the task returned.
        error: anyhow::Error,
    },
    /// Some tasks did not stop within the grace period.
    #[error(
        "tasks dropped after the grace period of {} s: {}",
        limit.as_secs_f64(), left.join(", ")
    )]
    Grace {
        /// The grace period.
        limit: Duration,
        /// Tasks that were dropped, with the work they had left.
        left: Vec<String>,
    },
    /// The Lease was lost, and the work of the leader was dropped at once.
    #[error("tasks dropped because the lease was lost: {}", left.join(", "))]
    Dropped {
        /// Tasks that were dropped, with the work they had left.
        left: Vec<String>,
    },
    /// Several errors, in the order in which they occurred.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; then "))]
    Several(Vec<ManagerError>),
}

/// Not `#[from]`: the text contains the error, so `source()` must not return it.
impl From<ElectionError> for ManagerError {
    fn from(error: ElectionError) -> Self {
        Self::Election(error)
    }
}
