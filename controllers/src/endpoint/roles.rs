//! RBAC roles with exactly the permissions that the controller needs.

use crate::rbac::{Permissions, rule};
use serde_json::Value;

/// Returns the roles of the controller, for some namespaces or the whole cluster.
///
/// An empty `namespaces` means the whole cluster.
///
/// | role | whole cluster | some namespaces |
/// |---|---|---|
/// | `steersman-endpoint` | one `ClusterRole` | a `Role` in each namespace, and a `ClusterRole` for the cluster-scoped kinds |
/// | `steersman-leader-election` | a `Role` without a namespace | the same |
///
/// Bind a `ClusterRole` with a `ClusterRoleBinding`. Create the `Role` for leader election in the
/// namespace of the Lease. It is needed only if the manager elects a leader.
///
/// With some namespaces, the cache of the manager has to be limited to these, see
/// [`Namespaces::List`](steersman::cache::Namespaces::List).
pub fn roles(namespaces: &[String]) -> Vec<Value> {
    let namespaced = vec![
        // `patch` sets the endpoint and the finalizer. `get` reads the object again after a
        // conflict.
        rule(
            "controlplane.cluster.x-k8s.io",
            "captcontrolplanes",
            &["get", "list", "watch", "patch"],
        ),
        rule(
            "controlplane.cluster.x-k8s.io",
            "captcontrolplanes/status",
            &["patch"],
        ),
        rule(
            "infrastructure.cluster.x-k8s.io",
            "workspacetemplateapplies",
            &["list", "watch"],
        ),
        // `get` also reads the object before its endpoint is cleared.
        rule(
            "cluster.x-k8s.io",
            "clusters",
            &["get", "list", "watch", "patch"],
        ),
        // The metadata of Secrets is watched. `get` reads the Secret that is needed.
        rule("", "secrets", &["get", "list", "watch"]),
        // `patch` counts a repeated event.
        rule("events.k8s.io", "events", &["create", "patch"]),
    ];
    let cluster_scoped = vec![
        rule("tf.upbound.io", "workspaces", &["get", "list", "watch"]),
        // Reports kinds that are installed later.
        rule(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            &["list", "watch"],
        ),
    ];
    let permissions = Permissions {
        name: "steersman-endpoint",
        namespaced,
        cluster_scoped,
    };
    permissions.roles(namespaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resources(role: &Value) -> Vec<&str> {
        let rules = role["rules"].as_array().expect("rules");
        rules
            .iter()
            .map(|rule| rule["resources"][0].as_str().expect("resource"))
            .collect()
    }

    #[test]
    fn roles_for_namespaces_leave_only_cluster_scoped_kinds_to_the_cluster_role() {
        let roles = roles(&["shop".into(), "bank".into()]);
        let described: Vec<_> = roles
            .iter()
            .map(|it| (&it["kind"], &it["metadata"]["namespace"]))
            .collect();
        let expected = json!([
            ["ClusterRole", null],
            ["Role", "shop"],
            ["Role", "bank"],
            ["Role", null]
        ]);
        assert_eq!(json!(described), expected);
        assert_eq!(
            resources(&roles[0]),
            ["workspaces", "customresourcedefinitions"]
        );
        assert_eq!(roles[1]["rules"], roles[2]["rules"]);
        let everywhere = super::roles(&[]);
        let mut all = [resources(&roles[0]), resources(&roles[1])].concat();
        let mut expected = resources(&everywhere[0]);
        all.sort_unstable();
        expected.sort_unstable();
        assert_eq!(
            all, expected,
            "the same permissions as in the whole cluster"
        );
    }

    #[test]
    fn workspaces_can_be_listed_and_watched_but_not_written() {
        let roles = roles(&[]);
        let mut rules = roles[0]["rules"].as_array().expect("rules").iter();
        let workspaces = rules
            .find(|rule| rule["resources"][0] == "workspaces")
            .expect("rule of workspaces");
        assert_eq!(workspaces["verbs"], json!(["get", "list", "watch"]));
    }
}
