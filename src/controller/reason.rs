//! Why a reconcile runs again: the reason that a requeue gets in the queue.
//!
//! The queue keeps each different text once, and at most 65,535 of them. Texts therefore contain
//! neither keys nor messages, and delays are rounded.

use super::result::{Class, statuses};
use crate::reconcile::{Error, Outcome, Reason, Result};
use std::time::Duration;

/// Longest reason of a `Status` that is used as the class of an error.
const MAX_CLASS: usize = 64;

/// The controller ended the reconcile, instead of the reconciler.
#[derive(Debug, thiserror::Error)]
pub(super) enum Interrupted {
    #[error("panic: {0} [recovered]")]
    Panic(String),
    #[error("reconcile timed out after {} s", .0.as_secs_f64())]
    Timeout(Duration),
}

/// Returns the reason of the requeue that follows from a result; `None` if there is no requeue.
pub(super) fn requeue_reason(
    class: Class,
    outcome: Outcome,
    result: &Result<Outcome>,
) -> Option<Reason> {
    match (class, result) {
        (Class::Success | Class::Terminal, _) => None,
        (_, Err(error)) => Some(format!("retry: {}", error_class(error)).into()),
        (Class::RequeueAfter, _) => {
            Some(format!("requeue after {}", rounded(outcome.delay())).into())
        }
        _ => Some("requeue".into()),
    }
}

/// Returns `panic`, `timeout`, the reason of the server's `Status`, such as `Conflict`, or `error`.
fn error_class(error: &Error) -> &str {
    match error.downcast_ref() {
        Some(Interrupted::Panic(_)) => return "panic",
        Some(Interrupted::Timeout(_)) => return "timeout",
        None => {}
    }
    // A proxy may answer with any text.
    let is_word = |reason: &&str| {
        (1..=MAX_CLASS).contains(&reason.len())
            && reason.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    statuses(error)
        .map(|status| status.reason.as_str())
        .find(is_word)
        .unwrap_or("error")
}

/// Rounds to milliseconds, seconds, minutes or hours, so that there are few different texts.
fn rounded(delay: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = delay.saturating_add(Duration::from_millis(500)).as_secs();
    match seconds {
        _ if delay < Duration::from_secs(1) => format!("{} ms", delay.as_millis()),
        ..HOUR => format!("{seconds} s"),
        HOUR..DAY => format!("{} min", (seconds + MINUTE / 2) / MINUTE),
        DAY.. => format!("{} h", seconds.saturating_add(HOUR / 2) / HOUR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_rounded() {
        for (delay, text) in [
            (Duration::ZERO, "0 ms"),
            (Duration::from_micros(999_900), "999 ms"),
            (Duration::from_millis(1_499), "1 s"),
            (Duration::from_mins(1), "60 s"),
            (Duration::from_secs(3_599), "3599 s"),
            (Duration::from_mins(90), "90 min"),
            (Duration::from_hours(36), "36 h"),
            (Duration::MAX, "5124095576030431 h"),
        ] {
            assert_eq!(rounded(delay), text, "{delay:?}");
        }
    }
}
