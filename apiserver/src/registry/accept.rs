//! Checks that a body or a patched object is a valid object of the resource.
//!
//! The same error has different texts for a body and for a patched object. [`DecodeFailure`]
//! represents it before the text is chosen.

use super::{ResourceRequest, Subresource, meta_mut, meta_text};
use crate::{
    decode::{DecodedBody, summary},
    http::query::write::FieldValidation,
    meta,
    status::{Failure, FieldError, Result, StrictErrors},
};
use serde_json::{Map, Value};

/// Reason why a value is not an object of the resource.
enum DecodeFailure {
    /// A custom resource without a kind.
    NoKind,
    /// The type of the value cannot be determined.
    Unrecognized(String),
    /// The value has this kind and version but cannot be decoded as the resource.
    Undecodable {
        kind: String,
        version: String,
        reason: String,
    },
    /// A custom resource of another version or kind.
    Mismatch(FieldError),
}

impl ResourceRequest<'_> {
    /// Decodes a body into an object of this resource.
    ///
    /// Checks the kind, the types of the metadata and the namespace, and applies the schema.
    pub(crate) fn accept(&mut self, body: DecodedBody) -> Result<Value> {
        let DecodedBody {
            value: mut object,
            strict_errors: faults,
            raw,
        } = body;
        self.decode_object(&mut object, faults).map_err(|failure| {
            let wanted = &self.served.resource.kind;
            match failure {
                DecodeFailure::NoKind => unrecognized(wanted, &no_kind(&String::from_utf8_lossy(&raw)), &raw),
                DecodeFailure::Unrecognized(reason) => unrecognized(wanted, &reason, &raw),
                DecodeFailure::Undecodable { kind, version, reason } => Failure::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {wanted}: {reason}"
                )),
                DecodeFailure::Mismatch(error) if error.field == "apiVersion" => Failure::bad_request(format!(
                    "the API version in the data ({}) does not match the expected API version ({})",
                    text(&object, "apiVersion"),
                    self.served.resource.api_version()
                )),
                DecodeFailure::Mismatch(error) => other_kind(&object, error),
            }
        })?;
        self.check_namespace(&mut object)?;
        Ok(object)
    }

    /// Decodes a patched object as [`Self::accept`] decodes a body.
    ///
    /// `faults` are the errors of the patch. `patched` returns the object once more, for the error
    /// message.
    pub(super) fn accept_patched(
        &mut self,
        mut object: Value,
        mut faults: StrictErrors,
        patched: impl FnOnce() -> Value,
    ) -> Result<Value> {
        if !self.served.resource.strategy.custom {
            drop_fields_without_version(&mut object, &mut faults);
        }
        self.decode_object(&mut object, faults)
            .map_err(|failure| match failure {
                DecodeFailure::NoKind => {
                    let shown = patched().to_string();
                    let reason = no_kind(&shown);
                    undecodable_patch(shown, &reason)
                }
                DecodeFailure::Unrecognized(reason) | DecodeFailure::Undecodable { reason, .. } => {
                    undecodable_patch(patched().to_string(), &reason)
                }
                DecodeFailure::Mismatch(_) if text(&object, "apiVersion").is_empty() => {
                    Failure::internal(
                        "Object 'apiVersion' is missing in 'object has no apiVersion field'",
                    )
                }
                DecodeFailure::Mismatch(error) => other_kind(&object, error),
            })?;
        self.check_namespace(&mut object)?;
        Ok(object)
    }

    fn decode_object(
        &mut self,
        object: &mut Value,
        mut faults: StrictErrors,
    ) -> Result<(), DecodeFailure> {
        self.check_kind(object)?;
        meta::types::check_types(object).map_err(|reason| self.undecodable(reason))?;
        let unknown = meta::types::normalize(object);
        faults.extend(
            unknown
                .iter()
                .map(|field| format!("unknown field \"{field}\"")),
        );
        self.apply_schema(object, faults)
    }

    fn undecodable(&self, reason: String) -> DecodeFailure {
        let resource = &self.served.resource;
        DecodeFailure::Undecodable {
            kind: resource.kind.to_string(),
            version: resource.version.to_string(),
            reason,
        }
    }

    fn check_kind(&self, object: &mut Value) -> Result<(), DecodeFailure> {
        let resource = &self.served.resource;
        let expected = resource.api_version();
        let unrecognized = |reason: &str| {
            DecodeFailure::Unrecognized(format!(
                "couldn't get version/kind; json parse error: {reason}"
            ))
        };
        if object.is_null() {
            *object = Value::Object(Map::new());
        }
        let Some(fields) = object.as_object_mut() else {
            return Err(unrecognized("json: cannot unmarshal what is no object"));
        };
        for name in ["apiVersion", "kind"] {
            if fields
                .get(name)
                .is_some_and(|value| !value.is_string() && !value.is_null())
            {
                return Err(unrecognized(&format!(
                    "json: cannot unmarshal {name}: it is not a string"
                )));
            }
        }
        let text = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let api_version = text("apiVersion");
        let kind = text("kind");
        if api_version.matches('/').count() > 1 {
            return Err(DecodeFailure::Unrecognized(format!(
                "unexpected GroupVersion string: {api_version}"
            )));
        }
        if resource.strategy.custom {
            if kind.is_empty() {
                return Err(DecodeFailure::NoKind);
            }
            for (field, given, wanted) in [
                ("apiVersion", api_version, &*expected),
                ("kind", kind, &*resource.kind),
            ] {
                // A status update accepts objects of any kind that has a status.
                let ignored = field == "kind" && self.subresource == Subresource::Status;
                if given != wanted && !ignored {
                    let error =
                        FieldError::invalid(field, &given.into(), format_args!("must be {wanted}"));
                    return Err(DecodeFailure::Mismatch(error));
                }
            }
            fields.insert("kind".into(), (&*resource.kind).into());
            return Ok(());
        }
        let given_version = if api_version.is_empty() {
            &expected
        } else {
            api_version
        };
        let given_kind = if kind.is_empty() {
            &*resource.kind
        } else {
            kind
        };
        if (given_version, given_kind) != (&*expected, &*resource.kind) {
            let (group, version) = given_version.split_once('/').unwrap_or(("", given_version));
            let catalog = self.core.catalog();
            let item = given_kind.strip_suffix("List").unwrap_or(given_kind);
            let known = catalog
                .find_kind(group, item)
                .is_some_and(|served| &*served.resource.version == version);
            let reason = if known {
                format!(
                    "converting ({version}.{given_kind}) to {}: unknown conversion",
                    resource.kind
                )
            } else {
                format!("no kind \"{given_kind}\" is registered for version \"{given_version}\"")
            };
            return Err(DecodeFailure::Undecodable {
                kind: given_kind.into(),
                version: version.into(),
                reason,
            });
        }
        fields.insert("apiVersion".into(), expected.into());
        fields.insert("kind".into(), (&*resource.kind).into());
        Ok(())
    }

    pub(super) fn check_namespace(&self, object: &mut Value) -> Result<()> {
        let given = meta_text(object, "namespace");
        if !given.is_empty() && given != self.namespace && !self.namespace.is_empty() {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let meta = meta_mut(object);
        if self.namespace.is_empty() {
            meta.remove("namespace");
        } else {
            meta.insert("namespace".into(), self.namespace.into());
        }
        for managed in ["managedFields", "selfLink"] {
            meta.remove(managed);
        }
        Ok(())
    }

    /// Drops unknown fields, reports them as the request demands, and sets defaults. `faults` are
    /// the errors of decoding.
    fn apply_schema(
        &mut self,
        object: &mut Value,
        mut faults: StrictErrors,
    ) -> Result<(), DecodeFailure> {
        let resource = &self.served.resource;
        let schema = &resource.schema;
        if !resource.strategy.custom
            && let Some(reason) = schema.decode_error(object)
        {
            return Err(self.undecodable(reason));
        }
        faults.extend(
            schema
                .prune(object)
                .into_iter()
                .map(|field| format!("unknown field \"{field}\"")),
        );
        let embedded = schema.decode_embedded(object);
        faults.extend(
            embedded
                .map_err(|reason| self.undecodable(reason))?
                .into_iter()
                .map(|field| format!("unknown field \"{field}\"")),
        );
        self.report_strict_errors(faults)
            .map_err(|reason| self.undecodable(reason))?;
        schema.default(object);
        Ok(())
    }

    /// Adds strict decoding errors as warnings, ignores them or returns them, as `fieldValidation`
    /// demands.
    pub(super) fn report_strict_errors(&mut self, faults: StrictErrors) -> Result<(), String> {
        match self.options.field_validation {
            FieldValidation::Strict if !faults.is_empty() => {
                // kube-apiserver joins the errors of YAML into one.
                let (lines, mut others): (Vec<_>, Vec<_>) = faults
                    .into_iter()
                    .partition(|fault| fault.starts_with("line "));
                if !lines.is_empty() {
                    others.insert(
                        0,
                        format!("yaml: unmarshal errors:\n  {}", lines.join("\n  ")),
                    );
                }
                return Err(format!("strict decoding error: {}", others.join(", ")));
            }
            FieldValidation::Warn => self.warnings.extend(faults),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        Ok(())
    }
}

/// Drops all fields of a patched object without an apiVersion, as kube-apiserver does: it then
/// decodes the object into an internal type, of which no field has a name in JSON.
fn drop_fields_without_version(object: &mut Value, faults: &mut StrictErrors) {
    if !text(object, "apiVersion").is_empty() {
        return;
    }
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    fields.retain(|name, _| {
        let known = matches!(name.as_str(), "apiVersion" | "kind");
        if !known {
            faults.push(format!("unknown field \"{name}\""));
        }
        known
    });
}

/// Checks that the name in a body equals that in the path.
pub(super) fn check_name(name: &str, object: &Value) -> Result<()> {
    let given = meta_text(object, "name");
    if given.is_empty() {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns a 400 because the body is not an object.
pub(crate) fn unrecognized(kind: &str, reason: &str, raw: &[u8]) -> Box<Failure> {
    let summary = summary(raw);
    Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {reason} ({summary})"
    ))
}

/// Returns a 422 because the patched object cannot be decoded. It names no kind.
pub(super) fn undecodable_patch(patched: String, reason: &str) -> Box<Failure> {
    Failure::invalid(
        "",
        "",
        "",
        [FieldError::invalid("patch", &patched.into(), reason)],
    )
}

/// Returns a 422 that names the kind of the object.
fn other_kind(object: &Value, error: FieldError) -> Box<Failure> {
    let group = text(object, "apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group);
    Failure::invalid(
        group,
        text(object, "kind"),
        meta_text(object, "name"),
        [error],
    )
}

fn no_kind(raw: &str) -> String {
    format!("Object 'Kind' is missing in '{raw}'")
}
