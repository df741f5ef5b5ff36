//! Errors that control how they are retried.

use super::{Error, Priority};
use std::{fmt, time::Duration};

/// Error that controls its retry, anywhere in the chain of a reconciler's error.
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
/// assert_eq!(format!("{:#}", check(-1).unwrap_err()), "terminal failure: no retry until the next event: replicas: -1 is negative");
/// ```
#[derive(Debug)]
pub struct Failure(Instructions);

/// Instructions and the error, as a separate element of the chain.
///
/// It remains in the chain if another error wraps the failure transparently.
#[derive(Debug)]
pub(crate) struct Instructions {
    error: Error,
    terminal: bool,
    after: Option<Duration>,
    priority: Option<Priority>,
}

impl Failure {
    /// Creates an error that is not retried until the next event.
    ///
    /// It is logged and counted, and resets the attempts.
    pub fn terminal(error: impl Into<Error>) -> Self {
        Self(Instructions {
            error: error.into(),
            terminal: true,
            after: None,
            priority: None,
        })
    }

    /// Creates an error that is retried.
    ///
    /// See [`after`](Self::after) and [`priority`](Self::priority).
    pub fn retry(error: impl Into<Error>) -> Self {
        Self(Instructions {
            error: error.into(),
            terminal: false,
            after: None,
            priority: None,
        })
    }

    /// Sets the minimum delay. The backoff applies if it is longer. Default: none.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(Instructions {
            after: Some(delay),
            ..self.0
        })
    }

    /// Sets the priority of the retry. Default: the previous priority of the request.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self(Instructions {
            priority: Some(priority),
            ..self.0
        })
    }
}

impl Instructions {
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    pub(crate) fn wanted_delay(&self) -> Option<Duration> {
        self.after
    }

    pub(crate) fn wanted_priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Returns the outermost instructions in the chain of an error.
    pub(crate) fn find(error: &Error) -> Option<&Self> {
        // Finds a failure that was attached with `context`, too.
        let failure = error.downcast_ref::<Failure>().map(|failure| &failure.0);
        failure.or_else(|| error.chain().find_map(|cause| cause.downcast_ref()))
    }
}

/// Prints only the type of the failure. The error is its source.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.terminal {
            "terminal failure"
        } else {
            "failure"
        })
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.after {
            _ if self.terminal => f.write_str("no retry until the next event"),
            Some(delay) => write!(f, "retry after at least {} s", delay.as_secs_f64()),
            None => f.write_str("retry with backoff"),
        }
    }
}

impl std::error::Error for Instructions {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context as _, anyhow};

    #[test]
    fn a_failure_is_found_below_added_context() {
        let error: Error = Failure::terminal(anyhow!("no")).into();
        assert!(Instructions::find(&error).unwrap().is_terminal());
        let wrapped: Result<(), Error> = Err(error).context("reading").context("reconciling");
        assert!(
            Instructions::find(&wrapped.unwrap_err())
                .unwrap()
                .is_terminal()
        );
        assert!(Instructions::find(&anyhow!("no")).is_none());
    }

    #[test]
    fn the_wrapped_error_can_be_downcast() {
        let error: Error = Failure::terminal(std::io::Error::other("disk")).into();
        assert!(
            error
                .chain()
                .any(|cause| cause.downcast_ref::<std::io::Error>().is_some())
        );
        assert_eq!(
            format!("{error:#}"),
            "terminal failure: no retry until the next event: disk"
        );
    }

    #[derive(Debug, thiserror::Error)]
    enum WrapsFailure {
        #[error(transparent)]
        Any(#[from] Error),
        #[error(transparent)]
        Failed(#[from] Failure),
    }

    #[test]
    fn a_failure_is_found_under_an_error_that_is_transparent_for_it() {
        let any = WrapsFailure::from(Error::from(Failure::terminal(anyhow!("no"))));
        let failed = WrapsFailure::from(Failure::terminal(anyhow!("no")));
        for error in [any, failed] {
            assert!(
                Instructions::find(&error.into())
                    .expect("instructions")
                    .is_terminal()
            );
        }
    }
}
