//! `steersman extension`: calls handlers of runtime extensions by hand.

use crate::{
    connect::{Connect, explain, with_short_timeouts},
    controller_table::ClientCertificate,
    exit_code::ExitError,
    stdout::write,
};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::{
    io::{Read, stdin},
    net::SocketAddr,
    path::{Path, PathBuf},
};
use steersman::prelude::*;
use steersman_controllers::{
    extension_config::{
        ExtensionConfig, ServiceReference,
        catalog::{
            Catalog, Hook,
            hooks::{
                AfterClusterUpgrade, AfterControlPlaneInitialized, AfterControlPlaneUpgrade,
                AfterWorkersUpgrade, BeforeClusterCreate, BeforeClusterDelete,
                BeforeClusterUpgrade, BeforeControlPlaneUpgrade, BeforeWorkersUpgrade,
                CanUpdateMachine, CanUpdateMachineSet, DiscoverVariables, GeneratePatches,
                GenerateUpgradePlan, UpdateMachine, ValidateTopology,
            },
        },
        client::{CallOptions, RuntimeClient},
        split_registered_name,
    },
    manifests::yaml,
};
use tokio::net::lookup_host;

/// Commands for runtime extensions.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Call a handler that was discovered, and print its response as YAML.
    ///
    /// The handler is called as the controllers call it: with the CA, the settings, the time limit and the namespace selector of its `ExtensionConfig`.
    Call(Call),
}

/// `steersman extension call`
#[derive(Debug, clap::Args)]
pub(crate) struct Call {
    /// Name of the handler in `status.handlers` of its `ExtensionConfig`, such as `quota.my-extension`.
    name: String,

    /// Hook to call.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(HOOKS))]
    hook: String,

    /// YAML or JSON file with the request. `-` means stdin. `apiVersion` and `kind` are optional.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,

    /// Address to connect to instead of the Service of the extension, such as that of a `kubectl port-forward`. Default: the address from DNS, which resolves Services only inside of the cluster.
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,

    /// Object that the hook is called for. The namespace selector must match its namespace. Default: the object in the field `cluster` of the request.
    #[arg(long = "for", value_name = "NAMESPACE/NAME", value_parser = object)]
    for_object: Option<ObjectKey>,

    #[command(flatten)]
    client_certificate: ClientCertificate,

    #[command(flatten)]
    connect: Connect,
}

fn object(text: &str) -> Result<ObjectKey> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(ObjectKey::new(namespace, name))
        }
        _ => bail!("use NAMESPACE/NAME, such as default/my-cluster"),
    }
}

pub(crate) async fn run(command: Command) -> Result<()> {
    let Command::Call(call) = command;
    let request = read(&call.file)?;
    let expected = format!("{}Request", call.hook);
    let kind = request["kind"].as_str().unwrap_or(&expected);
    ensure!(
        kind == expected,
        "cannot call {}: the request has the kind {kind}; use {expected}",
        call.hook
    );
    let runtime = call.runtime_client().await?;
    let call = PreparedCall {
        for_object: call.for_object.unwrap_or_else(|| cluster_of(&request)),
        runtime,
        name: call.name,
        hook: call.hook,
        request,
    };
    let response = call.send().await?;
    write(yaml(&[response]).as_bytes())
}

impl Call {
    /// Creates a client with the handlers of the `ExtensionConfig`.
    async fn runtime_client(&self) -> Result<RuntimeClient> {
        let (_, config_name) = split_registered_name(&self.name)?;
        let config = self.connect.config().await?;
        let client =
            Client::new(with_short_timeouts(&config)).map_err(|error| explain(error, &config))?;
        let key = ObjectKey::cluster_scoped(config_name);
        let found = client.get::<ExtensionConfig>(&key).await;
        let found = found.map_err(|error| explain(error, &config))?;
        let Some(found) = found else {
            return Err(ExitError::MissingRequirement(format!(
                "cannot call {}: ExtensionConfig {config_name} does not exist; create it or correct the name",
                self.name
            ))
            .into());
        };
        let mut builder = RuntimeClient::builder(client, Catalog::cluster_api());
        if let Some(address) = &self.address {
            let address = resolve(address).await?;
            builder = builder.resolver(move |_: &ServiceReference, _| Some(address));
        }
        let runtime = self.client_certificate.set(builder).build()?;
        runtime.warm_up(&[(*found).clone()])?;
        Ok(runtime)
    }
}

