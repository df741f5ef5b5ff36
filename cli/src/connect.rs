//! Finds the cluster and connects to it.

use crate::exit_code::ExitError;
use anyhow::Result;
use http::{Request, header::DATE};
use k8s_openapi::{
    apimachinery::pkg::version::Info,
    jiff::{SignedDuration, Timestamp, fmt::rfc2822},
};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
    core::Status,
};
use std::{env, iter::successors, path::PathBuf, time::Duration};
use tokio::time::Instant;

/// Time limit of a response of the cluster.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Selection of the cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Connect {
    /// Kubeconfig file. Default, also without --context: $KUBECONFIG, then the cluster of this pod, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig. Default: its current context.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl Connect {
    pub(crate) async fn config(&self) -> Result<Config> {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        if self.kubeconfig.is_none()
            && self.context.is_none()
            && !is_set("KUBECONFIG")
            && is_set("KUBERNETES_SERVICE_HOST")
        {
            return Config::incluster().map_err(|error| {
                unreachable_error(format!(
                    "cannot use the cluster of this pod: {}; mount the token of a service account, \
                     or use --kubeconfig",
                    error_chain(&error)
                ))
            });
        }
        let (kubeconfig, from) = match &self.kubeconfig {
            Some(path) => (
                Kubeconfig::read_from(path),
                format!("kubeconfig {}", path.display()),
            ),
            None => (
                Kubeconfig::read(),
                "the kubeconfig of $KUBECONFIG or ~/.kube/config".into(),
            ),
        };
        let hint = "set --kubeconfig and --context, or run `steersman` without a command for a \
                    demo without a cluster";
        let unusable = |error: &(dyn std::error::Error + 'static)| {
            unreachable_error(format!("cannot use {from}: {}; {hint}", error_chain(error)))
        };
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let kubeconfig = kubeconfig.map_err(|error| unusable(&error))?;
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|error| unusable(&error))
    }
}

/// Facts about a cluster that has answered.
pub(crate) struct ClusterInfo {
    pub(crate) version: String,
    pub(crate) took: Duration,
    /// Difference of the cluster's clock to the local one, if the response has a date.
    pub(crate) ahead: Option<SignedDuration>,
}

/// Returns a configuration for checks before the start: short timeout, no retry.
pub(crate) fn with_short_timeouts(config: &Config) -> Config {
    let mut config = config.clone();
    config.default_retry = false;
    (
        config.connect_timeout,
        config.read_timeout,
        config.write_timeout,
    ) = (
        Some(RESPONSE_TIMEOUT),
        Some(RESPONSE_TIMEOUT),
        Some(RESPONSE_TIMEOUT),
    );
    config
}

/// Returns facts about the cluster, or an error with advice if it does not answer.
pub(crate) async fn check_cluster(config: &Config) -> Result<ClusterInfo> {
    let client = Client::try_from(with_short_timeouts(config))
        .map_err(|error| explain(error.into(), config))?;
    let started = Instant::now();
    let (info, date) = version(&client)
        .await
        .map_err(|error| explain(error.into(), config))?;
    let took = started.elapsed();
    // The date was sent about half way through the request.
    let ahead = date.map(|date| {
        date.duration_since(Timestamp::now())
            + SignedDuration::try_from(took / 2).unwrap_or_default()
    });
    Ok(ClusterInfo {
        version: info.git_version,
        took,
        ahead,
    })
}

async fn version(client: &Client) -> kube::Result<(Info, Option<Timestamp>)> {
    let request = Request::get("/version")
        .body(Body::empty())
        .map_err(kube::Error::HttpError)?;
    let response = client.send(request).await?;
    let date = response
        .headers()
        .get(DATE)
        .and_then(|date| rfc2822::parse(date.to_str().ok()?).ok());
    let code = response.status();
    let body = response.into_body().collect_bytes().await?;
    if !code.is_success() {
        let text = || Status::failure(&format!("HTTP status {code}"), "").with_code(code.as_u16());
        return Err(kube::Error::Api(
            serde_json::from_slice(&body).unwrap_or_else(|_| text().boxed()),
        ));
    }
    Ok((
        serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?,
        date.map(|date| date.timestamp()),
    ))
}

/// Explains the failure of a check before the start.
pub(crate) fn explain(error: steersman::client::Error, config: &Config) -> anyhow::Error {
    let url = address(config);
    match error.status() {
        Some(status) if status.code == 401 => {
            let next = "check the credentials of the kubeconfig";
            unreachable_error(format!(
                "cannot authenticate to {url}: {}; {next}",
                status.message
            ))
        }
        Some(status) if status.code == 403 => {
            let next = "use other credentials, or bind the roles that `steersman rbac` prints";
            ExitError::MissingRequirement(format!(
                "cannot access {url}: {}; {next}",
                status.message
            ))
            .into()
        }
        Some(status) => unreachable_error(format!(
            "cannot use {url}: {}; check that it is a Kubernetes API server",
            status.message
        )),
        None => {
            let next = "check that it runs, its address and the credentials";
            unreachable_error(format!(
                "cannot reach {url}: {}; {next}",
                error_chain(&error)
            ))
        }
    }
}

/// Returns the URL of the cluster without user name and password.
pub(crate) fn address(config: &Config) -> String {
    let url = config.cluster_url.to_string();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default())
        }
        None => url,
    }
}

fn unreachable_error(text: String) -> anyhow::Error {
    ExitError::Unreachable(text).into()
}

/// Formats an error with its causes, each once.
///
/// Only the first line of each cause is used, because the others of a parser show context, which
/// may be a token.
fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    for cause in successors(Some(error), |error| error.source()) {
        let line = cause
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        if text.is_empty() {
            text = line;
        } else if !text.contains(&line) {
            text = format!("{text}: {line}");
        }
    }
    text
}
