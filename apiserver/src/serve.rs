//! Serves a [`Service`] on a socket: HTTP/1.1, plain or over TLS.

use crate::{
    auth::{Authenticator, Identity},
    dropped_connection::Closed,
    kubeconfig::{Credentials, Kubeconfig},
    limits::ConnectionLimits,
    tls::{Authority, Tls, TlsError},
};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    error::Error,
    fmt,
    future::poll_fn,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tower_service::Service;

type BoxError = Box<dyn Error + Send + Sync>;

/// Time that a client may take for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that requests may take to end after shutdown begins.
const GRACE: Duration = Duration::from_secs(5);
/// Maximum size of a request's line and headers, in bytes.
const MAX_HEAD: usize = 256 << 10;

/// A service that can be served on a socket. It is cloned for each request.
pub(crate) trait Handler<B>:
    Service<Request<Incoming>, Response = Response<B>, Future: Send> + Clone + Send + 'static
{
}

impl<B, S> Handler<B> for S where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send> + Clone + Send + 'static
{
}

/// Accepts and serves connections until `shutdown` resolves.
///
/// It then accepts no more connections, ends streams without a known length (watches), waits up to
/// [`GRACE`] for other requests, and closes the remaining connections.
///
/// If the client presents a certificate, its [`Identity`] is in the extensions of each request.
pub(crate) async fn serve<S, B>(
    listener: TcpListener,
    tls: Option<Tls>,
    limits: ConnectionLimits,
    service: S,
    shutdown: impl Future,
) where
    S: Handler<B>,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            _ = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept(), if connections.len() < limits.max_connections => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connection(
                    stream,
                    tls.clone(),
                    limits,
                    service.clone(),
                    stopping.clone(),
                ));
            }
            // The client closed the connection early. Other errors, such as too many open files,
            // need time.
            Err(error) if is_client_error(&error) => {}
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
    drop(listener);
    stop.send_replace(true);
    // Dropping the set closes the remaining connections.
    let _ = timeout(GRACE, async {
        while connections.join_next().await.is_some() {}
    })
    .await;
}

fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

async fn connection<S, B>(
    stream: TcpStream,
    tls: Option<Tls>,
    limits: ConnectionLimits,
    service: S,
    mut stopping: watch::Receiver<bool>,
) where
    S: Handler<B>,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    // Send small watch events without delay. If this fails, so does the connection soon.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return http(stream, None, limits, service, stopping).await;
    };
    let handshake = timeout(
        HANDSHAKE_TIMEOUT,
        tokio_rustls::TlsAcceptor::from(tls.config.clone()).accept(stream),
    );
    let accepted = tokio::select! {
        accepted = handshake => accepted,
        _ = stopping.wait_for(|stop| *stop) => return,
    };
    // On failure rustls has already sent an alert with the reason.
    let Ok(Ok(stream)) = accepted else { return };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first());
    let identity = certificate.and_then(|certificate| tls.identity(certificate));
    http(stream, identity, limits, service, stopping).await;
}

