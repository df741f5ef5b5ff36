//! Runtime clients and extension servers of both implementations.

use super::{
    hooks::{self, Call, Requests, decode, text},
    process::Peer,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use std::{fs, net::SocketAddr};
use steersman::{
    client::Client,
    object::ObjectKey,
    testing::{Env, TestServer},
    tls::TlsFiles,
};
use steersman_apiserver::{Authority, ClientCertificate};
use steersman_controllers::extension_config::{
    ExtensionConfig,
    catalog::Catalog,
    client::RuntimeClient,
    server::{Extension, Running},
};
use tempfile::TempDir;
use tokio::{sync::mpsc, task::block_in_place};

/// Implementation of the Runtime SDK.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Side {
    Rust,
    Go,
}

/// Pairs of client and server. The first is Cluster API alone.
pub(super) const PAIRS: [(Side, Side); 4] = [
    (Side::Go, Side::Go),
    (Side::Go, Side::Rust),
    (Side::Rust, Side::Go),
    (Side::Rust, Side::Rust),
];

/// A running extension.
pub(super) struct Served {
    pub(super) address: SocketAddr,
    ca: String,
    _certificate: TempDir,
    _running: Option<Running>,
}

/// Runtime clients of both implementations, and the settings to start extensions.
///
/// Tests that use it need a multi-threaded runtime.
pub(super) struct Fixture {
    peer: Peer,
    runtime: RuntimeClient,
    client: Client,
    requests: (Requests, mpsc::UnboundedReceiver<(String, Value)>),
    /// Certificate of both clients.
    identity: Option<TempDir>,
    _env: Env,
}

impl Fixture {
    /// Returns `None` without Go, and records that the test is skipped.
    pub(super) fn new() -> anyhow::Result<Option<Self>> {
        let Some(peer) = block_in_place(Peer::start)? else {
            return Ok(None);
        };
        let env = Env::embedded()?;
        let client = Client::new(env.client()?)?;
        let runtime = RuntimeClient::builder(client.clone(), Catalog::cluster_api()).build()?;
        runtime.warm_up(&[])?;
        Ok(Some(Self {
            peer,
            runtime,
            client,
            requests: mpsc::unbounded_channel(),
            identity: None,
            _env: env,
        }))
    }

    /// Starts an extension. Its handlers are described in the format of the Go peer.
    pub(super) async fn serve(&mut self, side: Side, handlers: &[Value]) -> anyhow::Result<Served> {
        self.serve_clients_of(side, None, handlers).await
    }

    /// Starts an extension that requires client certificates of an authority.
    pub(super) async fn serve_clients_of(
        &mut self,
        side: Side,
        clients: Option<&Authority>,
        handlers: &[Value],
    ) -> anyhow::Result<Served> {
        let authority = Authority::generate()?;
        let signed = authority.server_certificate()?;
        let certificate = pem_files(&signed.certificate_pem, &signed.key_pem)?;
        let (address, running) = match side {
            Side::Go => {
                let directory = certificate.path();
                let mut command =
                    json!({"op": "serve", "certDir": directory, "handlers": handlers});
                if let Some(clients) = clients {
                    fs::write(directory.join("clients.crt"), clients.ca_pem())?;
                    command["clientCA"] = "clients.crt".into();
                }
                (decode(self.ask(&command)?), None)
            }
            Side::Rust => {
                let files = TlsFiles::in_directory(certificate.path());
                let mut extension = Extension::new(Catalog::cluster_api()).tls(files);
                if let Some(clients) = clients {
                    extension = extension.client_ca(clients.ca_pem());
                }
                for handler in handlers {
                    let hook = hooks::find(text(handler, "hook"));
                    extension = (hook.add)(extension, handler, self.requests.0.clone());
                }
                let running = extension.serve("127.0.0.1:0".parse()?).await?;
                (running.local_addr(), Some(running))
            }
        };
        Ok(Served {
            address,
            ca: authority.ca_pem(),
            _certificate: certificate,
            _running: running,
        })
    }

    /// Replaces both clients by clients with a certificate.
    pub(super) fn identify(&mut self, identity: &ClientCertificate) -> anyhow::Result<()> {
        let directory = pem_files(&identity.certificate_pem, &identity.key_pem)?;
        self.ask(&json!({"op": "identify", "identity": directory.path()}))?;
        let files = TlsFiles::in_directory(directory.path());
        self.runtime = RuntimeClient::builder(self.client.clone(), Catalog::cluster_api())
            .client_certificate(files)
            .build()?;
        self.runtime.warm_up(&[])?;
        self.identity = Some(directory);
        Ok(())
    }

    /// Returns the handlers that the client discovers, sorted by name, or the text of its error.
    pub(super) async fn discover(
        &mut self,
        side: Side,
        config: &ExtensionConfig,
    ) -> anyhow::Result<Result<Vec<Value>, String>> {
        let discovered = match side {
            Side::Go => {
                let answer = self.try_ask(&json!({"op": "discover", "config": config}))?;
                answer.map(|config| config["status"]["handlers"].clone())
            }
            Side::Rust => match self.runtime.discover(config).await {
                Ok(handlers) => Ok(serde_json::to_value(handlers)?),
                Err(error) => Err(error.to_string()),
            },
        };
        // Cluster API's server lists its handlers in random order.
        Ok(discovered.map(|handlers| {
            let mut handlers = decode::<Option<Vec<Value>>>(handlers).unwrap_or_default();
            handlers.sort_by_key(|handler| text(handler, "name").to_owned());
            handlers
        }))
    }

