//! Checks the permissions of the controllers with a review of each verb.

use crate::{controller_table::dedup_manifests, run::Scope};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use serde_json::Value;
use std::fmt;
use steersman::client::Result;

/// Verbs on a resource, in a namespace or in the whole cluster.
#[derive(Clone)]
pub(crate) struct Permission {
    group: String,
    /// Resource with its subresource, such as `captcontrolplanes/status`.
    pub(crate) resource: String,
    /// Namespace; `None` for the whole cluster.
    namespace: Option<String>,
    verbs: Vec<String>,
    /// Verbs that are needed and not allowed.
    pub(crate) denied: Vec<String>,
}

/// Formats the missing verbs, or else all verbs, with the resource and namespace.
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs = if self.denied.is_empty() {
            &self.verbs
        } else {
            &self.denied
        };
        write!(f, "{} {}", verbs.join(", "), self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => f.write_str(" everywhere"),
        }
    }
}

/// Concurrent reviews.
const MAX_CONCURRENT_REVIEWS: usize = 8;

/// Reviews each permission of the selected controllers.
///
/// Returns `None` if the server does not answer reviews.
pub(crate) async fn review(
    client: &Client,
    scope: &Scope,
    lease_namespace: &str,
) -> Result<Option<Vec<Permission>>> {
    let selected = scope.controllers.selected();
    let roles = dedup_manifests(
        selected
            .iter()
            .flat_map(|controller| (controller.roles)(&scope.namespaces)),
    );
    let lease_namespace = scope.leader_elect.then_some(lease_namespace);
    let reviews = stream::iter(permissions_of_roles(&roles, lease_namespace))
        .map(|permission| review_permission(client, permission))
        .buffered(MAX_CONCURRENT_REVIEWS);
    reviews
        .try_fold(Some(Vec::new()), async |all, one| {
            Ok(all.zip(one).map(|(all, one)| [all, vec![one]].concat()))
        })
        .await
}

/// Returns what `roles` grant: a `Role` in its namespace, a `ClusterRole` everywhere.
///
/// A `Role` without a namespace is for leader election and belongs to `lease_namespace`, if that is
/// set.
fn permissions_of_roles(roles: &[Value], lease_namespace: Option<&str>) -> Vec<Permission> {
    let mut all = Vec::new();
    for role in roles {
        let namespace = role["metadata"]["namespace"].as_str();
        let namespace = match (role["kind"] == "Role", namespace.or(lease_namespace)) {
            (true, None) => continue,
            (true, namespace) => namespace,
            (false, _) => None,
        };
        let rules = role["rules"].as_array().into_iter().flatten();
        all.extend(
            rules
                .flat_map(permissions_of_rule)
                .map(|permission| Permission {
                    namespace: namespace.map(str::to_owned),
                    ..permission
                }),
        );
    }
    all
}

/// Reviews the verbs of a permission.
async fn review_permission(
    client: &Client,
    mut permission: Permission,
) -> Result<Option<Permission>> {
    for verb in permission.verbs.clone() {
        match is_allowed(client, &permission, &verb).await? {
            Some(true) => {}
            Some(false) => permission.denied.push(verb),
            None => return Ok(None),
        }
    }
    Ok(Some(permission))
}

/// Returns the permissions of a rule, one for each resource.
fn permissions_of_rule(rule: &Value) -> Vec<Permission> {
    let texts = |list: &Value| {
        list.as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (groups, resources, verbs) = (
        texts(&rule["apiGroups"]),
        texts(&rule["resources"]),
        texts(&rule["verbs"]),
    );
    let of_group = |group: &String| {
        let permission = |resource: &String| Permission {
            group: group.clone(),
            resource: resource.clone(),
            namespace: None,
            verbs: verbs.clone(),
            denied: Vec::new(),
        };
        resources.iter().map(permission).collect::<Vec<_>>()
    };
    groups.iter().flat_map(of_group).collect()
}

/// Returns whether a verb is allowed; `None` if the server has no reviews.
async fn is_allowed(client: &Client, permission: &Permission, verb: &str) -> Result<Option<bool>> {
    let Permission {
        group,
        resource,
        namespace,
        ..
    } = permission;
    let (resource, part) = resource
        .split_once('/')
        .map_or((resource.as_str(), None), |(it, part)| (it, Some(part)));
    let attributes = ResourceAttributes {
        group: Some(group.clone()),
        resource: Some(resource.into()),
        subresource: part.map(str::to_owned),
        verb: Some(verb.into()),
        namespace: namespace.clone(),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview {
        spec,
        ..SelfSubjectAccessReview::default()
    };
    match Api::all(client.clone())
        .create(&PostParams::default(), &review)
        .await
    {
        Ok(answer) => Ok(Some(answer.status.is_some_and(|status| status.allowed))),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_controllers::endpoint;

    fn described(namespaces: &[String], lease_namespace: Option<&str>) -> Vec<String> {
        permissions_of_roles(&endpoint::roles(namespaces), lease_namespace)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn with_namespaces_only_cluster_scoped_kinds_are_needed_everywhere() {
        let all = described(&["shop".into(), "bank".into()], Some("ops"));
        let everywhere: Vec<_> = all
            .iter()
            .filter(|permission| permission.ends_with(" everywhere"))
            .collect();
        assert_eq!(
            everywhere,
            [
                "get, list, watch workspaces.tf.upbound.io everywhere",
                "list, watch customresourcedefinitions.apiextensions.k8s.io everywhere"
            ]
        );
        for permission in [
            "get, list, watch secrets in shop",
            "get, list, watch secrets in bank",
            "patch captcontrolplanes/status.controlplane.cluster.x-k8s.io in bank",
            "get, watch, create, update leases.coordination.k8s.io in ops",
        ] {
            assert!(all.iter().any(|it| it == permission), "{all:?}");
        }
    }

    #[test]
    fn without_namespaces_everything_but_the_lease_is_needed_everywhere() {
        let all = described(&[], Some("ops"));
        let (leases, others): (Vec<_>, Vec<_>) = all
            .iter()
            .partition(|permission| permission.contains("leases"));
        assert_eq!(leases.len(), 1);
        assert!(
            others
                .iter()
                .all(|permission| permission.ends_with(" everywhere")),
            "{others:?}"
        );
        assert_eq!(described(&[], None).len(), others.len());
    }
}
