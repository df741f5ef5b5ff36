//! Extension servers that the tests share.

use base64::{Engine, prelude::BASE64_STANDARD};
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use steersman::testing::eventually;
use steersman_apiserver::Authority;
use steersman_controllers::extension_config::{
    catalog::{
        Catalog,
        hooks::{BeforeClusterCreate, BeforeClusterCreateResponse},
    },
    server::{self, Running, ServingCertificate},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// Answer of a server to each request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
    /// Answers after all requests of a group have arrived.
    pub(crate) group: Option<RequestGroup>,
}

/// Group of requests that are answered when the last of them has arrived.
#[derive(Clone, Debug)]
pub(crate) struct RequestGroup {
    size: usize,
    arrived: watch::Sender<usize>,
}

impl RequestGroup {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            arrived: watch::Sender::default(),
        }
    }

    /// Adds a request, and waits for the last one. Later requests do not wait.
    pub(crate) async fn arrive(&self) {
        self.arrived.send_modify(|arrived| *arrived += 1);
        let mut arrived = self.arrived.subscribe();
        let result = arrived.wait_for(|arrived| *arrived >= self.size).await;
        result.expect("the group has the sender");
    }
}

impl Answer {
    /// Answers a discovery with handlers, each with the name and the hook.
    pub(crate) fn handlers(handlers: &[(&str, &str)]) -> Self {
        let handlers = handlers.iter().map(|(name, hook)| {
            let hook =
                json!({"apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": hook});
            json!({"name": name, "requestHook": hook})
        });
        Self::json(&json!({"status": "Success", "handlers": handlers.collect::<Vec<_>>()}))
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self {
            status: 200,
            body: body.to_string(),
            group: None,
        }
    }

    /// Answers after all requests of a group have arrived.
    pub(crate) fn with(self, group: RequestGroup) -> Self {
        Self {
            group: Some(group),
            ..self
        }
    }

    /// Never answers.
    pub(crate) fn hanging(self) -> Self {
        self.with(RequestGroup::new(usize::MAX))
    }
}

/// Address and CA of a server.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) ca_pem: String,
}

impl Endpoint {
    fn new(address: SocketAddr, ca_pem: &str) -> Self {
        Self {
            url: format!("https://{address}"),
            ca_pem: ca_pem.into(),
        }
    }

    /// Returns the CA in base64.
    pub(crate) fn ca_bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.ca_pem)
    }
}

/// Runtime extension of this package on loopback, with the handler `create` of `BeforeClusterCreate`.
///
/// Each start has a certificate of another CA.
pub(crate) struct Extension {
    address: SocketAddr,
    ca_pem: String,
    running: Option<Running>,
}

impl Extension {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let mut extension = Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            ca_pem: String::new(),
            running: None,
        };
        extension.restart().await?;
        Ok(extension)
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.address, &self.ca_pem)
    }

    /// Closes the listener and all connections.
    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }

    /// Starts again at the same address, with a certificate of another CA.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        self.stop().await;
        let authority = Authority::generate()?;
        let pair = authority.server_certificate()?;
        self.ca_pem = authority.ca_pem();
        let certificate = ServingCertificate::pem(pair.certificate_pem, pair.key_pem);
        let address = self.address;
        // Retries, because a connection of another test can use the port for a short time.
        let running = eventually(async || {
            let extension = server::Extension::new(Catalog::cluster_api())
                .on::<BeforeClusterCreate, _>("create", async |_, _| {
                    BeforeClusterCreateResponse::default()
                })
                .tls(certificate.clone());
            anyhow::Ok(extension.serve(address).await.ok())
        })
        .await?;
        self.address = running.local_addr();
        self.running = Some(running);
        Ok(())
    }
}

/// Server on loopback that gives every request the same [`Answer`].
///
/// Use it for answers that a correct extension does not give. Each start has a certificate of
/// another CA.
pub(crate) struct FakeExtension {
    address: SocketAddr,
    ca_pem: String,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

struct Shared {
    answer: Mutex<Answer>,
    requests: AtomicUsize,
}

impl FakeExtension {
    pub(crate) async fn start(answer: Answer) -> anyhow::Result<Self> {
        Self::start_with(answer, &Authority::generate()?).await
    }

    async fn start_with(answer: Answer, authority: &Authority) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let mut extension = Self {
            address: listener.local_addr()?,
            ca_pem: String::new(),
            shared: Arc::new(Shared {
                answer: Mutex::new(answer),
                requests: AtomicUsize::new(0),
            }),
            tasks: JoinSet::new(),
        };
        extension.serve(listener, authority)?;
        Ok(extension)
    }

    /// Starts several servers with one certificate.
    pub(crate) async fn start_many(count: usize, answer: &Answer) -> anyhow::Result<Vec<Self>> {
        let authority = Authority::generate()?;
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(Self::start_with(answer.clone(), &authority).await?);
        }
        Ok(all)
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.address, &self.ca_pem)
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Relaxed)
    }

    pub(crate) fn set_answer(&self, answer: Answer) {
        *self.shared.answer.lock() = answer;
    }

    fn serve(&mut self, listener: TcpListener, authority: &Authority) -> anyhow::Result<()> {
        self.ca_pem = authority.ca_pem();
        let (acceptor, shared) = (acceptor(authority)?, self.shared.clone());
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), shared.clone());
                connections.spawn(async move {
                    // Ignore errors, because the client reports a broken connection.
                    drop(answer(stream, acceptor, &shared).await);
                });
            }
        });
        Ok(())
    }
}

fn acceptor(authority: &Authority) -> anyhow::Result<TlsAcceptor> {
    let pair = authority.server_certificate()?;
    let certificate = CertificateDer::from_pem_slice(pair.certificate_pem.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Answers the requests of one connection.
async fn answer(stream: TcpStream, acceptor: TlsAcceptor, shared: &Shared) -> anyhow::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    loop {
        read_request(&mut stream).await?;
        shared.requests.fetch_add(1, Relaxed);
        let answer = shared.answer.lock().clone();
        let Answer {
            status,
            body,
            group,
        } = answer;
        if let Some(group) = group {
            group.arrive().await;
        }
        let length = body.len();
        let head = format!("HTTP/1.1 {status} Answer\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        stream.flush().await?;
    }
}

/// Reads a request with `Content-Length`.
async fn read_request(stream: &mut (impl AsyncReadExt + Unpin)) -> anyhow::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?.to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(Ok(0), str::parse)?];
    stream.read_exact(&mut body).await?;
    Ok(())
}
