//! `steersman` without a command: an API server in this process, the controllers on it, and a story. Then it goes on, for whoever wants to try something.

mod story;

use crate::{
    admin,
    first_party::{self, Settings},
    say::say,
};
use anyhow::{Context, Result};
use serde_json::Value;
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};
use steersman::{
    admin::Admin,
    logging::{self, Format},
    manager::Stage,
    prelude::*,
};
use steersman_apiserver::{ApiServer, Authenticator, Authority, Identity, TemporaryKubeconfig};
use story::Story;
use tokio::{select, time::Instant};

/// For everybody to stop: nothing here takes long.
const GRACE: Duration = Duration::from_millis(500);

/// Show everything in one process, with nothing installed.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Where to serve metrics, health and debug pages. Default: a free port of loopback.
    #[arg(long, value_name = "ADDR", default_value_t = free_port())]
    admin: SocketAddr,

    /// What is logged, to stderr, beside the story: `info` shows what the controllers say of each step.
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    log_filter: String,
}

fn free_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// As the command line says without flags.
impl Default for Flags {
    fn default() -> Self {
        Self { admin: free_port(), log_filter: "warn".into() }
    }
}

pub(crate) async fn run(flags: Flags) -> Result<()> {
    // As early as can be: what comes before it must not leave files behind.
    let (begun, stopped) = (Instant::now(), tokio::spawn(signals::shutdown()));
    logging::init(Format::Human, &flags.log_filter)?;
    say(format_args!(
        "steersman {}: a Kubernetes API server and its controllers, in this process\n",
        env!("CARGO_PKG_VERSION")
    ))?;
    // The server holds Secrets, and every program and web page on this machine can connect to it. TLS, because kubectl
    // sends a token only over TLS.
    let (authenticator, credentials) = Authenticator::with_random_token();
    let options = steersman_apiserver::Options { authenticator, ..steersman_apiserver::Options::default() };
    let server = ApiServer::new(options)?;
    let kinds = install(&server).await?;
    let serving = server.listen(free_port(), Some(&Authority::generate()?)).await?;

    let client = kube::Client::new(server.service_as(Identity::admin()), "default");
    let manager = Manager::builder(client).grace_period(Some(GRACE)).build()?;
    for it in first_party::ALL {
        (it.add_to)(&manager, &Settings::default()).with_context(|| format!("controller {}", it.name))?;
    }
    let admin = admin::serve(&manager, Admin { address: flags.admin, ..Admin::default() })?;
    let kubeconfig = TemporaryKubeconfig::write(&serving.kubeconfig_for(credentials))?;

    let story = Story::new(manager.handle(), begun)?;
    story.say(&format!("the API server listens on {}, and has {kinds}", serving.url()))?;
    let next = next(kubeconfig.path(), admin);
    manager.add(Stage::Leader, "the story", async move |cx| {
        select! {
            () = cx.stopped() => return Ok(()),
            ended = story.tell() => ended?,
        }
        say(format_args!("\n{next}"))
    })?;
    let ran = manager.run_until(async { drop(stopped.await) }).await;
    serving.stop().await;
    ran
}

/// Definitions of all kinds that play a part.
async fn install(server: &ApiServer) -> Result<String> {
    let of = |list: fn(&first_party::FirstParty) -> Vec<Value>| first_party::ALL.iter().flat_map(list);
    let definitions = first_party::united(of(|it| (it.definitions)()).chain(of(|it| (it.dependencies)())));
    let mut kinds = Vec::new();
    for definition in definitions {
        kinds.extend(definition["spec"]["names"]["kind"].as_str().map(str::to_owned));
        server.install(definition).await?;
    }
    Ok(kinds.join(", "))
}

/// Three lines for who wants to go on.
fn next(kubeconfig: &Path, admin: SocketAddr) -> String {
    format!(
        "Use it    export KUBECONFIG='{}'; kubectl -n {} get captcontrolplanes,clusters.cluster.x-k8s.io\n\
         Look in   http://{admin}/metrics, /readyz, /debug/controllers, /debug/queues, /debug/caches\n\
         Stop it   Ctrl-C; a second one ends it at once",
        kubeconfig.display(),
        story::NAMESPACE,
    )
}
