//! What a body has to be like to be an object of a resource, and what is said if it is not.
//!
//! The same defect reads differently in a body and in what a patch made of an object; [`Unreadable`] tells it before that is
//! decided.

use super::{Call, Part, meta_mut, meta_text};
use crate::{
    decode::{Body, summary},
    http::query::write::FieldValidation,
    meta,
    status::{Failure, FieldError, Result, StrictErrors},
};
use serde_json::{Map, Value};

/// Why something cannot be read as an object of a resource.
enum Unreadable {
    /// A custom object that does not say what it is.
    NoKind,
    /// What it says is nothing that an object can be.
    Unrecognized(String),
    /// It says that it is of this kind and version, but the server cannot handle it as such.
    Unfit { kind: String, version: String, why: String },
    /// A custom object of another version, or of another kind.
    Other(FieldError),
}

impl Call<'_> {
    /// A body as an object of this resource: of the right kind, with metadata of the right types, in the right place, fitting its
    /// schema.
    pub(crate) fn accept(&mut self, body: Body) -> Result<Value> {
        let Body { value: mut object, faults, raw } = body;
        self.read(&mut object, faults).map_err(|unreadable| {
            let wanted = &self.served.resource.kind;
            match unreadable {
                Unreadable::NoKind => unrecognized(wanted, &no_kind(&String::from_utf8_lossy(&raw)), &raw),
                Unreadable::Unrecognized(why) => unrecognized(wanted, &why, &raw),
                Unreadable::Unfit { kind, version, why } => Failure::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {wanted}: {why}"
                )),
                Unreadable::Other(error) if error.field == "apiVersion" => Failure::bad_request(format!(
                    "the API version in the data ({}) does not match the expected API version ({})",
                    text(&object, "apiVersion"),
                    self.served.resource.api_version()
                )),
                Unreadable::Other(error) => other_kind(&object, error),
            }
        })?;
        self.check_namespace(&mut object)?;
        Ok(object)
    }

    /// The same for what a patch with these faults made of an object; `again` makes it once more, to be shown.
    pub(super) fn accept_patched(
        &mut self,
        mut object: Value,
        faults: StrictErrors,
        again: impl FnOnce() -> Value,
    ) -> Result<Value> {
        self.read(&mut object, faults).map_err(|unreadable| match unreadable {
            Unreadable::NoKind => {
                let shown = again().to_string();
                let why = no_kind(&shown);
                unreadable_patch(shown, &why)
            }
            Unreadable::Unrecognized(why) | Unreadable::Unfit { why, .. } => {
                unreadable_patch(again().to_string(), &why)
            }
            Unreadable::Other(error) => other_kind(&object, error),
        })?;
        self.check_namespace(&mut object)?;
        Ok(object)
    }

    fn read(&mut self, object: &mut Value, mut faults: StrictErrors) -> Result<(), Unreadable> {
        self.check_kind(object)?;
        meta::types::check_types(object).map_err(|why| self.unfit(why))?;
        let unknown = meta::types::tidy(object);
        faults.extend(unknown.iter().map(|field| format!("unknown field \"{field}\"")));
        self.fit(object, faults)
    }

    fn unfit(&self, why: String) -> Unreadable {
        let resource = &self.served.resource;
        Unreadable::Unfit { kind: resource.kind.to_string(), version: resource.version.to_string(), why }
    }

    fn check_kind(&self, object: &mut Value) -> Result<(), Unreadable> {
        let resource = &self.served.resource;
        let expected = resource.api_version();
        let unrecognized =
            |why: &str| Unreadable::Unrecognized(format!("couldn't get version/kind; json parse error: {why}"));
        if object.is_null() {
            *object = Value::Object(Map::new());
        }
        let Some(fields) = object.as_object_mut() else {
            return Err(unrecognized("json: cannot unmarshal what is no object"));
        };
        for name in ["apiVersion", "kind"] {
            if fields.get(name).is_some_and(|value| !value.is_string() && !value.is_null()) {
                return Err(unrecognized(&format!("json: cannot unmarshal {name}: it is not a string")));
            }
        }
        let text = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version.matches('/').count() > 1 {
            return Err(Unreadable::Unrecognized(format!("unexpected GroupVersion string: {api_version}")));
        }
        if resource.strategy.custom {
            if kind.is_empty() {
                return Err(Unreadable::NoKind);
            }
            for (field, given, wanted) in [("apiVersion", api_version, &*expected), ("kind", kind, &*resource.kind)] {
                // A status is taken from whatever has one.
                let taken = field == "kind" && self.part == Part::Status;
                if given != wanted && !taken {
                    let error = FieldError::invalid(field, &given.into(), format_args!("must be {wanted}"));
                    return Err(Unreadable::Other(error));
                }
            }
            fields.insert("kind".into(), (&*resource.kind).into());
            return Ok(());
        }
        let (given_version, given_kind) = (
            if api_version.is_empty() { &expected } else { api_version },
            if kind.is_empty() { &*resource.kind } else { kind },
        );
        if (given_version, given_kind) != (&*expected, &*resource.kind) {
            let (group, version) = given_version.split_once('/').unwrap_or(("", given_version));
            let catalog = self.core.catalog();
            let item = given_kind.strip_suffix("List").unwrap_or(given_kind);
            let known = catalog.find_kind(group, item).is_some_and(|served| &*served.resource.version == version);
            let why = if known {
                format!("converting ({version}.{given_kind}) to {}: unknown conversion", resource.kind)
            } else {
                format!("no kind \"{given_kind}\" is registered for version \"{given_version}\"")
            };
            return Err(Unreadable::Unfit { kind: given_kind.into(), version: version.into(), why });
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

    /// Drop what the schema does not know, and say so in the way the request wants to hear it; fill in defaults. `faults` are what
    /// decoding found already.
    fn fit(&mut self, object: &mut Value, mut faults: StrictErrors) -> Result<(), Unreadable> {
        let (resource, schema) = (&self.served.resource, &self.served.resource.schema);
        if !resource.strategy.custom
            && let Some(why) = schema.decode_error(object)
        {
            return Err(self.unfit(why));
        }
        faults.extend(schema.prune(object).into_iter().map(|field| format!("unknown field \"{field}\"")));
        self.tell(faults).map_err(|why| self.unfit(why))?;
        schema.default(object);
        Ok(())
    }

    /// Warn of faults, or refuse for them.
    pub(super) fn tell(&mut self, faults: StrictErrors) -> Result<(), String> {
        match self.options.field_validation {
            FieldValidation::Strict if !faults.is_empty() => {
                // Those of YAML are told together.
                let (lines, mut others): (Vec<_>, Vec<_>) =
                    faults.into_iter().partition(|fault| fault.starts_with("line "));
                if !lines.is_empty() {
                    others.insert(0, format!("yaml: unmarshal errors:\n  {}", lines.join("\n  ")));
                }
                return Err(format!("strict decoding error: {}", others.join(", ")));
            }
            FieldValidation::Warn => self.warnings.extend(faults),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        Ok(())
    }
}

/// The name in a body is that of the path.
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
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// 400: what came is no object.
pub(crate) fn unrecognized(kind: &str, why: &str, raw: &[u8]) -> Box<Failure> {
    let summary = summary(raw);
    Failure::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({summary})"))
}

/// 422: a patch may be well-formed and still make something that cannot be read. That failure names no kind.
pub(super) fn unreadable_patch(patched: String, why: &str) -> Box<Failure> {
    Failure::invalid("", "", "", [FieldError::invalid("patch", &patched.into(), why)])
}

/// 422, in the name of the kind that it says it is.
fn other_kind(object: &Value, error: FieldError) -> Box<Failure> {
    let group = text(object, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    Failure::invalid(group, text(object, "kind"), meta_text(object, "name"), [error])
}

fn no_kind(raw: &str) -> String {
    format!("Object 'Kind' is missing in '{raw}'")
}
