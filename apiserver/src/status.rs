//! Errors of the API: a `v1 Status` with the code, reason and causes that clients evaluate.

mod bounded;

pub(crate) use bounded::{FieldErrors, MAX_BYTES, StrictErrors};

use bounded::MAX_ITEMS;
use serde::Serialize;
use serde_json::Value;
use std::{collections::HashSet, fmt};

/// Result of request handlers. The error is boxed because it is large and rare.
pub(crate) type Result<T, E = Box<Failure>> = std::result::Result<T, E>;

/// A failed request, serialized as a `v1 Status`.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// HTTP status code.
    pub code: u16,
    /// Reason. `None` where the real server has none.
    pub reason: Option<Reason>,
    /// Message for people.
    pub message: String,
    /// Details for programs.
    pub details: Option<Details>,
    /// Token to continue an expired list with.
    pub continue_token: Option<String>,
}

/// Reason of a [`Failure`], for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Reason {
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestEntityTooLarge,
    Timeout,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
}

/// Object that a failure is about, and its causes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural resource of the object. Some failures have its kind instead.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Uid of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Causes, one per error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Seconds after which the client should retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// A single cause of a failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// Reason, such as `FieldValueInvalid`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// Message for people.
    pub message: String,
    /// Path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// An invalid field, before it becomes a [`Cause`].
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Kind of the error.
    pub kind: FieldErrorKind,
    /// Path of the field: `spec.containers[0].name`.
    pub field: String,
    /// Text after the path: `Invalid value: "x": must be shorter`.
    pub body: String,
}

/// Kind of a [`FieldError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum FieldErrorKind {
    Duplicate,
    Forbidden,
    Internal,
    Invalid,
    NotFound,
    NotSupported,
    Required,
    TooLong,
    TooMany,
    TypeInvalid,
}

impl FieldErrorKind {
    fn reason(self) -> &'static str {
        match self {
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::Internal => "InternalError",
            Self::Invalid => "FieldValueInvalid",
            Self::NotFound => "FieldValueNotFound",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Required => "FieldValueRequired",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }
}

fn pluralize(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns a value as the real server writes it in an error: a whole number has no fraction.
fn shown(value: &Value) -> String {
    match value.as_f64() {
        Some(float) if value.is_f64() && float.fract() == 0.0 && float.abs() < 1e21 => {
            float.to_string()
        }
        _ => value.to_string(),
    }
}

impl FieldError {
    fn new(kind: FieldErrorKind, field: impl Into<String>, body: String) -> Self {
        Self {
            kind,
            field: field.into(),
            body,
        }
    }

    /// The value is invalid.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl fmt::Display) -> Self {
        Self::new(
            FieldErrorKind::Invalid,
            field,
            format!("Invalid value: {}: {detail}", shown(value)),
        )
    }

    /// The value is invalid. `formatted` is the value as the real server writes it.
    pub(crate) fn invalid_formatted(
        field: impl Into<String>,
        formatted: &str,
        detail: impl fmt::Display,
    ) -> Self {
        Self::new(
            FieldErrorKind::Invalid,
            field,
            format!("Invalid value: {formatted}: {detail}"),
        )
    }

    /// The value has a wrong type. `found` is the name of that type.
    pub fn type_invalid(field: impl Into<String>, found: &str, detail: impl fmt::Display) -> Self {
        Self::new(
            FieldErrorKind::TypeInvalid,
            field,
            format!("Invalid value: \"{found}\": {detail}"),
        )
    }

    /// The field is missing.
    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        let detail = detail.to_string();
        let separator = if detail.is_empty() { "" } else { ": " };
        Self::new(
            FieldErrorKind::Required,
            field,
            format!("Required value{separator}{detail}"),
        )
    }

    /// The value is not in an enumeration.
    pub fn not_supported<S: fmt::Display>(
        field: impl Into<String>,
        value: &Value,
        supported: impl IntoIterator<Item = S>,
    ) -> Self {
        let supported: Vec<_> = supported
            .into_iter()
            .map(|value| format!("\"{value}\""))
            .collect();
        let body = format!(
            "Unsupported value: {value}: supported values: {}",
            supported.join(", ")
        );
        Self::new(FieldErrorKind::NotSupported, field, body)
    }

    /// The value is not in an enumeration. `formatted` is the value as the real server writes it.
    pub(crate) fn not_supported_formatted(
        field: impl Into<String>,
        formatted: &str,
        supported: &[&str],
    ) -> Self {
        let supported: Vec<_> = supported
            .iter()
            .map(|value| format!("\"{value}\""))
            .collect();
        let body = format!(
            "Unsupported value: {formatted}: supported values: {}",
            supported.join(", ")
        );
        Self::new(FieldErrorKind::NotSupported, field, body)
    }

    /// The value is a duplicate.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(
            FieldErrorKind::Duplicate,
            field,
            format!("Duplicate value: {value}"),
        )
    }

    /// The value is a duplicate. `formatted` is the value as the real server writes it.
    pub(crate) fn duplicate_formatted(field: impl Into<String>, formatted: &str) -> Self {
        Self::new(
            FieldErrorKind::Duplicate,
            field,
            format!("Duplicate value: {formatted}"),
        )
    }

    /// The field must not be set or changed.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(
            FieldErrorKind::Forbidden,
            field,
            format!("Forbidden: {detail}"),
        )
    }

    /// The server cannot check the field.
    pub(crate) fn internal(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(
            FieldErrorKind::Internal,
            field,
            format!("Internal error: {detail}"),
        )
    }

    /// The string or map is too long.
    pub fn too_long(field: impl Into<String>, max_bytes: usize) -> Self {
        Self::new(
            FieldErrorKind::TooLong,
            field,
            format!(
                "Too long: may not be more than {}",
                pluralize(max_bytes, "byte")
            ),
        )
    }

    /// The list has too many items.
    pub fn too_many(field: impl Into<String>, found: usize, max: usize) -> Self {
        Self::new(
            FieldErrorKind::TooMany,
            field,
            format!(
                "Too many: {found}: must have at most {}",
                pluralize(max, "item")
            ),
        )
    }

    /// The field refers to something that does not exist.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(
            FieldErrorKind::NotFound,
            field,
            format!("Not found: {value}"),
        )
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

