//! Conditions in the format of v1beta1.

use crate::support::{at, dynamic, from};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use steersman_controllers::cluster_api::{
    Cluster, Conditions, DeprecatedCondition, Severity,
    deprecated::{self, Summary, mirror, reported, summary},
};

fn cluster() -> Cluster {
    from(json!({"metadata": {"name": "shop"}, "spec": {"paused": false}}))
}

fn info(type_: &str, text: &str) -> DeprecatedCondition {
    unmet(type_, text, Severity::Info)
}

fn unmet(type_: &str, text: &str, severity: Severity) -> DeprecatedCondition {
    DeprecatedCondition::unmet(
        type_,
        format!("reason {text}"),
        severity,
        format!("message {text}"),
    )
}

fn met(type_: &str) -> DeprecatedCondition {
    DeprecatedCondition::met(type_)
}

/// Returns a condition with negative polarity that reports a problem.
fn negative(type_: &str, text: &str) -> DeprecatedCondition {
    DeprecatedCondition {
        status: "True".into(),
        ..info(type_, text)
    }
}

#[test]
fn deprecated_conditions_are_sorted_with_ready_first() {
    let mut cluster = cluster();
    for type_ in ["b", "a", "Ready", "Available", "a"] {
        deprecated::mark_true(&mut cluster, type_, at(0));
    }
    let types: Vec<_> = cluster
        .deprecated_conditions()
        .iter()
        .map(|it| &*it.type_)
        .collect();
    assert_eq!(types, ["Ready", "Available", "a", "b"]);
}

#[test]
fn the_time_of_a_deprecated_condition_changes_with_every_other_field() {
    let changes: [fn(&mut DeprecatedCondition); 4] = [
        |it| it.status = "Unknown".into(),
        |it| it.severity = Severity::Warning,
        |it| it.reason = "another".into(),
        |it| it.message = "another".into(),
    ];
    for change in changes {
        let mut cluster = cluster();
        let time = |cluster: &Cluster| {
            deprecated::find(cluster, "foo")
                .unwrap()
                .last_transition_time
                .clone()
        };
        let mut foo = info("foo", "foo");
        deprecated::set(&mut cluster, foo.clone(), at(1));
        assert_eq!(time(&cluster), Some(Time(at(1))));
        deprecated::set(&mut cluster, foo.clone(), at(2));
        assert_eq!(time(&cluster), Some(Time(at(1))), "nothing changed");
        change(&mut foo);
        foo.last_transition_time = Some(Time(at(7)));
        deprecated::set(&mut cluster, foo.clone(), at(3));
        assert_eq!(time(&cluster), Some(Time(at(3))), "{foo:?}");
    }
}

#[test]
fn a_deprecated_condition_of_a_new_type_keeps_its_time() {
    let mut cluster = cluster();
    let foo = DeprecatedCondition {
        last_transition_time: Some(Time(at(1))),
        ..met("foo")
    };
    deprecated::set(&mut cluster, foo.clone(), at(2));
    assert_eq!(deprecated::find(&cluster, "foo"), Some(&foo));
}

#[test]
fn the_state_of_a_deprecated_condition_does_not_include_its_time() {
    let condition = info("foo", "foo");
    let later = DeprecatedCondition {
        last_transition_time: Some(Time(at(1))),
        ..condition.clone()
    };
    assert!(deprecated::has_same_state(&condition, &later));
    for field in ["type", "status", "severity", "reason", "message"] {
        let mut other = serde_json::to_value(&condition).unwrap();
        other[field] = "other".into();
        assert!(
            !deprecated::has_same_state(&condition, &from(other)),
            "{field}"
        );
    }
}

