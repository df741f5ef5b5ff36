//! Table of the controllers.

use clap::builder::PossibleValue;
use serde_json::Value;
use steersman::manager::ManagerHandle;
use steersman_controllers::{cluster, cluster_api, endpoint};

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
];

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
    /// Controllers, separated by commas. Default: all except `cluster`. Run `cluster` only where Cluster API's own controllers do not run, because both would write the same fields.
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
