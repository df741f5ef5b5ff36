//! An extension server on loopback, and a client that has discovered it.

use anyhow::Result;
use k8s_openapi::ByteString;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use steersman::{
    client::Client,
    object::ObjectKey,
    testing::{Env, TestServer},
};
use steersman_apiserver::Authority;
use steersman_controllers::extension_config::{
    ExtensionConfig,
    catalog::{
        Catalog,
        hooks::{BeforeClusterCreate, BeforeClusterCreateRequest, BeforeClusterCreateResponse},
    },
    client::{CallOptions, RuntimeClient},
    server::{Extension, Running, ServingCertificate},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    time::sleep,
};

/// Extension server with one handler, and its client.
#[derive(Clone)]
pub(crate) struct Loopback {
    client: RuntimeClient,
    config: ExtensionConfig,
    request: Arc<BeforeClusterCreateRequest>,
    /// Stops the server when it is dropped.
    running: Arc<Running>,
}

impl Loopback {
    pub(crate) async fn start() -> Result<Self> {
        let authority = Authority::generate()?;
        let signed = authority.server_certificate()?;
        let running = Extension::new(Catalog::cluster_api())
            .on::<BeforeClusterCreate, _>("check", async |_, _| {
                BeforeClusterCreateResponse::default()
            })
            .tls(ServingCertificate::pem(
                signed.certificate_pem,
                signed.key_pem,
            ))
            .serve("127.0.0.1:0".parse()?)
            .await?;

        let url = format!("https://{}", running.local_addr());
        let mut config: ExtensionConfig = serde_json::from_value(json!({
            "metadata": {"name": "loopback"},
            "spec": {"clientConfig": {"url": url}, "namespaceSelector": {}},
        }))?;
        config.spec.client_config.ca_bundle = Some(ByteString(authority.ca_pem().into()));

        // No call reads a Namespace, because the selector is empty.
        let client = Client::new(Env::embedded()?.client()?)?;
        let client = RuntimeClient::builder(client, Catalog::cluster_api()).build()?;
        config.status.get_or_insert_default().handlers = client.discover(&config).await?;
        client.warm_up(std::slice::from_ref(&config))?;
        let cluster = json!({"metadata": {"name": "web"}, "spec": {"paused": false}});
        Ok(Self {
            client,
            config,
            request: Arc::new(BeforeClusterCreateRequest {
                cluster,
                ..BeforeClusterCreateRequest::default()
            }),
            running: Arc::new(running),
        })
    }

    /// Puts a proxy in front of the server that connects to it after a delay.
    pub(crate) async fn delayed(mut self, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        self.config.spec.client_config.url = Some(format!("https://{}", listener.local_addr()?));
        let server = self.running.local_addr();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    sleep(delay).await;
                    let mut server = TcpStream::connect(server).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Ok(self)
    }

    pub(crate) async fn call(&self) -> Result<()> {
        let cluster = ObjectKey::new("default", "web");
        let options = CallOptions::default();
        self.client
            .call_extension::<BeforeClusterCreate>(
                &cluster,
                "check.loopback",
                &self.request,
                options,
            )
            .await?;
        Ok(())
    }

    pub(crate) async fn discover(&self) -> Result<()> {
        self.client.discover(&self.config).await?;
        Ok(())
    }
}
