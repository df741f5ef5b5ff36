//! Lists that are sets or maps: validation of their schemas, and detection of duplicate items.

use super::{Additional, ListType, Node, Schema, path::Path};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

impl Schema {
    /// Reports duplicate items of sets and maps.
    pub(super) fn check_lists(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if self.has_lists {
            self.check_lists_below(self.root(), object, &Path::ROOT, &mut errors);
        }
        errors
    }

    fn check_lists_below(
        &self,
        node: &Node,
        value: &Value,
        path: &Path<'_>,
        errors: &mut FieldErrors,
    ) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match (node.named(key), node.additional) {
                        (Some(id), _) => {
                            self.check_lists_below(self.node(id), value, &path.field(key), errors);
                        }
                        (None, Additional::Each(id)) => {
                            self.check_lists_below(self.node(id), value, &path.key(key), errors);
                        }
                        _ => {}
                    }
                }
            }
            Value::Array(list) => {
                match &node.list {
                    ListType::Atomic => {}
                    ListType::Set => duplicates(list.iter().cloned(), path, errors),
                    ListType::Map(keys) => map_duplicates(list, keys, path, errors),
                }
                if let Some(id) = node.items {
                    for (index, value) in list.iter().enumerate() {
                        self.check_lists_below(self.node(id), value, &path.index(index), errors);
                    }
                }
            }
            _ => {}
        }
    }
}

fn map_duplicates(list: &[Value], keys: &[String], path: &Path<'_>, errors: &mut FieldErrors) {
    if let Some(index) = list
        .iter()
        .position(|item| !item.is_object() && !item.is_null())
    {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(
            path.index(index).to_string(),
            &list[index],
            detail,
        ));
        return;
    }
    if list.len() > 1 {
        duplicates(list.iter().map(|item| item_key(item, keys)), path, errors);
    }
}

/// Returns the key fields of an item.
pub(super) fn item_key(item: &Value, keys: &[String]) -> Value {
    let present = |key: &String| item.get(key).map(|value| (key.clone(), value.clone()));
    Value::Object(keys.iter().filter_map(present).collect::<Map<_, _>>())
}

/// Reports the second occurrence of each value.
fn duplicates(values: impl Iterator<Item = Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    let mut seen: HashMap<String, u32> = HashMap::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 && !errors.is_full() {
            errors.push(FieldError::duplicate(path.index(index).to_string(), &value));
        }
    }
}

