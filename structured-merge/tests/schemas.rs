//! Schemas from their sources, and the limits of nesting.

use serde_json::{Value, json};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};
use structured_merge::{
    Duplicates, MAX_DEPTH, Set, TypedValue, ValidationErrors,
    schema::{CrdVersion, Schema, SchemaError, Type},
};

fn crd(schema: &Value) -> Result<Type, SchemaError> {
    let version = CrdVersion {
        name: "v1",
        schema: Some(schema),
    };
    let schema = Arc::new(Schema::from_crd([version], false)?);
    Ok(schema.find("v1").expect("the version exists"))
}

fn spec(schema: Value) -> Result<Type, SchemaError> {
    crd(&json!({"type": "object", "properties": {"spec": schema}}))
}

fn typed<'v>(value: &'v Value, r#type: &Type) -> Result<TypedValue<'v>, ValidationErrors> {
    TypedValue::new(Cow::Borrowed(value), r#type, Duplicates::Rejected)
}

fn fields(value: &Value, r#type: &Type) -> Value {
    let set = typed(value, r#type).unwrap().field_set().unwrap();
    serde_json::to_value(set).unwrap()
}

/// Returns a value nested in `levels` objects of one field each.
fn nested(levels: usize, field: &str, mut value: Value) -> Value {
    for _ in 0..levels {
        value = json!({ field: value });
    }
    value
}

#[test]
fn a_malformed_schema_is_an_error_that_names_the_type_and_the_reason() {
    let text = json!({"type": "string"});
    for (schema, reason) in [
        (
            json!({"type": "array"}),
            "`items` must be specified on arrays",
        ),
        (
            json!({"type": "array", "items": [text]}),
            "structural schema arrays must have one member subtype",
        ),
        (json!({"type": "text"}), "unrecognized type: 'text'"),
        (
            json!({"type": "array", "items": text, "x-kubernetes-list-type": "bag"}),
            "unknown list type \"bag\"",
        ),
        (
            json!({"type": "array", "items": text, "x-kubernetes-list-type": "map"}),
            "missing map keys",
        ),
        (
            json!({"type": "object", "x-kubernetes-map-type": "set"}),
            "unknown map type \"set\"",
        ),
    ] {
        let error = spec(schema).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot build the merge schema of v1: {reason}")
        );
    }
}

#[test]
fn a_version_without_a_schema_merges_maps_and_replaces_lists() {
    let version = CrdVersion {
        name: "v1",
        schema: None,
    };
    let schema = Arc::new(Schema::from_crd([version], false).unwrap());
    let object = json!({"spec": {"a": [{"name": "x"}], "b": {"c": 1}}});
    assert_eq!(
        fields(&object, &schema.find("v1").unwrap()),
        json!({"f:spec": {".": {}, "f:a": {}, "f:b": {".": {}, "f:c": {}}}})
    );
    assert!(schema.find("v2").is_none());
}

