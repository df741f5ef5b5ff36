//! What the model remembers of a key.

use std::time::Duration;

/// Nanoseconds since the queue was made.
pub(crate) type Nanos = u64;

/// A time that never comes.
pub(crate) const NEVER: Nanos = Nanos::MAX;

pub(crate) fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos().try_into().unwrap_or(NEVER)
}

/// What the queue under test is given as its limiter.
pub(crate) fn limiter_delay(attempt: u32) -> Duration {
    Duration::from_millis(4) * 2u32.pow(attempt.min(4))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    #[default]
    Nothing,
    /// For a worker, since.
    Worker(Nanos),
    /// Until, and the how manieth timer that was set.
    Time(Nanos, u64),
    /// To be unparked, at most until.
    Unpark(Nanos, u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) started: Nanos,
    pub(crate) priority: i32,
    pub(crate) added_at: Nanos,
    pub(crate) reasons: Vec<String>,
    /// It came before its backoff had elapsed, and did not fail yet.
    pub(crate) early: bool,
    pub(super) unparked: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) wait: Wait,
    pub(crate) priority: i32,
    pub(crate) added_at: Nanos,
    pub(crate) reasons: Vec<String>,
    pub(crate) run: Option<Run>,
    pub(crate) attempts: u32,
    pub(crate) error: Option<String>,
    /// When its last backoff ends.
    pub(super) backoff: Nanos,
}

impl Record {
    /// The last three, oldest first; one that is the last already is not repeated.
    pub(super) fn because(&mut self, reason: &str) {
        if self.reasons.last().is_none_or(|last| last != reason) {
            self.reasons.push(reason.to_owned());
        }
        if self.reasons.len() > 3 {
            self.reasons.remove(0);
        }
    }
}
