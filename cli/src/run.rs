//! `steersman run`: the controllers on a cluster.

use crate::{
    admin::AdminFlags,
    connect::{Connect, address, check_cluster, explain, with_short_timeouts},
    controller_table::{ControllerEntry, ControllerSelection, Settings, required_crds},
    exit_code::ExitError,
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

/// Name of the Lease.
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

    /// Number of objects that each controller reconciles concurrently, except `extension-config`, which waits for up to 100 extensions.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,

    #[command(flatten)]
    settings: Settings,

    #[command(flatten)]
    log: Log,
}

/// Selection of controllers and namespaces.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Scope {
    #[command(flatten)]
    pub(crate) controllers: ControllerSelection,

    /// Watch only these namespaces, separated by commas. Default: all. The connection Secrets of workspaces must be in them.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = namespace)]
    pub(crate) namespaces: Vec<String>,

    /// Elect a leader by a Lease, so that only one of several processes runs the controllers.
    #[arg(long)]
    pub(crate) leader_elect: bool,

    /// Namespace of the Lease. Default: the namespace of the kubeconfig context or of the pod.
    #[arg(long, value_name = "NAMESPACE", requires = "leader_elect", value_parser = namespace)]
    leader_elect_namespace: Option<String>,
}

impl Scope {
    pub(crate) fn lease_namespace(&self, config: &Config) -> String {
        self.leader_elect_namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone())
    }
}

/// Parses a namespace argument. Rejects invalid names before any request.
pub(crate) fn namespace(text: &str) -> Result<String> {
    let is_label = (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    ensure!(
        is_label,
        "use at most 63 of a-z, 0-9 and `-`, without `-` at either end"
    );
    Ok(text.to_owned())
}

/// Options of the log on stderr.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Log {
    /// Format of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Human)]
    log: LogFormat,

    /// Log filter: a level, optionally followed by levels of single modules.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_filter: String,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LogFormat {
    Human,
    Json,
}

impl Log {
    fn init(&self, terminal: &Terminal) -> Result<()> {
        let format = match self.log {
            LogFormat::Human => Format::Human,
            LogFormat::Json => Format::Json,
        };
        let terminal = terminal.clone();
        let (subscriber, _levels) =
            logging::subscriber(format, &self.log_filter, move || terminal.clone())?;
        tracing::subscriber::set_global_default(subscriber).context("cannot initialize logging")
    }
}

pub(crate) async fn run(flags: Flags) -> Result<()> {
    let (terminal, mut stopped) = (Terminal::new(), tokio::spawn(signals::shutdown()));
    flags.log.init(&terminal)?;
    let selected = flags.scope.controllers.selected();
    let config = select! {
        config = flags.check_before_start() => config?,
        _ = &mut stopped => return Ok(()),
    };

    let manager = flags.manager(config)?;
    for it in &selected {
        (it.add_to)(&manager, &flags.settings)
            .with_context(|| format!("controller {}", it.name))?;
    }
    let admin = flags.admin.serve(&manager)?;
    sync::show_progress(&manager, &terminal)?;
    let controllers = selected
        .iter()
        .map(|it| it.name)
        .collect::<Vec<_>>()
        .join(",");
    tracing::info!(controllers, %admin, "starting");
    manager.run_until(async { drop(stopped.await) }).await?;
    tracing::info!("stopped");
    Ok(())
}

impl Flags {
    /// Returns the configuration of the cluster after checks.
    ///
    /// Fails if the controllers cannot run there.
    async fn check_before_start(&self) -> Result<Config> {
        let config = self.connect.config().await?;
        let cluster = check_cluster(&config).await?;
        tracing::info!(
            server = address(&config),
            version = cluster.version,
            "connected to cluster"
        );
        check_crds(&config, &self.scope.controllers.selected()).await?;
        check_permissions(&config, &self.scope).await?;
        Ok(config)
    }

    fn manager(&self, config: Config) -> Result<Manager> {
        let namespaces = match self.scope.namespaces.as_slice() {
            [] => Namespaces::All,
            some => Namespaces::List(some.iter().map(|name| name.as_str().into()).collect()),
        };
        let namespace = self.scope.lease_namespace(&config);
        let options = controller::Options {
            max_concurrent: Some(self.workers.into()),
            ..controller::Options::default()
        };
        let builder = Manager::builder(config)
            .cache(CacheOptions {
                namespaces,
                ..CacheOptions::default()
            })
            .controllers(options);
        let builder = if self.scope.leader_elect {
            builder.leader_election(LEASE, &namespace)
        } else {
            builder
        };
        Ok(builder.build()?)
    }
}

/// Fails if a kind that a controller reconciles is not installed.
///
/// The controllers would otherwise wait for it.
async fn check_crds(config: &Config, selected: &[ControllerEntry]) -> Result<()> {
    let client =
        Client::new(with_short_timeouts(config)).map_err(|error| explain(error, config))?;
    for crd in required_crds(selected).iter().filter(|it| it.is_reconciled) {
        let kind = kind_of(&crd.definition);
        if client
            .discover(&kind)
            .await
            .map_err(|error| explain(error, config))?
            .is_none()
        {
            let missing = format!(
                "cannot start: the cluster does not serve {} of {}",
                kind.kind,
                kind.api_version()
            );
            let command = crd.command();
            return Err(ExitError::MissingRequirement(format!(
                "{missing}; install it with `{command} | kubectl apply -f -`"
            ))
            .into());
        }
    }
    Ok(())
}

/// Fails without the permission to watch the kinds that the controllers reconcile.
///
/// Other missing permissions may not be needed.
async fn check_permissions(config: &Config, scope: &Scope) -> Result<()> {
    let client = kube::Client::try_from(with_short_timeouts(config))
        .map_err(|error| explain(error.into(), config))?;
    let reconciled_plurals: Vec<_> = required_crds(&scope.controllers.selected())
        .iter()
        .filter(|it| it.is_reconciled)
        .map(|it| it.definition["spec"]["names"]["plural"].clone())
        .collect();
    let permissions = permissions::review(&client, scope, &scope.lease_namespace(config)).await;
    let permissions = permissions
        .map_err(|error| explain(error, config))?
        .unwrap_or_default();
    let mut missing = Vec::new();
    for permission in permissions.iter().filter(|it| !it.denied.is_empty()) {
        tracing::warn!(%permission, "permission missing, bind roles that `steersman rbac` prints");
        let is_needed_to_watch = permission
            .denied
            .iter()
            .any(|verb| verb == "list" || verb == "watch");
        if is_needed_to_watch
            && reconciled_plurals
                .iter()
                .any(|plural| *plural == *permission.resource)
        {
            missing.push(permission.to_string());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join("; ");
    Err(ExitError::MissingRequirement(format!(
        "missing permissions: {missing}; bind the roles that `steersman rbac` prints, and run \
         `steersman doctor`"
    ))
    .into())
}

/// Returns the kind that a CRD defines, in its storage version.
pub(crate) fn kind_of(definition: &serde_json::Value) -> GroupVersionKind {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &definition["spec"];
    let stored = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true);
    let version = stored
        .map(|version| text(&version["name"]))
        .unwrap_or_default();
    GroupVersionKind::gvk(
        &text(&spec["group"]),
        &version,
        &text(&spec["names"]["kind"]),
    )
}
