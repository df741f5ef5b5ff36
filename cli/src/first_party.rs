//! Which controllers there are: everything else asks this table.

use clap::builder::PossibleValue;
use serde_json::Value;
use steersman::manager::ManagerHandle;
use steersman_controllers::endpoint;

/// A controller, and what it needs.
#[derive(Clone, Copy)]
pub(crate) struct FirstParty {
    pub(crate) name: &'static str,
    about: &'static str,
    /// Of its own kinds.
    pub(crate) definitions: fn() -> Vec<Value>,
    /// The least of the kinds that it reads, which others bring.
    pub(crate) dependencies: fn() -> Vec<Value>,
    /// Returns the roles that it needs in the given namespaces, or in the whole cluster if there are none.
    pub(crate) roles: fn(&[String]) -> Vec<Value>,
    pub(crate) add_to: fn(&ManagerHandle, &Settings) -> anyhow::Result<()>,
}

/// What controllers can be told from the command line. By default each does as it does by itself.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Settings {
    /// Ask every minute whether somebody answers at each endpoint, and say so in the condition `EndpointHealthy`. It has to be reachable from here.
    #[arg(long)]
    endpoint_health: bool,
}

pub(crate) const ALL: &[FirstParty] = &[FirstParty {
    name: "endpoint",
    about: "brings the endpoint of a control plane that Terraform made to CAPTControlPlane and Cluster",
    definitions: endpoint::definitions,
    dependencies: endpoint::dependencies,
    roles: endpoint::roles,
    add_to: |manager, settings| {
        let health = settings.endpoint_health.then(endpoint::Health::default);
        endpoint::add_to(manager, &endpoint::Options { health, ..endpoint::Options::default() })?;
        Ok(())
    },
}];

/// Those of a command line: of all if it names none.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Choice {
    /// Which controllers, separated by commas. Default: all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parser())]
    controllers: Vec<String>,
}

impl Choice {
    pub(crate) fn chosen(&self) -> Vec<FirstParty> {
        let is_wanted =
            |it: &&FirstParty| self.controllers.is_empty() || self.controllers.iter().any(|name| name == it.name);
        ALL.iter().filter(is_wanted).copied().collect()
    }
}

fn parser() -> clap::builder::PossibleValuesParser {
    ALL.iter().map(|it| PossibleValue::new(it.name).help(it.about)).collect::<Vec<_>>().into()
}

/// Returns each manifest once, also if several controllers have it.
pub(crate) fn united(manifests: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for manifest in manifests {
        let is_same = |other: &Value| {
            let (one, two) = (&other["metadata"], &manifest["metadata"]);
            other["kind"] == manifest["kind"] && one["namespace"] == two["namespace"] && one["name"] == two["name"]
        };
        if !all.iter().any(is_same) {
            all.push(manifest);
        }
    }
    all
}
