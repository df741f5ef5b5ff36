//! State that the model keeps per key.

use std::time::Duration;

/// Nanoseconds since the queue was created.
pub(crate) type Nanos = u64;

/// A time that is never reached.
pub(crate) const NEVER: Nanos = Nanos::MAX;

pub(crate) fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos().try_into().unwrap_or(NEVER)
}

/// Returns the delay of the limiter that the queue under test uses.
pub(crate) fn limiter_delay(attempt: u32) -> Duration {
    Duration::from_millis(4) * 2u32.pow(attempt.min(4))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    #[default]
    Nothing,
    /// Ready for a worker since this time.
    Worker(Nanos),
    /// Delayed until this time, with the sequence number of the timer.
    Time(Nanos, u64),
    /// Parked until this time at most, with the sequence number of the timer.
    Unpark(Nanos, u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) started: Nanos,
    pub(crate) priority: i32,
    pub(crate) added_at: Nanos,
    pub(crate) reasons: Vec<String>,
    /// Whether the run started before its backoff had elapsed and has not failed yet.
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
    /// End of the last backoff.
    pub(super) backoff: Nanos,
}

impl Record {
    /// Adds a reason.
    ///
    /// Keeps the last three, oldest first, and does not repeat the last one.
    pub(super) fn because(&mut self, reason: &str) {
        if self.reasons.last().is_none_or(|last| last != reason) {
            self.reasons.push(reason.to_owned());
        }
        if self.reasons.len() > 3 {
            self.reasons.remove(0);
        }
    }
}
