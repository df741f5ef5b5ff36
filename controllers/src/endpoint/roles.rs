//! What the controller has to be allowed to do: no less, and no more.

use serde_json::{Value, json};

/// A `ClusterRole` for the controller, and a `Role` for where its Lease is, if it elects a leader.
///
/// Bind the first to whoever runs it: with a `ClusterRoleBinding`, since workspaces and definitions have no namespace.
pub fn roles() -> Vec<Value> {
    let endpoint = [
        // Its endpoint and its finalizer are patched; it is read when somebody else was faster.
        rule("controlplane.cluster.x-k8s.io", "captcontrolplanes", &["get", "list", "watch", "patch"]),
        rule("controlplane.cluster.x-k8s.io", "captcontrolplanes/status", &["patch"]),
        rule("infrastructure.cluster.x-k8s.io", "workspacetemplateapplies", &["list", "watch"]),
        rule("tf.upbound.io", "workspaces", &["list", "watch"]),
        // Likewise; and it is read before it is cleared.
        rule("cluster.x-k8s.io", "clusters", &["get", "list", "watch", "patch"]),
        // Their metadata is watched; the one that is needed is read.
        rule("", "secrets", &["get", "list", "watch"]),
        // A repeated one is counted.
        rule("events.k8s.io", "events", &["create", "patch"]),
        // To hear of a kind that is installed later.
        rule("apiextensions.k8s.io", "customresourcedefinitions", &["list", "watch"]),
    ];
    let election = [rule("coordination.k8s.io", "leases", &["get", "watch", "create", "update"])];
    vec![role("ClusterRole", "steersman-endpoint", &endpoint), role("Role", "steersman-leader-election", &election)]
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

fn role(kind: &str, name: &str, rules: &[Value]) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules})
}
