//! The server's time: the wall clock when it started, moved on by tokio's clock, so that paused time holds here too.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time for `creationTimestamp` and the like.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    started: Timestamp,
    at: Instant,
}

impl Clock {
    /// A clock that begins at `started`; the wall clock's time if that is `None`.
    pub(crate) fn new(started: Option<Timestamp>) -> Self {
        Self { started: started.unwrap_or_else(Timestamp::now), at: Instant::now() }
    }

    /// Now.
    pub(crate) fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.at.elapsed()).unwrap_or(SignedDuration::MAX);
        self.started.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// Now, to the second, as objects carry it: `2026-01-02T03:04:05Z`.
    pub(crate) fn timestamp(&self) -> String {
        timestamp(self.now())
    }
}

/// A time, to the second.
pub(crate) fn timestamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
