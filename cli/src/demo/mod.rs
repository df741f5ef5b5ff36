//! `steersman demo`: API server, controllers and a demonstration in one process.
//!
//! The process continues to run after the demonstration, for experiments.

mod scenario;

use crate::{
    admin,
    controller_table::{self, Settings},
    stdout::print_line,
};
use anyhow::{Context, Result};
use scenario::Scenario;
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
use tokio::{select, time::Instant};

/// Grace period of the shutdown. Nothing in the demonstration takes longer.
const GRACE: Duration = Duration::from_millis(500);

/// Default log filter.
const LOG_FILTER: &str = "warn,steersman::controller::worker=off";

/// Run a demonstration in one process, without a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Address of metrics, health and debug pages. Default: a free port on loopback.
    #[arg(long, value_name = "ADDR", default_value_t = free_port())]
    admin: SocketAddr,

    /// Log filter of the log on stderr. `info` shows each step of the controllers. The default omits failed reconciles, which are a part of the demonstration.
    #[arg(long, value_name = "FILTER", default_value = LOG_FILTER)]
    log_filter: String,
}

fn free_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Defaults of the flags.
impl Default for Flags {
    fn default() -> Self {
        Self {
            admin: free_port(),
            log_filter: LOG_FILTER.into(),
        }
    }
}

pub(crate) async fn run(flags: Flags) -> Result<()> {
    // Handles signals first, so that a signal during the start does not leave files behind.
    let (started, stopped) = (Instant::now(), tokio::spawn(signals::shutdown()));
    logging::init(Format::Human, &flags.log_filter)?;
    print_line(format_args!(
        "steersman {}: a Kubernetes API server and its controllers, in this process\n",
        env!("CARGO_PKG_VERSION")
    ))?;
    // The server holds Secrets, and every program and web page on this machine can connect to it.
    // TLS, because kubectl sends a token only over TLS.
    let (authenticator, credentials) = Authenticator::with_random_token();
    let options = steersman_apiserver::Options {
        authenticator,
        ..steersman_apiserver::Options::default()
    };
    let server = ApiServer::new(options)?;
    let kinds = install(&server).await?;
    let serving = server
        .listen(free_port(), Some(&Authority::generate()?))
        .await?;

    let client = kube::Client::new(server.service_as(Identity::admin()), "default");
    let manager = Manager::builder(client).grace_period(Some(GRACE)).build()?;
    for it in controller_table::ALL {
        (it.add_to)(&manager, &Settings::default())
            .with_context(|| format!("controller {}", it.name))?;
    }
    let admin = admin::serve(
        &manager,
        Admin {
            address: flags.admin,
            ..Admin::default()
        },
    )?;
    let kubeconfig = TemporaryKubeconfig::write(&serving.kubeconfig_for(credentials))?;

    let scenario = Scenario::new(manager.handle(), started)?;
    scenario.print(&format!(
        "API server listens on {}, serves {kinds}",
        serving.url()
    ))?;
    let next_steps = next_steps(kubeconfig.path(), admin);
    manager.add(Stage::Leader, "the demonstration", async move |cx| {
        let extension = select! {
            () = cx.stopped() => return Ok(()),
            ended = scenario.run() => ended?,
        };
        print_line(format_args!("\n{next_steps}"))?;
        cx.stopped().await;
        drop(extension);
        Ok(())
    })?;
    let result = manager.run_until(async { drop(stopped.await) }).await;
    serving.stop().await;
    result
}

/// Installs the CRDs of all kinds in the demonstration.
async fn install(server: &ApiServer) -> Result<String> {
    let manifests_of = |list: fn(&controller_table::ControllerEntry) -> Vec<Value>| {
        controller_table::ALL.iter().flat_map(list)
    };
    let definitions = controller_table::dedup_manifests(
        manifests_of(|it| (it.definitions)())
            .chain(manifests_of(|it| (it.dependencies)()))
            .chain(scenario::definitions()),
    );
    let mut kinds = Vec::new();
    for definition in definitions {
        kinds.extend(
            definition["spec"]["names"]["kind"]
                .as_str()
                .map(str::to_owned),
        );
        server.install(definition).await?;
    }
    Ok(kinds.join(", "))
}

/// Returns three lines with suggestions for the next steps.
fn next_steps(kubeconfig: &Path, admin: SocketAddr) -> String {
    format!(
        "Use:      export KUBECONFIG='{}'; kubectl -n {} get captcontrolplanes,clusters.cluster.x-k8s.io\n\
         Pages:    http://{admin}/metrics, /readyz, /debug/controllers, /debug/queues, /debug/caches\n\
         Stop:     Ctrl-C; a second Ctrl-C exits at once",
        kubeconfig.display(),
        scenario::NAMESPACE,
    )
}
