//! `steersman doctor`: checks whether the controllers can run on a cluster.

use crate::{
    connect::{ClusterInfo, Connect, address, check_cluster, explain, with_short_timeouts},
    controller_table::required_crds,
    exit_code::ExitError,
    permissions,
    run::{Scope, kind_of},
    stdout::print_line,
};
use anyhow::Result;
use k8s_openapi::{api::core::v1::Namespace, jiff::SignedDuration};
use kube::{Api, Client};
use std::fmt;

/// Tolerance of the comparison of clocks.
///
/// The server's date has a resolution of one second, and the response takes time.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// Check whether the controllers can run on a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    scope: Scope,
}

#[derive(Debug, PartialEq, Eq)]
enum Finding {
    Ok(String),
    /// Works, with a hint for the user.
    Note(String),
    Missing(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok(what) => write!(f, "ok       {what}"),
            Self::Note(what) => write!(f, "note     {what}"),
            Self::Missing(what) => write!(f, "missing  {what}"),
        }
    }
}

pub(crate) async fn run(flags: Flags) -> Result<()> {
    let config = flags.connect.config().await?;
    let ClusterInfo {
        version,
        took,
        ahead,
    } = check_cluster(&config).await?;
    let fine = format!(
        "cluster: {} responded in {} ms, version {version}",
        address(&config),
        took.as_millis()
    );
    let mut missing = print_findings([Finding::Ok(fine), compare_clocks(ahead)])?;
    let explain = |error| explain(error, &config);
    let client =
        Client::try_from(with_short_timeouts(&config)).map_err(|error| explain(error.into()))?;
    let lease_namespace = flags.scope.lease_namespace(&config);
    missing += print_findings(namespace_findings(&client, &flags.scope, &lease_namespace).await)?;
    missing += print_findings(crd_findings(&client, &flags.scope).await.map_err(explain)?)?;
    missing += print_findings(
        permission_findings(&client, &flags.scope, &lease_namespace)
            .await
            .map_err(explain)?,
    )?;
    match missing {
        0 => Ok(()),
        1 => Err(ExitError::MissingRequirement(
            "1 requirement is missing on the cluster, see above".into(),
        )
        .into()),
        several => Err(ExitError::MissingRequirement(format!(
            "{several} requirements are missing on the cluster, see above"
        ))
        .into()),
    }
}

/// Prints the findings, and returns how many are missing.
fn print_findings(findings: impl IntoIterator<Item = Finding>) -> Result<usize> {
    let mut missing = 0;
    for finding in findings {
        print_line(&finding)?;
        missing += usize::from(matches!(finding, Finding::Missing(_)));
    }
    Ok(missing)
}

/// Checks that the namespaces exist.
///
/// Returns nothing without the permission to read them.
async fn namespace_findings(client: &Client, scope: &Scope, lease_namespace: &str) -> Vec<Finding> {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut findings = Vec::new();
    let lease = scope.leader_elect.then_some(lease_namespace);
    for (name, is_for_lease) in scope
        .namespaces
        .iter()
        .map(|name| (name.as_str(), false))
        .chain(lease.map(|name| (name, true)))
    {
        findings.extend(match api.get_metadata_opt(name).await {
            Ok(Some(_)) => Some(Finding::Ok(format!("namespace: {name}"))),
            Ok(None) if is_for_lease => Some(Finding::Missing(format!(
                "namespace: {name} of the Lease does not exist; create it, or set another one"
            ))),
            Ok(None) => Some(Finding::Note(format!(
                "namespace: {name} does not exist; its objects are reconciled once it is created"
            ))),
            Err(_) => None,
        });
    }
    findings
}

fn compare_clocks(ahead: Option<SignedDuration>) -> Finding {
    match ahead {
        None => Finding::Note("clock: the API server does not report its time".into()),
        Some(ahead) if ahead.abs() <= CLOCK_TOLERANCE => {
            Finding::Ok("clock: agrees with that of the API server".into())
        }
        Some(ahead) => {
            let (seconds, direction) = (
                ahead.abs().as_secs(),
                if ahead.is_positive() {
                    "behind"
                } else {
                    "ahead of"
                },
            );
            let next = "set it by NTP, so that certificates and tokens are valid";
            Finding::Note(format!(
                "clock: {seconds} s {direction} that of the API server; {next}"
            ))
        }
    }
}

async fn crd_findings(client: &Client, scope: &Scope) -> steersman::client::Result<Vec<Finding>> {
    let (client, mut findings) = (steersman::client::Client::new(client.clone())?, Vec::new());
    for crd in required_crds(&scope.controllers.selected()) {
        let kind = kind_of(&crd.definition);
        let (what, command) = (
            format!("CRD: {} of {}", kind.kind, kind.api_version()),
            crd.command(),
        );
        findings.push(match client.discover(&kind).await? {
            Some(_) => Finding::Ok(what),
            None if crd.is_reconciled => Finding::Missing(format!(
                "{what} is not served; install it with `{command} | kubectl apply -f -`"
            )),
            None => Finding::Note(format!(
                "{what} is not served, {} waits for it; install its provider, or use `{command}`",
                crd.controller.name
            )),
        });
    }
    Ok(findings)
}

async fn permission_findings(
    client: &Client,
    scope: &Scope,
    lease_namespace: &str,
) -> steersman::client::Result<Vec<Finding>> {
    let Some(permissions) = permissions::review(client, scope, lease_namespace).await? else {
        return Ok(vec![Finding::Note(
            "permission: not checked, the API server does not serve access reviews".into(),
        )]);
    };
    let finding = |permission: &permissions::Permission| match permission.denied.as_slice() {
        [] => Finding::Ok(format!("permission: {permission}")),
        _ => Finding::Missing(format!(
            "permission: {permission}; bind the roles that `steersman rbac` prints"
        )),
    };
    Ok(permissions.iter().map(finding).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_agree_within_two_seconds() {
        let finding =
            |seconds| compare_clocks(Some(SignedDuration::from_secs(seconds))).to_string();
        assert_eq!(
            finding(-2),
            "ok       clock: agrees with that of the API server"
        );
        assert!(
            finding(90).starts_with("note     clock: 90 s behind that of the API server"),
            "{}",
            finding(90)
        );
        assert!(
            finding(-90).starts_with("note     clock: 90 s ahead of that of the API server"),
            "{}",
            finding(-90)
        );
        assert!(matches!(compare_clocks(None), Finding::Note(_)));
    }
}
