//! Table of the controllers.

use clap::builder::PossibleValue;
use serde_json::Value;
use std::path::PathBuf;
use steersman::{manager::ManagerHandle, tls::TlsFiles};
use steersman_controllers::{
    cluster, cluster_api, endpoint,
    extension_config::{
        self, WarmupPolicy,
        catalog::Catalog,
        client::{RuntimeClient, RuntimeClientBuilder, RuntimeSdkMetrics},
    },
};

/// Controller with its requirements.
#[derive(Clone, Copy)]
pub(crate) struct ControllerEntry {
    pub(crate) name: &'static str,
    about: &'static str,
    /// Whether the controller runs only if `--controllers` names it.
    is_opt_in: bool,
    /// Kind that the controller reconciles. The controller cannot start without it.
    reconciles: &'static str,
    /// Returns the CRDs of the controller's own kinds.
    pub(crate) definitions: fn() -> Vec<Value>,
    /// Returns minimal CRDs of the kinds that the controller reads.
    pub(crate) dependencies: fn() -> Vec<Value>,
    /// Returns the roles of the controller in the given namespaces.
    ///
    /// Without namespaces, the roles are for the whole cluster.
    pub(crate) roles: fn(&[String]) -> Vec<Value>,
    pub(crate) add_to: fn(&ManagerHandle, &Settings) -> anyhow::Result<()>,
}

/// Settings of the controllers.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Settings {
    /// Check every minute whether each endpoint responds, and report the result in the condition `EndpointHealthy`. The endpoints must be reachable from this process.
    #[arg(long)]
    endpoint_health: bool,

    /// Do not discover extensions, but register what another process has discovered, and write nothing. For `extension-config`.
    #[arg(long)]
    extension_config_read_only: bool,

    /// What happens at the start if an extension cannot be discovered. For `extension-config`.
    #[arg(long, value_enum, default_value_t)]
    warmup: Warmup,

    #[command(flatten)]
    pub(crate) client_certificate: ClientCertificate,
}

/// Values of `--warmup`.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Warmup {
    /// Retry for 60 s, and then end the process with the error.
    #[default]
    Strict,
    /// Start with the other extensions, and discover the failed ones later.
    Lenient,
}

/// Certificate that the program shows to extensions.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ClientCertificate {
    /// PEM file with the client certificate for calls of extensions. It is read again when it changes.
    #[arg(
        long,
        value_name = "FILE",
        requires = "runtime_extension_client_key_file"
    )]
    runtime_extension_client_cert_file: Option<PathBuf>,

    /// PEM file with the key of the client certificate for calls of extensions.
    #[arg(
        long,
        value_name = "FILE",
        requires = "runtime_extension_client_cert_file"
    )]
    runtime_extension_client_key_file: Option<PathBuf>,
}

impl ClientCertificate {
    /// Sets the certificate, if there is one.
    pub(crate) fn set(&self, builder: RuntimeClientBuilder) -> RuntimeClientBuilder {
        let certificate = self.runtime_extension_client_cert_file.clone();
        match certificate.zip(self.runtime_extension_client_key_file.clone()) {
            Some((certificate, key)) => builder.client_certificate(TlsFiles { certificate, key }),
            None => builder,
        }
    }
}

pub(crate) const ALL: &[ControllerEntry] = &[
    ControllerEntry {
        name: "endpoint",
        about: "publishes the endpoint of control planes created by Terraform to CAPTControlPlane and Cluster",
        is_opt_in: false,
        reconciles: "CAPTControlPlane",
        definitions: endpoint::definitions,
        dependencies: endpoint::dependencies,
        roles: endpoint::roles,
        add_to: |manager, settings| {
            let health = settings.endpoint_health.then(endpoint::Health::default);
            endpoint::add_to(
                manager,
                &endpoint::Options {
                    health,
                    ..endpoint::Options::default()
                },
            )?;
            Ok(())
        },
    },
    ControllerEntry {
        name: "cluster",
        about: "reconciles infrastructure and control plane of each Cluster (opt-in: do not run it beside Cluster API's own controllers)",
        is_opt_in: true,
        reconciles: "Cluster",
        definitions: Vec::new,
        dependencies: cluster_api::definitions,
        roles: cluster::roles,
        add_to: |manager, _settings| {
            cluster::add_to(manager, &cluster::Options::default())?;
            Ok(())
        },
    },
    ControllerEntry {
        name: "extension-config",
        about: "discovers the runtime extensions of each ExtensionConfig (opt-in: do not run it beside Cluster API's own controllers, except read-only)",
        is_opt_in: true,
        reconciles: "ExtensionConfig",
        definitions: extension_config::definitions,
        dependencies: Vec::new,
        roles: extension_config::roles,
        add_to: add_extension_config,
    },
];

