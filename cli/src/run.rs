//! `steersman run`: the controllers on a cluster.

use crate::{
    admin::AdminFlags,
    connect::{Connect, address, explained, impatient, reach},
    ending::Ending,
    first_party::{Choice, FirstParty, Settings},
    permissions, sync,
    terminal::Terminal,
};
use anyhow::{Context, Result, ensure};
use kube::Config;
use steersman::{
    cache::Namespaces,
    controller,
    logging::{self, Format},
    prelude::*,
};
use tokio::select;

/// The name of the Lease.
const LEASE: &str = "steersman";

/// Run the controllers on a cluster, until SIGINT or SIGTERM.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    scope: Scope,

    #[command(flatten)]
    admin: AdminFlags,

    /// How many objects each controller works on at once.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,

    #[command(flatten)]
    settings: Settings,

    #[command(flatten)]
    log: Log,
}

/// What is run, and where.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Scope {
    #[command(flatten)]
    pub(crate) controllers: Choice,

    /// Look only at these namespaces, separated by commas. Default: all. Secrets that workspaces name have to be in them.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = namespace)]
    pub(crate) namespaces: Vec<String>,

    /// Work only while leading, by a Lease: of several processes one does.
    #[arg(long)]
    pub(crate) leader_elect: bool,

    /// Where the Lease is. Default: the namespace of the connection, in a pod its own.
    #[arg(long, value_name = "NAMESPACE", requires = "leader_elect", value_parser = namespace)]
    leader_elect_namespace: Option<String>,
}

impl Scope {
    pub(crate) fn lease_namespace(&self, config: &Config) -> String {
        self.leader_elect_namespace.clone().unwrap_or_else(|| config.default_namespace.clone())
    }
}

/// As an argument: what can be none is refused before anything is asked.
pub(crate) fn namespace(text: &str) -> Result<String> {
    let is_label = (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    ensure!(is_label, "use at most 63 of a-z, 0-9 and `-`, and no `-` at either end");
    Ok(text.to_owned())
}

/// What is logged, to stderr.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Log {
    /// How a log's line looks: for people, or an object for programs.
    #[arg(long, value_enum, default_value_t = Lines::Human)]
    log: Lines,

    /// What is logged: a level, and others for parts of the program.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_filter: String,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Lines {
    Human,
    Json,
}

impl Log {
    fn init(&self, terminal: &Terminal) -> Result<()> {
        let format = match self.log {
            Lines::Human => Format::Human,
            Lines::Json => Format::Json,
        };
        let terminal = terminal.clone();
        let (subscriber, _levels) = logging::subscriber(format, &self.log_filter, move || terminal.clone())?;
        tracing::subscriber::set_global_default(subscriber).context("logs go elsewhere already")
    }
}

pub(crate) async fn run(flags: Flags) -> Result<()> {
    let (terminal, mut stopped) = (Terminal::new(), tokio::spawn(signals::shutdown()));
    flags.log.init(&terminal)?;
    let chosen = flags.scope.controllers.chosen();
    let config = select! {
        config = flags.looked_at() => config?,
        _ = &mut stopped => return Ok(()),
    };

    let manager = flags.manager(config)?;
    for it in &chosen {
        (it.add_to)(&manager, &flags.settings).with_context(|| format!("controller {}", it.name))?;
    }
    let admin = flags.admin.serve(&manager)?;
    sync::tell(&manager, &terminal)?;
    let controllers = chosen.iter().map(|it| it.name).collect::<Vec<_>>().join(",");
    tracing::info!(controllers, %admin, "starting");
    manager.run_until(async { drop(stopped.await) }).await?;
    tracing::info!("stopped");
    Ok(())
}

impl Flags {
    /// The cluster, if the controllers could run there.
    async fn looked_at(&self) -> Result<Config> {
        let config = self.connect.config().await?;
        let reached = reach(&config).await?;
        tracing::info!(server = address(&config), version = reached.version, "reached the cluster");
        defined(&config, &self.scope.controllers.chosen()).await?;
        permitted(&config, &self.scope).await?;
        Ok(config)
    }

    fn manager(&self, config: Config) -> Result<Manager> {
        let namespaces = match self.scope.namespaces.as_slice() {
            [] => Namespaces::All,
            some => Namespaces::These(some.iter().map(|name| name.as_str().into()).collect()),
        };
        let namespace = self.scope.lease_namespace(&config);
        let options =
            controller::Options { max_concurrent: Some(self.workers.into()), ..controller::Options::default() };
        let builder =
            Manager::builder(config).cache(CacheOptions { namespaces, ..CacheOptions::default() }).controllers(options);
        let builder = if self.scope.leader_elect { builder.leader_election(LEASE, &namespace) } else { builder };
        Ok(builder.build()?)
    }
}

/// The kinds that the controllers are for have to be there: better to say so now than to wait for them in silence.
async fn defined(config: &Config, chosen: &[FirstParty]) -> Result<()> {
    let client = Client::new(impatient(config)).map_err(|error| explained(error, config))?;
    for definition in chosen.iter().flat_map(|it| (it.definitions)()) {
        let kind = kind_of(&definition);
        if client.discover(&kind).await.map_err(|error| explained(error, config))?.is_none() {
            let missing = format!("the cluster has no {} of {}", kind.kind, kind.api_version());
            return Err(
                Ending::Lacking(format!("{missing}: install it with `steersman crds | kubectl apply -f -`")).into()
            );
        }
    }
    Ok(())
}

/// Without the permission to see its own kinds, a controller has nothing to do. What else is not allowed may not be needed.
async fn permitted(config: &Config, scope: &Scope) -> Result<()> {
    let client = kube::Client::try_from(impatient(config)).map_err(|error| explained(error.into(), config))?;
    let own: Vec<_> = scope
        .controllers
        .chosen()
        .iter()
        .flat_map(|it| (it.definitions)())
        .map(|it| it["spec"]["names"]["plural"].clone())
        .collect();
    let reviewed = permissions::review(&client, scope, &scope.lease_namespace(config)).await;
    let reviewed = reviewed.map_err(|error| explained(error, config))?.unwrap_or_default();
    let mut needed = Vec::new();
    for permission in reviewed.iter().filter(|it| !it.refused.is_empty()) {
        tracing::warn!(%permission, "not allowed: `steersman rbac` prints the roles to bind");
        let sees = permission.refused.iter().any(|verb| verb == "list" || verb == "watch");
        if sees && own.iter().any(|plural| *plural == *permission.resource) {
            needed.push(permission.to_string());
        }
    }
    if needed.is_empty() {
        return Ok(());
    }
    let needed = needed.join("; ");
    Err(Ending::Lacking(format!(
        "not allowed: {needed}: bind the roles that `steersman rbac` prints, and see `steersman doctor`"
    ))
    .into())
}

/// What a definition defines, in the version that it stores.
pub(crate) fn kind_of(definition: &serde_json::Value) -> GroupVersionKind {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &definition["spec"];
    let stored = spec["versions"].as_array().into_iter().flatten().find(|version| version["storage"] == true);
    let version = stored.map(|version| text(&version["name"])).unwrap_or_default();
    GroupVersionKind::gvk(&text(&spec["group"]), &version, &text(&spec["names"]["kind"]))
}
