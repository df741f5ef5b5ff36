//! Setting, sorting, reading and mirroring conditions.

use crate::support::{at, dynamic, from};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use steersman::conditions::{Status, new};
use steersman_controllers::cluster_api::{
    Cluster, Conditions,
    conditions::{self, Fallback, mirror, reported},
};

fn cluster(generation: i64) -> Cluster {
    from(json!({"metadata": {"name": "shop", "generation": generation}, "spec": {"paused": false}}))
}

fn types(cluster: &Cluster) -> Vec<&str> {
    cluster
        .conditions()
        .iter()
        .map(|condition| &*condition.type_)
        .collect()
}

#[test]
fn a_new_condition_is_added_at_its_place() {
    let mut cluster = cluster(1);
    for type_ in ["zzz", "bar", "foo"] {
        assert!(conditions::set(
            &mut cluster,
            new(type_, Status::True, "Reason", "", at(0))
        ));
    }
    assert_eq!(types(&cluster), ["bar", "foo", "zzz"]);
}

#[test]
fn conditions_are_sorted_in_the_order_of_cluster_api() {
    let mut cluster = cluster(1);
    let set = [
        "Deleting",
        "B",
        "Available",
        "A",
        "Paused",
        "ScalingUp",
        "Ready",
        "InfrastructureReady",
        "C!",
    ];
    for type_ in set {
        conditions::set(&mut cluster, new(type_, Status::True, "Reason", "", at(0)));
    }
    let sorted = [
        "Available",
        "Ready",
        "InfrastructureReady",
        "ScalingUp",
        "A",
        "B",
        "C!",
        "Paused",
        "Deleting",
    ];
    assert_eq!(types(&cluster), sorted);
}

#[test]
fn an_unchanged_condition_leaves_the_order_of_the_list() {
    let mut cluster = cluster(0);
    let condition = |type_| new(type_, Status::True, "Reason", "", at(0));
    *cluster.conditions_mut() = vec![condition("Paused"), condition("Ready")];
    assert!(!conditions::set(&mut cluster, condition("Ready")));
    assert_eq!(types(&cluster), ["Paused", "Ready"]);
    assert!(conditions::set(
        &mut cluster,
        new("Ready", Status::False, "Reason", "", at(1))
    ));
    assert_eq!(types(&cluster), ["Ready", "Paused"]);
}

#[test]
fn a_condition_gets_the_generation_of_the_object() {
    let mut cluster = cluster(123);
    conditions::set(&mut cluster, new("foo", Status::True, "Reason", "", at(0)));
    assert_eq!(cluster.conditions()[0].observed_generation, Some(123));
}

#[test]
fn the_time_of_a_condition_changes_with_its_status_only_and_has_whole_seconds() {
    let mut cluster = cluster(1);
    let condition = |status, reason: &str, milliseconds: i64| {
        let time = at(0) + jiff_milliseconds(milliseconds);
        new("foo", status, reason, "", time)
    };
    let time = |cluster: &Cluster| cluster.conditions()[0].last_transition_time.0;

    conditions::set(&mut cluster, condition(Status::True, "One", 1_200));
    assert_eq!(time(&cluster), at(1));
    conditions::set(&mut cluster, condition(Status::True, "Two", 5_000));
    assert_eq!(
        (time(&cluster), &*cluster.conditions()[0].reason),
        (at(1), "Two")
    );
    conditions::set(&mut cluster, condition(Status::False, "Two", 7_900));
    assert_eq!(time(&cluster), at(7));
}

fn jiff_milliseconds(milliseconds: i64) -> k8s_openapi::jiff::SignedDuration {
    k8s_openapi::jiff::SignedDuration::from_millis(milliseconds)
}

#[test]
fn a_condition_is_removed_by_its_type() {
    let mut cluster = cluster(1);
    assert!(!conditions::remove(&mut cluster, "foo"));
    assert_eq!(cluster.status, None, "removing nothing creates no status");
    conditions::set(&mut cluster, new("foo", Status::True, "Reason", "", at(0)));
    conditions::set(&mut cluster, new("bar", Status::False, "Reason", "", at(0)));
    assert!(conditions::remove(&mut cluster, "foo"));
    assert!(!conditions::remove(&mut cluster, "foo"));
    assert_eq!(types(&cluster), ["bar"]);
}

#[test]
fn a_missing_condition_is_unknown() {
    let mut cluster = cluster(1);
    for status in [Status::True, Status::False, Status::Unknown] {
        conditions::set(
            &mut cluster,
            new(status.as_str(), status, "Reason", "", at(0)),
        );
    }
    let is = |type_| {
        let functions = [
            conditions::is_true,
            conditions::is_false,
            conditions::is_unknown,
        ];
        functions.map(|function: fn(&Cluster, &str) -> bool| function(&cluster, type_))
    };
    assert_eq!(is("True"), [true, false, false]);
    assert_eq!(is("False"), [false, true, false]);
    assert_eq!(is("Unknown"), [false, false, true]);
    assert_eq!(is("missing"), [false, false, true]);
}

