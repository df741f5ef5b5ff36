//! Maps the result of a reconcile to a requeue.
//!
//! The table in [`reconcile`](crate::reconcile) describes the mapping.

use super::{Retry, Settings};
use crate::{
    client,
    reconcile::{Error, Instructions, Outcome, Result},
};
use kube_core::Status;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// Next step after a reconcile, and the class under which it is counted.
pub(super) struct ReconcileResult {
    pub(super) outcome: Outcome,
    pub(super) class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Success,
    Requeue,
    RequeueAfter,
    /// Failed; retried.
    Failed,
    /// Failed with a conflict; retried and logged at debug level.
    Conflict,
    /// Failed with a terminal error; not retried.
    Terminal,
}

impl ReconcileResult {
    pub(super) fn of(result: &Result<Outcome>, attempt: u32, settings: &Settings) -> Self {
        match result {
            Ok(outcome) => Self {
                outcome: *outcome,
                class: Class::of(*outcome),
            },
            Err(error) => Self::of_error(error, attempt, settings),
        }
    }

    fn of_error(error: &Error, attempt: u32, settings: &Settings) -> Self {
        let instructions = Instructions::find(error);
        let terminal = Self {
            outcome: Outcome::done(),
            class: Class::Terminal,
        };
        if instructions.is_some_and(Instructions::is_terminal) {
            return terminal;
        }
        let wanted = instructions
            .and_then(Instructions::wanted_delay)
            .unwrap_or_default();
        let server_delay = retry_after(error).unwrap_or_default();
        let at_least = wanted.max(server_delay.min(settings.max_retry_after));
        // If the policy panics, the error is retried with the delay of the rate limiter.
        let on_error = settings.on_error.as_ref();
        let policy = on_error
            .and_then(|decide| catch_unwind(AssertUnwindSafe(|| decide(error, attempt))).ok());
        let outcome = match policy.unwrap_or(Retry::Limited) {
            Retry::Limited => Outcome::requeue_not_before(at_least),
            Retry::In(delay) => Outcome::retry_after(delay.max(at_least)),
            Retry::Immediately => Outcome::retry_after(at_least),
            Retry::GiveUp => return terminal,
        };
        let outcome = match instructions.and_then(Instructions::wanted_priority) {
            Some(priority) => outcome.priority(priority),
            None => outcome,
        };
        Self {
            outcome,
            class: if is_conflict(error) {
                Class::Conflict
            } else {
                Class::Failed
            },
        }
    }
}

impl Class {
    fn of(outcome: Outcome) -> Self {
        match outcome.label() {
            "success" => Self::Success,
            "requeue_after" => Self::RequeueAfter,
            _ => Self::Requeue,
        }
    }
}

/// Returns every `Status` of the API server in the chain of an error.
///
/// Finds those of [`client::Error`] and of kube's client.
pub(super) fn statuses(error: &Error) -> impl Iterator<Item = &Status> {
    error.chain().filter_map(|cause| {
        let ours = cause
            .downcast_ref::<client::Error>()
            .and_then(client::Error::status);
        // If another error wraps one of these with `#[error(transparent)]`, `chain` skips the
        // wrapped error and yields its source.
        let from_kube = || {
            cause
                .downcast_ref::<client::StatusError>()
                .map(|status| &**status)
        };
        ours.or_else(from_kube)
            .or_else(|| cause.downcast_ref::<Box<Status>>().map(|status| &**status))
    })
}

fn is_conflict(error: &Error) -> bool {
    statuses(error).any(|status| status.reason == kube_core::response::reason::CONFLICT)
}

fn retry_after(error: &Error) -> Option<Duration> {
    let seconds = statuses(error)
        .filter_map(|status| Some(status.details.as_ref()?.retry_after_seconds))
        .max()?;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}
