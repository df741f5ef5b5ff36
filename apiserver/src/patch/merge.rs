//! JSON Merge Patch (RFC 7386): objects are merged, null removes, everything else is replaced.
//!
//! New values are added without fields that are null, also inside of lists. The RFC would keep
//! those, but the real server's library drops them, except in a list that replaces an object.

use super::decoding_error;
use crate::status::{Failure, Result};
use serde_json::Value;

/// Parses a patch, which must be an object.
pub(super) fn parse(patch: Value) -> Result<Value> {
    match patch {
        Value::Object(_) => Ok(patch),
        Value::Null => Err(Failure::bad_request("Invalid JSON Patch")),
        _ => Err(decoding_error("json: the patch must be an object")),
    }
}

/// Merges the patch into the document.
pub(super) fn apply(patch: &Value, document: &mut Value) {
    let (patch, document) = match (patch, &mut *document) {
        (Value::Object(patch), Value::Object(document)) => (patch, document),
        (_, Value::Object(_)) => {
            *document = patch.clone();
            return;
        }
        _ => {
            *document = without_nulls(patch);
            return;
        }
    };
    for (key, value) in patch {
        match document.get_mut(key) {
            _ if value.is_null() => {
                document.remove(key);
            }
            Some(current) => apply(value, current),
            None => {
                document.insert(key.clone(), without_nulls(value));
            }
        }
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(mut document: Value, patch: Value) -> Value {
        apply(&patch, &mut document);
        document
    }

    #[test]
    fn objects_merge_lists_are_replaced_and_null_removes() {
        let document = json!({"a": {"b": 1, "c": [1, 2]}, "d": "e"});
        let patch = json!({"a": {"b": 2, "c": [3]}, "d": null, "f": {"g": 1}});
        assert_eq!(
            merged(document, patch),
            json!({"a": {"b": 2, "c": [3]}, "f": {"g": 1}})
        );
    }

    #[test]
    fn a_list_that_replaces_an_object_keeps_its_nulls() {
        let patch = json!({"a": [{"b": null}]});
        assert_eq!(merged(json!({"a": {}}), patch.clone()), patch);
        assert_eq!(merged(json!({"a": []}), patch), json!({"a": [{}]}));
    }

    #[test]
    fn new_values_are_added_without_nulls() {
        assert_eq!(
            merged(json!({}), json!({"a": {"b": null}, "c": null})),
            json!({"a": {}})
        );
        assert_eq!(
            merged(json!({"a": 1}), json!({"a": {"b": null}})),
            json!({"a": {}})
        );
        assert_eq!(
            merged(json!({}), json!({"a": [null, {"b": null}]})),
            json!({"a": [null, {}]})
        );
    }

    #[test]
    fn a_value_of_another_type_is_replaced() {
        assert_eq!(
            merged(json!({"a": {"b": 1}}), json!({"a": [1]})),
            json!({"a": [1]})
        );
        assert_eq!(
            merged(json!({"a": [1]}), json!({"a": {"b": 1}})),
            json!({"a": {"b": 1}})
        );
    }

    #[test]
    fn a_patch_that_is_not_an_object_is_a_bad_request() {
        for (patch, message) in [
            (
                json!([]),
                "error decoding patch: json: the patch must be an object",
            ),
            (
                json!(1),
                "error decoding patch: json: the patch must be an object",
            ),
            (Value::Null, "Invalid JSON Patch"),
        ] {
            let failure = parse(patch).unwrap_err();
            assert_eq!((failure.code, &*failure.message), (400, message));
        }
    }
}
