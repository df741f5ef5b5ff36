//! The server's clock: starts at the wall clock's time or at a given one, and follows tokio's
//! clock.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Clock for `creationTimestamp` and other times in objects.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    started: Timestamp,
    at: Instant,
}

impl Clock {
    /// Creates a clock that starts at `started`, or at the wall clock's time if that is `None`.
    pub(crate) fn new(started: Option<Timestamp>) -> Self {
        Self {
            started: started.unwrap_or_else(Timestamp::now),
            at: Instant::now(),
        }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.at.elapsed()).unwrap_or(SignedDuration::MAX);
        self.started
            .saturating_add(passed)
            .unwrap_or(Timestamp::MAX)
    }

    /// Returns the current time in the format of object metadata: `2026-01-02T03:04:05Z`.
    pub(crate) fn timestamp(&self) -> String {
        format_timestamp(self.now())
    }
}

/// Formats a time as object metadata does, truncated to the second.
pub(crate) fn format_timestamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