impl super::structural::Checker {
    /// Validates the list and map keywords of a node.
    pub(super) fn list_and_map(&mut self, schema: &Value, path: &str) {
        let kind = schema["type"].as_str().unwrap_or_default();
        let items = &schema["items"];
        let list = &schema["x-kubernetes-list-type"];
        let map = &schema["x-kubernetes-map-type"];
        for (extension, expected, name) in [(map, "object", "map"), (list, "array", "list")] {
            if !extension.is_null() && kind != expected {
                let detail = format!("must be {expected} if x-kubernetes-{name}-type is specified");
                let at = format!("{path}.type");
                if kind.is_empty() {
                    self.required(at, &detail);
                } else {
                    self.invalid(at, &json!(kind), &detail);
                }
            }
        }
        for (extension, name, supported) in [
            (map, "map", &["atomic", "granular"][..]),
            (list, "list", &["atomic", "set", "map"]),
        ] {
            if extension
                .as_str()
                .is_some_and(|found| !supported.contains(&found))
            {
                let at = format!("{path}.x-kubernetes-{name}-type");
                self.errors
                    .push(FieldError::not_supported(at, extension, supported));
            }
        }
        let keys = schema["x-kubernetes-list-map-keys"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let at = format!("{path}.x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list.as_str() {
            None if !keys.is_empty() => self.required(at, detail),
            Some(found) if found != "map" && !keys.is_empty() => self.invalid(at, list, detail),
            Some("map") => self.map_keys(schema, keys, path),
            Some("set") => self.set_items(items, path),
            _ => {}
        }
        if let Some(found @ ("set" | "map")) = list.as_str()
            && items["nullable"] == true
        {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {found}");
            self.forbidden(format!("{path}.items.nullable"), &detail);
        }
    }

    /// Checks that items of a set are atomic, since they are compared as a whole.
    fn set_items(&mut self, items: &Value, path: &str) {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let (key, is_invalid) = match items["type"].as_str() {
            Some("array") => (
                "list",
                items["x-kubernetes-list-type"]
                    .as_str()
                    .is_some_and(|found| found != "atomic"),
            ),
            Some("object") => ("map", items["x-kubernetes-map-type"] != "atomic"),
            _ => return,
        };
        if is_invalid {
            let at = format!("{path}.items.x-kubernetes-{key}-type");
            self.invalid(at, &items["x-kubernetes-list-type"], detail);
        }
    }

    fn map_keys(&mut self, schema: &Value, keys: &[Value], path: &str) {
        let items = &schema["items"];
        let at = format!("{path}.x-kubernetes-list-map-keys");
        if keys.is_empty() {
            self.required(
                at.clone(),
                "must not be empty if x-kubernetes-list-type is map",
            );
        }
        if items.is_null() {
            self.required(
                format!("{path}.items"),
                "must have a schema if x-kubernetes-list-type is map",
            );
        } else if items["type"] != "object" {
            let found = json!(items["type"].as_str().unwrap_or_default());
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.invalid(format!("{path}.items.type"), &found, detail);
            return;
        }
        let required: HashSet<_> = items["required"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Value::as_str)
            .collect();
        for key in keys {
            // Some of these errors contain all keys.
            if self.errors.is_full() {
                break;
            }
            let name = key.as_str().unwrap_or_default();
            let Some(property) = items["properties"].get(name) else {
                let all = &schema["x-kubernetes-list-map-keys"];
                self.invalid(
                    at.clone(),
                    all,
                    "entries must all be names of item properties",
                );
                continue;
            };
            let property_path = format!("{path}.items.properties[{name}]");
            if property["type"] == "array" || property["type"] == "object" {
                let detail =
                    "must be a scalar type if parent array's x-kubernetes-list-type is map";
                self.invalid(format!("{property_path}.type"), &items["type"], detail);
            }
            if !required.contains(&key.as_str()) && property["default"].is_null() {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                              required property";
                self.required(format!("{property_path}.default"), detail);
            }
            if property["nullable"] == true {
                let detail =
                    "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbidden(format!("{property_path}.nullable"), detail);
            }
        }
        let distinct: HashSet<_> = keys.iter().map(Value::as_str).collect();
        if distinct.len() < keys.len() {
            self.invalid(
                at,
                &schema["x-kubernetes-list-map-keys"],
                "must not contain duplicate entries",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::Schema;
    use serde_json::json;

    #[test]
    fn a_duplicate_item_is_reported_once_with_its_key() {
        let schema = json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "maps": {"type": "object", "additionalProperties": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "value": {"type": "string"},
                }},
            }},
        }});
        let schema = Schema::from_crd(&schema, false, "").unwrap();
        let object = json!({
            "set": ["a", "b", "a", "a"],
            "maps": {"x": [{"name": "n", "value": "1"}, {"name": "n", "value": "2"}]},
        });
        let found: Vec<_> = schema
            .check_lists(&object)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                r#"maps[x][1]: Duplicate value: {"name":"n"}"#,
                r#"set[2]: Duplicate value: "a""#
            ]
        );
    }

    #[test]
    fn every_item_of_a_list_map_has_its_keys() {
        let schema = json!({"type": "object", "properties": {"list": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "other"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        }}});
        let found: Vec<_> = Schema::from_crd(&schema, false, "s")
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "s.properties[list].items.properties[name].default: Required value: this property is in \
                 x-kubernetes-list-map-keys, so it must have a default or be a required property",
                "s.properties[list].x-kubernetes-list-map-keys: Invalid value: [\"name\",\"other\"]: entries must \
                 all be names of item properties",
            ]
        );
    }
}
