//! Defaulting of objects and removal of nulls.

use super::{Additional, Node, Schema, ValueFormat, gotime, quantity};
use serde_json::{Map, Value};

impl Schema {
    /// Sets defaults. A null in a field that is not nullable becomes the default, or is removed
    /// without one.
    pub(crate) fn default(&self, object: &mut Value) {
        self.apply_default(self.root(), object);
    }

    fn apply_default(&self, node: &Node, value: &mut Value) {
        match value {
            Value::Object(map) => self.apply_map_defaults(node, map),
            Value::Array(list) => {
                let Some(items) = node.items.map(|id| self.node(id)) else {
                    return;
                };
                for item in list {
                    // A null item without a default cannot be removed. It stays and is invalid.
                    if let (Value::Null, false, Some(default)) =
                        (&*item, items.nullable, &items.default)
                    {
                        *item = default.clone();
                    }
                    self.apply_default(items, item);
                }
            }
            Value::String(_) | Value::Number(_)
                if matches!(node.format, Some(ValueFormat::Quantity)) =>
            {
                if let Some(canonical) = quantity::canonical(value) {
                    *value = canonical;
                }
            }
            // Times are normalized to UTC.
            Value::String(text)
                if matches!(
                    node.format,
                    Some(ValueFormat::Time | ValueFormat::MicroTime)
                ) =>
            {
                let micro = matches!(node.format, Some(ValueFormat::MicroTime));
                if let Some(normalized) = gotime::normalize(text, micro) {
                    *text = normalized;
                }
            }
            _ => {}
        }
    }

    /// Sets the default of one missing field of an object.
    pub(crate) fn default_field(&self, object: &mut Value, name: &str) {
        let filled = self
            .root()
            .filled
            .iter()
            .find(|(field, _)| **field == *name);
        if let (Some((_, filled)), Some(node), Some(map)) = (
            filled,
            self.field(self.root(), name),
            object.as_object_mut(),
        ) && !map.contains_key(name)
        {
            self.apply_default(node, map.entry(name).or_insert(filled.clone()));
        }
    }

    fn apply_map_defaults(&self, node: &Node, map: &mut Map<String, Value>) {
        map.retain(|key, value| {
            let Some(node) = self.field(node, key) else {
                return true;
            };
            if value.is_null() && !node.nullable {
                match &node.default {
                    Some(default) => *value = default.clone(),
                    None => return false,
                }
            }
            true
        });
        for (name, id) in &node.fields {
            if let Some(default) = &self.node(*id).default
                && !map.contains_key(&**name)
            {
                map.insert(name.to_string(), default.clone());
            }
        }
        for (name, filled) in &node.filled {
            match map.get_mut(&**name) {
                None => drop(map.insert(name.to_string(), filled.clone())),
                Some(value) if value == "" => *value = filled.clone(),
                Some(_) => {}
            }
        }
        if let Some(rule) = node.rule {
            rule(map);
        }
        if !node.fields.is_empty() || matches!(node.additional, Additional::Each(_)) {
            for (key, value) in map {
                if let Some(node) = self.field(node, key) {
                    self.apply_default(node, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::Schema;
    use serde_json::{Value, json};

    fn defaulted(spec: Value, mut object: Value) -> Value {
        let schema = json!({"type": "object", "properties": spec});
        Schema::from_crd(&schema, false, "")
            .unwrap()
            .default(&mut object);
        object
    }

    #[test]
    fn missing_fields_and_nulls_get_their_default() {
        let spec = json!({"replicas": {"type": "integer", "default": 1}});
        assert_eq!(defaulted(spec.clone(), json!({})), json!({"replicas": 1}));
        assert_eq!(
            defaulted(spec.clone(), json!({"replicas": null})),
            json!({"replicas": 1})
        );
        assert_eq!(
            defaulted(spec, json!({"replicas": 3})),
            json!({"replicas": 3})
        );
    }

    #[test]
    fn a_null_stays_only_in_nullable_fields() {
        let spec = json!({"a": {"type": "string"}, "b": {"type": "string", "nullable": true}});
        assert_eq!(
            defaulted(spec, json!({"a": null, "b": null})),
            json!({"b": null})
        );
        let spec = json!({"b": {"type": "string", "nullable": true, "default": "x"}});
        assert_eq!(
            defaulted(spec.clone(), json!({"b": null})),
            json!({"b": null})
        );
        assert_eq!(defaulted(spec, json!({})), json!({"b": "x"}));
    }

    #[test]
    fn items_and_defaulted_objects_get_their_own_defaults() {
        let spec = json!({
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {
                    "name": {"type": "string", "default": "main"}, "protocol": {"type": "string", "default": "TCP"},
                }}},
            "outer": {"type": "object", "default": {}, "properties": {"inner": {"type": "string", "default": "x"}}},
        });
        assert_eq!(
            defaulted(spec, json!({"ports": [{"name": "a"}, {}]})),
            json!({
                "ports": [{"name": "a", "protocol": "TCP"}, {"name": "main", "protocol": "TCP"}],
                "outer": {"inner": "x"},
            })
        );
    }

    #[test]
    fn a_missing_object_gets_no_defaults() {
        let spec = json!({"outer": {"type": "object", "properties": {"inner": {"type": "string", "default": "x"}}}});
        assert_eq!(defaulted(spec, json!({})), json!({}));
    }

    #[test]
    fn the_entries_of_a_map_get_their_defaults() {
        let spec = json!({"map": {"type": "object", "additionalProperties": {
            "type": "object", "properties": {"a": {"type": "integer", "default": 1}},
        }}});
        assert_eq!(
            defaulted(spec, json!({"map": {"x": {}, "y": null}})),
            json!({"map": {"x": {"a": 1}}})
        );
    }
}
