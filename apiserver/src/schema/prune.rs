//! Pruning of unknown fields, and of fields that Go omits.

use super::{Additional, Node, NodeId, Schema, ValueType, is_meta, path::Path};
use crate::status::StrictErrors;
use serde_json::Value;

impl Schema {
    /// Removes unknown fields and returns their sorted paths. Keeps apiVersion, kind and metadata
    /// of the object and of embedded resources. Also removes empty lists, empty maps and zeros of
    /// built-in types, as Go does, so that adding or removing them is not a change. Those that Go
    /// writes anyway are added again as defaults.
    pub(crate) fn prune(&self, object: &mut Value) -> StrictErrors {
        let mut pruner = Pruner {
            schema: self,
            unknown: StrictErrors::new(),
        };
        pruner.prune_known(self.root(), object, &Path::ROOT);
        pruner.unknown.sort();
        pruner.unknown
    }

    /// Prunes a value that belongs to the node `id`. Returns whether it had unknown fields.
    pub(super) fn prune_at(&self, id: NodeId, value: &mut Value) -> bool {
        let mut pruner = Pruner {
            schema: self,
            unknown: StrictErrors::new(),
        };
        pruner.prune_known(self.node(id), value, &Path::ROOT.field(""));
        !pruner.unknown.is_empty()
    }
}

impl Node {
    /// Reports whether Go's `omitempty` omits the value: an empty list or map, but never a struct.
    fn omits(&self, value: &Value) -> bool {
        match value {
            Value::Array(list) => self.kind == ValueType::Array && list.is_empty(),
            Value::Object(map) => {
                matches!(self.additional, Additional::Each(_))
                    && self.fields.is_empty()
                    && map.is_empty()
            }
            _ => false,
        }
    }

    /// Reports whether Go omits a field, which can also be omitted because it is zero.
    fn omits_field(&self, field: &Self, name: &str, value: &Value) -> bool {
        let contains = |names: &[Box<str>]| names.iter().any(|it| **it == *name);
        let is_zero = match value {
            Value::String(text) => text.is_empty(),
            Value::Number(number) => number.as_i64() == Some(0),
            Value::Bool(value) => !value,
            _ => return field.omits(value) && !contains(&self.written_empty),
        };
        is_zero && contains(&self.zero)
    }
}

struct Pruner<'a> {
    schema: &'a Schema,
    unknown: StrictErrors,
}

