//! Counters of a ledger.

use serde::{Serialize, Serializer};
use std::time::Duration;

/// Counters of the writes by clients that read from an informer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OwnWrites {
    /// Number of writes that the informer has not observed yet.
    pub pending: usize,
    /// Number of written versions and deletions that the informer had to observe.
    pub writes: u64,
    /// Number of reads that waited for own writes.
    pub waits: u64,
    /// Number of reads that timed out waiting for own writes.
    pub timeouts: u64,
    /// Time from the response to the last observed write until it was observed.
    ///
    /// Zero if the informer was faster than the response.
    #[serde(serialize_with = "seconds")]
    pub last_lag: Duration,
    /// Longest time from a response until its write was observed.
    #[serde(serialize_with = "seconds")]
    pub longest_lag: Duration,
}

fn seconds<S: Serializer>(lag: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(lag.as_secs_f64())
}