async fn http<S, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    identity: Option<Identity>,
    limits: ConnectionLimits,
    service: S,
    mut stopping: watch::Receiver<bool>,
) where
    S: Handler<B>,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let stop = stopping.clone();
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        if let Some(identity) = &identity {
            request.extensions_mut().insert(identity.clone());
        }
        let mut service = service.clone();
        let stop = stop.clone();
        async move {
            // Any error makes hyper close the connection.
            poll_fn(|cx| service.poll_ready(cx))
                .await
                .map_err(|_| Closed)?;
            let response = service.call(request).await.map_err(|_| Closed)?;
            Ok::<_, Closed>(Closed::check(response)?.map(|body| EndOnStop::new(body, stop)))
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_header_size(MAX_HEAD);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // Errors of a connection concern only its client and the service.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// A body that ends when the server stops, if its length is unknown.
struct EndOnStop<B> {
    body: Pin<Box<B>>,
    stop: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<B: Body> EndOnStop<B> {
    fn new(body: B, mut stopping: watch::Receiver<bool>) -> Self {
        let streams = body.size_hint().exact().is_none();
        let stop = async move {
            // An error means that the server has been dropped.
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        Self {
            body: Box::pin(body),
            stop: streams.then(|| Box::pin(stop) as _),
        }
    }
}

impl<B: Body> Body for EndOnStop<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let stop = self.stop.as_mut().map(|stop| stop.as_mut().poll(cx));
        if stop.is_some_and(|stop| stop.is_ready()) {
            return Poll::Ready(None);
        }
        self.body.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A server on a socket. Dropping it aborts all connections; [`stop`](Self::stop) shuts it down
/// gracefully.
#[derive(Debug)]
pub struct RunningServer {
    addr: SocketAddr,
    url: String,
    ca_pem: Option<String>,
    admin: Credentials,
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl RunningServer {
    /// Listens on `listen` and serves `service`, over TLS if an authority is given.
    ///
    /// `authenticator` is the one that `service` uses. Without tokens in it every caller is an
    /// administrator, so only loopback is accepted. With tokens, other addresses need TLS.
    pub(crate) async fn start<S, B>(
        listen: SocketAddr,
        authority: Option<&Authority>,
        authenticator: &Authenticator,
        limits: ConnectionLimits,
        service: S,
    ) -> Result<Self, ListenError>
    where
        S: Handler<B>,
        B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        if !listen.ip().is_loopback() && !authenticator.is_configured() {
            return Err(ListenError::AnonymousAdmin(listen));
        }
        if !listen.ip().is_loopback() && authority.is_none() {
            return Err(ListenError::TokensWithoutTls(listen));
        }
        let tls = authority
            .map(|authority| authority.server(listen.ip()))
            .transpose()
            .map_err(ListenError::Tls)?;
        let admin = match authority {
            Some(authority) => Credentials::Certificate(
                authority
                    .client_certificate("system:admin", &["system:masters"])
                    .map_err(ListenError::Tls)?,
            ),
            None => Credentials::None,
        };
        let bind = |error| ListenError::Bind(listen, error);
        let listener = TcpListener::bind(listen).await.map_err(bind)?;
        let addr = listener.local_addr().map_err(bind)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (stop, mut stopped) = watch::channel(());
        let shutdown = async move {
            let _ = stopped.changed().await;
        };
        Ok(Self {
            addr,
            url: format!("{scheme}://{}", local_address(addr)),
            ca_pem: authority.map(Authority::ca_pem),
            admin,
            stop,
            task: tokio::spawn(serve(listener, tls, limits, service, shutdown)),
        })
    }

    /// Returns the address of the socket.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the URL of the server, such as `https://127.0.0.1:34567`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the certificate of the authority, which clients verify. `None` without TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// Returns a kubeconfig with the administrator's client certificate.
    ///
    /// Without TLS it has no credentials: every caller is an administrator, or a token must be
    /// added.
    pub fn kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig_for(self.admin.clone())
    }

    /// Returns a kubeconfig with `credentials`.
    pub fn kubeconfig_for(&self, credentials: Credentials) -> Kubeconfig {
        Kubeconfig {
            server: self.url.clone(),
            ca_pem: self.ca_pem.clone(),
            credentials,
        }
    }

    /// Stops the server: ends watches, waits a few seconds for other requests, and closes all
    /// connections.
    pub async fn stop(mut self) {
        self.stop.send_replace(());
        // An error means that the task panicked, which the panic hook has reported.
        let _ = (&mut self.task).await;
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns an address that clients on this machine can connect to: loopback for an unspecified
/// address.
fn local_address(addr: SocketAddr) -> SocketAddr {
    let ip = match addr {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        _ => addr.ip(),
    };
    SocketAddr::new(ip, addr.port())
}

/// Error of listening on a socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// Every caller would be an administrator on an address other than loopback.
    AnonymousAdmin(SocketAddr),
    /// Tokens are configured without TLS on an address other than loopback.
    TokensWithoutTls(SocketAddr),
    /// The address cannot be bound.
    Bind(SocketAddr, io::Error),
    /// The certificates cannot be created.
    Tls(TlsError),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnonymousAdmin(addr) => write!(
                f,
                "cannot listen on {addr}: every caller would be an administrator; configure tokens \
                 (--token-auth-file) and TLS (--tls), or listen on loopback (127.0.0.1 or [::1])"
            ),
            Self::TokensWithoutTls(addr) => write!(
                f,
                "cannot accept tokens on {addr} without TLS: they would be sent in the \
                 clear; serve TLS (--tls), or listen on loopback (127.0.0.1 or [::1])"
            ),
            Self::Bind(addr, error) => {
                write!(
                    f,
                    "cannot listen on {addr}: {error}; choose another address or port, such as 0 for a free one"
                )
            }
            Self::Tls(error) => write!(f, "{error}"),
        }
    }
}

impl Error for ListenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The texts of `Bind` and `Tls` contain their error, so it is not returned again.
        match self {
            Self::AnonymousAdmin(_) | Self::TokensWithoutTls(_) | Self::Bind(..) => None,
            Self::Tls(error) => error.source(),
        }
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
