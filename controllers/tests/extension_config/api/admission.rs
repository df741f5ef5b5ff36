//! Tests of the admission rules.

use super::from;
use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_controllers::extension_config::{
    ExtensionConfig,
    admission::{self, FieldErrorKind},
};

fn fixtures() -> Vec<Value> {
    serde_json::from_str(include_str!("../fixtures/admission.json")).expect("JSON")
}

fn error(config: &ExtensionConfig) -> String {
    let result = admission::validate(config);
    result
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default()
}

#[test]
fn configs_are_rejected_with_the_texts_of_cluster_api() {
    for fixture in fixtures() {
        let config: ExtensionConfig = from(&fixture["config"]);
        let expected = fixture["error"].as_str().expect("an error");
        assert_eq!(error(&config), expected, "{}", fixture["config"]);
    }
}

#[test]
fn defaults_are_those_of_cluster_api() {
    for fixture in fixtures() {
        let mut config: ExtensionConfig = from(&fixture["config"]);
        admission::default(&mut config);
        // Go does not write an empty Service.
        let mut written = serde_json::to_value(&config.spec).expect("JSON");
        let client_config = written["clientConfig"].as_object_mut().expect("an object");
        if client_config.get("service") == Some(&json!({"name": "", "namespace": ""})) {
            client_config.remove("service");
        }
        assert_eq!(
            without_empty(&written),
            without_empty(&fixture["defaulted"])
        );
    }
}

/// Removes empty texts and lists, and an empty `clientConfig`, because Go does not write them.
fn without_empty(value: &Value) -> Value {
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Array(items) => return items.iter().map(without_empty).collect(),
        value => return value.clone(),
    };
    let is_kept = |key: &str, value: &Value| {
        *value != json!("") && *value != json!([]) && (key != "clientConfig" || *value != json!({}))
    };
    fields
        .iter()
        .map(|(key, value)| (key.clone(), without_empty(value)))
        .filter(|(key, value)| is_kept(key, value))
        .collect()
}

#[test]
fn the_errors_of_all_fields_are_reported_in_a_fixed_order() {
    let config: ExtensionConfig = from(&json!({
        "metadata": {"name": "Quota"},
        "spec": {"clientConfig": {
            "url": "http://example.com",
            "service": {"name": "", "namespace": "N", "path": "x", "port": 0},
        }},
    }));
    let error = admission::validate(&config).expect_err("an invalid object");
    let fields: Vec<_> = error
        .errors()
        .iter()
        .map(|error| (&*error.field, error.kind))
        .collect();
    let invalid = FieldErrorKind::Invalid;
    let expected = [
        ("metadata.name", invalid),
        ("spec.clientConfig", FieldErrorKind::Forbidden),
        ("spec.clientConfig.url", invalid),
        ("spec.clientConfig.service.name", FieldErrorKind::Required),
        ("spec.clientConfig.service.name", invalid),
        ("spec.clientConfig.service.namespace", invalid),
        ("spec.clientConfig.service.path", invalid),
        ("spec.clientConfig.service.path", invalid),
        ("spec.clientConfig.service.port", invalid),
        ("spec.namespaceSelector", FieldErrorKind::Required),
    ];
    assert_eq!(fields, expected);
}

#[test]
fn a_defaulted_config_keeps_its_values() {
    let spec = json!({
        "clientConfig": {"service": {"name": "s", "namespace": "ns", "port": 8443}},
        "namespaceSelector": {"matchLabels": {"a": "b"}},
    });
    let mut config: ExtensionConfig = from(&json!({"metadata": {"name": "quota"}, "spec": spec}));
    let before = config.clone();
    admission::default(&mut config);
    assert_eq!(config, before);
}

steersman_testkit::properties! {
    #[test]
    fn validation_never_panics_and_is_deterministic(
        name in ".{0,70}",
        url in prop_oneof![".{0,40}", "https://[a-z0-9%@:\\[\\]./?#é]{0,30}"],
        path in "[/a%0é]{0,10}",
        key in ".{0,70}",
        value in ".{0,70}",
        operator in "In|NotIn|Exists|DoesNotExist|.{0,4}",
    ) {
        let config: ExtensionConfig = from(&json!({
            "metadata": {"name": name},
            "spec": {
                "clientConfig": {
                    "url": url, "service": {"name": name, "namespace": value, "path": path},
                },
                "namespaceSelector": {
                    "matchLabels": {&key: value, "a": "b"},
                    "matchExpressions": [{"key": key, "operator": operator, "values": [value]}],
                },
            },
        }));
        prop_assert_eq!(error(&config), error(&config.clone()));
    }
}
