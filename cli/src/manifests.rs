//! Prints CRDs and permissions as YAML.

use crate::{
    controller_table::{ControllerSelection, dedup_manifests},
    run::namespace,
    stdout::write,
};
use anyhow::bail;
use serde_json::{Value, json};
use steersman_controllers::manifests::yaml;

/// `steersman crds`
#[derive(Debug, clap::Args)]
pub(crate) struct Crds {
    #[command(flatten)]
    controllers: ControllerSelection,

    /// Also print CRDs of the kinds that other projects define, such as Cluster and Workspace. Their schemas have the fields
    /// that the controllers read, and preserve others. Use them in a cluster in which those kinds are not installed.
    #[arg(long)]
    with_dependencies: bool,
}

impl Crds {
    /// Returns the CRDs. Fails if there are none, because kubectl rejects empty input.
    pub(crate) fn manifests(&self) -> anyhow::Result<Vec<Value>> {
        let selected = self.controllers.selected();
        let dependencies = selected
            .iter()
            .filter(|_| self.with_dependencies)
            .flat_map(|it| (it.dependencies)());
        let definitions = dedup_manifests(
            selected
                .iter()
                .flat_map(|it| (it.definitions)())
                .chain(dependencies),
        );
        if definitions.is_empty() {
            let names = selected.iter().map(|it| it.name).collect::<Vec<_>>();
            bail!(
                "cannot print CRDs of {}: other projects define its kinds; add `--with-dependencies`",
                names.join(", ")
            );
        }
        Ok(definitions)
    }
}

/// `steersman rbac`
#[derive(Debug, clap::Args)]
pub(crate) struct Rbac {
    #[command(flatten)]
    controllers: ControllerSelection,

    /// Limit the permissions to these namespaces, separated by commas, as `steersman run --namespaces` does. Default: the
    /// whole cluster. The namespaces have to exist. Cluster-scoped kinds keep a `ClusterRole`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = namespace)]
    namespaces: Vec<String>,

    /// Also print the service account and its bindings to these roles. Its namespace must exist.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = account)]
    service_account: Option<Account>,
}

#[derive(Clone, Debug)]
struct Account {
    namespace: String,
    name: String,
}

fn account(text: &str) -> anyhow::Result<Account> {
    match text.split_once('/') {
        Some((space, name)) if namespace(space).is_ok() && namespace(name).is_ok() => Ok(Account {
            namespace: space.into(),
            name: name.into(),
        }),
        _ => bail!("use NAMESPACE/NAME, such as capi-system/steersman"),
    }
}

impl Rbac {
    pub(crate) fn manifests(&self) -> Vec<Value> {
        let mut roles = dedup_manifests(
            self.controllers
                .selected()
                .iter()
                .flat_map(|it| (it.roles)(&self.namespaces)),
        );
        let Some(account) = &self.service_account else {
            return roles;
        };
        let mut others = vec![json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": account.name, "namespace": account.namespace},
        })];
        for role in &mut roles {
            others.extend(bind(role, account, &self.namespaces));
        }
        roles.extend(others);
        roles
    }
}

/// Returns the bindings of `role` to `account`.
///
/// A Role without a namespace is put into that of the account. A `ClusterRole` that unites the roles
/// of providers is bound in each of `namespaces`, if there are any.
fn bind(role: &mut Value, account: &Account, namespaces: &[String]) -> Vec<Value> {
    let kind = role["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "Role" && role["metadata"]["namespace"].is_null() {
        role["metadata"]["namespace"] = account.namespace.as_str().into();
    }
    let binding = |binding: &str, metadata: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding, "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role["metadata"]["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}],
        })
    };
    let metadata = &role["metadata"];
    if role["aggregationRule"].is_null() || namespaces.is_empty() {
        return vec![binding(&format!("{kind}Binding"), metadata.clone())];
    }
    let in_namespace = |namespace| json!({"name": metadata["name"], "namespace": namespace});
    namespaces
        .iter()
        .map(|namespace| binding("RoleBinding", in_namespace(namespace)))
        .collect()
}

pub(crate) fn print(manifests: &[Value]) -> anyhow::Result<()> {
    write(yaml(manifests).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_bound_to_roles_and_cluster_roles() {
        let mut role = json!({"kind": "Role", "metadata": {"name": "leases"}});
        let account = account("capi/steersman").unwrap();
        let binding = &bind(&mut role, &account, &[])[0];
        assert_eq!(
            (
                &role["metadata"]["namespace"],
                &binding["metadata"]["namespace"]
            ),
            (&"capi".into(), &"capi".into())
        );
        assert_eq!(
            (&binding["kind"], &binding["roleRef"]["name"]),
            (&"RoleBinding".into(), &"leases".into())
        );
        let mut role = json!({"kind": "ClusterRole", "metadata": {"name": "all"}});
        let binding = &bind(&mut role, &account, &["shop".into()])[0];
        assert_eq!(
            (&binding["kind"], &binding["metadata"]["namespace"]),
            (&"ClusterRoleBinding".into(), &Value::Null)
        );
        assert_eq!(binding["subjects"][0]["namespace"], "capi");
    }

    #[test]
    fn an_aggregated_role_is_bound_in_each_namespace() {
        let account = account("capi/steersman").unwrap();
        let mut role = json!({
            "kind": "ClusterRole", "metadata": {"name": "providers"}, "aggregationRule": {},
        });
        let mut described = |namespaces: &[String]| {
            let bindings = bind(&mut role, &account, namespaces).into_iter();
            bindings
                .map(|it| {
                    json!([
                        it["kind"],
                        it["metadata"]["namespace"],
                        it["roleRef"]["kind"]
                    ])
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(
            described(&["shop".into(), "bank".into()]),
            [
                json!(["RoleBinding", "shop", "ClusterRole"]),
                json!(["RoleBinding", "bank", "ClusterRole"])
            ]
        );
        assert_eq!(
            described(&[]),
            [json!(["ClusterRoleBinding", null, "ClusterRole"])]
        );
    }

    #[test]
    fn an_account_without_a_namespace_is_rejected_with_an_example() {
        for text in ["steersman", "/x", "x/", "a/b/c", "A/b"] {
            assert!(
                account(text)
                    .unwrap_err()
                    .to_string()
                    .contains("capi-system/steersman"),
                "{text}"
            );
        }
    }
}
