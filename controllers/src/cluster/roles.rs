//! RBAC roles with the permissions that the controller needs.

use crate::{
    cluster_api::GROUP,
    rbac::{Permissions, aggregated, rule},
};
use serde_json::Value;

/// Returns the roles of the controller, for some namespaces or the whole cluster.
///
/// An empty `namespaces` means the whole cluster.
///
/// | role | whole cluster | some namespaces |
/// |---|---|---|
/// | `steersman-cluster` | one `ClusterRole` | a `Role` in each namespace, and a `ClusterRole` for CRDs |
/// | `steersman-cluster-providers` | one `ClusterRole` | the same |
/// | `steersman-leader-election` | a `Role` without a namespace | the same |
///
/// `steersman-cluster` allows all kinds of the groups `infrastructure`, `bootstrap` and
/// `controlplane` of `cluster.x-k8s.io`. `steersman-cluster-providers` unites all `ClusterRole`s with
/// the label `cluster.x-k8s.io/aggregate-to-manager: "true"`, which providers of other groups
/// install.
///
/// Bind a `ClusterRole` with a `ClusterRoleBinding`. With some namespaces, bind
/// `steersman-cluster-providers` with a `RoleBinding` in each of them. Create the `Role` for leader
/// election in the namespace of the Lease. It is needed only if the manager elects a leader.
///
/// With some namespaces, the cache of the manager has to be limited to these, see
/// [`Namespaces::List`](steersman::cache::Namespaces::List).
pub fn roles(namespaces: &[String]) -> Vec<Value> {
    let mut namespaced = vec![
        // `get` reads the object again after a conflict.
        rule(GROUP, "clusters", &["get", "list", "watch", "patch"]),
        rule(GROUP, "clusters/status", &["patch"]),
        // Required by the admission plugin OwnerReferencesPermissionEnforcement.
        rule(GROUP, "clusters/finalizers", &["update"]),
    ];
    // `get` reads an object before its kind is watched. `patch` sets owner reference and label.
    let groups = ["infrastructure", "bootstrap", "controlplane"];
    let verbs = ["get", "list", "watch", "patch", "delete"];
    namespaced.extend(groups.map(|group| rule(&format!("{group}.{GROUP}"), "*", &verbs)));
    let kinds = [
        "machinepools",
        "machinedeployments",
        "machinesets",
        "machines",
    ];
    namespaced.extend(kinds.map(|kind| rule(GROUP, kind, &["list", "watch", "delete"])));
    // `patch` counts a repeated event.
    namespaced.push(rule("events.k8s.io", "events", &["create", "patch"]));
    // The labels of a CRD name the contract and the version of its kind.
    let cluster_scoped = vec![rule(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &["get", "list", "watch"],
    )];
    let permissions = Permissions {
        name: "steersman-cluster",
        namespaced,
        cluster_scoped,
    };
    let mut roles = permissions.roles(namespaces);
    let label = format!("{GROUP}/aggregate-to-manager");
    let providers = aggregated("steersman-cluster-providers", &label, "true");
    roles.insert(1, providers);
    roles
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn roles_for_namespaces_leave_only_crds_to_the_cluster_role() {
        let roles = roles(&["shop".into(), "bank".into()]);
        let described: Vec<_> = roles
            .iter()
            .map(|it| {
                json!([
                    it["kind"],
                    it["metadata"]["name"],
                    it["metadata"]["namespace"]
                ])
            })
            .collect();
        let expected = [
            json!(["ClusterRole", "steersman-cluster", null]),
            json!(["ClusterRole", "steersman-cluster-providers", null]),
            json!(["Role", "steersman-cluster", "shop"]),
            json!(["Role", "steersman-cluster", "bank"]),
            json!(["Role", "steersman-leader-election", null]),
        ];
        assert_eq!(described, expected);
        let rules = &roles[0]["rules"];
        assert_eq!(rules[0]["resources"], json!(["customresourcedefinitions"]));
        assert_eq!(rules.as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn the_role_of_providers_selects_the_label_of_cluster_api() {
        let roles = roles(&[]);
        let selector = json!({"matchLabels": {"cluster.x-k8s.io/aggregate-to-manager": "true"}});
        assert_eq!(
            roles[1]["aggregationRule"],
            json!({"clusterRoleSelectors": [selector]})
        );
        assert_eq!(roles[1]["rules"], json!([]));
    }
}
