//! Failures as the API server tells them: a `v1 Status`, whose code, reason and causes clients branch on.

mod bounded;

pub(crate) use bounded::{FieldErrors, StrictErrors};

use bounded::{MAX_BYTES, MAX_ITEMS};
use serde::Serialize;
use serde_json::Value;
use std::{collections::HashSet, fmt};

/// What every handler may fail with. Boxed: failing is the rare case.
pub(crate) type Result<T, E = Box<Failure>> = std::result::Result<T, E>;

/// A request that failed, as a `v1 Status`.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The HTTP status.
    pub code: u16,
    /// `None` where the real server gives none.
    pub reason: Option<Reason>,
    /// For people.
    pub message: String,
    /// For programs.
    pub details: Option<Details>,
    /// A token to go on from, given with an expired one.
    pub continue_token: Option<String>,
}

/// The reason of a [`Failure`]: what programs compare.
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

/// Whom and what a failure is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its plural resource, or for some failures its kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One per thing wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// One thing wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// Such as `FieldValueInvalid`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// The field's path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// Something wrong with one field, before it becomes a [`Cause`].
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Which way it is wrong.
    pub kind: FieldErrorKind,
    /// `spec.containers[0].name`.
    pub field: String,
    /// The text after the field: `Invalid value: "x": must be shorter`.
    pub body: String,
}

/// Which way a field is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum FieldErrorKind {
    Duplicate,
    Forbidden,
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

/// How a bad value is shown: strings quoted, composites as JSON.
fn shown(value: &Value) -> String {
    value.to_string()
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

impl FieldError {
    fn new(kind: FieldErrorKind, field: impl Into<String>, body: String) -> Self {
        Self { kind, field: field.into(), body }
    }

    /// A value that the field may not have.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl fmt::Display) -> Self {
        Self::new(FieldErrorKind::Invalid, field, format!("Invalid value: {}: {detail}", shown(value)))
    }

    /// The same for a value that is shown as this text.
    pub(crate) fn invalid_text(field: impl Into<String>, shown: &str, detail: impl fmt::Display) -> Self {
        Self::new(FieldErrorKind::Invalid, field, format!("Invalid value: {shown}: {detail}"))
    }

    /// A value of another type; `found` names that type.
    pub fn type_invalid(field: impl Into<String>, found: &str, detail: impl fmt::Display) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, format!("Invalid value: \"{found}\": {detail}"))
    }

    /// A field that has to be there.
    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        let detail = detail.to_string();
        let separator = if detail.is_empty() { "" } else { ": " };
        Self::new(FieldErrorKind::Required, field, format!("Required value{separator}{detail}"))
    }

    /// A value outside an enumeration.
    pub fn not_supported<S: fmt::Display>(
        field: impl Into<String>,
        value: &Value,
        supported: impl IntoIterator<Item = S>,
    ) -> Self {
        let supported: Vec<_> = supported.into_iter().map(|value| format!("\"{value}\"")).collect();
        let body = format!("Unsupported value: {}: supported values: {}", shown(value), supported.join(", "));
        Self::new(FieldErrorKind::NotSupported, field, body)
    }

    /// The same of a value as Go writes it.
    pub(crate) fn not_supported_as(field: impl Into<String>, written: &str, supported: &[&str]) -> Self {
        let supported: Vec<_> = supported.iter().map(|value| format!("\"{value}\"")).collect();
        let body = format!("Unsupported value: {written}: supported values: {}", supported.join(", "));
        Self::new(FieldErrorKind::NotSupported, field, body)
    }

    /// A value that is there twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, format!("Duplicate value: {}", shown(value)))
    }

    /// A value that is there twice, as Go writes it.
    pub(crate) fn duplicate_of(field: impl Into<String>, written: &str) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, format!("Duplicate value: {written}"))
    }

    /// A value that the field may not have, as Go writes it.
    pub(crate) fn invalid_as(field: impl Into<String>, written: &str, detail: impl fmt::Display) -> Self {
        Self::new(FieldErrorKind::Invalid, field, format!("Invalid value: {written}: {detail}"))
    }

    /// Something that may not be done.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, format!("Forbidden: {detail}"))
    }

    /// A string or map that is too long.
    pub fn too_long(field: impl Into<String>, max_bytes: usize) -> Self {
        Self::new(
            FieldErrorKind::TooLong,
            field,
            format!("Too long: may not be more than {}", counted(max_bytes, "byte")),
        )
    }

    /// A list that has too many items.
    pub fn too_many(field: impl Into<String>, found: usize, max: usize) -> Self {
        Self::new(
            FieldErrorKind::TooMany,
            field,
            format!("Too many: {found}: must have at most {}", counted(max, "item")),
        )
    }

    /// Something that the field refers to is not there.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(FieldErrorKind::NotFound, field, format!("Not found: {}", shown(value)))
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

