//! Tests of validation with realistic schemas.

use super::Schema;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn widget() -> Schema {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["color"],
                "x-kubernetes-validations": [{"rule": "true"}],
                "properties": {
                    "color": {"type": "string", "enum": ["red", "green"]},
                    "replicas": {"type": "integer", "format": "int32", "default": 1, "minimum": 0, "maximum": 10},
                    "name": {"type": "string", "maxLength": 3, "minLength": 2, "pattern": "^[a-z]+$"},
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 3,
                        "items": {"type": "string"}},
                    "ports": {"type": "array", "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string"}, "port": {"type": "integer", "maximum": 65535}}}},
                    "max": {"x-kubernetes-int-or-string": true,
                        "anyOf": [{"type": "integer"}, {"type": "string"}]},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "maybe": {"type": "string", "nullable": true},
                    "when": {"type": "string", "format": "date-time"},
                    "closed": {"type": "object", "additionalProperties": false},
                    "map": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}},
                },
            },
        },
    });
    Schema::from_crd(&schema, false, "s").unwrap()
}

fn errors(spec: Value) -> Vec<String> {
    messages(&widget(), &json!({"spec": spec}), None)
}

fn messages(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<String> {
    let all = schema.validate(object, old).errors;
    all.iter()
        .map(ToString::to_string)
        .filter(|text| !text.starts_with("<nil>: Invalid value: null: some"))
        .collect()
}

#[test]
fn a_valid_object_has_no_errors() {
    let spec = json!({"color": "red", "replicas": 3, "max": "50%", "free": {"a": [1]}, "maybe": null, "name": "ab",
        "when": "2026-01-02T03:04:05Z", "tags": ["a", "b"], "ports": [{"name": "a", "port": 80}]});
    assert_eq!(errors(spec), Vec::<String>::new());
}

#[test]
fn numbers_out_of_range_are_reported_with_the_limit() {
    assert_eq!(
        errors(json!({"color": "red", "replicas": 50})),
        [
            "spec.replicas: Invalid value: 50: spec.replicas in body should be less than or equal to 10"
        ]
    );
    assert_eq!(
        errors(json!({"color": "red", "replicas": -1})),
        [
            "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0"
        ]
    );
}

#[test]
fn a_wrong_type_is_reported_with_the_one_found() {
    assert_eq!(
        errors(json!({"color": "red", "replicas": "3"})),
        [
            r#"spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string""#
        ]
    );
    assert_eq!(
        errors(json!({"color": "red", "map": {"k": null}})),
        [
            r#"spec.map.k: Invalid value: "null": spec.map.k in body must be of type integer: "null""#
        ]
    );
    assert_eq!(
        errors(json!({"color": "red", "when": "soon"})),
        [
            r#"spec.when: Invalid value: "soon": spec.when in body must be of type date-time: "soon""#
        ]
    );
    assert_eq!(errors(json!({"color": "red", "max": true})).len(), 3);
}

#[test]
fn missing_unsupported_and_too_long_values_have_their_own_errors() {
    assert_eq!(errors(json!({})), ["spec.color: Required value"]);
    assert_eq!(
        errors(json!({"color": "blue"})),
        [r#"spec.color: Unsupported value: "blue": supported values: "red", "green""#]
    );
    assert_eq!(
        errors(json!({"color": "red", "name": "äöüß"})),
        ["spec.name: Too long: may not be more than 3 bytes"]
    );
    assert_eq!(
        errors(json!({"color": "red", "name": "A1"})),
        ["spec.name: Invalid value: \"A1\": spec.name in body should match '^[a-z]+$'"]
    );
    assert_eq!(
        errors(json!({"color": "red", "name": "a"})),
        ["spec.name: Invalid value: \"a\": spec.name in body should be at least 2 chars long"]
    );
    assert_eq!(
        errors(json!({"color": "red", "tags": ["a", "b", "c", "d"]})),
        ["spec.tags: Too many: 4: must have at most 3 items"]
    );
    assert_eq!(
        errors(json!({"color": "red", "map": {"a": 1, "b": 2}})),
        ["spec.map: Too many: 2: must have at most 1 item"]
    );
    assert_eq!(
        errors(json!({"color": "red", "closed": {"x": 1}})),
        ["spec.closed: Invalid value: \"x\": spec.closed.x in body is a forbidden property"]
    );
}

#[test]
fn all_errors_are_reported_and_that_rules_were_not_checked() {
    let object = json!({"spec": {"replicas": 50, "tags": ["a", "a"], "color": "blue", "ports": [{"port": 1}]}});
    let found: Vec<_> = widget()
        .validate(&object, None)
        .errors
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        found,
        [
            r#"spec.color: Unsupported value: "blue": supported values: "red", "green""#,
            "spec.ports[0].name: Required value",
            "spec.replicas: Invalid value: 50: spec.replicas in body should be less than or equal to 10",
            r#"spec.tags[1]: Duplicate value: "a""#,
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
             correct the existing errors to complete validation",
        ]
    );
}

#[test]
fn rules_are_checked_if_all_types_are_valid() {
    let found = widget()
        .validate(&json!({"spec": {"color": "red", "replicas": 50}}), None)
        .errors;
    assert_eq!(found.len(), 1);
}

#[test]
fn unchanged_invalid_values_are_accepted_on_update() {
    let schema = widget();
    let old = json!({"spec": {"color": "blue", "replicas": 50, "name": "ab"}});
    let new = json!({"spec": {"color": "blue", "replicas": 50, "name": "cd"}});
    assert_eq!(messages(&schema, &new, Some(&old)), Vec::<String>::new());
    let new = json!({"spec": {"color": "blue", "replicas": 51, "name": "cd"}});
    assert_eq!(messages(&schema, &new, Some(&old)).len(), 1);
    // A missing required field has no old value, so its parent object must be unchanged.
    let old = json!({"spec": {"name": "ab"}});
    assert_eq!(
        messages(&schema, &json!({"spec": {"name": "cd"}}), Some(&old)),
        ["spec.color: Required value"]
    );
}

#[test]
fn items_of_list_maps_are_compared_by_their_keys() {
    let schema = widget();
    let ports = |ports: Value| json!({"spec": {"color": "red", "ports": ports}});
    let old = ports(json!([{"name": "a", "port": 99999}]));
    let new = ports(json!([{"name": "b", "port": 1}, {"name": "a", "port": 99999}]));
    assert_eq!(messages(&schema, &new, Some(&old)), Vec::<String>::new());
    let new = ports(json!([{"name": "b", "port": 99999}]));
    assert_eq!(messages(&schema, &new, Some(&old)).len(), 1);
}

#[test]
fn duplicates_are_accepted_on_update_if_the_old_object_has_some() {
    let schema = widget();
    let tags = |tags: Value| json!({"spec": {"color": "red", "tags": tags}});
    let twice = tags(json!(["a", "a"]));
    assert_eq!(
        messages(&schema, &tags(json!(["b", "b"])), Some(&twice)),
        Vec::<String>::new()
    );
    assert_eq!(
        messages(&schema, &twice, Some(&tags(json!(["a"])))).len(),
        1
    );
}

#[test]
fn errors_of_junctors_contain_those_of_their_schemas() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"required": ["a", "b"]}}}});
    let schema = Schema::from_crd(&schema, false, "s").unwrap();
    assert_eq!(
        messages(&schema, &json!({"spec": {}}), None),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
            "spec.a: Required value",
        ]
    );
    assert_eq!(
        messages(&schema, &json!({"spec": {"a": "", "b": ""}}), None),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid \
             alternatives",
            "<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)",
        ]
    );
    assert_eq!(
        messages(&schema, &json!({"spec": {"a": ""}}), None),
        Vec::<String>::new()
    );
}

