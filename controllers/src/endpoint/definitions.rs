//! Definitions to install: ours, and the least of those that others bring along.

use super::types::{CAPTControlPlane, Cluster, WorkspaceTemplateApply, workspace_kind};
use kube::CustomResourceExt;
use serde_json::{Value, json};

/// Of the kind that this controller is for.
pub fn definitions() -> Vec<Value> {
    vec![serde_json::to_value(CAPTControlPlane::crd()).expect("a definition can be written as JSON")]
}

/// Of the kinds that it reads, for a cluster in which nobody else has installed them: they take everything.
pub fn dependencies() -> Vec<Value> {
    let workspace = workspace_kind();
    vec![
        anything(
            &WorkspaceTemplateApply::crd().spec.group,
            "v1beta1",
            "WorkspaceTemplateApply",
            "workspacetemplateapplies",
            "Namespaced",
        ),
        anything(&Cluster::crd().spec.group, "v1beta1", "Cluster", "clusters", "Namespaced"),
        anything(&workspace.group, &workspace.version, &workspace.kind, "workspaces", "Cluster"),
    ]
}

fn anything(group: &str, version: &str, kind: &str, plural: &str, scope: &str) -> Value {
    let whatever = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": whatever, "status": whatever}});
    let names =
        json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")});
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
