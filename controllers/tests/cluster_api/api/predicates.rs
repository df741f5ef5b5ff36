//! Predicates.

use crate::support::from;
use serde_json::{Value, json};
use steersman::{event::Event, object::Metadata, predicate::Predicate};
use steersman_controllers::cluster_api::{
    Cluster, Machine,
    predicates::{
        Changed, ClusterControlPlaneInitialized, ClusterCreateInfraProvisioned,
        ClusterCreateNotPaused, ClusterPausedTransitions,
        ClusterPausedTransitionsOrInfrastructureProvisioned, ClusterUnpaused,
        ClusterUnpausedAndInfrastructureProvisioned, ClusterUpdateInfraProvisioned,
        ClusterUpdateUnpaused, HasFilterLabel, NotExternallyManaged, NotPaused,
        NotPausedAndHasFilterLabel,
    },
};

fn object(metadata: &Value) -> Metadata<Machine> {
    from(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata}))
}

/// Returns whether events of an object pass: create, update, delete, generic.
///
/// `old` is the state before the update.
fn passes(predicate: &impl Predicate<Metadata<Machine>>, old: &Value, new: &Value) -> [bool; 4] {
    [
        predicate.accepts(&Event::create(object(new))),
        predicate.accepts(&Event::update(object(old), object(new))),
        predicate.accepts(&Event::delete(object(new))),
        predicate.accepts(&Event::generic(object(new))),
    ]
}

#[test]
fn not_paused_drops_every_event_of_an_object_with_the_annotation() {
    let plain = json!({"name": "a", "annotations": {"example.com/paused": "true"}});
    assert_eq!(passes(&NotPaused, &plain, &plain), [true; 4]);
    for value in ["", "false", "true"] {
        let paused = json!({"name": "a", "annotations": {"cluster.x-k8s.io/paused": value}});
        assert_eq!(passes(&NotPaused, &plain, &paused), [false; 4]);
        let unpaused = passes(&NotPaused, &paused, &plain);
        assert_eq!(
            unpaused, [true; 4],
            "the update that removes the annotation passes"
        );
    }
}

#[test]
fn not_externally_managed_drops_every_event_of_an_object_with_the_annotation() {
    let plain = json!({"name": "a"});
    assert_eq!(passes(&NotExternallyManaged, &plain, &plain), [true; 4]);
    for value in ["", "false", "crossplane"] {
        let managed = json!({"name": "a", "annotations": {"cluster.x-k8s.io/managed-by": value}});
        assert_eq!(passes(&NotExternallyManaged, &plain, &managed), [false; 4]);
        assert_eq!(passes(&NotExternallyManaged, &managed, &plain), [true; 4]);
    }
}

#[test]
fn a_filter_label_must_have_the_exact_value() {
    let labelled =
        |value: &str| json!({"name": "a", "labels": {"cluster.x-k8s.io/watch-filter": value}});
    let plain = json!({"name": "a"});
    let blue = HasFilterLabel("blue".into());
    assert_eq!(passes(&blue, &plain, &labelled("blue")), [true; 4]);
    for other in [&plain, &labelled(""), &labelled("Blue"), &labelled("blue1")] {
        assert_eq!(
            passes(&blue, &labelled("blue"), other),
            [false; 4],
            "{other}"
        );
    }
    let all = HasFilterLabel(String::new());
    for object in [&plain, &labelled("blue")] {
        assert_eq!(passes(&all, &plain, object), [true; 4], "{object}");
    }
}

#[test]
fn an_object_that_is_paused_or_has_no_filter_label_is_dropped() {
    let predicate = NotPausedAndHasFilterLabel("blue".into());
    let object = |paused: bool, value: &str| {
        let annotations = if paused {
            json!({"cluster.x-k8s.io/paused": ""})
        } else {
            json!({})
        };
        json!({"name": "a", "annotations": annotations, "labels": {"cluster.x-k8s.io/watch-filter": value}})
    };
    let accepted = object(false, "blue");
    assert_eq!(passes(&predicate, &accepted, &accepted), [true; 4]);
    for dropped in [
        object(true, "blue"),
        object(false, "red"),
        object(true, "red"),
    ] {
        assert_eq!(
            passes(&predicate, &accepted, &dropped),
            [false; 4],
            "{dropped}"
        );
    }
}

#[test]
fn changed_drops_only_updates_with_an_equal_resource_version() {
    let version = |version| json!({"name": "a", "resourceVersion": version});
    assert_eq!(
        passes(&Changed, &version("7"), &version("7")),
        [true, false, true, true]
    );
    assert_eq!(passes(&Changed, &version("7"), &version("8")), [true; 4]);
}