#[test]
fn whole_numbers_can_have_a_decimal_point() {
    assert_eq!(
        errors(json!({"color": "red", "replicas": 3.0})),
        Vec::<String>::new()
    );
    assert_eq!(
        errors(json!({"color": "red", "replicas": 3.5})),
        [
            r#"spec.replicas: Invalid value: "float64": spec.replicas in body must be of type int32: "float64""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.replicas"#,
        ]
    );
}

#[test]
fn a_default_must_be_valid_and_have_no_unknown_fields() {
    let found = |field: Value| -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"a": field}});
        Schema::from_crd(&schema, false, "s")
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(
        found(json!({"type": "integer", "default": "x"})),
        [
            r#"s.properties[a].default: Invalid value: "string":  in body must be of type integer: "string""#
        ]
    );
    assert_eq!(
        found(
            json!({"type": "object", "default": {"x": 1}, "properties": {"y": {"type": "string"}}})
        ),
        [r#"s.properties[a].default: Invalid value: {"x":1}: must not have unknown fields"#]
    );
}

#[test]
fn embedded_resources_require_apiversion_and_kind() {
    let schema = json!({"type": "object", "properties": {"template": {"type": "object",
        "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    let schema = Schema::from_crd(&schema, false, "s").unwrap();
    assert_eq!(
        messages(&schema, &json!({"template": {"kind": "P"}}), None),
        ["template.apiVersion: Required value"]
    );
}

/// A create has a budget of 40 µs, of which validation takes a part. Measures the fastest of many
/// runs, so that a busy machine does not matter.
#[test]
fn a_valid_object_is_validated_quickly() {
    let labels: serde_json::Map<_, _> = (0..8)
        .map(|n| {
            (
                format!("example.com/label-{n}"),
                json!("a-value-of-some-length"),
            )
        })
        .collect();
    let container = json!({"name": "a", "image": "registry/image:1", "env": [{"name": "A", "value": "b"}],
        "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
    assert!(object.to_string().len() > 900);
    let schema = Schema::builtin("io.k8s.api.apps.v1.Deployment");
    let mut run = || {
        let start = Instant::now();
        assert!(schema.prune(&mut object).is_empty());
        assert_eq!(schema.decode_error(&object), None);
        start.elapsed()
    };
    let best = (0..200).map(|_| run()).min().unwrap_or_default();
    // Unoptimized builds are about twenty times slower.
    let limit = if cfg!(debug_assertions) { 200 } else { 10 };
    assert!(best < Duration::from_micros(limit), "{best:?}");
}
