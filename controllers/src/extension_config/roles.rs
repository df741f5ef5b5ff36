//! RBAC roles with the permissions that the controller needs.

use crate::rbac::{Permissions, rule};
use serde_json::Value;

const GROUP: &str = "runtime.cluster.x-k8s.io";

/// Returns the roles of the controller.
///
/// `namespaces` limits the Secrets that it can read. Empty: all namespaces. `ExtensionConfig`s and
/// Namespaces are cluster-scoped, so their `ClusterRole` is needed in both cases. Bind it with a
/// `ClusterRoleBinding`.
///
/// Create the `Role` for leader election in the namespace of the Lease. It is needed only if the
/// manager elects a leader.
///
/// In the read-only mode, `get`, `list` and `watch` of `extensionconfigs` and `namespaces` are
/// sufficient.
pub fn roles(namespaces: &[String]) -> Vec<Value> {
    let permissions = Permissions {
        name: "steersman-extension-config",
        // `list` and `watch` see metadata only. `get` reads the Secret that an annotation names.
        namespaced: vec![rule("", "secrets", &["get", "list", "watch"])],
        cluster_scoped: vec![
            // `patch` writes the CA bundle.
            rule(
                GROUP,
                "extensionconfigs",
                &["get", "list", "watch", "patch"],
            ),
            rule(GROUP, "extensionconfigs/status", &["patch"]),
            // The labels of a Namespace select the extensions that are called for its objects.
            rule("", "namespaces", &["get", "list", "watch"]),
        ],
    };
    permissions.roles(namespaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn roles_for_namespaces_limit_only_the_secrets() {
        let roles = roles(&["shop".into(), "bank".into()]);
        let resources = |role: &Value| {
            let rules = role["rules"].as_array().into_iter().flatten();
            rules
                .map(|rule| rule["resources"][0].clone())
                .collect::<Value>()
        };
        let described: Vec<_> = roles
            .iter()
            .map(|it| json!([it["kind"], it["metadata"]["namespace"], resources(it)]))
            .collect();
        let cluster_scoped = json!(["extensionconfigs", "extensionconfigs/status", "namespaces"]);
        let expected = [
            json!(["ClusterRole", null, cluster_scoped]),
            json!(["Role", "shop", ["secrets"]]),
            json!(["Role", "bank", ["secrets"]]),
            json!(["Role", null, ["leases"]]),
        ];
        assert_eq!(described, expected);
    }
}
