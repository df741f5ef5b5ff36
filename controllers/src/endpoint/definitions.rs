//! CRDs of the controller, and minimal CRDs of the kinds that it reads.

use super::types::{CAPTControlPlane, WorkspaceTemplateApply, workspace_kind};
use crate::cluster_api;
use kube::CustomResourceExt;
use serde_json::{Value, json};

/// Returns the CRDs of the controller's own kinds.
pub fn definitions() -> Vec<Value> {
    vec![serde_json::to_value(CAPTControlPlane::crd()).expect("a CRD serializes to JSON")]
}

/// Returns CRDs of the kinds that the controller reads.
///
/// Use them in a cluster in which those kinds are not installed.
pub fn dependencies() -> Vec<Value> {
    let workspace = workspace_kind();
    let clusters = cluster_api::definitions()
        .into_iter()
        .filter(|crd| crd["spec"]["names"]["kind"] == "Cluster");
    let others = [
        minimal_crd(
            &WorkspaceTemplateApply::crd().spec.group,
            "v1beta1",
            "WorkspaceTemplateApply",
            "workspacetemplateapplies",
            "Namespaced",
        ),
        minimal_crd(
            &workspace.group,
            &workspace.version,
            &workspace.kind,
            "workspaces",
            "Cluster",
        ),
    ];
    clusters.chain(others).collect()
}

fn minimal_crd(group: &str, version: &str, kind: &str, plural: &str, scope: &str) -> Value {
    let any_object = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema =
        json!({"type": "object", "properties": {"spec": any_object, "status": any_object}});
    let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": scope,
            "names": names,
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
            }],
        },
    })
}
