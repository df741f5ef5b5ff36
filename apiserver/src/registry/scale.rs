//! The `/scale` of an object: `autoscaling/v1 Scale`, made of its numbers and written back into them.

use super::{Answer, Call, Input, Part, meta_text};
use crate::{
    meta,
    object::Object,
    patch::Patch,
    resource::Scale,
    status::{Failure, FieldError, Result},
};
use serde_json::{Map, Value, json};

/// How a scale is to change.
pub(crate) enum ScaleInput {
    Replace(Value),
    Patch(Patch),
}

impl ScaleInput {
    /// A body, which has to be an object with metadata that is some.
    pub(crate) fn replace(scale: Value) -> Result<Self> {
        if !scale.is_object() {
            return Err(Failure::bad_request("the body is not an object of kind Scale"));
        }
        meta::types::check_types(&scale)?;
        Ok(Self::Replace(scale))
    }
}

impl Call<'_> {
    /// An object's scale.
    pub(crate) fn scale(&self, object: &Object) -> Result<Value> {
        let scale = self.served.strategy().scale.as_ref().ok_or_else(Failure::no_resource)?;
        Ok(show(&self.served.decode(object), scale))
    }

    /// Change the number of replicas that an object wants.
    pub(crate) fn update_scale(&mut self, name: &str, input: &ScaleInput) -> Result<Value> {
        let scale = self.served.strategy().scale.clone().ok_or_else(Failure::no_resource)?;
        loop {
            let existing = self.find(name).ok_or_else(|| self.not_found(name))?;
            let mut object = self.served.decode(&existing);
            let mut wanted = show(&object, &scale);
            let conditional = match input {
                ScaleInput::Replace(replacement) => {
                    wanted = replacement.clone();
                    !meta_text(replacement, "resourceVersion").is_empty()
                }
                ScaleInput::Patch(patch) => {
                    let before = meta_text(&wanted, "resourceVersion").to_owned();
                    patch.apply(&mut wanted)?;
                    before != meta_text(&wanted, "resourceVersion")
                }
            };
            let replicas = replicas(&wanted, self.served.strategy().custom)
                .map_err(|error| Failure::invalid("autoscaling", "Scale", name, vec![error]))?;
            set(&mut object, &scale.spec_replicas, replicas.into());
            if conditional {
                super::meta_mut(&mut object)
                    .insert("resourceVersion".into(), meta_text(&wanted, "resourceVersion").into());
            }
            let mut whole = Call { part: Part::Scale, warnings: Vec::new(), ..*self };
            match whole.update(name, &Input::Replace(object)) {
                Ok((Answer::Stored(object), _)) => return self.scale(&object),
                Ok((Answer::Value(object), _)) => return Ok(show(&object, &scale)),
                // It was not the one who asks that expected this revision.
                Err(failure) if failure.code == 409 && !conditional => {}
                Err(failure) => return Err(failure),
            }
        }
    }
}

fn replicas(scale: &Value, custom: bool) -> Result<i64, FieldError> {
    let field = "spec.replicas";
    let value = scale.get("spec").and_then(|spec| spec.get("replicas"));
    let number = match value {
        None | Some(Value::Null) => 0,
        Some(value) => value.as_i64().ok_or_else(|| FieldError::invalid(field, value, "must be a whole number"))?,
    };
    if number < 0 {
        let why = if custom { "should be a non-negative integer" } else { "must be greater than or equal to 0" };
        Err(FieldError::invalid(field, &number.into(), why))
    } else {
        Ok(number)
    }
}

fn show(object: &Value, scale: &Scale) -> Value {
    let meta = object.get("metadata");
    let mut shown = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta.and_then(|meta| meta.get(field)) {
            shown.insert(field.into(), value.clone());
        }
    }
    let number = |path: &[String]| at(object, path).and_then(Value::as_i64);
    let mut status = json!({"replicas": number(&scale.status_replicas).unwrap_or(0)});
    let selector = scale.selector.as_ref().and_then(|path| at(object, path)).and_then(selector_text);
    if let Some(selector) = selector {
        status["selector"] = selector.into();
    }
    let mut spec = Map::new();
    if let Some(replicas) = number(&scale.spec_replicas) {
        spec.insert("replicas".into(), replicas.into());
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": shown, "spec": spec, "status": status})
}

/// A selector as text: custom resources have it so, built-ins as labels or expressions.
fn selector_text(selector: &Value) -> Option<String> {
    if let Some(text) = selector.as_str() {
        return Some(text.into());
    }
    let selector = selector.as_object()?;
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let plain = labels.is_none() && !selector.contains_key("matchExpressions");
    let labels = if plain { Some(selector) } else { labels };
    let mut parts: Vec<String> =
        labels.into_iter().flatten().filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?))).collect();
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
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
    path.iter().try_fold(object, |value, field| value.get(field))
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut parent = object;
    for field in parents {
        let Some(fields) = parent.as_object_mut() else { return };
        parent = fields.entry(field.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    if let Some(fields) = parent.as_object_mut() {
        fields.insert(last.clone(), value);
    }
}