impl Failure {
    /// A failure without details.
    pub fn new(code: u16, reason: impl Into<Option<Reason>>, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { code, reason: reason.into(), message: message.into(), details: None, continue_token: None })
    }

    /// The same with details.
    #[must_use]
    pub fn about(mut self: Box<Self>, details: Details) -> Box<Self> {
        self.details = Some(details);
        self
    }

    /// 400: the request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Box<Self> {
        Self::new(400, Reason::BadRequest, message)
    }

    /// 404: no such object of a group's resource.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Box<Self> {
        Self::new(404, Reason::NotFound, format!("{} \"{name}\" not found", qualified(group, resource)))
            .about(details(group, resource, name))
    }

    /// 404: nothing is served at that path of the core group.
    pub fn no_resource() -> Box<Self> {
        Self::new(404, Reason::NotFound, "the server could not find the requested resource").about(Details::default())
    }

    /// 409: the name is taken.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Box<Self> {
        Self::new(409, Reason::AlreadyExists, format!("{} \"{name}\" already exists", qualified(group, resource)))
            .about(details(group, resource, name))
    }

    /// 409: `cause` says what does not fit; usually somebody else was faster.
    pub fn conflict(group: &str, resource: &str, name: &str, cause: impl fmt::Display) -> Box<Self> {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {cause}", qualified(group, resource));
        Self::new(409, Reason::Conflict, message).about(details(group, resource, name))
    }

    /// 403: may not be done.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Box<Self> {
        let what = qualified(group, resource);
        let message = match name {
            "" => format!("{what} is forbidden: {why}"),
            _ => format!("{what} \"{name}\" is forbidden: {why}"),
        };
        Self::new(403, Reason::Forbidden, message).about(details(group, resource, name))
    }

    /// 422: the object is not valid, with one cause per error. Lists the first 100 errors, and the first 64 KiB of them.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: impl IntoIterator<Item = FieldError>) -> Box<Self> {
        let errors: FieldErrors = errors.into_iter().collect();
        // What was found twice is two causes, but is said once.
        let mut seen = HashSet::new();
        let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.retain(|text| seen.insert(text.clone()));
        if errors.is_full() {
            texts.push(format!("further errors are omitted after {MAX_ITEMS} errors or {MAX_BYTES} bytes"));
        }
        let what = match &texts[..] {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let causes = errors
            .into_iter()
            .map(|error| Cause { reason: error.kind.reason(), message: error.body, field: error.field })
            .collect();
        Self::new(422, Reason::Invalid, format!("{} \"{name}\" is invalid: {what}", qualified(group, kind)))
            .about(Details { causes, ..details(group, kind, name) })
    }

    /// 405: that verb is not served here.
    pub fn method_not_allowed() -> Box<Self> {
        Self::new(405, Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
            .about(Details::default())
    }

    /// 405: that verb is not served for a custom resource.
    pub fn verb_not_supported(verb: &str, group: &str, resource: &str) -> Box<Self> {
        let message = format!("{verb} is not supported on resources of kind \"{}\"", qualified(group, resource));
        Self::new(405, Reason::MethodNotAllowed, message).about(details(group, resource, ""))
    }

    /// 406: none of the wanted representations is to be had.
    pub fn not_acceptable(accepted: &[&str]) -> Box<Self> {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::new(406, Reason::NotAcceptable, message)
    }

    /// 415: the body's type is not understood.
    pub fn unsupported_media_type(accepted: &[&str]) -> Box<Self> {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, Reason::UnsupportedMediaType, message)
    }

    /// 413: the body is longer than `limit` bytes.
    pub fn too_large(limit: usize) -> Box<Self> {
        Self::new(413, Reason::RequestEntityTooLarge, format!("Request entity too large: limit is {limit}"))
    }

    /// 410: history no longer goes back to `wanted`; it begins at `oldest`.
    pub fn expired(wanted: u64, oldest: u64) -> Box<Self> {
        Self::new(410, Reason::Expired, format!("too old resource version: {wanted} ({oldest})"))
    }

    /// 504: that revision has not been reached.
    pub fn too_large_resource_version(wanted: u64, current: u64) -> Box<Self> {
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".into(),
            field: String::new(),
        };
        Self::new(504, Reason::Timeout, format!("Timeout: Too large resource version: {wanted}, current: {current}"))
            .about(Details { causes: vec![cause], retry_after_seconds: Some(1), ..Details::default() })
    }

    /// 500 with a reason.
    pub fn internal(message: impl fmt::Display) -> Box<Self> {
        Self::new(500, Reason::InternalError, format!("Internal error occurred: {message}")).about(Details {
            causes: vec![Cause { reason: "", message: message.to_string(), field: String::new() }],
            ..Details::default()
        })
    }

    /// As JSON, the way it goes over the wire.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// `widgets.example.com`, or `pods` for the core group.
pub(crate) fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.into() } else { format!("{resource}.{group}") }
}

fn details(group: &str, kind: &str, name: &str) -> Details {
    Details { name: name.into(), group: group.into(), kind: kind.into(), ..Details::default() }
}

impl Serialize for Failure {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            kind: &'static str,
            api_version: &'static str,
            metadata: Meta<'a>,
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
        struct Meta<'a> {
            #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
            continue_token: Option<&'a str>,
        }
        Wire {
            kind: "Status",
            api_version: "v1",
            metadata: Meta { continue_token: self.continue_token.as_deref() },
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