/// Returns a Cluster with these properties.
fn cluster(paused: bool, provisioned: bool, uid: &str) -> Cluster {
    from(json!({
        "metadata": {"name": "a", "uid": uid},
        "spec": {"paused": paused},
        "status": {"initialization": {"infrastructureProvisioned": provisioned}},
    }))
}

/// Checks which creations and updates a predicate accepts.
///
/// A state is paused or not, and provisioned or not. Deletions and generic events never pass.
fn check(
    predicate: &impl Predicate<Cluster>,
    create: impl Fn(bool, bool) -> bool,
    update: impl Fn([bool; 2], [bool; 2]) -> bool,
) {
    let states = [[false, false], [false, true], [true, false], [true, true]];
    for new @ [paused, provisioned] in states {
        let object = || cluster(paused, provisioned, "1");
        assert_eq!(
            predicate.accepts(&Event::create(object())),
            create(paused, provisioned),
            "{new:?}"
        );
        assert!(!predicate.accepts(&Event::<Cluster>::delete(object())));
        assert!(!predicate.accepts(&Event::<Cluster>::generic(object())));
        for old in states {
            let event = Event::update(cluster(old[0], old[1], "1"), object());
            assert_eq!(
                predicate.accepts(&event),
                update(old, new),
                "{old:?} -> {new:?}"
            );
        }
    }
}

fn unpaused(old: [bool; 2], new: [bool; 2]) -> bool {
    old[0] && !new[0]
}

fn provisioned(old: [bool; 2], new: [bool; 2]) -> bool {
    !old[1] && new[1]
}

#[test]
fn cluster_predicates_accept_creations_in_a_state() {
    check(
        &ClusterCreateInfraProvisioned,
        |_, provisioned| provisioned,
        |_, _| false,
    );
    check(&ClusterCreateNotPaused, |paused, _| !paused, |_, _| false);
}

#[test]
fn cluster_predicates_accept_updates_to_a_state() {
    check(&ClusterUpdateInfraProvisioned, |_, _| false, provisioned);
    check(&ClusterUpdateUnpaused, |_, _| false, unpaused);
    check(
        &ClusterPausedTransitions,
        |_, _| false,
        |old, new| old[0] != new[0],
    );
}

#[test]
fn cluster_predicates_combine_creations_and_updates() {
    check(&ClusterUnpaused, |paused, _| !paused, unpaused);
    check(
        &ClusterPausedTransitionsOrInfrastructureProvisioned,
        |_, _| false,
        |old, new| old[0] != new[0] || provisioned(old, new),
    );
    check(
        &ClusterUnpausedAndInfrastructureProvisioned,
        |paused, provisioned| !paused && provisioned,
        |old, new| unpaused(old, new) || provisioned(old, new),
    );
}

#[test]
fn a_missing_status_is_not_provisioned() {
    let new: Cluster = from(json!({"metadata": {"name": "a"}, "spec": {}}));
    assert!(!ClusterCreateInfraProvisioned.accepts(&Event::create(new.clone())));
    assert!(ClusterCreateNotPaused.accepts(&Event::create(new.clone())));
    let event = Event::update(new, cluster(false, true, ""));
    assert!(ClusterUpdateInfraProvisioned.accepts(&event));
}

#[test]
fn an_update_to_an_initialized_control_plane_passes() {
    let cluster = |status: Option<&str>| -> Cluster {
        let condition = |status| {
            json!({
                "type": "ControlPlaneInitialized", "status": status, "reason": "r", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let conditions: Vec<_> = status.map(condition).into_iter().collect();
        from(json!({"metadata": {"name": "a"}, "spec": {}, "status": {"conditions": conditions}}))
    };
    let cases = [
        (None, None, false),
        (None, Some("True"), true),
        (Some("False"), Some("True"), true),
        (None, Some("False"), false),
        (Some("True"), Some("False"), false),
        (Some("True"), Some("True"), false),
    ];
    for (old, new, accepted) in cases {
        let event = Event::update(cluster(old), cluster(new));
        assert_eq!(
            ClusterControlPlaneInitialized.accepts(&event),
            accepted,
            "{old:?} -> {new:?}"
        );
    }
    assert!(!ClusterControlPlaneInitialized.accepts(&Event::create(cluster(Some("True")))));
}

#[test]
fn a_recreated_cluster_passes_in_the_wanted_state() {
    let event = |paused, provisioned| {
        Event::update(
            cluster(paused, provisioned, "1"),
            cluster(paused, provisioned, "2"),
        )
    };
    assert!(ClusterUnpaused.accepts(&event(false, false)));
    assert!(!ClusterUnpaused.accepts(&event(true, true)));
    assert!(ClusterUpdateInfraProvisioned.accepts(&event(false, true)));
    assert!(!ClusterUpdateInfraProvisioned.accepts(&event(false, false)));
}
