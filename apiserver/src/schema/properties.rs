//! Property tests over generated schemas and objects.

use super::Schema;
use proptest::{collection, option, prelude::*};
use serde_json::{Map, Value, json};

/// Few names, so that objects and schemas often have the same ones.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "metadata"]).prop_map(String::from)
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..100).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
        ".{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            collection::btree_map(name(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Validations of a value, without its type.
fn rules() -> impl Strategy<Value = Map<String, Value>> {
    let rule = prop_oneof![
        (0_u32..9).prop_map(|n| ("maximum", json!(n))),
        (0_u32..9).prop_map(|n| ("minimum", json!(n))),
        (1_u32..4).prop_map(|n| ("multipleOf", json!(n))),
        (0_u32..3).prop_map(|n| ("maxLength", json!(n))),
        (0_u32..3).prop_map(|n| ("minItems", json!(n))),
        (0_u32..3).prop_map(|n| ("maxProperties", json!(n))),
        any_json().prop_map(|value| ("enum", json!([value]))),
        Just(("pattern", json!("^[a-b]*$"))),
        Just(("required", json!(["a"]))),
        Just(("not", json!({"minLength": 2}))),
        Just(("anyOf", json!([{"required": ["b"]}, {"maxItems": 1}]))),
        Just(("oneOf", json!([{"maximum": 5}, {"minimum": 3}]))),
    ];
    collection::vec(rule, 0..3).prop_map(|rules| {
        rules
            .into_iter()
            .map(|(key, value)| (key.into(), value))
            .collect()
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let scalar = prop::sample::select(vec!["string", "integer", "number", "boolean"]);
    let leaf = (scalar, any::<bool>(), rules(), option::of(any_json())).prop_map(
        |(kind, nullable, mut rules, default)| {
            rules.extend([
                ("type".into(), json!(kind)),
                ("nullable".into(), json!(nullable)),
            ]);
            rules.extend(default.map(|default| ("default".into(), default)));
            Value::Object(rules)
        },
    );
    let leaf = prop_oneof![8 => leaf, 1 => Just(json!({"x-kubernetes-int-or-string": true}))];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let kind = prop::sample::select(vec!["atomic", "set", "map"]);
        let list = (inner.clone(), rules(), kind).prop_map(|(items, mut rules, kind)| {
            rules.extend([("type".into(), json!("array")), ("items".into(), items)]);
            rules.insert("x-kubernetes-list-type".into(), json!(kind));
            if kind == "map" {
                rules.insert("x-kubernetes-list-map-keys".into(), json!(["a"]));
            }
            Value::Object(rules)
        });
        let map = (inner.clone(), rules()).prop_map(|(each, mut rules)| {
            rules.extend([
                ("type".into(), json!("object")),
                ("additionalProperties".into(), each),
            ]);
            Value::Object(rules)
        });
        let object = (
            collection::btree_map(name(), inner, 0..4),
            any::<bool>(),
            rules(),
        )
            .prop_map(|(properties, preserve, mut rules)| {
                rules.extend([
                    ("type".into(), json!("object")),
                    ("properties".into(), json!(properties)),
                ]);
                if preserve {
                    rules.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
                }
                Value::Object(rules)
            });
        prop_oneof![list, map, object]
    })
    .prop_map(|spec| json!({"type": "object", "properties": {"spec": spec}}))
}

/// Compiles a schema even if its defaults are invalid, which must not cause a panic.
fn compiled() -> impl Strategy<Value = Schema> {
    schema().prop_map(|schema| super::compile::compile(&schema, false).0)
}

fn object() -> impl Strategy<Value = Value> {
    any_json().prop_map(|spec| json!({"kind": "K", "metadata": {"x": 1}, "spec": spec, "other": 1}))
}

steersman_testkit::properties! {
    #[test]
    fn pruning_is_idempotent(schema in compiled(), mut object in object()) {
        schema.prune(&mut object);
        let once = object.clone();
        prop_assert!(schema.prune(&mut object).is_empty());
        prop_assert_eq!(&object, &once);
        prop_assert_eq!(&object["metadata"], &json!({"x": 1}));
    }

    #[test]
    fn defaulting_is_idempotent(schema in compiled(), mut object in object()) {
        schema.default(&mut object);
        let once = object.clone();
        schema.default(&mut object);
        prop_assert_eq!(object, once);
    }

    #[test]
    fn validation_never_panics_and_accepts_unchanged_values(
        schema in compiled(), object in object(), old in object(),
    ) {
        let created = schema.validate(&object, None).errors;
        let updated = schema.validate(&object, Some(&old)).errors;
        prop_assert!(updated.len() <= created.len());
        let unchanged = schema.validate(&object, Some(&object)).errors;
        prop_assert!(unchanged.is_empty(), "{unchanged:?}");
    }

    #[test]
    fn compiling_any_value_never_panics(schema in any_json()) {
        let _ = Schema::from_crd(&schema, false, "s");
    }

    #[test]
    fn defaults_of_a_valid_schema_are_not_pruned(schema in schema()) {
        if let Ok(schema) = Schema::from_crd(&schema, false, "s") {
            let mut object = json!({});
            schema.default(&mut object);
            let before = object.clone();
            schema.prune(&mut object);
            prop_assert_eq!(object, before);
        }
    }

    #[test]
    fn built_in_types_never_panic(object in any_json()) {
        for name in ["io.k8s.api.apps.v1.Deployment", "io.k8s.api.core.v1.Event"] {
            let schema = Schema::builtin(name);
            let mut object = json!({"spec": object, "eventTime": object});
            let _ = schema.decode_error(&object);
            schema.prune(&mut object);
            schema.default(&mut object);
        }
    }
}
