//! Types of the metadata fields. The rest of the server relies on them.

use crate::status::StrictErrors;
use serde_json::{Map, Value};

enum Type {
    Text,
    Time,
    Integer,
    Bool,
    TextMap,
    /// An object with any content.
    Object,
    List(&'static Self),
    /// Name and fields of a Go struct.
    Struct(&'static str, &'static [(&'static str, Self)]),
}

use Type::{Bool, Integer, List, Object, Struct, Text, TextMap, Time};

const OBJECT_META: Type = Struct(
    "ObjectMeta",
    &[
        ("annotations", TextMap),
        ("creationTimestamp", Time),
        ("deletionGracePeriodSeconds", Integer),
        ("deletionTimestamp", Time),
        ("finalizers", List(&Text)),
        ("generateName", Text),
        ("generation", Integer),
        ("labels", TextMap),
        ("managedFields", List(&MANAGED_FIELDS)),
        ("name", Text),
        ("namespace", Text),
        ("ownerReferences", List(&OWNER_REFERENCE)),
        ("resourceVersion", Text),
        ("selfLink", Text),
        ("uid", Text),
    ],
);

const OWNER_REFERENCE: Type = Struct(
    "OwnerReference",
    &[
        ("apiVersion", Text),
        ("blockOwnerDeletion", Bool),
        ("controller", Bool),
        ("kind", Text),
        ("name", Text),
        ("uid", Text),
    ],
);

const MANAGED_FIELDS: Type = Struct(
    "ManagedFieldsEntry",
    &[
        ("apiVersion", Text),
        ("fieldsType", Text),
        ("fieldsV1", Object),
        ("manager", Text),
        ("operation", Text),
        ("subresource", Text),
        ("time", Time),
    ],
);

impl Type {
    /// Checks the type of a value, with the errors of the real server's decoder. Null is valid for
    /// every type.
    fn check(&self, value: &Value, owner: &str, path: &str) -> Result<(), String> {
        let mismatch = |wanted: &str| {
            let found = match value {
                Value::Null => "null",
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            Err(format!(
                "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}"
            ))
        };
        match (self, value) {
            (_, Value::Null)
            | (Text, Value::String(_))
            | (Bool, Value::Bool(_))
            | (Object, Value::Object(_)) => Ok(()),
            (Integer, Value::Number(number)) if number.is_i64() => Ok(()),
            (Time, Value::String(text)) => match text.parse::<jiff::Timestamp>() {
                Ok(_) => Ok(()),
                Err(_) => Err(crate::schema::time_error(text)
                    .unwrap_or_else(|| format!("parsing time {value}: out of range"))),
            },
            (TextMap, Value::Object(map)) => map
                .values()
                .try_for_each(|value| Text.check(value, owner, path)),
            (List(inner), Value::Array(items)) => items
                .iter()
                .try_for_each(|item| inner.check(item, owner, path)),
            (Struct(name, fields), Value::Object(map)) => {
                fields.iter().try_for_each(|(field, kind)| {
                    map.get(*field).map_or(Ok(()), |value| {
                        kind.check(value, name, &format!("{path}.{field}"))
                    })
                })
            }
            (Text | Time, _) => mismatch("string"),
            (Integer, _) => mismatch("int64"),
            (Bool, _) => mismatch("bool"),
            (TextMap, _) => mismatch("map[string]string"),
            (Object, _) => mismatch("map[string]interface {}"),
            (List(Text), _) => mismatch("[]string"),
            (List(Struct(name, _)), _) => mismatch(&format!("[]v1.{name}")),
            (List(_), _) => mismatch("[]interface {}"),
            (Struct(name, _), _) => mismatch(&format!("v1.{name}")),
        }
    }
}

impl Type {
    /// Normalizes a value that passed [`Self::check`] to what the real server's Go types would
    /// encode: null becomes the zero value, empty fields are omitted, and unknown fields are
    /// dropped and added to `unknown`.
    fn normalize(&self, value: &mut Value, path: &str, unknown: &mut StrictErrors) {
        match (self, &mut *value) {
            (Text, Value::Null) => *value = "".into(),
            (TextMap, Value::Object(map)) => map
                .values_mut()
                .for_each(|value| Text.normalize(value, path, unknown)),
            (List(inner), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    inner.normalize(item, &format!("{path}[{index}]"), unknown);
                }
            }
            (Struct(..), Value::Null) => *value = Value::Object(Map::new()),
            (Struct(_, fields), Value::Object(map)) => map.retain(|name, value| {
                let path = format!("{path}.{name}");
                let Some((_, kind)) = fields.iter().find(|(field, _)| field == name) else {
                    unknown.push(path);
                    return false;
                };
                kind.normalize(value, &path, unknown);
                !is_empty(value)
            }),
            _ => {}
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Removes empty and unknown fields from checked metadata. Returns the paths of the unknown ones.
pub(crate) fn normalize(object: &mut Value) -> StrictErrors {
    let mut unknown = StrictErrors::new();
    OBJECT_META.normalize(&mut object["metadata"], "metadata", &mut unknown);
    unknown
}

/// Checks the types of the metadata fields.
pub(crate) fn check_types(object: &Value) -> Result<(), String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    OBJECT_META.check(&object["metadata"], kind, "metadata")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(metadata: Value) -> Result<(), String> {
        check_types(
            &json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}),
        )
    }

    #[test]
    fn metadata_with_the_right_types_is_valid() {
        check(json!({
            "name": "a", "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": null,
            "labels": {"a": "b"}, "annotations": null, "finalizers": ["a"], "unknown": 1,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}],
            "managedFields": [{"manager": "m", "time": "2026-01-02T03:04:05+02:00", "fieldsV1": {"f:a": {}}}],
        }))
        .unwrap();
        check(Value::Null).unwrap();
    }

    #[test]
    fn a_wrong_type_has_the_error_of_the_real_server() {
        for (metadata, error) in [
            (
                json!({"labels": {"a": 1}}),
                "number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                json!({"labels": ["a"]}),
                "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
            (
                json!({"annotations": {"a": {}}}),
                "object into Go struct field ObjectMeta.metadata.annotations of type string",
            ),
            (
                json!({"name": true}),
                "bool into Go struct field ObjectMeta.metadata.name of type string",
            ),
            (
                json!({"finalizers": "a"}),
                "string into Go struct field ObjectMeta.metadata.finalizers of type []string",
            ),
            (
                json!({"finalizers": [1]}),
                "number into Go struct field ObjectMeta.metadata.finalizers of type string",
            ),
            (
                json!({"generation": 1.5}),
                "number into Go struct field ObjectMeta.metadata.generation of type int64",
            ),
            (
                json!({"ownerReferences": [{"controller": "yes"}]}),
                "string into Go struct field OwnerReference.metadata.ownerReferences.controller of type bool",
            ),
            (
                json!({"managedFields": {}}),
                "object into Go struct field ObjectMeta.metadata.managedFields of type []v1.ManagedFieldsEntry",
            ),
            (
                json!([]),
                "array into Go struct field Widget.metadata of type v1.ObjectMeta",
            ),
        ] {
            assert_eq!(
                check(metadata).unwrap_err(),
                format!("json: cannot unmarshal {error}")
            );
        }
    }

    #[test]
    fn an_invalid_time_is_an_error() {
        let error = check(json!({"creationTimestamp": "yesterday"})).unwrap_err();
        assert!(
            error.ends_with("cannot parse \"yesterday\" as \"2006\""),
            "{error}"
        );
    }

    #[test]
    fn empty_and_unknown_fields_are_removed() {
        let mut object = json!({"metadata": {
            "name": "a", "generateName": "", "labels": null, "annotations": {"a": null}, "finalizers": [null], "nope": 1,
            "ownerReferences": [{"uid": "u", "controller": false, "blockOwnerDeletion": null, "more": {}}, null],
        }});
        assert_eq!(
            *normalize(&mut object),
            ["metadata.nope", "metadata.ownerReferences[0].more"]
        );
        let kept = json!({
            "name": "a", "annotations": {"a": ""}, "finalizers": [""],
            "ownerReferences": [{"uid": "u", "controller": false}, {}],
        });
        assert_eq!(object["metadata"], kept);
    }
}
