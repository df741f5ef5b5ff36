//! TLS server that replies with bytes that a test chooses.

use super::certificates::{Ca, Signed, Validity, server_config};
use crate::support::RequestGroup;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use rustls::{ServerConfig, pki_types::CertificateDer};
use serde_json::{Value, json};
use std::{collections::HashMap, future::pending, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Size of a chunk of an endless body.
const CHUNK: usize = 1 << 20;

/// Action of the server after it has read a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Writes these bytes and reads the next request.
    Bytes(Vec<u8>),
    /// Writes these bytes and closes the connection.
    BytesAndClose(Vec<u8>),
    /// Writes the head of a chunked response, and chunks until the client closes the connection.
    Endless { status: u16 },
    /// Waits and then replies.
    After(Duration, Box<Reply>),
    /// Replies after all requests of a group have arrived.
    With(RequestGroup, Box<Reply>),
    /// Never replies.
    Hang,
}

impl Reply {
    pub(crate) fn status(status: u16, body: impl AsRef<[u8]>) -> Self {
        Self::with_headers(status, "", body)
    }

    /// Replies with headers. Each of them must end with a line break.
    pub(crate) fn with_headers(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let length = body.len();
        let head = format!("HTTP/1.1 {status} Status\r\n{headers}content-length: {length}\r\n\r\n");
        Self::Bytes([head.as_bytes(), body].concat())
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::status(200, body.to_string())
    }

    /// Replies to a discovery with these handlers.
    pub(crate) fn handlers(handlers: Value) -> Self {
        Self::json(&json!({"status": "Success", "handlers": handlers}))
    }

    pub(crate) fn success() -> Self {
        Self::json(&json!({"status": "Success"}))
    }
}

/// Request that the server has read.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) line: String,
    /// Headers by lower-case name.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Value,
    /// Server name from the TLS handshake.
    pub(crate) sni: Option<String>,
    /// Certificate of the client.
    pub(crate) client: Option<CertificateDer<'static>>,
    /// Number of the connection, from 1.
    pub(crate) connection: usize,
}

/// Counts that tests wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) connections: usize,
    pub(crate) closed: usize,
    pub(crate) requests: usize,
}

type ReplyFn = dyn Fn(&Recorded) -> Reply + Send + Sync;

struct Shared {
    reply: Mutex<Arc<ReplyFn>>,
    requests: Mutex<Vec<Recorded>>,
    counts: watch::Sender<Counts>,
}

/// TLS server on loopback. Dropping it closes its listener.
pub(crate) struct RawServer {
    pub(crate) ca: String,
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl RawServer {
    /// Starts a server with a valid certificate for 127.0.0.1.
    pub(crate) async fn start(reply: Reply) -> Result<Self> {
        let ca = Ca::new()?;
        let signed = ca.sign(&["127.0.0.1"], Validity::Now)?;
        Self::with_certificate(ca.pem(), &signed, reply).await
    }

    pub(crate) async fn with_certificate(
        ca: String,
        signed: &Signed,
        reply: Reply,
    ) -> Result<Self> {
        Self::with_config(ca, server_config(signed, None)?, reply).await
    }

    pub(crate) async fn with_config(
        ca: String,
        config: Arc<ServerConfig>,
        reply: Reply,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            reply: Mutex::new(Arc::new(move |_: &Recorded| reply.clone())),
            requests: Mutex::default(),
            counts: watch::Sender::default(),
        });
        let acceptor = TlsAcceptor::from(config);
        let serving = tokio::spawn(accept(listener, acceptor, shared.clone()));
        Ok(Self {
            ca,
            address,
            shared,
            serving,
        })
    }

    pub(crate) fn set_reply(&self, reply: Reply) {
        self.set_reply_fn(move |_| reply.clone());
    }

    pub(crate) fn set_reply_fn(&self, reply: impl Fn(&Recorded) -> Reply + Send + Sync + 'static) {
        *self.shared.reply.lock() = Arc::new(reply);
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Waits until the counts fulfil a condition.
    pub(crate) async fn until(&self, condition: impl Fn(&Counts) -> bool) -> Result<()> {
        let mut counts = self.shared.counts.subscribe();
        let reached = counts.wait_for(condition);
        tokio::time::timeout(Duration::from_mins(1), reached)
            .await
            .with_context(|| format!("counts stay at {:?}", self.counts()))??;
        Ok(())
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let mut connection = 0;
        shared.counts.send_modify(|counts| {
            counts.connections += 1;
            connection = counts.connections;
        });
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        tokio::spawn(async move {
            // Only clients that close their connection cause errors.
            let _ = serve(stream, acceptor, &shared, connection).await;
            shared.counts.send_modify(|counts| counts.closed += 1);
        });
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    shared: &Shared,
    connection: usize,
) -> Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    loop {
        let request = read_request(&mut stream, connection).await?;
        let reply = shared.reply.lock().clone()(&request);
        shared.requests.lock().push(request);
        shared.counts.send_modify(|counts| counts.requests += 1);
        if !write(&mut stream, reply).await? {
            return Ok(());
        }
    }
}

/// Writes a reply and returns whether the connection stays open.
async fn write(stream: &mut TlsStream<TcpStream>, mut reply: Reply) -> Result<bool> {
    loop {
        reply = match reply {
            Reply::After(delay, next) => {
                sleep(delay).await;
                *next
            }
            Reply::With(group, next) => {
                group.arrive().await;
                *next
            }
            _ => break,
        };
    }
    match reply {
        Reply::Bytes(bytes) => {
            stream.write_all(&bytes).await?;
            stream.flush().await?;
            Ok(true)
        }
        Reply::BytesAndClose(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await?;
            Ok(false)
        }
        Reply::Endless { status } => {
            let head = format!("HTTP/1.1 {status} Status\r\ntransfer-encoding: chunked\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            let chunk = format!("{CHUNK:x}\r\n{}\r\n", " ".repeat(CHUNK)).into_bytes();
            loop {
                stream.write_all(&chunk).await?;
            }
        }
        Reply::Hang => {
            // Ends when the client closes the connection.
            let read = stream.read_u8();
            match read.await {
                Ok(_) => pending().await,
                Err(error) => Err(error.into()),
            }
        }
        Reply::After(..) | Reply::With(..) => unreachable!("the loop ends after the waits"),
    }
}

async fn read_request(stream: &mut TlsStream<TcpStream>, connection: usize) -> Result<Recorded> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let mut lines = head.lines();
    let line = lines.next().context("a request line")?.to_owned();
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").context("a length")?;
    let mut body = vec![0; length.parse()?];
    stream.read_exact(&mut body).await?;
    let session = stream.get_ref().1;
    let client = session.peer_certificates().and_then(<[_]>::first);
    Ok(Recorded {
        line,
        headers,
        body: serde_json::from_slice(&body)?,
        sni: session.server_name().map(Into::into),
        client: client.cloned().map(CertificateDer::into_owned),
        connection,
    })
}