impl Failure {
    /// Creates a failure without details.
    pub fn new(
        code: u16,
        reason: impl Into<Option<Reason>>,
        message: impl Into<String>,
    ) -> Box<Self> {
        Box::new(Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            continue_token: None,
        })
    }

    /// Sets the details.
    #[must_use]
    pub fn about(mut self: Box<Self>, details: Details) -> Box<Self> {
        self.details = Some(details);
        self
    }

    /// 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Box<Self> {
        Self::new(400, Reason::BadRequest, message)
    }

    /// 404: the object does not exist.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Box<Self> {
        Self::new(
            404,
            Reason::NotFound,
            format!("{} \"{name}\" not found", qualified(group, resource)),
        )
        .about(details(group, resource, name))
    }

    /// 404: no resource is served at this path.
    pub fn no_resource() -> Box<Self> {
        Self::new(
            404,
            Reason::NotFound,
            "the server could not find the requested resource",
        )
        .about(Details::default())
    }

    /// 409: an object of this name exists.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Box<Self> {
        Self::new(
            409,
            Reason::AlreadyExists,
            format!("{} \"{name}\" already exists", qualified(group, resource)),
        )
        .about(details(group, resource, name))
    }

    /// 409: the request conflicts with the object's state, usually with a newer resource version.
    /// `cause` is the end of the message.
    pub fn conflict(
        group: &str,
        resource: &str,
        name: &str,
        cause: impl fmt::Display,
    ) -> Box<Self> {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {cause}",
            qualified(group, resource)
        );
        Self::new(409, Reason::Conflict, message).about(details(group, resource, name))
    }

    /// 403: the request is not allowed.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Box<Self> {
        let what = qualified(group, resource);
        let message = match name {
            "" => format!("{what} is forbidden: {why}"),
            _ => format!("{what} \"{name}\" is forbidden: {why}"),
        };
        Self::new(403, Reason::Forbidden, message).about(details(group, resource, name))
    }

    /// 422: the object is invalid. Has one cause per error, at most 100 of them and 64 KiB of text.
    pub fn invalid(
        group: &str,
        kind: &str,
        name: &str,
        errors: impl IntoIterator<Item = FieldError>,
    ) -> Box<Self> {
        let errors: FieldErrors = errors.into_iter().collect();
        // Errors that occur twice are two causes, but appear once in the message.
        let mut seen = HashSet::new();
        let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.retain(|text| seen.insert(text.clone()));
        if errors.is_full() {
            texts.push(format!(
                "further errors are omitted after {MAX_ITEMS} errors or {MAX_BYTES} bytes"
            ));
        }
        let what = match &texts[..] {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let causes = errors
            .into_iter()
            .map(|error| Cause {
                reason: error.kind.reason(),
                message: error.body,
                field: error.field,
            })
            .collect();
        Self::new(
            422,
            Reason::Invalid,
            format!("{} \"{name}\" is invalid: {what}", qualified(group, kind)),
        )
        .about(Details {
            causes,
            ..details(group, kind, name)
        })
    }

    /// 405: the resource does not support the method.
    pub fn method_not_allowed() -> Box<Self> {
        Self::new(
            405,
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
        .about(Details::default())
    }

    /// 405: the custom resource does not support the verb.
    pub fn verb_not_supported(verb: &str, group: &str, resource: &str) -> Box<Self> {
        let message = format!(
            "{verb} is not supported on resources of kind \"{}\"",
            qualified(group, resource)
        );
        Self::new(405, Reason::MethodNotAllowed, message).about(details(group, resource, ""))
    }

    /// 406: none of the requested representations is available.
    pub fn not_acceptable(accepted: &[&str]) -> Box<Self> {
        let message = format!(
            "only the following media types are accepted: {}",
            accepted.join(", ")
        );
        Self::new(406, Reason::NotAcceptable, message)
    }

    /// 415: the content type of the body is not supported.
    pub fn unsupported_media_type(accepted: &[&str]) -> Box<Self> {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, Reason::UnsupportedMediaType, message)
    }

    /// 413: the body is longer than `limit` bytes.
    pub fn too_large(limit: usize) -> Box<Self> {
        Self::new(
            413,
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 410: watch events since `requested` are no longer available. The oldest revision is
    /// `oldest`.
    pub fn expired(requested: u64, oldest: u64) -> Box<Self> {
        Self::new(
            410,
            Reason::Expired,
            format!("too old resource version: {requested} ({oldest})"),
        )
    }

    /// 504: the store has not reached the revision yet.
    pub fn too_large_resource_version(requested: u64, current: u64) -> Box<Self> {
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".into(),
            field: String::new(),
        };
        Self::new(
            504,
            Reason::Timeout,
            format!("Timeout: Too large resource version: {requested}, current: {current}"),
        )
        .about(Details {
            causes: vec![cause],
            retry_after_seconds: Some(1),
            ..Details::default()
        })
    }

    /// 500: internal error.
    pub fn internal(message: impl fmt::Display) -> Box<Self> {
        Self::new(
            500,
            Reason::InternalError,
            format!("Internal error occurred: {message}"),
        )
        .about(Details {
            causes: vec![Cause {
                reason: "",
                message: message.to_string(),
                field: String::new(),
            }],
            ..Details::default()
        })
    }

    /// Returns the `Status` as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Returns `widgets.example.com`, or `pods` for the core group.
pub(crate) fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.into()
    } else {
        format!("{resource}.{group}")
    }
}

fn details(group: &str, kind: &str, name: &str) -> Details {
    Details {
        name: name.into(),
        group: group.into(),
        kind: kind.into(),
        ..Details::default()
    }
}

impl Serialize for Failure {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct StatusObject<'a> {
            kind: &'static str,
            api_version: &'static str,
            metadata: ListMeta<'a>,
            status: &'static str,
            #[serde(skip_serializing_if = "str::is_empty")]
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<Reason>,
            #[serde(skip_serializing_if = "Option::is_none")]
            details: Option<&'a Details>,
            code: u16,
        }
        #[derive(Serialize)]
        struct ListMeta<'a> {
            #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
            continue_token: Option<&'a str>,
        }
        StatusObject {
            kind: "Status",
            api_version: "v1",
            metadata: ListMeta {
                continue_token: self.continue_token.as_deref(),
            },
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_ref(),
            code: self.code,
        }
        .serialize(serializer)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Failure {}
