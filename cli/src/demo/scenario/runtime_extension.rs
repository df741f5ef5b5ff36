//! Last part of the demonstration: a runtime extension.
//!
//! Its handlers are discovered, its CA rotates, and it stops and starts again. It is a real server
//! with TLS, in the process of the demonstration.

use super::{NAMESPACE, Scenario, object};
use crate::stdout::print_line;
use anyhow::Result;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::json;
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};
use steersman::{client::Patch, conditions, prelude::*};
use steersman_apiserver::Authority;
use steersman_controllers::extension_config::{
    DISCOVERED, ExtensionConfig, INJECT_CA_FROM_SECRET,
    catalog::{
        Catalog,
        hooks::{BeforeClusterCreate, BeforeClusterCreateResponse},
    },
    server::{Extension, Running, ServingCertificate},
};

/// Name of the `ExtensionConfig`, and of the Secret with its CA.
const NAME: &str = "quota";

impl Scenario {
    /// Runs this part. Returns the extension, which serves until it is dropped.
    pub(super) async fn run_extension(&self) -> Result<Running> {
        print_line(
            "\n           A runtime extension has a CA in a Secret, and its handlers are discovered",
        )?;
        let first = Authority::generate()?;
        let extension = serve(&first, (Ipv4Addr::LOCALHOST, 0).into()).await?;
        let address = extension.local_addr();
        self.print(&format!("runtime extension listens on https://{address}"))?;
        self.create_extension_config(&first, &format!("https://{address}"))
            .await?;
        self.until_discovered(|_| true).await?;

        print_line(
            "\n           The CA of the extension rotates, and the new one verifies its certificate",
        )?;
        extension.stop().await;
        let second = Authority::generate()?;
        let extension = serve(&second, address).await?;
        self.write_ca(&second).await?;
        let ca = second.ca_pem();
        self.until_discovered(|config| {
            let ca_bundle = config.spec.client_config.ca_bundle.as_ref();
            ca_bundle.is_some_and(|it| it.0 == ca.as_bytes())
        })
        .await?;

        print_line(
            "\n           The extension stops, so its discovery fails, and then it starts again",
        )?;
        extension.stop().await;
        self.print("runtime extension stopped")?;
        let settings = json!({"spec": {"settings": {"limit": "3"}}});
        let (key, patch) = (ObjectKey::cluster_scoped(NAME), Patch::Merge(settings));
        self.client.patch::<ExtensionConfig>(&key, &patch).await?;
        self.until_condition("False", |_| true).await?;
        let extension = serve(&second, address).await?;
        self.print("runtime extension started")?;
        self.until_discovered(|_| true).await?;
        Ok(extension)
    }

    async fn create_extension_config(&self, authority: &Authority, url: &str) -> Result<()> {
        self.write_ca(authority).await?;
        let config = json!({
            "metadata": {
                "name": NAME, "annotations": {INJECT_CA_FROM_SECRET: format!("{NAMESPACE}/{NAME}")},
            },
            "spec": {"clientConfig": {"url": url}, "namespaceSelector": {}},
        });
        self.client
            .create(&object::<ExtensionConfig>(config)?)
            .await?;
        self.print(&format!("created ExtensionConfig {NAME}"))
    }

    /// Creates or updates the Secret with the CA.
    async fn write_ca(&self, authority: &Authority) -> Result<()> {
        let data = json!({"ca.crt": ByteString(authority.ca_pem().into_bytes())});
        let key = ObjectKey::new(NAMESPACE, NAME);
        let exists = self.client.live().get::<Secret>(&key).await?.is_some();
        if exists {
            let patch = Patch::Merge(json!({"data": data}));
            self.client.patch::<Secret>(&key, &patch).await?;
        } else {
            let metadata = json!({"namespace": NAMESPACE, "name": NAME});
            let secret = json!({"metadata": metadata, "data": data});
            self.client.create(&object::<Secret>(secret)?).await?;
        }
        let verb = if exists { "updated" } else { "created" };
        self.print(&format!("{verb} Secret {key} with the CA of the extension"))
    }

    /// Waits until the handlers are discovered and `holds` is true, and prints the handlers.
    async fn until_discovered(&self, holds: impl Fn(&ExtensionConfig) -> bool) -> Result<()> {
        let config = self.until_condition("True", holds).await?;
        let handlers = config.status.iter().flat_map(|status| &status.handlers);
        let names: Vec<_> = handlers.map(|handler| handler.name.as_str()).collect();
        let names = names.join(", ");
        self.print(&format!("ExtensionConfig {NAME}: handlers {names}"))
    }

    /// Waits until the condition has a status for the current generation and `holds` is true.
    async fn until_condition(
        &self,
        status: &str,
        holds: impl Fn(&ExtensionConfig) -> bool,
    ) -> Result<Arc<ExtensionConfig>> {
        let condition = |config: &ExtensionConfig| {
            let conditions = &config.status.as_ref()?.conditions;
            let condition = conditions::find(conditions, DISCOVERED)?;
            let is_current = condition.observed_generation == config.metadata.generation;
            (is_current && condition.status == status).then(|| condition.reason.clone())
        };
        let config = self
            .until(&self.extensions, NAME, |config| {
                condition(config).is_some() && holds(config)
            })
            .await?;
        let reason = condition(&config).unwrap_or_default();
        self.print(&format!(
            "ExtensionConfig {NAME}: condition {DISCOVERED}={status}, {reason}"
        ))?;
        Ok(config)
    }
}

/// Starts the extension with a certificate of an authority.
async fn serve(authority: &Authority, address: SocketAddr) -> Result<Running> {
    let pair = authority.server_certificate()?;
    let extension = Extension::new(Catalog::cluster_api())
        .on::<BeforeClusterCreate, _>("check", async |_, _| BeforeClusterCreateResponse::default())
        .tls(ServingCertificate::pem(pair.certificate_pem, pair.key_pem));
    Ok(extension.serve(address).await?)
}