    /// Registers the handlers of an `ExtensionConfig`.
    pub(super) fn register(&mut self, side: Side, config: &ExtensionConfig) -> anyhow::Result<()> {
        match side {
            Side::Go => drop(self.ask(&json!({"op": "register", "config": config}))?),
            Side::Rust => self.runtime.register(config)?,
        }
        Ok(())
    }

    /// Discovers and registers the handlers of an extension, as the `ExtensionConfig` `config`.
    pub(super) async fn discover_and_register(
        &mut self,
        side: Side,
        served: &Served,
        spec: Value,
    ) -> anyhow::Result<ExtensionConfig> {
        let mut config = served.config("config", spec);
        let handlers = self.discover(side, &config).await?;
        let handlers = handlers.map_err(anyhow::Error::msg)?;
        config.status.get_or_insert_default().handlers = decode(handlers.into());
        self.register(side, &config)?;
        Ok(config)
    }

    /// Calls a handler for the Cluster `web` in the namespace `shop`, or all handlers of the hook.
    ///
    /// Returns the response, or the text of the error.
    pub(super) async fn call(
        &mut self,
        side: Side,
        hook: &str,
        extension: Option<&str>,
        request: Value,
    ) -> anyhow::Result<Result<Value, String>> {
        let any = hooks::find(hook);
        let response = match side {
            Side::Go => self.try_ask(&json!({
                "op": if extension.is_some() { "call" } else { "callAll" },
                "hook": hook,
                "extension": extension.unwrap_or_default(),
                "object": {
                    "apiVersion": "cluster.x-k8s.io/v1beta2",
                    "kind": "Cluster",
                    "metadata": {"namespace": "shop", "name": "web"},
                },
                "request": request,
            }))?,
            Side::Rust => {
                let object = ObjectKey::new("shop", "web");
                let call = Call {
                    client: &self.runtime,
                    object: &object,
                    extension,
                    request,
                };
                (any.call)(call).await.map_err(|error| error.to_string())
            }
        };
        Ok(response.map(any.normalize))
    }

    /// Creates the namespace `shop` with these labels, for both clients.
    pub(super) async fn create_namespace(&mut self, labels: Value) -> anyhow::Result<()> {
        self.ask(&json!({"op": "namespaces", "namespaces": {"shop": labels}}))?;
        let namespace =
            decode::<Namespace>(json!({"metadata": {"name": "shop", "labels": labels}}));
        self.client.create(&namespace).await?;
        Ok(())
    }

    /// Returns the requests that handlers received since the last call, with their names.
    pub(super) fn take_requests(&mut self, side: Side) -> anyhow::Result<Vec<(String, Value)>> {
        if side == Side::Go {
            let requests = decode::<Vec<Value>>(self.ask(&json!({"op": "requests"}))?);
            let named = requests
                .into_iter()
                .map(|mut it| (text(&it, "handler").to_owned(), it["request"].take()));
            return Ok(named.collect());
        }
        let mut requests = Vec::new();
        while let Ok(request) = self.requests.1.try_recv() {
            requests.push(request);
        }
        Ok(requests)
    }

    /// Sends a command to the peer and expects a result.
    fn ask(&mut self, command: &Value) -> anyhow::Result<Value> {
        self.try_ask(command)?.map_err(anyhow::Error::msg)
    }

    fn try_ask(&mut self, command: &Value) -> anyhow::Result<Result<Value, String>> {
        block_in_place(|| self.peer.ask(command))
    }
}

impl Served {
    /// Returns an `ExtensionConfig` of the extension. `spec` has further fields.
    pub(super) fn config(&self, name: &str, spec: Value) -> ExtensionConfig {
        self.config_with_ca(name, &self.ca, spec)
    }

    /// Returns an `ExtensionConfig` that trusts another CA.
    pub(super) fn config_with_ca(&self, name: &str, ca: &str, spec: Value) -> ExtensionConfig {
        let mut config = json!({
            "apiVersion": "runtime.cluster.x-k8s.io/v1beta2",
            "kind": "ExtensionConfig",
            "metadata": {"name": name},
            "spec": {
                "clientConfig": {
                    "url": format!("https://{}", self.address),
                    "caBundle": STANDARD.encode(ca),
                },
                "namespaceSelector": {},
            },
        });
        if let (Value::Object(fields), Value::Object(spec)) = (&mut config["spec"], spec) {
            fields.extend(spec);
        }
        decode(config)
    }

    /// Replaces the address by `ADDRESS`, and cuts the part after the URL, which names a cause in
    /// the words of the TLS library or the runtime.
    pub(super) fn normalize(&self, error: &str) -> String {
        let error = error.replace(&self.address.to_string(), "ADDRESS");
        let Some((before, post)) = error.split_once("Post \"") else {
            return error;
        };
        let url = post.split('"').next().unwrap_or_default();
        format!("{before}Post {url}")
    }
}

/// Writes a certificate and its key as `tls.crt` and `tls.key`.
fn pem_files(certificate: &str, key: &str) -> anyhow::Result<TempDir> {
    let directory = tempfile::tempdir()?;
    let files = TlsFiles::in_directory(directory.path());
    fs::write(&files.certificate, certificate)?;
    fs::write(&files.key, key)?;
    Ok(directory)
}
