//! What a run's result means: the table in [`reconcile`](crate::reconcile), as code.

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

/// What follows from a run, and how it counts.
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    pub(super) class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Success,
    Requeue,
    RequeueAfter,
    /// To be retried.
    Failed,
    /// To be retried, and no news: somebody else wrote in between.
    Conflict,
    /// Not to be retried.
    Terminal,
}

impl Verdict {
    pub(super) fn of(result: &Result<Outcome>, attempt: u32, settings: &Settings) -> Self {
        match result {
            Ok(outcome) => Self { outcome: *outcome, class: Class::of(*outcome) },
            Err(error) => Self::of_error(error, attempt, settings),
        }
    }

    fn of_error(error: &Error, attempt: u32, settings: &Settings) -> Self {
        let instructions = Instructions::find(error);
        let gives_up = Self { outcome: Outcome::done(), class: Class::Terminal };
        if instructions.is_some_and(Instructions::is_terminal) {
            return gives_up;
        }
        let wanted = instructions.and_then(Instructions::wanted_delay).unwrap_or_default();
        let asked = retry_after(error).unwrap_or_default();
        let at_least = wanted.max(asked.min(settings.max_retry_after));
        // A policy that panics has no opinion.
        let on_error = settings.on_error.as_ref();
        let policy = on_error.and_then(|decide| catch_unwind(AssertUnwindSafe(|| decide(error, attempt))).ok());
        let outcome = match policy.unwrap_or(Retry::Limited) {
            Retry::Limited => Outcome::requeue_not_before(at_least),
            Retry::In(delay) => Outcome::retry_after(delay.max(at_least)),
            Retry::Immediately => Outcome::retry_after(at_least),
            Retry::GiveUp => return gives_up,
        };
        let outcome = match instructions.and_then(Instructions::wanted_priority) {
            Some(priority) => outcome.priority(priority),
            None => outcome,
        };
        Self { outcome, class: if is_conflict(error) { Class::Conflict } else { Class::Failed } }
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

/// What the server has said, anywhere in the chain, through our client or kube's.
pub(super) fn statuses(error: &Error) -> impl Iterator<Item = &Status> {
    error.chain().filter_map(|cause| {
        let ours = cause.downcast_ref::<client::Error>().and_then(client::Error::status);
        // The source of either is all that is left of one that another error is transparent for.
        let said = || cause.downcast_ref::<client::Refusal>().map(|refusal| &**refusal);
        ours.or_else(said).or_else(|| cause.downcast_ref::<Box<Status>>().map(|status| &**status))
    })
}

fn is_conflict(error: &Error) -> bool {
    statuses(error).any(|status| status.reason == kube_core::response::reason::CONFLICT)
}

fn retry_after(error: &Error) -> Option<Duration> {
    let seconds = statuses(error).filter_map(|status| Some(status.details.as_ref()?.retry_after_seconds)).max()?;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}
