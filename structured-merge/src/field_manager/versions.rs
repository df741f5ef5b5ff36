//! Types and conversions of a kind, which the caller provides.

use super::metadata;
use crate::{
    go_text,
    schema::Type,
    typed::{Duplicates, TypedValue},
    updater::{ConvertError, Converter},
};
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    fmt::{self, Display, Formatter},
};

/// Versions of one kind.
pub trait Versions {
    /// Returns the type of the kind's objects at a version such as `apps/v1`.
    ///
    /// Returns `None` if the version does not exist. The types of two versions may belong to
    /// different schemas.
    fn type_of(&self, api_version: &str, kind: &str) -> Option<Type>;

    /// Converts an object to another version.
    ///
    /// Errors: [`ConvertError::MissingVersion`] if the version does not exist. The field manager
    /// then drops the managers of that version.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConvertError>;

    /// Sets the defaults of an object after an apply. Default: no effect.
    fn apply_defaults(&self, object: &mut Value) {
        let _ = object;
    }

    /// Returns the object that a create is compared with.
    ///
    /// Its fields have no owner after the create. Add the fields that the API server always writes,
    /// such as `spec` of a Deployment. Default: only `apiVersion` and `kind`.
    fn empty_object(&self, api_version: &str, kind: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind})
    }
}

/// Group, version and kind of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVersionKind {
    /// API group. Empty for the core group.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
}

impl GroupVersionKind {
    /// Creates the triple from its parts.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Reads `apiVersion` and `kind` of an object. Missing parts are empty.
    pub fn of(object: &Value) -> Self {
        let api_version = metadata::api_version(object);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or("");
        Self::new(group, version, kind)
    }

    /// Returns `group/version`, or only the version in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Formats as in the API server's messages: `apps/v1, Kind=Deployment`.
impl Display for GroupVersionKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// Adapts [`Versions`] to the [`Converter`] of the updater.
#[derive(Debug)]
pub(super) struct TypedVersions<V>(pub(super) V);

impl<V: Versions> Converter for TypedVersions<V> {
    fn convert(
        &self,
        object: &TypedValue<'_>,
        api_version: &str,
    ) -> Result<Option<TypedValue<'static>>, ConvertError> {
        let value = object.value();
        if metadata::api_version(value) == api_version {
            return Ok(None);
        }
        if !value.is_object() {
            let found = go_text::type_name(value);
            let message = format!("failed to convert value to unstructured for type {found}");
            return Err(ConvertError::Failed(message.into()));
        }
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or("");
        let r#type = self
            .0
            .type_of(api_version, kind)
            .ok_or_else(|| ConvertError::MissingVersion(api_version.to_owned()))?;
        let converted = self.0.convert(value, api_version)?;
        TypedValue::new(Cow::Owned(converted), &r#type, Duplicates::Rejected)
            .map(Some)
            .map_err(|errors| ConvertError::Failed(errors.into()))
    }
}
