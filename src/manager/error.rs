//! Why a manager was not made, did not take something, or did not end well.

use super::election::{ElectionError, Lost};
use crate::cache::CacheError;
use std::{sync::Arc, time::Duration};

/// What can go wrong with a manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// Names tell controllers, and clusters, apart.
    #[error("{0} is taken in this manager: choose another name")]
    NameTaken(String),
    /// Nothing is started any more.
    #[error("the manager is stopping: {0} was not added")]
    Stopping(String),
    /// Its parameters.
    #[error("leader election: {0}")]
    Election(ElectionError),
    /// Another process leads, or may: end this one, and let it be started anew.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// No client could be made.
    #[error(transparent)]
    Client(#[from] crate::client::Error),
    /// No cache could be made, or it did not sync.
    #[error(transparent)]
    Cache(Arc<CacheError>),
    /// Nobody can report events under that name.
    #[error(transparent)]
    Recorder(#[from] crate::recorder::RecorderError),
    /// Somebody has failed, and ended it.
    #[error("{name}: {error:#}")]
    Failed {
        /// Who.
        name: String,
        /// With what.
        error: anyhow::Error,
    },
    /// Not everybody ended in time.
    #[error("not stopped within the grace period of {} s, and dropped: {}", limit.as_secs_f64(), left.join(", "))]
    Grace {
        /// The grace period.
        limit: Duration,
        /// Who was left, and what of them was at work.
        left: Vec<String>,
    },
    /// The lease was lost, so that what only a leader does had to end at once.
    #[error("dropped at once, because the lease was lost: {}", left.join(", "))]
    Dropped {
        /// Who was left, and what of them was at work.
        left: Vec<String>,
    },
    /// Several of these, in the order in which they became known.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; then "))]
    Several(Vec<ManagerError>),
}

/// The text has that of the election's error, so that `source()` does not return it as `#[from]` would.
impl From<ElectionError> for ManagerError {
    fn from(error: ElectionError) -> Self {
        Self::Election(error)
    }
}