#[test]
fn the_state_of_a_condition_does_not_include_its_time() {
    let condition = Condition {
        observed_generation: Some(1),
        ..new("foo", Status::True, "Reason", "message", at(0))
    };
    let later = Condition {
        last_transition_time: Time(at(9)),
        ..condition.clone()
    };
    assert!(conditions::has_same_state(&condition, &later));
    let generation = Condition {
        observed_generation: Some(2),
        ..condition.clone()
    };
    assert!(!conditions::has_same_state(&condition, &generation));
    assert!(conditions::has_same_state_except_generation(
        &condition,
        &generation
    ));
    for field in ["type", "status", "reason", "message"] {
        let mut other = serde_json::to_value(&condition).unwrap();
        other[field] = "other".into();
        let other = from(other);
        assert!(!conditions::has_same_state(&condition, &other), "{field}");
        assert!(
            !conditions::has_same_state_except_generation(&condition, &other),
            "{field}"
        );
    }
}

/// Returns what is reported for an object with this status.
fn reported_in(status: Value) -> Result<Vec<Condition>, String> {
    let object = dynamic(
        "example.com/v1",
        "DockerCluster",
        "shop",
        json!({"status": status}),
    );
    reported(&object, at(9)).map_err(|error| error.to_string())
}

#[test]
fn conditions_of_dynamic_objects_are_found_in_every_version() {
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Created", "message": "m",
        "lastTransitionTime": at(1).to_string(), "observedGeneration": 4,
    });
    let other = json!({"type": "Other", "status": "False", "severity": "Info"});
    let expected: Vec<Condition> = vec![from(condition.clone())];
    let statuses = [
        json!({"conditions": [condition]}),
        json!({"conditions": [condition], "deprecated": {"v1beta1": {"conditions": [other]}}}),
        json!({"conditions": [other], "v1beta2": {"conditions": [condition]}}),
        json!({"conditions": [condition], "v1beta2": null}),
        json!({"conditions": [condition], "v1beta2": {"conditions": "none"}}),
        json!({"conditions": [condition, "text", null]}),
    ];
    for status in statuses {
        assert_eq!(
            reported_in(status.clone()),
            Ok(expected.clone()),
            "{status}"
        );
    }
    let empty = [
        json!(null),
        json!("text"),
        json!({}),
        json!({"conditions": null}),
        json!({"conditions": []}),
        json!({"conditions": {"type": "Ready"}}),
        json!({"conditions": [condition], "v1beta2": {"conditions": []}}),
    ];
    for status in empty {
        assert_eq!(reported_in(status.clone()), Ok(Vec::new()), "{status}");
    }
}

#[test]
fn a_reported_condition_without_reason_and_time_gets_both() {
    let conditions = reported_in(json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    let expected = new("Ready", Status::True, "NoReasonReported", "", at(9));
    assert_eq!(conditions, Ok(vec![expected]));
}

#[test]
fn a_reported_condition_that_is_invalid_is_an_error() {
    let prefix = "failed to convert status.conditions from DockerCluster to []metav1.Condition: ";
    let cases = [
        (
            json!({"status": "True"}),
            "type must be set for all conditions",
        ),
        (
            json!({"type": "Ready"}),
            "status must be set for the Ready condition",
        ),
        (
            json!({"type": "Ready", "status": "Yes"}),
            "status for the Ready condition must be one of True, False, Unknown",
        ),
        (
            json!({"type": 7, "status": "True"}),
            "type must be a string for all conditions, found 7",
        ),
    ];
    for (condition, reason) in cases {
        let valid = json!({"type": "Valid", "status": "True"});
        let result = reported_in(json!({"conditions": [valid, condition]}));
        assert_eq!(result, Err(format!("{prefix}{reason}")));
    }
    let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": "noon"});
    let error = reported_in(json!({"v1beta2": {"conditions": [condition]}})).unwrap_err();
    let prefix = "failed to convert status.v1beta2.conditions from DockerCluster to \
                  []metav1.Condition: failed to unmarshal lastTransitionTime value: noon: ";
    assert!(error.starts_with(prefix), "{error}");
}

#[test]
fn a_mirrored_condition_has_the_state_and_time_of_its_source() {
    for message in ["We are good!", ""] {
        let source = Condition {
            observed_generation: Some(10),
            ..new("Ready", Status::True, "AllGood", message, at(0))
        };
        let same = mirror(std::slice::from_ref(&source), "Ready", "Ready", None, at(9));
        assert_eq!(same, new("Ready", Status::True, "AllGood", message, at(0)));
        let other = mirror(&[source], "Ready", "SomethingReady", None, at(9));
        assert_eq!(
            other,
            new("SomethingReady", Status::True, "AllGood", message, at(0))
        );
    }
}

#[test]
fn a_mirrored_condition_without_source_is_the_fallback_or_unknown() {
    let unknown = mirror(&[], "Ready", "SomethingReady", None, at(9));
    let message = "Condition Ready not yet reported";
    assert_eq!(
        unknown,
        new(
            "SomethingReady",
            Status::Unknown,
            "NotYetReported",
            message,
            at(9)
        )
    );
    let fallback = Fallback {
        status: Status::True,
        reason: "SomeReason".into(),
        message: "Foo".into(),
    };
    let mirrored = mirror(&[], "Ready", "Ready", Some(fallback), at(9));
    assert_eq!(
        mirrored,
        new("Ready", Status::True, "SomeReason", "Foo", at(9))
    );
}