#[test]
fn deprecated_conditions_are_marked() {
    let mut cluster = cluster();
    deprecated::mark_true(&mut cluster, "foo", at(0));
    deprecated::mark_false(
        &mut cluster,
        "bar",
        "reasonBar",
        Severity::Error,
        "messageBar",
        at(0),
    );
    deprecated::mark_unknown(&mut cluster, "baz", "reasonBaz", "messageBaz", at(0));
    let time = at(0).to_string();
    let expected = json!([
        {"type": "bar", "status": "False", "severity": "Error", "reason": "reasonBar",
         "message": "messageBar", "lastTransitionTime": time},
        {"type": "baz", "status": "Unknown", "reason": "reasonBaz", "message": "messageBaz",
         "lastTransitionTime": time},
        {"type": "foo", "status": "True", "lastTransitionTime": time},
    ]);
    assert_eq!(
        serde_json::to_value(cluster.deprecated_conditions()).unwrap(),
        expected
    );
    let is = |type_| {
        let functions = [
            deprecated::is_true,
            deprecated::is_false,
            deprecated::is_unknown,
        ];
        functions.map(|function: fn(&Cluster, &str) -> bool| function(&cluster, type_))
    };
    assert_eq!(is("foo"), [true, false, false]);
    assert_eq!(is("bar"), [false, true, false]);
    assert_eq!(is("baz"), [false, false, true]);
    assert_eq!(is("missing"), [false, false, true]);

    assert!(deprecated::remove(&mut cluster, "bar"));
    assert!(!deprecated::remove(&mut cluster, "bar"));
    assert_eq!(cluster.deprecated_conditions().len(), 2);
}

#[test]
fn an_unknown_severity_is_kept() {
    let condition = json!({"type": "foo", "status": "False", "severity": "Fatal"});
    let read: DeprecatedCondition = from(condition.clone());
    assert_eq!(read.severity, Severity::Other("Fatal".into()));
    assert_eq!(serde_json::to_value(read).unwrap(), condition);
}

#[test]
fn a_deprecated_mirror_is_ready_of_the_source_or_the_fallback() {
    let ready = DeprecatedCondition {
        last_transition_time: Some(Time(at(1))),
        ..info("Ready", "r")
    };
    let expected = DeprecatedCondition {
        type_: "bar".into(),
        ..ready.clone()
    };
    let fallback = Some(info("", "fallback"));
    assert_eq!(
        mirror(&[info("foo", "f"), ready], "bar", fallback.clone()),
        Some(expected)
    );
    assert_eq!(
        mirror(&[info("foo", "f")], "bar", fallback),
        Some(info("bar", "fallback"))
    );
    assert_eq!(mirror(&[info("foo", "f")], "bar", None), None);

    let mut cluster = cluster();
    deprecated::set_mirror(&mut cluster, "bar", &[], None, at(2));
    assert_eq!(cluster.deprecated_conditions(), []);
    deprecated::set_mirror(&mut cluster, "bar", &[met("Ready")], None, at(2));
    assert!(deprecated::is_true(&cluster, "bar"));
}

#[test]
fn a_summary_reports_the_most_important_condition() {
    let unknown = DeprecatedCondition::unknown("u", "reason u", "message u");
    let ranked = [
        unmet("z", "error", Severity::Error),
        unmet("y", "warning", Severity::Warning),
        info("x", "info"),
        met("w"),
        unknown,
        unmet("v", "none", Severity::None),
    ];
    for (index, first) in ranked.iter().enumerate() {
        let mut conditions = ranked[index..].to_vec();
        conditions.reverse();
        let expected = DeprecatedCondition {
            type_: "Ready".into(),
            ..first.clone()
        };
        assert_eq!(summary(&conditions, &Summary::default()), Some(expected));
    }
}

#[test]
fn a_summary_covers_the_selected_types_but_not_ready() {
    let [foo, bar, baz] = [met("foo"), info("bar", "1"), info("baz", "2")];
    let ready = |condition: &DeprecatedCondition| {
        Some(DeprecatedCondition {
            type_: "Ready".into(),
            ..condition.clone()
        })
    };
    let of = |types| Summary {
        types: Some(types),
        ..Summary::default()
    };
    assert_eq!(summary(&[], &Summary::default()), None);
    let existing = unmet("Ready", "existing", Severity::Error);
    assert_eq!(
        summary(std::slice::from_ref(&existing), &Summary::default()),
        None
    );
    let conditions = [existing, foo.clone(), bar.clone(), baz.clone()];
    assert_eq!(summary(&conditions, &Summary::default()), ready(&bar));
    assert_eq!(summary(&conditions, &of(&["foo"])), ready(&foo));
    assert_eq!(
        summary(&conditions, &of(&["baz", "bar"])),
        ready(&baz),
        "the first one decides"
    );
    assert_eq!(summary(&conditions, &of(&["other"])), None);
}

