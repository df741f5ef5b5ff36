//! A ledger in numbers.

use serde::{Serialize, Serializer};
use std::time::Duration;

/// How an informer keeps up with what is written through the clients that read from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OwnWrites {
    /// Those it has not shown yet.
    pub pending: usize,
    /// Versions and deletions that it had to show so far.
    pub writes: u64,
    /// Reads that had to wait for some.
    pub waits: u64,
    /// Those that waited in vain.
    pub timeouts: u64,
    /// From the answer until it was shown: of the write shown last. Zero if the informer was faster than the answer.
    #[serde(serialize_with = "seconds")]
    pub last_lag: Duration,
    /// The longest so far.
    #[serde(serialize_with = "seconds")]
    pub longest_lag: Duration,
}

fn seconds<S: Serializer>(lag: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(lag.as_secs_f64())
}