impl Pruner<'_> {
    fn prune_known(&mut self, node: &Node, value: &mut Value, path: &Path<'_>) {
        match value {
            Value::Object(map) => {
                let meta = node.embedded || path.is_root();
                map.retain(|key, value| {
                    if meta && is_meta(key) {
                        return true;
                    }
                    match (node.named(key), node.additional) {
                        (Some(id), _) => {
                            let field = self.schema.node(id);
                            self.prune_known(field, value, &path.field(key));
                            return !self.schema.builtin || !node.omits_field(field, key, value);
                        }
                        (None, Additional::Each(id)) => {
                            self.prune_known(self.schema.node(id), value, &path.field(key));
                        }
                        (None, Additional::Open | Additional::Forbidden) => {
                            self.prune_unknown(value, &path.field(key));
                        }
                        (None, Additional::None) if node.preserve => {}
                        (None, Additional::None) => {
                            self.unknown
                                .extend(std::iter::once_with(|| path.field(key).to_string()));
                            return false;
                        }
                    }
                    true
                });
            }
            Value::Array(list) => {
                for (index, value) in list.iter_mut().enumerate() {
                    match node.items {
                        Some(id) if node.preserve => {
                            self.prune_preserved(self.schema.node(id), value, &path.index(index));
                        }
                        Some(id) => {
                            self.prune_known(self.schema.node(id), value, &path.index(index));
                        }
                        None if node.preserve => {}
                        None => self.prune_unknown(value, &path.index(index)),
                    }
                }
            }
            _ => {}
        }
    }

    /// Prunes the items of a list with `x-kubernetes-preserve-unknown-fields`. They preserve
    /// unknown fields, too.
    fn prune_preserved(&mut self, node: &Node, value: &mut Value, path: &Path<'_>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map
                    .iter_mut()
                    .filter(|(key, _)| !(node.embedded && is_meta(key)))
                {
                    if let Some(id) = node.field(key) {
                        self.prune_known(self.schema.node(id), value, &path.field(key));
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = node.items else { return };
                for (index, value) in list.iter_mut().enumerate() {
                    self.prune_preserved(self.schema.node(items), value, &path.index(index));
                }
            }
            _ => {}
        }
    }

    /// Removes all fields of a value with an unknown schema.
    fn prune_unknown(&mut self, value: &mut Value, path: &Path<'_>) {
        match value {
            Value::Object(map) => {
                self.unknown
                    .extend(map.keys().map(|key| path.field(key).to_string()));
                map.clear();
            }
            Value::Array(list) => {
                for (index, value) in list.iter_mut().enumerate() {
                    self.prune_unknown(value, &path.index(index));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::Schema;
    use serde_json::{Value, json};

    fn pruned(schema: &Value, mut object: Value) -> (Value, Vec<String>) {
        let schema = Schema::from_crd(schema, false, "").unwrap();
        let unknown = schema.prune(&mut object);
        (object, unknown.into_iter().collect())
    }

    #[test]
    fn unknown_fields_are_removed_and_reported() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }}}});
        let (object, unknown) = pruned(
            &schema,
            json!({"kind": "W", "metadata": {"x": 1}, "spec": {"nope": 1, "list": [{"a": "", "x": {}}]}, "extra": 1}),
        );
        assert_eq!(
            object,
            json!({"kind": "W", "metadata": {"x": 1}, "spec": {"list": [{"a": ""}]}})
        );
        assert_eq!(unknown, ["extra", "spec.list[0].x", "spec.nope"]);
    }

    #[test]
    fn preserving_unknown_fields_does_not_extend_to_known_fields() {
        let schema = json!({"type": "object", "properties": {"free": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"strict": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }}});
        let (object, unknown) = pruned(
            &schema,
            json!({"free": {"any": {"b": 1}, "strict": {"b": 1}}}),
        );
        assert_eq!(object, json!({"free": {"any": {"b": 1}, "strict": {}}}));
        assert_eq!(unknown, ["free.strict.b"]);
    }

    #[test]
    fn an_embedded_resource_keeps_its_metadata() {
        let schema = json!({"type": "object", "properties": {"template": {
            "type": "object",
            "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }}});
        let template =
            json!({"apiVersion": "v1", "kind": "P", "metadata": {"name": "a"}, "spec": {"b": 1}});
        let (object, unknown) = pruned(&schema, json!({"template": template}));
        assert_eq!(
            object,
            json!({"template": {"apiVersion": "v1", "kind": "P", "metadata": {"name": "a"}, "spec": {}}})
        );
        assert_eq!(unknown, ["template.spec.b"]);
    }

    #[test]
    fn open_maps_keep_scalars_and_typed_maps_keep_known_fields() {
        let schema = json!({"type": "object", "properties": {
            "open": {"type": "object", "additionalProperties": true},
            "typed": {"type": "object", "additionalProperties": {"type": "object", "properties": {
                "a": {"type": "string"},
            }}},
        }});
        let (object, unknown) = pruned(
            &schema,
            json!({"open": {"x": 1, "y": {"z": 1}}, "typed": {"k": {"a": "", "b": ""}}}),
        );
        assert_eq!(
            object,
            json!({"open": {"x": 1, "y": {}}, "typed": {"k": {"a": ""}}})
        );
        assert_eq!(unknown, ["open.y.z", "typed.k.b"]);
    }

    fn prune_builtin(definition: &'static str, mut object: Value) -> Value {
        assert!(Schema::builtin(definition).prune(&mut object).is_empty());
        object
    }

    #[test]
    fn empty_lists_and_maps_of_built_in_types_are_removed_and_empty_structs_stay() {
        let config = json!({"metadata": {"labels": {}}, "data": {"k": ""}, "binaryData": {}});
        assert_eq!(
            prune_builtin("io.k8s.api.core.v1.ConfigMap", config),
            json!({"metadata": {"labels": {}}, "data": {"k": ""}})
        );
        let spec = json!({
            "selector": {"matchLabels": {}, "matchExpressions": []},
            "template": {"metadata": {"labels": {}}, "spec": {
                "containers": [], "tolerations": [],
                "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "projected": {"sources": []}}],
            }},
        });
        assert_eq!(
            prune_builtin("io.k8s.api.apps.v1.Deployment", json!({"spec": spec}))["spec"],
            json!({"selector": {}, "template": {"metadata": {}, "spec": {
                "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "projected": {}}],
            }}})
        );
        let policy = json!({"spec": {"podSelector": {}, "ingress": [{}], "egress": []}});
        assert_eq!(
            prune_builtin("io.k8s.api.networking.v1.NetworkPolicy", policy),
            json!({"spec": {"podSelector": {}, "ingress": [{}]}})
        );
    }

    #[test]
    fn empty_values_that_go_writes_stay() {
        for (definition, object) in [
            (
                "io.k8s.api.authentication.v1.UserInfo",
                json!({"extra": {"k": []}}),
            ),
            (
                "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
                json!({"default": {}, "enum": [[]], "items": {}, "properties": {"a": {}}}),
            ),
        ] {
            assert_eq!(prune_builtin(definition, object.clone()), object);
        }
    }

    #[test]
    fn custom_resources_keep_empty_values() {
        let schema = json!({"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        }});
        let object = json!({"list": [], "map": {}});
        assert_eq!(pruned(&schema, object.clone()), (object, vec![]));
    }

    #[test]
    fn the_any_schema_keeps_everything() {
        let mut object = json!({"a": {"b": [{"c": 1}]}});
        assert!(Schema::any().prune(&mut object).is_empty());
        assert_eq!(object, json!({"a": {"b": [{"c": 1}]}}));
    }
}