#[test]
fn a_summary_negates_the_status_of_types_with_negative_polarity() {
    let [foo, bar] = [met("foo"), info("bar", "1")];
    let good = DeprecatedCondition {
        status: "False".into(),
        ..met("good-negative")
    };
    let bad = negative("bad-negative", "2");
    let options = |types| Summary {
        types,
        negative: &["good-negative", "bad-negative"],
        ..Summary::default()
    };
    let all = [foo, bar, good, bad];
    assert_eq!(summary(&all[2..], &options(None)), Some(info("Ready", "2")));
    assert_eq!(
        summary(&all, &options(None)),
        Some(info("Ready", "2")),
        "sorted by type"
    );
    assert_eq!(
        summary(&all, &options(Some(&["good-negative"]))),
        Some(met("Ready"))
    );
    let types = ["foo", "good-negative", "bad-negative"];
    assert_eq!(
        summary(&all, &options(Some(&types))),
        Some(info("Ready", "2"))
    );
}

#[test]
fn a_summary_counts_steps_on_request() {
    let [foo, bar, baz] = [met("foo"), info("bar", "1"), info("baz", "2")];
    let message = |conditions: &[DeprecatedCondition], types, only| {
        let options = Summary {
            types,
            step_counter: true,
            step_counter_if_only: only,
            ..Summary::default()
        };
        summary(conditions, &options).expect("a summary").message
    };
    let all = [foo.clone(), bar.clone(), baz.clone()];
    assert_eq!(message(&all, None, None), "1 of 3 completed");
    assert_eq!(
        message(&all, Some(&["foo", "bar"]), None),
        "1 of 2 completed"
    );
    let only_bar = std::slice::from_ref(&bar);
    assert_eq!(
        message(only_bar, Some(&["bar", "baz"]), Some(&["bar"])),
        "0 of 1 completed"
    );
    assert_eq!(
        message(only_bar, Some(&["baz", "bar"]), Some(&["bar", "baz"])),
        "0 of 2 completed"
    );
    assert_eq!(
        message(&all[1..], Some(&["bar", "baz"]), Some(&["bar"])),
        "message 1"
    );
    assert_eq!(message(&all[..2], None, Some(&["foo"])), "message 1");
}

#[test]
fn a_summary_is_set_as_ready() {
    let mut cluster = cluster();
    deprecated::set_summary(&mut cluster, &Summary::default(), at(0));
    assert_eq!(cluster.status, None);
    deprecated::mark_true(&mut cluster, "foo", at(0));
    deprecated::set_summary(&mut cluster, &Summary::default(), at(0));
    assert!(deprecated::is_true(&cluster, "Ready"));
}

#[test]
fn deprecated_conditions_of_dynamic_objects_are_found_in_every_version() {
    let condition = json!({"type": "Ready", "status": "False", "severity": "Info", "reason": "r"});
    let expected = vec![from::<DeprecatedCondition>(condition.clone())];
    let list = json!([condition]);
    let current =
        json!([{"type": "Other", "status": "True", "observedGeneration": 1, "reason": "o"}]);
    let in_status = |status: Value| {
        reported(&dynamic(
            "example.com/v1",
            "DockerCluster",
            "shop",
            json!({"status": status}),
        ))
    };
    let v1beta1 = json!({"conditions": list});
    assert_eq!(
        in_status(json!({"deprecated": {"v1beta1": v1beta1}, "conditions": current})),
        expected
    );
    assert_eq!(in_status(json!({"conditions": list})), expected);
    assert_eq!(
        in_status(json!({"deprecated": {"v1beta1": null}, "conditions": list})),
        expected
    );
    assert_eq!(
        in_status(json!({"conditions": current}))[0].type_,
        "Other",
        "the current format is read, too"
    );
    for status in [
        json!(null),
        json!({}),
        json!({"conditions": "text"}),
        json!({"conditions": ["text"]}),
    ] {
        assert_eq!(in_status(status), []);
    }
}
