//! Owner references.

use crate::support::{dynamic, from};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;
use steersman::object::Meta;
use steersman_controllers::cluster_api::{Cluster, Machine, owners};

fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    from(json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}))
}

const V1BETA1: &str = "cluster.x-k8s.io/v1beta1";
const V1BETA2: &str = "cluster.x-k8s.io/v1beta2";

#[test]
fn an_owner_reference_has_version_kind_name_and_uid_of_the_owner() {
    let cluster: Cluster = from(json!({"metadata": {"name": "shop", "uid": "1"}, "spec": {}}));
    assert_eq!(
        owners::reference(&cluster),
        reference(V1BETA2, "Cluster", "shop", "1")
    );
}

#[test]
fn an_ensured_owner_replaces_the_reference_of_another_version_or_uid() {
    let mut references = vec![reference("apps/v1", "Deployment", "shop", "9")];
    let new = reference(V1BETA2, "Cluster", "shop", "2");
    owners::ensure(&mut references, reference(V1BETA1, "Cluster", "shop", "1"));
    assert_eq!(references.len(), 2);
    owners::ensure(&mut references, new.clone());
    owners::ensure(&mut references, new.clone());
    assert_eq!(references[1..], [new]);
    owners::ensure(&mut references, reference(V1BETA2, "Cluster", "other", "3"));
    assert_eq!(references.len(), 3);
}

#[test]
fn an_exact_owner_has_the_same_version_uid_and_controller() {
    let owner = |version, uid, controller| OwnerReference {
        controller,
        ..reference(version, "Cluster", "shop", uid)
    };
    let references = [OwnerReference {
        block_owner_deletion: Some(true),
        ..owner(V1BETA2, "1", None)
    }];
    assert!(owners::contains_exactly(
        &references,
        &owner(V1BETA2, "1", None)
    ));
    assert!(owners::contains_exactly(
        &references,
        &owner(V1BETA2, "1", Some(false))
    ));
    for other in [
        owner(V1BETA2, "1", Some(true)),
        owner(V1BETA1, "1", None),
        owner(V1BETA2, "2", None),
    ] {
        assert!(!owners::contains_exactly(&references, &other));
        assert!(owners::contains(&references, &other));
    }
}

#[test]
fn an_owner_is_replaced_by_its_uid() {
    let new = || reference(V1BETA2, "MachineSet", "new", "2");
    let mut references = vec![reference(V1BETA2, "MachineSet", "old", "1")];
    owners::replace(&mut references, "1", new());
    assert_eq!(references, [new()]);
    owners::replace(
        &mut references,
        "unknown",
        reference(V1BETA2, "MachineSet", "third", "3"),
    );
    assert_eq!(references.len(), 2);
}

#[test]
fn an_owner_is_removed_by_group_kind_and_name() {
    let mut references = vec![
        reference("dazzlings.info/v1", "Twilight", "m4g1c", "1"),
        reference("bar.cluster.x-k8s.io/vx", "TestCluster", "bar-1", "2"),
    ];
    assert!(!owners::remove(
        &mut references,
        &reference("dazzlings.info/v1", "Twilight", "abcdef", "1")
    ));
    assert!(owners::remove(
        &mut references,
        &reference("dazzlings.info/v2", "Twilight", "m4g1c", "9")
    ));
    assert_eq!(
        references,
        [reference(
            "bar.cluster.x-k8s.io/vx",
            "TestCluster",
            "bar-1",
            "2"
        )]
    );
}

#[test]
fn owners_of_a_kind_are_found_in_every_version() {
    let owned = |references: &[(&str, &str)]| {
        let references: Vec<_> = references
            .iter()
            .map(|(version, kind)| reference(version, kind, "a", "1"))
            .collect();
        owners::contains_kind(&references, V1BETA2, &["MachineDeployment", "Cluster"])
    };
    assert!(!owned(&[]));
    assert!(owned(&[(V1BETA2, "Cluster")]));
    assert!(owned(&[("cluster.x-k8s.io/v1alpha2", "Cluster")]));
    assert!(owned(&[("cluster.x-k8s.io/v1alpha2", "MachineDeployment")]));
    assert!(!owned(&[("v1", "Pod"), ("apps/v1", "Deployment")]));
    assert!(owned(&[("v1", "Pod"), (V1BETA2, "MachineDeployment")]));
    assert!(!owned(&[("wrong/v2", "MachineDeployment")]));
    assert!(!owned(&[(V1BETA2, "Machine")]));
    assert!(
        !owned(&[("a/b/c", "Pod"), (V1BETA2, "Cluster")]),
        "after an invalid one"
    );
}

#[test]
fn an_owner_of_another_version_owns_the_object() {
    let owner = dynamic("ponies.info/v1", "Rainbow", "fri3ndsh1p", json!({}));
    let owned = |references: &[(&str, &str, &str)]| {
        let references: Vec<_> = references
            .iter()
            .map(|(version, kind, name)| reference(version, kind, name, "1"))
            .collect();
        let mut machine: Machine = from(json!({"metadata": {"name": "a"}, "spec": {}}));
        machine.metadata.owner_references = Some(references);
        owners::is_owned_by(Meta::from(&machine.metadata), &owner)
    };
    let right = ("ponies.info/v1", "Rainbow", "fri3ndsh1p");
    let wrong = ("ponies.info/v1", "Rainbow", "m4g1c");
    assert!(!owned(&[]));
    assert!(!owned(&[wrong]));
    assert!(!owned(&[("dazzlings.info/v1", "Rainbow", "fri3ndsh1p")]));
    assert!(!owned(&[("ponies.info/v1", "Twilight", "fri3ndsh1p")]));
    assert!(!owned(&[("ponies.info/x/v1", "Rainbow", "fri3ndsh1p")]));
    assert!(owned(&[right]));
    assert!(owned(&[("ponies.info/v2alpha2", "Rainbow", "fri3ndsh1p")]));
    assert!(owned(&[wrong, right]));
}

#[test]
fn only_the_controller_controls_the_object() {
    let cluster: Cluster = from(json!({"metadata": {"name": "shop", "uid": "1"}, "spec": {}}));
    let mut machine: Machine = from(json!({"metadata": {"name": "a"}, "spec": {}}));
    let controlled =
        |machine: &Machine| owners::is_controlled_by(Meta::from(&machine.metadata), &cluster);
    let mut owner = reference(V1BETA1, "Cluster", "shop", "of a backup");
    assert!(!controlled(&machine));
    machine.metadata.owner_references = Some(vec![owner.clone()]);
    assert!(!controlled(&machine));
    owner.controller = Some(true);
    machine.metadata.owner_references = Some(vec![owner]);
    assert!(controlled(&machine));
}

#[test]
fn the_name_of_an_owner_is_found_by_group_and_kind() {
    let mut machine: Machine = from(json!({"metadata": {"name": "a"}, "spec": {}}));
    machine.metadata.owner_references = Some(vec![
        reference("example.com/v1", "Cluster", "foreign", "1"),
        reference(V1BETA1, "Cluster", "shop", "2"),
    ]);
    let meta = Meta::from(&machine.metadata);
    assert_eq!(
        owners::name_of(meta, "cluster.x-k8s.io", "Cluster"),
        Some("shop")
    );
    assert_eq!(owners::name_of(meta, "cluster.x-k8s.io", "Machine"), None);
}