fn add_extension_config(manager: &ManagerHandle, settings: &Settings) -> anyhow::Result<()> {
    let builder = RuntimeClient::builder(manager.client(), Catalog::cluster_api())
        .metrics(manager.metrics(RuntimeSdkMetrics::register));
    let client = settings.client_certificate.set(builder).build()?;
    let options = extension_config::Options {
        read_only: settings.extension_config_read_only,
        warmup: match settings.warmup {
            Warmup::Strict => WarmupPolicy::Strict,
            Warmup::Lenient => WarmupPolicy::Lenient,
        },
        ..extension_config::Options::default()
    };
    extension_config::add_to(manager, client, &options)?;
    Ok(())
}

/// CRD that a controller needs.
pub(crate) struct RequiredCrd {
    pub(crate) definition: Value,
    /// Controller that needs it.
    pub(crate) controller: ControllerEntry,
    /// Whether the controller cannot start without it.
    pub(crate) is_reconciled: bool,
    /// Whether another project defines the kind.
    is_dependency: bool,
}

impl RequiredCrd {
    /// Returns the command that prints the CRD.
    pub(crate) fn command(&self) -> String {
        let mut command = "steersman crds".to_owned();
        if self.controller.is_opt_in {
            command = format!("{command} --controllers {}", self.controller.name);
        }
        if self.is_dependency {
            command += " --with-dependencies";
        }
        command
    }
}

/// Returns the CRDs that the controllers need, each once. Those of reconciled kinds come first.
pub(crate) fn required_crds(selected: &[ControllerEntry]) -> Vec<RequiredCrd> {
    let mut all: Vec<RequiredCrd> = selected.iter().flat_map(required_by).collect();
    all.sort_by_key(|it| !it.is_reconciled);
    let mut names = Vec::new();
    all.retain(|it| {
        let name = it.definition["metadata"]["name"].clone();
        let is_new = !names.contains(&name);
        names.push(name);
        is_new
    });
    all
}

fn required_by(controller: &ControllerEntry) -> impl Iterator<Item = RequiredCrd> {
    let controller = *controller;
    let own = (controller.definitions)().into_iter().map(|it| (it, false));
    let others = (controller.dependencies)().into_iter().map(|it| (it, true));
    own.chain(others)
        .map(move |(definition, is_dependency)| RequiredCrd {
            is_reconciled: definition["spec"]["names"]["kind"] == controller.reconciles,
            definition,
            controller,
            is_dependency,
        })
}

/// Selection of controllers by the command line.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControllerSelection {
    /// Controllers, separated by commas. Default: all except `cluster` and `extension-config`. Run these two only where Cluster API's own controllers do not run, because both would write the same fields.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parser())]
    controllers: Vec<String>,
}

impl ControllerSelection {
    pub(crate) fn selected(&self) -> Vec<ControllerEntry> {
        let is_wanted = |it: &&ControllerEntry| {
            if self.controllers.is_empty() {
                !it.is_opt_in
            } else {
                self.controllers.iter().any(|name| name == it.name)
            }
        };
        ALL.iter().filter(is_wanted).copied().collect()
    }
}

fn parser() -> clap::builder::PossibleValuesParser {
    ALL.iter()
        .map(|it| PossibleValue::new(it.name).help(it.about))
        .collect::<Vec<_>>()
        .into()
}

/// Returns each manifest once, also if several controllers have it.
pub(crate) fn dedup_manifests(manifests: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for manifest in manifests {
        let is_same = |other: &Value| {
            let (one, two) = (&other["metadata"], &manifest["metadata"]);
            other["kind"] == manifest["kind"]
                && one["namespace"] == two["namespace"]
                && one["name"] == two["name"]
        };
        if !all.iter().any(is_same) {
            all.push(manifest);
        }
    }
    all
}
