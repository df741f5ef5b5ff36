//! Table of the controllers.

use clap::builder::PossibleValue;
use serde_json::Value;
use steersman::manager::ManagerHandle;
use steersman_controllers::endpoint;

/// Controller with its requirements.
#[derive(Clone, Copy)]
pub(crate) struct ControllerEntry {
    pub(crate) name: &'static str,
    about: &'static str,
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

pub(crate) const ALL: &[ControllerEntry] = &[ControllerEntry {
    name: "endpoint",
    about: "publishes the endpoint of control planes created by Terraform to CAPTControlPlane and Cluster",
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
}];

/// Selection of controllers by the command line.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControllerSelection {
    /// Controllers, separated by commas. Default: all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parser())]
    controllers: Vec<String>,
}

impl ControllerSelection {
    pub(crate) fn selected(&self) -> Vec<ControllerEntry> {
        let is_wanted = |it: &&ControllerEntry| {
            self.controllers.is_empty() || self.controllers.iter().any(|name| name == it.name)
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
