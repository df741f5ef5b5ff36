//! Which permissions are missing: each verb of each rule of each role is asked for, as whoever asks.

use crate::{first_party::united, run::Scope};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams, discovery};
use serde_json::Value;
use std::fmt;
use steersman::client::Result;

/// What may be done with a resource somewhere.
#[derive(Clone)]
pub(crate) struct Permission {
    group: String,
    /// With its part: `captcontrolplanes/status`.
    pub(crate) resource: String,
    /// Everywhere if there is none.
    namespace: Option<String>,
    verbs: Vec<String>,
    /// Those that are needed, and not allowed.
    pub(crate) refused: Vec<String>,
}

/// The verbs that matter, and what for.
impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs = if self.refused.is_empty() { &self.verbs } else { &self.refused };
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

/// How many questions are on their way at once.
const AT_ONCE: usize = 8;

/// `None` if the server does not say who may do what. Leases are asked for where there is to be an election.
pub(crate) async fn review(client: &Client, scope: &Scope, lease_namespace: &str) -> Result<Option<Vec<Permission>>> {
    let chosen = scope.controllers.chosen();
    let known: Vec<_> =
        chosen.iter().flat_map(|it| (it.definitions)().into_iter().chain((it.dependencies)())).collect();
    let mut all = Vec::new();
    for role in united(chosen.iter().flat_map(|it| (it.roles)(&[]))) {
        let namespaces = match (role["kind"] == "Role", scope.leader_elect) {
            (true, false) => continue,
            (true, true) => vec![lease_namespace.to_owned()],
            (false, _) => scope.namespaces.clone(),
        };
        for permission in role["rules"].as_array().into_iter().flatten().flat_map(needed) {
            all.extend(in_each(client, permission, &namespaces, &known).await);
        }
    }
    let reviewed = stream::iter(all).map(|permission| reviewed(client, permission)).buffered(AT_ONCE);
    reviewed
        .try_fold(Some(Vec::new()), async |all, one| Ok(all.zip(one).map(|(all, one)| [all, vec![one]].concat())))
        .await
}

/// With what is refused of it.
async fn reviewed(client: &Client, mut permission: Permission) -> Result<Option<Permission>> {
    for verb in permission.verbs.clone() {
        match is_allowed(client, &permission, &verb).await? {
            Some(true) => {}
            Some(false) => permission.refused.push(verb),
            None => return Ok(None),
        }
    }
    Ok(Some(permission))
}

/// What a rule says, for each of its resources.
fn needed(rule: &Value) -> Vec<Permission> {
    let texts = |list: &Value| {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let (groups, resources, verbs) = (texts(&rule["apiGroups"]), texts(&rule["resources"]), texts(&rule["verbs"]));
    let of_group = |group: &String| {
        let permission = |resource: &String| Permission {
            group: group.clone(),
            resource: resource.clone(),
            namespace: None,
            verbs: verbs.clone(),
            refused: Vec::new(),
        };
        resources.iter().map(permission).collect::<Vec<_>>()
    };
    groups.iter().flat_map(of_group).collect()
}

/// Once for each namespace, if there are some and the resource lives in them.
async fn in_each(client: &Client, permission: Permission, namespaces: &[String], known: &[Value]) -> Vec<Permission> {
    let Permission { group, resource, verbs, .. } = &permission;
    if namespaces.is_empty() || !is_namespaced(client, group, resource, known).await {
        return vec![permission];
    }
    let of = |namespace: &String| Permission {
        group: group.clone(),
        resource: resource.clone(),
        namespace: Some(namespace.clone()),
        verbs: verbs.clone(),
        refused: Vec::new(),
    };
    namespaces.iter().map(of).collect()
}

/// As the server says. Of what it does not have, as the definition that we know of says.
async fn is_namespaced(client: &Client, group: &str, resource: &str, known: &[Value]) -> bool {
    let plural = resource.split('/').next().unwrap_or(resource);
    let defined = || {
        let definition =
            known.iter().find(|it| it["spec"]["group"] == group && it["spec"]["names"]["plural"] == plural);
        definition.is_none_or(|it| it["spec"]["scope"] == "Namespaced")
    };
    let Ok(group) = discovery::group(client, group).await else { return defined() };
    let resources = group.versions().flat_map(|version| group.versioned_resources(version)).collect::<Vec<_>>();
    let found = resources.iter().find(|(resource, _)| resource.plural == plural);
    found.map_or_else(defined, |(_, capabilities)| capabilities.scope == discovery::Scope::Namespaced)
}

/// `None` if the server does not know.
async fn is_allowed(client: &Client, permission: &Permission, verb: &str) -> Result<Option<bool>> {
    let Permission { group, resource, namespace, .. } = permission;
    let (resource, part) = resource.split_once('/').map_or((resource.as_str(), None), |(it, part)| (it, Some(part)));
    let attributes = ResourceAttributes {
        group: Some(group.clone()),
        resource: Some(resource.into()),
        subresource: part.map(str::to_owned),
        verb: Some(verb.into()),
        namespace: namespace.clone(),
        ..ResourceAttributes::default()
    };
    let spec =
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SelfSubjectAccessReviewSpec::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    match Api::all(client.clone()).create(&PostParams::default(), &review).await {
        Ok(answer) => Ok(Some(answer.status.is_some_and(|status| status.allowed))),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
