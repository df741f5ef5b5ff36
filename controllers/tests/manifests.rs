//! Tests that the files under `config` match the types and the controllers.

use serde_json::Value;
use std::{fs, path::Path};
use steersman_controllers::{cluster, cluster_api, endpoint, extension_config, manifests};

#[track_caller]
fn assert_up_to_date(path: &str, objects: &[Value], command: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../config")
        .join(path);
    let checked_in = fs::read_to_string(file).unwrap_or_default();
    assert!(
        checked_in == manifests::yaml(objects),
        "config/{path} differs from the code; run `cargo run -q -- {command} > config/{path}`"
    );
}

#[test]
fn the_checked_in_crd_matches_the_types() {
    let definitions = endpoint::definitions();
    assert_up_to_date(
        "crd/controlplane.cluster.x-k8s.io_captcontrolplanes.yaml",
        &definitions,
        "crds",
    );
}

#[test]
fn the_checked_in_roles_match_the_controllers() {
    assert_up_to_date("rbac/endpoint.yaml", &endpoint::roles(&[]), "rbac");
    assert_up_to_date(
        "rbac/cluster.yaml",
        &cluster::roles(&[]),
        "rbac --controllers cluster",
    );
    assert_up_to_date(
        "rbac/extension-config.yaml",
        &extension_config::roles(&[]),
        "rbac --controllers extension-config",
    );
}

#[test]
fn yaml_is_read_back_as_equal_objects() {
    let objects: Vec<Value> = [
        endpoint::definitions(),
        endpoint::dependencies(),
        endpoint::roles(&[]),
        cluster_api::definitions(),
        cluster::roles(&[]),
        extension_config::definitions(),
        extension_config::roles(&[]),
    ]
    .concat();
    let read: Vec<Value> = serde_saphyr::from_multiple(&manifests::yaml(&objects)).expect("YAML");
    assert_eq!(read, objects);
}
