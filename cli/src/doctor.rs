//! `steersman doctor`: whether the controllers could run on a cluster, a line for each thing, and what to do about those that are missing.

use crate::{
    connect::{Connect, Reached, address, explained, impatient, reach},
    ending::Ending,
    permissions,
    run::{Scope, kind_of},
    say::say,
};
use anyhow::Result;
use k8s_openapi::{api::core::v1::Namespace, jiff::SignedDuration};
use kube::{Api, Client};
use std::fmt;

/// The server says its time in seconds, and its answer takes a moment.
const CLOCKS_AGREE: SignedDuration = SignedDuration::from_secs(2);

/// Look whether the controllers could run on a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    scope: Scope,
}

#[derive(Debug, PartialEq, Eq)]
enum Finding {
    Fine(String),
    /// It works, and somebody may want to know.
    Note(String),
    Missing(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fine(what) => write!(f, "ok       {what}"),
            Self::Note(what) => write!(f, "note     {what}"),
            Self::Missing(what) => write!(f, "missing  {what}"),
        }
    }
}

pub(crate) async fn run(flags: Flags) -> Result<()> {
    let config = flags.connect.config().await?;
    let Reached { version, took, ahead } = reach(&config).await?;
    let fine = format!("cluster: {} answers, {version}, in {} ms", address(&config), took.as_millis());
    let mut missing = told([Finding::Fine(fine), clocks(ahead)])?;
    let explained = |error| explained(error, &config);
    let client = Client::try_from(impatient(&config)).map_err(|error| explained(error.into()))?;
    let lease_namespace = flags.scope.lease_namespace(&config);
    missing += told(namespaces(&client, &flags.scope, &lease_namespace).await)?;
    missing += told(definitions(&client, &flags.scope).await.map_err(explained)?)?;
    missing += told(allowed(&client, &flags.scope, &lease_namespace).await.map_err(explained)?)?;
    match missing {
        0 => Ok(()),
        1 => Err(Ending::Lacking("one thing is missing on the cluster, see above".into()).into()),
        several => Err(Ending::Lacking(format!("{several} things are missing on the cluster, see above")).into()),
    }
}

/// How many are missing.
fn told(findings: impl IntoIterator<Item = Finding>) -> Result<usize> {
    let mut missing = 0;
    for finding in findings {
        say(&finding)?;
        missing += usize::from(matches!(finding, Finding::Missing(_)));
    }
    Ok(missing)
}

/// Those that are named. Who may not look for them is told nothing.
async fn namespaces(client: &Client, scope: &Scope, lease_namespace: &str) -> Vec<Finding> {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut findings = Vec::new();
    let lease = scope.leader_elect.then_some(lease_namespace);
    for (name, is_for_lease) in
        scope.namespaces.iter().map(|name| (name.as_str(), false)).chain(lease.map(|name| (name, true)))
    {
        findings.extend(match api.get_metadata_opt(name).await {
            Ok(Some(_)) => Some(Finding::Fine(format!("namespace: {name}"))),
            Ok(None) if is_for_lease => Some(Finding::Missing(format!(
                "namespace: {name}, where the Lease is to be: make it, or name another one"
            ))),
            Ok(None) => {
                Some(Finding::Note(format!("namespace: {name} is not there: nothing will be seen in it before it is")))
            }
            Err(_) => None,
        });
    }
    findings
}

fn clocks(ahead: Option<SignedDuration>) -> Finding {
    match ahead {
        None => Finding::Note("clock: the server does not say what time it has".into()),
        Some(ahead) if ahead.abs() <= CLOCKS_AGREE => Finding::Fine("clock: agrees with the server's".into()),
        Some(ahead) => {
            let (seconds, direction) = (ahead.abs().as_secs(), if ahead.is_positive() { "behind" } else { "ahead of" });
            let next = "certificates and tokens may not be valid yet, or any more: let it be set by NTP";
            Finding::Note(format!("clock: {seconds} s {direction} the server's: {next}"))
        }
    }
}

async fn definitions(client: &Client, scope: &Scope) -> steersman::client::Result<Vec<Finding>> {
    let (client, mut findings) = (steersman::client::Client::new(client.clone())?, Vec::new());
    for it in scope.controllers.chosen() {
        let own = (it.definitions)().into_iter().map(|definition| (definition, true));
        for (definition, own) in own.chain((it.dependencies)().into_iter().map(|definition| (definition, false))) {
            let kind = kind_of(&definition);
            let what = format!("definition: {} of {}", kind.kind, kind.api_version());
            findings.push(match (client.discover(&kind).await?, own) {
                (Some(_), _) => Finding::Fine(what),
                (None, true) => Finding::Missing(format!("{what}: install it with `steersman crds | kubectl apply -f -`")),
                (None, false) => {
                    let name = it.name;
                    Finding::Note(format!("{what} is not there: {name} waits for it; who brings it, or `steersman crds --with-dependencies`?"))
                }
            });
        }
    }
    Ok(findings)
}

async fn allowed(client: &Client, scope: &Scope, lease_namespace: &str) -> steersman::client::Result<Vec<Finding>> {
    let Some(permissions) = permissions::review(client, scope, lease_namespace).await? else {
        return Ok(vec![Finding::Note("permission: this server does not say who may do what: not looked at".into())]);
    };
    let finding = |permission: &permissions::Permission| match permission.refused.as_slice() {
        [] => Finding::Fine(format!("permission: {permission}")),
        _ => Finding::Missing(format!("permission: {permission}: `steersman rbac` prints the roles to bind")),
    };
    Ok(permissions.iter().map(finding).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_what_cannot_be_measured_agree_and_others_are_told_apart() {
        let said = |seconds| clocks(Some(SignedDuration::from_secs(seconds))).to_string();
        assert_eq!(said(-2), "ok       clock: agrees with the server's");
        assert!(said(90).starts_with("note     clock: 90 s behind the server's"), "{}", said(90));
        assert!(said(-90).starts_with("note     clock: 90 s ahead of the server's"), "{}", said(-90));
        assert!(matches!(clocks(None), Finding::Note(_)));
    }
}