async fn resolve(address: &str) -> Result<SocketAddr> {
    let found = lookup_host(address).await;
    let found = found.with_context(|| format!("cannot resolve {address}; use HOST:PORT"))?;
    let mut found = found;
    found
        .next()
        .with_context(|| format!("cannot resolve {address}: no address found; use an IP address"))
}

fn read(path: &Path) -> Result<Value> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let request: Value = serde_saphyr::from_str(&text).with_context(|| {
        format!(
            "cannot parse {}; write the request as YAML or JSON",
            path.display()
        )
    })?;
    ensure!(
        request.is_object(),
        "cannot use {}: the request is not a map; write the fields of the request as YAML or JSON",
        path.display()
    );
    Ok(request)
}

/// Returns the key of the Cluster in a request.
fn cluster_of(request: &Value) -> ObjectKey {
    let metadata = &request["cluster"]["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    match (text("namespace"), text("name")) {
        ("", _) | (_, "") => ObjectKey::cluster_scoped("no-object"),
        (namespace, name) => ObjectKey::new(namespace, name),
    }
}

struct PreparedCall {
    runtime: RuntimeClient,
    for_object: ObjectKey,
    name: String,
    hook: String,
    request: Value,
}

impl PreparedCall {
    async fn send_to<H: Hook>(&self) -> Result<Value> {
        let request: H::Request = serde_json::from_value(self.request.clone())
            .with_context(|| format!("cannot use the request of {}", self.hook))?;
        let (object, options) = (&self.for_object, CallOptions::default());
        let response = self
            .runtime
            .call_extension::<H>(object, &self.name, &request, options)
            .await?;
        Ok(serde_json::to_value(response)?)
    }
}

/// Declares the list of hook names, and a function that calls a hook by its name.
macro_rules! hooks {
    ($($hook:ident),+ $(,)?) => {
        const HOOKS: [&str; [$(<$hook as Hook>::NAME),+].len()] = [$(<$hook as Hook>::NAME),+];

        impl PreparedCall {
            async fn send(&self) -> Result<Value> {
                match self.hook.as_str() {
                    $(<$hook as Hook>::NAME => self.send_to::<$hook>().await,)+
                    other => bail!("cannot call {other}: it is not a hook of Cluster API"),
                }
            }
        }
    };
}

hooks!(
    BeforeClusterCreate,
    AfterControlPlaneInitialized,
    BeforeClusterUpgrade,
    BeforeControlPlaneUpgrade,
    AfterControlPlaneUpgrade,
    BeforeWorkersUpgrade,
    AfterWorkersUpgrade,
    AfterClusterUpgrade,
    BeforeClusterDelete,
    GeneratePatches,
    ValidateTopology,
    DiscoverVariables,
    CanUpdateMachine,
    CanUpdateMachineSet,
    UpdateMachine,
    GenerateUpgradePlan,
);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_hook_except_discovery_can_be_called() {
        let mut names: Vec<_> = Catalog::cluster_api()
            .iter()
            .map(|hook| hook.hook.clone())
            .collect();
        names.retain(|name| name != "Discovery");
        let mut hooks = HOOKS.to_vec();
        names.sort_unstable();
        hooks.sort_unstable();
        assert_eq!(hooks, names);
    }

    #[test]
    fn the_default_object_of_a_call_is_the_cluster_in_the_request() {
        let request = json!({"cluster": {"metadata": {"namespace": "shop", "name": "eu"}}});
        assert_eq!(cluster_of(&request), ObjectKey::new("shop", "eu"));
        assert_eq!(cluster_of(&json!({})).namespace(), None);
        assert_eq!(object("shop/eu").ok(), Some(ObjectKey::new("shop", "eu")));
        assert!(object("eu").is_err() && object("/eu").is_err());
    }
}
