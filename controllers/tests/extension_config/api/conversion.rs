//! Conversion between `v1alpha1` and `v1beta2`.

use super::from;
use k8s_openapi::{
    ByteString,
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time},
    jiff::Timestamp,
};
use proptest::{
    collection::{btree_map, vec},
    option::of,
    prelude::*,
};
use serde_json::{Value, json};
use steersman_controllers::{
    cluster_api::{DeprecatedCondition, DeprecatedStatus, DeprecatedV1Beta1Status, Severity},
    extension_config::{
        ClientConfig, ExtensionConfig, ExtensionConfigSpec, ExtensionConfigStatus,
        ExtensionHandler, FailurePolicy, HookReference, ServiceReference, v1alpha1,
    },
};

/// Removes the empty objects that Go writes for empty structs. The selector can be empty.
fn normalized(value: &Value) -> Value {
    let Value::Object(fields) = value else {
        return value.clone();
    };
    fields
        .iter()
        .map(|(key, value)| (key.clone(), normalized(value)))
        .filter(|(key, value)| key == "namespaceSelector" || *value != json!({}))
        .collect()
}

#[test]
fn objects_are_converted_as_by_cluster_api() {
    let fixtures: Vec<Value> =
        serde_json::from_str(include_str!("../fixtures/conversion.json")).expect("JSON");
    for fixture in fixtures {
        let written = if fixture["up"] == true {
            let old: v1alpha1::ExtensionConfig = from(&fixture["from"]);
            serde_json::to_value(ExtensionConfig::from(old))
        } else {
            let new: ExtensionConfig = from(&fixture["from"]);
            serde_json::to_value(v1alpha1::ExtensionConfig::from(new))
        };
        let mut written = written.expect("JSON");
        let fields = written.as_object_mut().expect("an object");
        fields.retain(|key, _| key != "apiVersion" && key != "kind");
        assert_eq!(
            normalized(&written),
            normalized(&fixture["to"]),
            "{}",
            fixture["from"]
        );
    }
}

#[test]
fn the_two_formats_of_conditions_are_not_translated() {
    let condition = json!({"type": "Discovered", "status": "True", "reason": "Discovered",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let new: ExtensionConfig = from(&json!({
        "metadata": {"name": "quota"}, "spec": {}, "status": {"conditions": [condition]},
    }));
    let old = v1alpha1::ExtensionConfig::from(new.clone());
    let status = old.status.clone().expect("a status");
    assert!(status.conditions.is_empty());
    assert_eq!(
        status.v1beta2.expect("the new conditions").conditions.len(),
        1
    );
    assert_eq!(ExtensionConfig::from(old), new);
}

fn text() -> impl Strategy<Value = String> {
    "[a-z]{0,3}"
}

fn service() -> impl Strategy<Value = ServiceReference> {
    (text(), text(), of(text()), of(0..3)).prop_map(|(namespace, name, path, port)| {
        ServiceReference {
            namespace,
            name,
            path,
            port,
        }
    })
}

fn client_config() -> impl Strategy<Value = ClientConfig> {
    (of(text()), of(service()), of(text())).prop_map(|(url, service, ca)| ClientConfig {
        url,
        service,
        ca_bundle: ca.map(|text| ByteString(text.into_bytes())),
    })
}

fn spec() -> impl Strategy<Value = ExtensionConfigSpec> {
    let selector = btree_map(text(), text(), 0..2).prop_map(|labels| LabelSelector {
        match_labels: Some(labels),
        match_expressions: None,
    });
    (
        client_config(),
        of(selector),
        btree_map(text(), text(), 0..2),
    )
        .prop_map(
            |(client_config, namespace_selector, settings)| ExtensionConfigSpec {
                client_config,
                namespace_selector,
                settings,
            },
        )
}

fn handler() -> impl Strategy<Value = ExtensionHandler> {
    let policy = prop_oneof![Just(FailurePolicy::Fail), Just(FailurePolicy::Ignore)];
    (text(), text(), text(), of(0..3), of(policy)).prop_map(
        |(name, api_version, hook, timeout_seconds, failure_policy)| ExtensionHandler {
            name,
            request_hook: HookReference { api_version, hook },
            timeout_seconds,
            failure_policy,
        },
    )
}

fn time(seconds: i64) -> Time {
    Time(Timestamp::from_second(seconds).expect("a time"))
}

fn condition() -> impl Strategy<Value = Condition> {
    (text(), text(), text(), of(0..9_i64), 0..9_i64).prop_map(
        |(type_, status, reason, observed_generation, seconds)| Condition {
            type_,
            status,
            reason,
            message: String::new(),
            observed_generation,
            last_transition_time: time(seconds),
        },
    )
}

fn deprecated_condition() -> impl Strategy<Value = DeprecatedCondition> {
    (text(), text(), text(), text(), of(0..9_i64)).prop_map(
        |(type_, status, reason, message, seconds)| DeprecatedCondition {
            type_,
            status,
            severity: Severity::Error,
            last_transition_time: seconds.map(time),
            reason,
            message,
        },
    )
}

fn status() -> impl Strategy<Value = ExtensionConfigStatus> {
    let deprecated = of(of(vec(deprecated_condition(), 0..3))).prop_map(|v1beta1| {
        v1beta1.map(|conditions| DeprecatedStatus {
            v1beta1: conditions.map(|conditions| DeprecatedV1Beta1Status {
                conditions,
                ..Default::default()
            }),
        })
    });
    (vec(condition(), 0..3), vec(handler(), 0..3), deprecated).prop_map(
        |(conditions, handlers, deprecated)| ExtensionConfigStatus {
            conditions,
            handlers,
            deprecated,
        },
    )
}

fn config() -> impl Strategy<Value = ExtensionConfig> {
    (text(), spec(), of(status())).prop_map(|(name, spec, status)| ExtensionConfig {
        status,
        ..ExtensionConfig::new(&name, spec)
    })
}

steersman_testkit::properties! {
    #[test]
    fn a_round_trip_loses_nothing_but_empty_values(config in config()) {
        let old = v1alpha1::ExtensionConfig::from(config.clone());
        let new = ExtensionConfig::from(old.clone());
        prop_assert_eq!(without_empty(&new), without_empty(&config));
        prop_assert_eq!(v1alpha1::ExtensionConfig::from(new.clone()), old.clone());
        prop_assert_eq!(ExtensionConfig::from(old), new);
    }
}

/// Returns the JSON of an object without values that Cluster API treats as absent.
fn without_empty(config: &ExtensionConfig) -> Value {
    fn remove(value: &mut Value) {
        if let Value::Object(fields) = value {
            fields.values_mut().for_each(remove);
            let client = fields
                .get_mut("clientConfig")
                .and_then(Value::as_object_mut);
            if let Some(client) = client {
                client.retain(|_, value| {
                    *value != json!("") && *value != json!({"name": "", "namespace": ""})
                });
            }
            if fields.contains_key("namespace") && fields.get("path") == Some(&json!("")) {
                fields.remove("path");
            }
            for empty in ["v1beta1", "deprecated"] {
                if fields.get(empty) == Some(&json!({})) {
                    fields.remove(empty);
                }
            }
        }
        if let Value::Array(items) = value {
            for item in items {
                let fields = item.as_object_mut().expect("an object");
                if fields.get("timeoutSeconds") == Some(&json!(0)) {
                    fields.remove("timeoutSeconds");
                }
            }
        }
    }
    let mut value = serde_json::to_value(config).expect("JSON");
    remove(&mut value);
    // The Service can be empty after its path was removed.
    remove(&mut value);
    value
}
