//! Errors with the context in which they occurred.

use std::{error::Error, fmt};

/// Error with its context: prints both as `<context>: <cause>`.
///
/// `source()` continues with the source of the cause, because the cause is printed here.
#[derive(Debug)]
pub struct Failed<E>(Box<Inner<E>>);

#[derive(Debug)]
struct Inner<E> {
    context: String,
    cause: E,
}

impl<E> Failed<E> {
    pub(super) fn new(context: impl Into<String>, cause: impl Into<E>) -> Self {
        Self(Box::new(Inner {
            context: context.into(),
            cause: cause.into(),
        }))
    }

    /// Returns the cause.
    pub fn cause(&self) -> &E {
        &self.0.cause
    }
}

impl<E: fmt::Display> fmt::Display for Failed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.context, self.0.cause)
    }
}

impl<E: Error> Error for Failed<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause.source()
    }
}
