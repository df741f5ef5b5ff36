//! Validation errors, with the messages of the API server.

use std::fmt::{self, Display, Formatter};

/// One violation of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// Path of the field, such as `.spec.ports[port=80]`. Empty for the root.
    pub path: String,
    /// Message of the API server.
    pub message: String,
}

impl Display for ValidationError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Violations of a schema: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationErrors(pub Vec<ValidationError>);

impl std::error::Error for ValidationErrors {}

impl Display for ValidationErrors {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return only.fmt(f);
        }
        f.write_str("errors:")?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

/// Collects errors during a walk. Parents prepend their path to the errors of their children.
#[derive(Default)]
pub(super) struct Errors(Vec<ValidationError>);

impl Errors {
    pub(super) fn push(&mut self, message: impl Into<String>) {
        self.0.push(ValidationError {
            path: String::new(),
            message: message.into(),
        });
    }

    /// Returns the current number of errors, to pass to [`Errors::prefix`].
    pub(super) fn mark(&self) -> usize {
        self.0.len()
    }

    /// Prepends a path element to all errors since the mark.
    pub(super) fn prefix(&mut self, mark: usize, element: &dyn Display) {
        for error in self.0.iter_mut().skip(mark) {
            error.path.insert_str(0, &element.to_string());
        }
    }

    /// Prepends a field to all errors since the mark.
    pub(super) fn prefix_field(&mut self, mark: usize, name: &str) {
        for error in self.0.iter_mut().skip(mark) {
            error.path.insert_str(0, &format!(".{name}"));
        }
    }

    pub(super) fn into_result<T>(self, value: T) -> Result<T, ValidationErrors> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(ValidationErrors(self.0))
        }
    }
}

/// Creates an error at the root.
pub(super) fn single(message: &str) -> ValidationErrors {
    ValidationErrors(vec![ValidationError {
        path: String::new(),
        message: message.to_owned(),
    }])
}
