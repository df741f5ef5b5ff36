//! Errors with instructions.

use super::{Error, Priority};
use std::{fmt, time::Duration};

/// An error that says what to do about it, anywhere in the chain of what a reconciler returns.
///
/// ```
/// use std::time::Duration;
/// use steersman::reconcile::{Failure, Outcome, Result};
///
/// fn check(replicas: i32) -> Result<Outcome> {
///     if replicas < 0 {
///         return Err(Failure::terminal(anyhow::anyhow!("replicas: {replicas} is negative")).into());
///     }
///     Err(Failure::retry(anyhow::anyhow!("the disk is not there yet")).after(Duration::from_secs(5)).into())
/// }
///
/// assert_eq!(format!("{:#}", check(-1).unwrap_err()), "terminal: replicas: -1 is negative");
/// ```
#[derive(Debug)]
pub struct Failure {
    error: Error,
    terminal: bool,
    after: Option<Duration>,
    priority: Option<Priority>,
}

impl Failure {
    /// Trying again is pointless until something changes: it is logged and counted, not retried, and failed attempts are forgotten.
    pub fn terminal(error: impl Into<Error>) -> Self {
        Self { terminal: true, ..Self::retry(error) }
    }

    /// To be retried, as [`after`](Self::after) and [`priority`](Self::priority) say.
    pub fn retry(error: impl Into<Error>) -> Self {
        Self { error: error.into(), terminal: false, after: None, priority: None }
    }

    /// Wait at least this long, and longer if the backoff is.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { after: Some(delay), ..self }
    }

    /// Retry at this priority instead of the one that the request had.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority: Some(priority), ..self }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    pub(crate) fn wanted_delay(&self) -> Option<Duration> {
        self.after
    }

    pub(crate) fn wanted_priority(&self) -> Option<Priority> {
        self.priority
    }

    /// The failure in an error's chain, the outermost if there are several.
    pub(crate) fn find(error: &Error) -> Option<&Self> {
        // Of an error that is given context, the context is one of the chain, too.
        error.downcast_ref().or_else(|| error.chain().find_map(|cause| cause.downcast_ref()))
    }
}

/// Not the error itself: it is the source.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.terminal { "terminal" } else { "to be retried" })
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context as _, anyhow};

    #[test]
    fn a_failure_is_found_under_whatever_was_wrapped_around_it() {
        let error: Error = Failure::terminal(anyhow!("no")).into();
        assert!(Failure::find(&error).unwrap().is_terminal());
        let wrapped: Result<(), Error> = Err(error).context("reading").context("reconciling");
        assert!(Failure::find(&wrapped.unwrap_err()).unwrap().is_terminal());
        assert!(Failure::find(&anyhow!("no")).is_none());
    }

    #[test]
    fn what_failed_is_still_there_to_be_asked_for() {
        let error: Error = Failure::terminal(std::io::Error::other("disk")).into();
        assert!(error.chain().any(|cause| cause.downcast_ref::<std::io::Error>().is_some()));
        assert_eq!(format!("{error:#}"), "terminal: disk");
    }
}
