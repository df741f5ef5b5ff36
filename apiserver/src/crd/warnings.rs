//! Warnings about accepted CRDs.

use super::list;
use crate::schema;
use serde_json::Value;
use std::collections::BTreeSet;

/// Keywords whose value is a schema, a map of schemas or a list of schemas.
const ONE: [&str; 4] = ["items", "additionalProperties", "additionalItems", "not"];
const MAPS: [&str; 3] = ["properties", "patternProperties", "definitions"];
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Returns the warnings about the schemas of a CRD that those of `old` do not have.
pub(crate) fn warnings(crd: &Value, old: Option<&Value>) -> Vec<String> {
    let mut new = schema_warnings(crd);
    if let Some(old) = old {
        let known = schema_warnings(old);
        new.retain(|warning| !known.contains(warning));
    }
    new.into_iter().collect()
}

fn schema_warnings(crd: &Value) -> BTreeSet<String> {
    let mut warnings = BTreeSet::new();
    for version in list(&crd["spec"]["versions"]) {
        add_warnings(&version["schema"]["openAPIV3Schema"], &mut warnings);
    }
    warnings
}

fn add_warnings(schema: &Value, warnings: &mut BTreeSet<String>) {
    let Some(keywords) = schema.as_object() else {
        return;
    };
    let kind = schema["type"].as_str().unwrap_or_default();
    let format = schema["format"].as_str().unwrap_or_default();
    if !format.is_empty() && !schema::is_known_format(kind, format) {
        warnings.insert(format!("unrecognized format {}", schema["format"]));
    }
    let item = &schema["items"]["type"];
    if schema["x-kubernetes-list-type"] == "set" && (item == "object" || item == "array") {
        warnings.insert(format!(
            "x-kubernetes-list-type: set for items of type {item} is not supported by server-side \
             apply or CEL validation rules"
        ));
    }
    for (keyword, value) in keywords {
        let keyword = keyword.as_str();
        if ONE.contains(&keyword) {
            add_warnings(value, warnings);
        } else if MAPS.contains(&keyword) {
            for (_, schema) in value.as_object().into_iter().flatten() {
                add_warnings(schema, warnings);
            }
        } else if LISTS.contains(&keyword) {
            for schema in list(value) {
                add_warnings(schema, warnings);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn crd(properties: &Value) -> Value {
        let schema = json!({"type": "object", "properties": properties});
        json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}})
    }

    #[test]
    fn unknown_formats_and_sets_of_objects_cause_warnings_once() {
        let old = crd(&json!({"a": {"type": "string", "format": "phone"}}));
        let new = crd(&json!({
            "a": {"type": "string", "format": "phone"},
            "b": {"type": "array", "items": {"type": "integer", "format": "int16"}},
            "c": {"x-kubernetes-list-type": "set", "items": {"type": "object"}},
            "d": {"type": "string", "format": "date-time"},
            "e": {"type": "boolean", "format": "date"},
            "format": {"type": "string"},
        }));
        let all = [
            "unrecognized format \"date\"",
            "unrecognized format \"int16\"",
            "unrecognized format \"phone\"",
            "x-kubernetes-list-type: set for items of type \"object\" is not supported by server-side apply or CEL \
             validation rules",
        ];
        assert_eq!(warnings(&new, None), all);
        assert_eq!(warnings(&new, Some(&old)), [all[0], all[1], all[3]]);
        assert_eq!(warnings(&new, Some(&new)), [""; 0]);
    }
}