#[test]
fn metadata_of_objects_and_embedded_resources_has_a_type() {
    let schema = json!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    });
    let r#type = spec(schema).unwrap();
    let metadata =
        json!({"labels": {"l": "x"}, "finalizers": ["f"], "ownerReferences": [{"uid": "u"}]});
    let object = json!({"metadata": metadata, "spec": {"kind": "Pod", "metadata": metadata}});
    let expected = json!({
        "f:labels": {"f:l": {}},
        "f:finalizers": {"v:\"f\"": {}},
        "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}},
    });
    // The map of labels has no declared fields, so it is not a member itself.
    assert_eq!(
        fields(&object, &r#type),
        json!({"f:metadata": expected, "f:spec": {"f:kind": {}, "f:metadata": expected}})
    );
    let error = typed(&json!({"metadata": {"nope": 1}}), &r#type).unwrap_err();
    assert_eq!(
        error.to_string(),
        ".metadata.nope: field not declared in schema"
    );
}

#[test]
fn a_field_of_integer_or_string_accepts_both() {
    let r#type = spec(json!({"x-kubernetes-int-or-string": true})).unwrap();
    for value in [json!(5), json!("50%")] {
        assert_eq!(
            fields(&json!({"spec": value}), &r#type),
            json!({"f:spec": {}})
        );
    }
}

#[test]
fn a_reference_overrides_the_map_type_of_its_definition() {
    let definitions = BTreeMap::from([
        (
            "Ref".to_owned(),
            json!({"type": "object", "properties": {"name": {"type": "string"}}}),
        ),
        (
            "Kind".to_owned(),
            json!({"type": "object", "properties": {
                "merged": {"$ref": "#/components/schemas/Ref"},
                "atomic": {
                    "allOf": [{"$ref": "#/components/schemas/Ref"}],
                    "x-kubernetes-map-type": "atomic",
                },
            }}),
        ),
    ]);
    let schema = Arc::new(Schema::from_openapi(&definitions, false).unwrap());
    let value = json!({"merged": {"name": "x"}, "atomic": {"name": "x"}});
    assert_eq!(
        fields(&value, &schema.find("Kind").unwrap()),
        json!({"f:merged": {"f:name": {}}, "f:atomic": {}})
    );
}

#[test]
fn a_reference_to_a_missing_definition_is_an_error_of_the_value() {
    let definition = json!({"properties": {"a": {"$ref": "#/components/schemas/Missing"}}});
    let definitions = BTreeMap::from([("Kind".to_owned(), definition)]);
    let schema = Arc::new(Schema::from_openapi(&definitions, false).unwrap());
    let error = typed(&json!({"a": 1}), &schema.find("Kind").unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        ".a: schema error: no type found matching: Missing"
    );
}

#[test]
fn a_value_nested_too_deep_is_an_error() {
    let r#type = Type::deduced();
    assert!(typed(&nested(MAX_DEPTH, "a", json!(1)), &r#type).is_ok());
    let value = nested(MAX_DEPTH + 1, "a", json!(1));
    let error = typed(&value, &r#type).unwrap_err();
    assert!(
        error.to_string().ends_with("nested deeper than 128 levels"),
        "{error}"
    );
}

#[test]
fn a_value_at_the_limit_is_merged_compared_and_removed() {
    let r#type = Type::deduced();
    let old = nested(MAX_DEPTH, "a", json!(1));
    let new = nested(MAX_DEPTH, "a", json!(2));
    let (old, new) = (typed(&old, &r#type).unwrap(), typed(&new, &r#type).unwrap());
    let comparison = old.compare(&new).unwrap();
    assert_eq!(comparison.modified.len(), 1);
    assert_eq!(old.merge(&new).unwrap().value(), new.value());
    let without = old.remove_items(&comparison.modified);
    assert_eq!(*without.value(), nested(MAX_DEPTH - 1, "a", Value::Null));
    assert_eq!(old.reconcile_field_set(&comparison.modified).unwrap(), None);
}

#[test]
fn a_schema_nested_too_deep_is_an_error() {
    let mut schema = json!({"type": "string"});
    for _ in 0..=MAX_DEPTH {
        schema = json!({"type": "object", "additionalProperties": schema});
    }
    let error = spec(schema).unwrap_err();
    assert!(
        error.reason.contains("nested deeper than 128 levels"),
        "{error}"
    );
}

#[test]
fn managed_fields_nested_too_deep_are_an_error() {
    assert!(serde_json::from_value::<Set>(nested(MAX_DEPTH - 1, "f:a", json!({}))).is_ok());
    let error = serde_json::from_value::<Set>(nested(MAX_DEPTH, "f:a", json!({}))).unwrap_err();
    assert!(
        error.to_string().contains("nested deeper than 128 levels"),
        "{error}"
    );
}

#[test]
fn a_malformed_table_is_an_error() {
    for table in [
        json!({}),
        json!({"types": [{"map": {}}]}),
        json!({"types": [{"name": "a", "scalar": "text"}]}),
    ] {
        assert!(Schema::from_table(&table).is_err(), "{table}");
    }
}
