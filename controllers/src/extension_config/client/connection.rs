//! One HTTP/1.1 connection to an extension server.
//!
//! A task drives the connection. It ends when the server closes the connection, when the
//! [`Connection`] is dropped, or when the connection was idle for [`IDLE_TIMEOUT`].
//!
//! Invariant: dropping a [`Connection`] during a request closes its socket.

use super::{resolver::SharedResolver, tls, url::ExtensionUrl};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::{ClientConfig, pki_types::ServerName};
use std::{
    error::Error,
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    select,
    task::AbortHandle,
    time::{Instant, sleep_until},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Time after which an idle connection is closed.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Error text for every way in which a server can close a connection.
///
/// The error of the connection depends on timing. One text keeps repeated failures equal.
const CLOSED: &str = "the server closed the connection before the response was complete";

/// Connection that sends one request at a time.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    usage: Arc<Mutex<Usage>>,
    driver: AbortHandle,
    /// Number of bytes that the server has sent, after decryption.
    received: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    Busy,
    Idle { since: Instant },
    Closed,
}

/// Error of a request on a connection.
pub(super) struct SendError {
    pub(super) cause: String,
    /// Whether the connection was closed before the server sent a byte of the response.
    pub(super) unanswered: bool,
}

impl Connection {
    /// Opens a connection.
    ///
    /// Errors: a text without ephemeral ports, so that repeated failures have equal texts.
    pub(super) async fn open(
        url: &ExtensionUrl,
        tls: Arc<ClientConfig>,
        resolver: &SharedResolver,
    ) -> Result<Self, String> {
        let (host, port) = (url.host(), url.port());
        let name = ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned());
        let name = name.map_err(|_| format!("host {host} is not valid in a certificate"))?;
        let address = match &url.service {
            Some(service) => resolver.resolve(service, port).await,
            None => None,
        };
        let stream = match address {
            Some(address) => TcpStream::connect(address).await,
            None => TcpStream::connect((host, port)).await,
        };
        let stream =
            stream.map_err(|error| format!("cannot connect to {}: {error}", url.authority()))?;
        // Without `TCP_NODELAY`, the last part of a body can wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let stream = TlsConnector::from(tls).connect(name, stream).await;
        let stream = stream.map_err(|error| {
            tls::describe(&error).unwrap_or_else(|| {
                if is_closed(&error) {
                    "the server closed the connection during the TLS handshake".into()
                } else {
                    format!("TLS handshake failed: {error}")
                }
            })
        })?;
        Self::start(stream).await
    }

    async fn start(stream: TlsStream<TcpStream>) -> Result<Self, String> {
        let received = Arc::new(AtomicU64::new(0));
        let stream = CountingStream {
            stream,
            received: received.clone(),
        };
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| describe(&error))?;
        let usage = Arc::new(Mutex::new(Usage::Busy));
        let driver = tokio::spawn(drive(connection, usage.clone())).abort_handle();
        Ok(Self {
            sender,
            usage,
            driver,
            received,
        })
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendError> {
        let before = self.received.load(Relaxed);
        let sent = match self.sender.ready().await {
            Ok(()) => self.sender.send_request(request).await,
            Err(error) => Err(error),
        };
        sent.map_err(|error| SendError {
            unanswered: self.received.load(Relaxed) == before && closed_by_server(&error),
            cause: describe(&error),
        })
    }

    /// Marks the connection as idle, which starts its idle timeout.
    pub(super) fn release(self) -> IdleConnection {
        *self.usage.lock() = Usage::Idle {
            since: Instant::now(),
        };
        IdleConnection(self)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // An idle connection is shut down by its task once the sender is gone.
        if *self.usage.lock() == Usage::Busy {
            self.driver.abort();
        }
    }
}

/// Connection that waits for its next request.
#[derive(Debug)]
pub(super) struct IdleConnection(Connection);

impl IdleConnection {
    /// Returns whether the connection is open, as far as the client knows.
    pub(super) fn is_open(&self) -> bool {
        !self.0.sender.is_closed() && *self.0.usage.lock() != Usage::Closed
    }

    /// Returns the connection for a request; `None` if it is known to be closed.
    pub(super) fn reuse(self) -> Option<Connection> {
        let mut usage = self.0.usage.lock();
        if self.0.sender.is_closed() || *usage == Usage::Closed {
            return None;
        }
        *usage = Usage::Busy;
        drop(usage);
        Some(self.0)
    }
}

/// Drives a connection until it is closed or was idle for too long.
async fn drive(connection: impl Future, usage: Arc<Mutex<Usage>>) {
    let mut connection = pin!(connection);
    let mut deadline = Instant::now() + IDLE_TIMEOUT;
    loop {
        select! {
            biased;
            _ = &mut connection => return,
            () = sleep_until(deadline) => {}
        }
        let mut usage = usage.lock();
        let now = Instant::now();
        deadline = match *usage {
            Usage::Busy => now + IDLE_TIMEOUT,
            Usage::Idle { since } => since + IDLE_TIMEOUT,
            Usage::Closed => return,
        };
        if deadline <= now {
            *usage = Usage::Closed;
            return;
        }
    }
}

/// Describes an error of hyper with its causes.
pub(super) fn describe(error: &hyper::Error) -> String {
    if closed_by_server(error) {
        return CLOSED.into();
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn closed_by_server(error: &hyper::Error) -> bool {
    let io = error.source().and_then(|it| it.downcast_ref::<io::Error>());
    error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || io.is_some_and(is_closed)
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof,
    };
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof
    )
}

/// Stream that counts the bytes that are read from it.
struct CountingStream<S> {
    stream: S,
    received: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for CountingStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let read = buffer.filled().len() - before;
        self.received.fetch_add(read as u64, Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountingStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
