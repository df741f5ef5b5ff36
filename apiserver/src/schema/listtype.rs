//! Lists that are sets or maps: what their schemas have to say, and that no item is there twice.

use super::{Additional, List, Node, Schema, path::Path};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

impl Schema {
    /// Items that are in a set or map more than once.
    pub(super) fn check_lists(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if self.has_lists {
            self.lists_below(self.root(), object, &Path::ROOT, &mut errors);
        }
        errors
    }

    fn lists_below(&self, node: &Node, value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match (node.named(key), node.additional) {
                        (Some(id), _) => self.lists_below(self.node(id), value, &path.field(key), errors),
                        (None, Additional::Each(id)) => {
                            self.lists_below(self.node(id), value, &path.key(key), errors);
                        }
                        _ => {}
                    }
                }
            }
            Value::Array(list) => {
                match &node.list {
                    List::Atomic => {}
                    List::Set => duplicates(list.iter().cloned(), path, errors),
                    List::Map(keys) => map_duplicates(list, keys, path, errors),
                }
                if let Some(id) = node.items {
                    for (index, value) in list.iter().enumerate() {
                        self.lists_below(self.node(id), value, &path.index(index), errors);
                    }
                }
            }
            _ => {}
        }
    }
}

fn map_duplicates(list: &[Value], keys: &[String], path: &Path<'_>, errors: &mut FieldErrors) {
    if let Some(index) = list.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(index).to_string(), &list[index], detail));
        return;
    }
    if list.len() > 1 {
        duplicates(list.iter().map(|item| key_of(item, keys)), path, errors);
    }
}

/// The fields that tell an item from others.
pub(super) fn key_of(item: &Value, keys: &[String]) -> Value {
    let present = |key: &String| item.get(key).map(|value| (key.clone(), value.clone()));
    Value::Object(keys.iter().filter_map(present).collect::<Map<_, _>>())
}

/// Tells the second occurrence of each value, once.
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
    /// What a node says of lists and maps fits together.
    pub(super) fn list_and_map(&mut self, schema: &Value, path: &str) {
        let kind = schema["type"].as_str().unwrap_or_default();
        let items = &schema["items"];
        let (list, map) = (&schema["x-kubernetes-list-type"], &schema["x-kubernetes-map-type"]);
        for (extension, wanted, name) in [(map, "object", "map"), (list, "array", "list")] {
            if !extension.is_null() && kind != wanted {
                let detail = format!("must be {wanted} if x-kubernetes-{name}-type is specified");
                let at = format!("{path}.type");
                if kind.is_empty() { self.required(at, &detail) } else { self.invalid(at, &json!(kind), &detail) }
            }
        }
        for (extension, name, supported) in
            [(map, "map", &["atomic", "granular"][..]), (list, "list", &["atomic", "set", "map"])]
        {
            if extension.as_str().is_some_and(|found| !supported.contains(&found)) {
                let at = format!("{path}.x-kubernetes-{name}-type");
                self.errors.push(FieldError::not_supported(at, extension, supported));
            }
        }
        let keys = schema["x-kubernetes-list-map-keys"].as_array().map_or(&[][..], Vec::as_slice);
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

    /// The items of a set are compared, so they have to be replaced as a whole.
    fn set_items(&mut self, items: &Value, path: &str) {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let (key, wrong) = match items["type"].as_str() {
            Some("array") => ("list", items["x-kubernetes-list-type"].as_str().is_some_and(|found| found != "atomic")),
            Some("object") => ("map", items["x-kubernetes-map-type"] != "atomic"),
            _ => return,
        };
        if wrong {
            let at = format!("{path}.items.x-kubernetes-{key}-type");
            self.invalid(at, &items["x-kubernetes-list-type"], detail);
        }
    }

    fn map_keys(&mut self, schema: &Value, keys: &[Value], path: &str) {
        let items = &schema["items"];
        let at = format!("{path}.x-kubernetes-list-map-keys");
        if keys.is_empty() {
            self.required(at.clone(), "must not be empty if x-kubernetes-list-type is map");
        }
        if items.is_null() {
            self.required(format!("{path}.items"), "must have a schema if x-kubernetes-list-type is map");
        } else if items["type"] != "object" {
            let found = json!(items["type"].as_str().unwrap_or_default());
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.invalid(format!("{path}.items.type"), &found, detail);
            return;
        }
        let required: HashSet<_> = items["required"].as_array().into_iter().flatten().map(Value::as_str).collect();
        for key in keys {
            // One kind of error shows all keys.
            if self.errors.is_full() {
                break;
            }
            let name = key.as_str().unwrap_or_default();
            let Some(property) = items["properties"].get(name) else {
                let all = &schema["x-kubernetes-list-map-keys"];
                self.invalid(at.clone(), all, "entries must all be names of item properties");
                continue;
            };
            let below = format!("{path}.items.properties[{name}]");
            if property["type"] == "array" || property["type"] == "object" {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                self.invalid(format!("{below}.type"), &items["type"], detail);
            }
            if !required.contains(&key.as_str()) && property["default"].is_null() {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                              required property";
                self.required(format!("{below}.default"), detail);
            }
            if property["nullable"] == true {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbidden(format!("{below}.nullable"), detail);
            }
        }
        let distinct: HashSet<_> = keys.iter().map(Value::as_str).collect();
        if distinct.len() < keys.len() {
            self.invalid(at, &schema["x-kubernetes-list-map-keys"], "must not contain duplicate entries");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::Schema;
    use serde_json::json;

    #[test]
    fn an_item_that_is_there_again_is_told_once_with_its_key() {
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
        let found: Vec<_> = schema.check_lists(&object).iter().map(ToString::to_string).collect();
        assert_eq!(found, [r#"maps[x][1]: Duplicate value: {"name":"n"}"#, r#"set[2]: Duplicate value: "a""#]);
    }

    #[test]
    fn a_list_map_needs_keys_that_every_item_has() {
        let schema = json!({"type": "object", "properties": {"list": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "other"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        }}});
        let found: Vec<_> =
            Schema::from_crd(&schema, false, "s").unwrap_err().iter().map(ToString::to_string).collect();
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
