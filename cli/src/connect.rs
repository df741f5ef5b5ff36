//! How a cluster is found and reached.

use crate::ending::Ending;
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

/// How long a cluster may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Connect {
    /// The kubeconfig to use. Without it and without --context: the one that $KUBECONFIG names, else the cluster that this runs in, else ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use. Default: its current one.
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
                unreached(format!("this looks like a pod, and the cluster around it cannot be used: {}: mount the token of a service account, or use --kubeconfig", told(&error)))
            });
        }
        let (read, from) = match &self.kubeconfig {
            Some(path) => (Kubeconfig::read_from(path), format!("kubeconfig {}", path.display())),
            None => (Kubeconfig::read(), "the kubeconfig of $KUBECONFIG or ~/.kube/config".into()),
        };
        let hint = "name a usable one with --kubeconfig and --context; to see everything without a cluster, run `steersman` without a command";
        let unusable = |error: &(dyn std::error::Error + 'static)| {
            unreached(format!("{from} cannot be used: {}: {hint}", told(error)))
        };
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let read = read.map_err(|error| unusable(&error))?;
        Config::from_custom_kubeconfig(read, &options).await.map_err(|error| unusable(&error))
    }
}

/// What a cluster has said of itself.
pub(crate) struct Reached {
    pub(crate) version: String,
    pub(crate) took: Duration,
    /// How far its clock is ahead of ours, if it says what time it has.
    pub(crate) ahead: Option<SignedDuration>,
}

/// The same cluster, for questions before anything runs: what does not answer in time has failed, and nothing is tried again in silence.
pub(crate) fn impatient(config: &Config) -> Config {
    let mut config = config.clone();
    config.default_retry = false;
    (config.connect_timeout, config.read_timeout, config.write_timeout) =
        (Some(PATIENCE), Some(PATIENCE), Some(PATIENCE));
    config
}

/// An error that says what to do, unless it answers.
pub(crate) async fn reach(config: &Config) -> Result<Reached> {
    let client = Client::try_from(impatient(config)).map_err(|error| explained(error.into(), config))?;
    let begun = Instant::now();
    let (info, date) = version(&client).await.map_err(|error| explained(error.into(), config))?;
    let took = begun.elapsed();
    // It was sent about halfway.
    let ahead =
        date.map(|date| date.duration_since(Timestamp::now()) + SignedDuration::try_from(took / 2).unwrap_or_default());
    Ok(Reached { version: info.git_version, took, ahead })
}

async fn version(client: &Client) -> kube::Result<(Info, Option<Timestamp>)> {
    let request = Request::get("/version").body(Body::empty()).map_err(kube::Error::HttpError)?;
    let response = client.send(request).await?;
    let date = response.headers().get(DATE).and_then(|date| rfc2822::parse(date.to_str().ok()?).ok());
    let code = response.status();
    let body = response.into_body().collect_bytes().await?;
    if !code.is_success() {
        let words = || Status::failure(&format!("it says {code}"), "").with_code(code.as_u16());
        return Err(kube::Error::Api(serde_json::from_slice(&body).unwrap_or_else(|_| words().boxed())));
    }
    Ok((serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?, date.map(|date| date.timestamp())))
}

/// What was asked before anything runs has failed: what to do about it.
pub(crate) fn explained(error: steersman::client::Error, config: &Config) -> anyhow::Error {
    let url = address(config);
    match error.status() {
        Some(status) if status.code == 401 => {
            let next = "look at the credentials of the kubeconfig";
            unreached(format!("{url} does not know who asks ({}): {next}", status.message))
        }
        Some(status) if status.code == 403 => {
            let next = "use other credentials, or bind the roles that `steersman rbac` prints";
            Ending::Lacking(format!("{url} does not allow it: {}: {next}", status.message)).into()
        }
        Some(status) => unreached(format!("{url} has refused: {}: is it a Kubernetes API server?", status.message)),
        None => {
            let next = "is it up, and are its address and the credentials right?";
            unreached(format!("{url} cannot be asked: {}: {next}", told(&error)))
        }
    }
}

/// Without a name and a password, should somebody have put them there.
pub(crate) fn address(config: &Config) -> String {
    let url = config.cluster_url.to_string();
    match url.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default()),
        None => url,
    }
}

fn unreached(text: String) -> anyhow::Error {
    Ending::Unreachable(text).into()
}

/// With what it comes from, each once: clients wrap and wrap. Of each the first line: a parser's others show what stands around, which may be a token.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    for cause in successors(Some(error), |error| error.source()) {
        let words = cause.to_string().lines().next().unwrap_or_default().to_owned();
        if text.is_empty() {
            text = words;
        } else if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
    }
    text
}
