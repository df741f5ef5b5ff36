//! The scale subresource: an `autoscaling/v1 Scale` that reads and writes the replicas of an
//! object.

use super::{
    Input, ResourceRequest, ResponseObject, Subresource,
    accept::{check_name, undecodable_patch},
    meta_text,
};
use crate::{
    decode::DecodedBody,
    meta,
    object::Object,
    patch::Patch,
    resource::Scale,
    schema::Schema,
    status::{Failure, FieldError, FieldErrors, Result, StrictErrors},
    warnings::Warnings,
};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Requested change of a scale.
pub(crate) enum ScaleInput {
    Replace(DecodedBody),
    /// Applies a patch. The errors are those of decoding it.
    Patch(Patch, StrictErrors),
}

/// API version and kind of a scale, also if the body has none.
const KIND: (&str, &str) = ("autoscaling/v1", "Scale");

static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| Schema::builtin("io.k8s.api.autoscaling.v1.Scale"));

impl ResourceRequest<'_> {
    /// Returns the scale of an object.
    pub(crate) fn scale(&self, object: &Object) -> Result<Value> {
        let scale = self
            .served
            .strategy()
            .scale
            .as_ref()
            .ok_or_else(Failure::no_resource)?;
        Ok(to_scale(&self.served.decode(object), scale))
    }

    /// Changes the number of replicas of an object.
    pub(crate) fn update_scale(&mut self, name: &str, input: &ScaleInput) -> Result<Value> {
        let scale = self
            .served
            .strategy()
            .scale
            .clone()
            .ok_or_else(Failure::no_resource)?;
        loop {
            let existing = self.find(name).ok_or_else(|| self.not_found(name))?;
            let mut object = self.served.decode(&existing);
            let shown = to_scale(&object, &scale);
            let wanted = self.requested_scale(input, &shown)?;
            check_name(name, &wanted)?;
            let seen = meta_text(&wanted, "resourceVersion").to_owned();
            let conditional = match input {
                ScaleInput::Replace(_) => !seen.is_empty(),
                ScaleInput::Patch(..) => seen != meta_text(&shown, "resourceVersion"),
            };
            if matches!(input, ScaleInput::Replace(_)) && !meta_text(&wanted, "uid").is_empty() {
                self.check_uid(name, meta_text(&wanted, "uid"), &object)?;
            }
            let replicas = wanted
                .pointer("/spec/replicas")
                .and_then(Value::as_i64)
                .unwrap_or(0);
            if replicas < 0 && !self.served.strategy().custom {
                let error = FieldError::invalid(
                    "spec.replicas",
                    &replicas.into(),
                    "must be greater than or equal to 0",
                );
                return Err(Failure::invalid("autoscaling", "Scale", name, vec![error]));
            }
            set(&mut object, &scale.spec_replicas, replicas.into());
            if conditional {
                super::meta_mut(&mut object).insert("resourceVersion".into(), seen.into());
            }
            let mut whole = ResourceRequest {
                subresource: Subresource::Scale,
                warnings: Warnings::default(),
                ..*self
            };
            match whole.update(name, &Input::Replace(object)) {
                Ok((ResponseObject::Stored(object), _)) => return self.scale(&object),
                Ok((ResponseObject::Value(object), _)) => return Ok(to_scale(&object, &scale)),
                // The request did not name a resource version, so try again.
                Err(failure) if failure.code == 409 && !conditional => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Returns the scale with the requested change.
    fn requested_scale(&mut self, input: &ScaleInput, shown: &Value) -> Result<Value> {
        let (mut scale, faults, patched) = match input {
            ScaleInput::Replace(body) => (body.value.clone(), body.strict_errors.clone(), None),
            ScaleInput::Patch(patch, faults) => {
                let mut scale = shown.clone();
                patch.apply(&mut scale)?;
                let patched = scale.to_string();
                (scale, faults.clone(), Some(patched))
            }
        };
        if let Err(reason) = self.read_scale(&mut scale, faults) {
            return Err(match patched {
                Some(patched) => undecodable_patch(patched, &reason),
                None if self.served.strategy().custom => Failure::bad_request(INVALID_CUSTOM_SCALE),
                None => Failure::bad_request(format!(
                    "Scale in version \"v1\" cannot be handled as a Scale: {reason}"
                )),
            });
        }
        self.check_namespace(&mut scale)?;
        Ok(scale)
    }

    fn read_scale(&mut self, scale: &mut Value, mut faults: StrictErrors) -> Result<(), String> {
        if !scale.is_object() {
            return Err("json: cannot unmarshal what is no object".into());
        }
        for (field, wanted) in [("apiVersion", KIND.0), ("kind", KIND.1)] {
            if matches!(&scale[field], given if given.is_null() || given == "") {
                scale[field] = wanted.into();
            }
        }
        if scale["apiVersion"] != KIND.0 || scale["kind"] != KIND.1 {
            return Err(format!(
                "no kind {} is registered for version {}",
                scale["kind"], scale["apiVersion"]
            ));
        }
        meta::types::check_types(scale)?;
        if let Some(error) = SCHEMA.decode_error(scale) {
            return Err(error);
        }
        faults.extend(
            meta::types::normalize(scale)
                .iter()
                .map(|field| format!("unknown field \"{field}\"")),
        );
        faults.extend(
            SCHEMA
                .prune(scale)
                .iter()
                .map(|field| format!("unknown field \"{field}\"")),
        );
        self.report_strict_errors(faults)
    }
}

/// Text of kube-apiserver for every invalid scale of a custom resource.
const INVALID_CUSTOM_SCALE: &str = "no kind is registered for the type v1.Scale";

/// Validates the fields of a custom resource that its scale uses.
pub(super) fn errors(scale: &Scale, object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for path in [&scale.spec_replicas, &scale.status_replicas] {
        let field = format!(".{}", path.join("."));
        let number = match lookup(object, path) {
            Ok(None) => continue,
            Ok(Some(Value::Number(number))) if number.is_i64() => {
                number.as_i64().unwrap_or_default()
            }
            Ok(Some(value)) => {
                errors.push(FieldError::invalid(
                    &field,
                    &0.into(),
                    accessor_error(&field, value, "int64"),
                ));
                continue;
            }
            Err(value) => {
                let reason = accessor_error(&field, value, "map[string]interface{}");
                errors.push(FieldError::invalid(field, &0.into(), reason));
                continue;
            }
        };
        if number < 0 {
            errors.push(FieldError::invalid(
                field,
                &number.into(),
                "should be a non-negative integer",
            ));
        } else if number > i64::from(i32::MAX) {
            let reason = format!("should be less than or equal to {}", i32::MAX);
            errors.push(FieldError::invalid(field, &number.into(), reason));
        }
    }
    if let Some(path) = &scale.selector {
        let field = format!(".{}", path.join("."));
        let mismatch = match lookup(object, path) {
            Ok(None | Some(Value::String(_))) => None,
            Ok(Some(value)) => Some((value, "string")),
            Err(value) => Some((value, "map[string]interface{}")),
        };
        if let Some((value, wanted)) = mismatch {
            let reason = accessor_error(&field, value, wanted);
            errors.push(FieldError::invalid(field, &"".into(), reason));
        }
    }
    errors
}

/// Returns the value at a path, if it exists.
///
/// Errors: the value on the way that is not an object.
fn lookup<'a>(object: &'a Value, path: &[String]) -> Result<Option<&'a Value>, &'a Value> {
    let mut value = object;
    for field in path {
        let Some(fields) = value.as_object() else {
            return Err(value);
        };
        match fields.get(field) {
            Some(inner) => value = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn accessor_error(field: &str, value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    format!(
        "{field} accessor error: {} is of the type {found}, expected {wanted}",
        go_format(value)
    )
}

/// Formats a value as Go's `%v` does.
fn go_format(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.as_i64().map_or_else(
            || {
                number
                    .as_f64()
                    .map_or_else(String::new, |number| number.to_string())
            },
            |number| number.to_string(),
        ),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(go_format).collect::<Vec<_>>().join(" ")
        ),
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", go_format(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

fn to_scale(object: &Value, scale: &Scale) -> Value {
    let meta = object.get("metadata");
    let mut shown = Map::new();
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = meta.and_then(|meta| meta.get(field)) {
            shown.insert(field.into(), value.clone());
        }
    }
    let number = |path: &[String]| at(object, path).and_then(Value::as_i64);
    let mut status = json!({"replicas": number(&scale.status_replicas).unwrap_or(0)});
    let selector = scale
        .selector
        .as_ref()
        .and_then(|path| at(object, path))
        .and_then(selector_text);
    if let Some(selector) = selector {
        status["selector"] = selector.into();
    }
    let mut spec = Map::new();
    if let Some(replicas) = number(&scale.spec_replicas).filter(|replicas| *replicas != 0) {
        spec.insert("replicas".into(), replicas.into());
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": shown, "spec": spec, "status": status})
}

/// Returns a label selector as text. Custom resources have text, built-in kinds labels or
/// expressions.
fn selector_text(selector: &Value) -> Option<String> {
    if let Some(text) = selector.as_str() {
        return Some(text.into());
    }
    let selector = selector.as_object()?;
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let plain = labels.is_none() && !selector.contains_key("matchExpressions");
    let labels = if plain { Some(selector) } else { labels };
    let mut parts: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)))
        .collect();
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let key = expression.get("key").and_then(Value::as_str)?;
        let values: Vec<&str> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        parts.push(match expression.get("operator").and_then(Value::as_str)? {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.into(),
            _ => format!("!{key}"),
        });
    }
    Some(parts.join(","))
}

fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, field| value.get(field))
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut parent = object;
    for field in parents {
        let Some(fields) = parent.as_object_mut() else {
            return;
        };
        parent = fields
            .entry(field.clone())
            .or_insert_with(|| Value::Object(Map::new()));
    }
    if let Some(fields) = parent.as_object_mut() {
        fields.insert(last.clone(), value);
    }
}
