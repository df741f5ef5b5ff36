//! What is checked in under `config` is what the types and the controllers say.

use serde_json::Value;
use std::{fs, path::Path};
use steersman_controllers::{endpoint, manifests};

#[track_caller]
fn is_up_to_date(path: &str, objects: &[Value], command: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").join(path);
    let there = fs::read_to_string(file).unwrap_or_default();
    assert!(
        there == manifests::yaml(objects),
        "config/{path} is not what the code says: write it anew, `cargo run -q -- {command} > config/{path}`"
    );
}

#[test]
fn the_definition_that_is_checked_in_is_that_of_the_types() {
    let definitions = endpoint::definitions();
    is_up_to_date("crd/controlplane.cluster.x-k8s.io_captcontrolplanes.yaml", &definitions, "crds");
}

#[test]
fn the_roles_that_are_checked_in_are_those_of_the_controller() {
    is_up_to_date("rbac/endpoint.yaml", &endpoint::roles(&[]), "rbac");
}

#[test]
fn what_is_written_as_yaml_is_read_as_the_same() {
    let objects: Vec<Value> = [endpoint::definitions(), endpoint::dependencies(), endpoint::roles(&[])].concat();
    let read: Vec<Value> = serde_saphyr::from_multiple(&manifests::yaml(&objects)).expect("YAML");
    assert_eq!(read, objects);
}
