//! Validation errors of fields, with the error texts of Kubernetes.

use crate::{cluster_api::joined, extension_config::go::quoted};
use std::fmt;

/// Validation error of one field.
///
/// Prints `<field>: <kind>: <value>: <detail>`, as Kubernetes does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `spec.clientConfig.url`.
    pub field: String,
    /// Category of the error.
    pub kind: FieldErrorKind,
    /// Text of the value in the error. `None`: the error does not print the value.
    pub value: Option<String>,
    /// Reason why the value is not valid.
    pub detail: String,
}

/// Category of a [`FieldError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// The field is not set.
    Required,
    /// The value does not follow a rule.
    Invalid,
    /// The field must not be set together with other fields.
    Forbidden,
}

impl FieldError {
    /// Creates an error of a field that is not set.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::without_value(field, FieldErrorKind::Required, detail)
    }

    /// Creates an error of a field that must not be set.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::without_value(field, FieldErrorKind::Forbidden, detail)
    }

    /// Creates an error of a value that does not follow a rule. `value` is printed as it is.
    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            value: Some(value.into()),
            ..Self::without_value(field, FieldErrorKind::Invalid, detail)
        }
    }

    fn without_value(
        field: impl Into<String>,
        kind: FieldErrorKind,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            kind,
            value: None,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Invalid => "Invalid value",
            FieldErrorKind::Forbidden => "Forbidden",
        };
        write!(f, "{}: {kind}", self.field)?;
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        write!(f, ": {}", self.detail)
    }
}

impl std::error::Error for FieldError {}

/// Validation error of an `ExtensionConfig`, with the errors of all fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    name: String,
    errors: Vec<FieldError>,
}

impl Invalid {
    pub(super) fn from_errors(name: &str, errors: Vec<FieldError>) -> Result<(), Self> {
        if errors.is_empty() {
            return Ok(());
        }
        Err(Self {
            name: name.into(),
            errors,
        })
    }

    /// Returns the errors, at least one, in the order of the rules.
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }
}

/// Prints the message with which the API server rejects the object.
impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = joined(self.errors.iter().map(ToString::to_string));
        write!(
            f,
            "ExtensionConfig.runtime.cluster.x-k8s.io {} is invalid: {errors}",
            quoted(&self.name)
        )
    }
}

impl std::error::Error for Invalid {}
