//! RBAC roles, as the controllers of this package declare them.

use serde_json::{Value, json};

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

/// Permissions of a controller.
pub(crate) struct Permissions {
    /// Name of the roles.
    pub(crate) name: &'static str,
    /// Rules for objects in namespaces.
    pub(crate) namespaced: Vec<Value>,
    /// Rules for cluster-scoped objects.
    pub(crate) cluster_scoped: Vec<Value>,
}

impl Permissions {
    /// Returns the roles, including the one for leader election.
    ///
    /// An empty `namespaces` means the whole cluster.
    pub(crate) fn roles(self, namespaces: &[String]) -> Vec<Value> {
        let Self {
            name,
            namespaced,
            cluster_scoped,
        } = self;
        let mut roles = if namespaces.is_empty() {
            vec![role(
                "ClusterRole",
                name,
                &[namespaced, cluster_scoped].concat(),
            )]
        } else {
            let mut roles = vec![role("ClusterRole", name, &cluster_scoped)];
            roles.extend(namespaces.iter().map(|namespace| {
                let mut role = role("Role", name, &namespaced);
                role["metadata"]["namespace"] = namespace.as_str().into();
                role
            }));
            roles
        };
        let election = rule(
            "coordination.k8s.io",
            "leases",
            &["get", "watch", "create", "update"],
        );
        roles.push(role("Role", "steersman-leader-election", &[election]));
        roles
    }
}

pub(crate) fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

fn role(kind: &str, name: &str, rules: &[Value]) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "rules": rules})
}

/// Returns a `ClusterRole` that unites all those with a label.
pub(crate) fn aggregated(name: &str, label: &str, value: &str) -> Value {
    let selector = json!({"matchLabels": {label: value}});
    let mut role = role("ClusterRole", name, &[]);
    role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
    role
}
