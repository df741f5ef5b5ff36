//! The doors with a socket: HTTP/1.1 on loopback, plain or over TLS, around any service.

use crate::{
    auth::{Authenticator, Identity},
    cut::Closed,
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

/// How long a client may take for its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests may take to end once the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// How many bytes the head of a request may have. No real one comes near.
const MAX_HEAD: usize = 256 << 10;

/// What can be served on a socket: a handler that is cloned for each request.
pub(crate) trait Handler<B>:
    Service<Request<Incoming>, Response = Response<B>, Future: Send> + Clone + Send + 'static
{
}

impl<B, S> Handler<B> for S where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send> + Clone + Send + 'static
{
}

/// Serves every connection until `shutdown`. Then it accepts no more, ends streams without a known length (watches),
/// gives other requests a few seconds to end, and closes what is left.
///
/// Each request has the [`Identity`] that its client's certificate stands for among its extensions.
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
                connections.spawn(connection(stream, tls.clone(), limits, service.clone(), stopping.clone()));
            }
            // A client that gave up is its own affair. Anything else (too many open files) takes a while to pass.
            Err(error) if is_of_the_client(&error) => {}
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
    drop(listener);
    stop.send_replace(true);
    // The rest is cut when the set is dropped.
    let _ = timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
}

fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
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
    // Events are small and wanted at once. A socket that cannot do it is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return http(stream, None, limits, service, stopping).await };
    let handshake = timeout(HANDSHAKE_TIMEOUT, tokio_rustls::TlsAcceptor::from(tls.config.clone()).accept(stream));
    let accepted = tokio::select! {
        accepted = handshake => accepted,
        _ = stopping.wait_for(|stop| *stop) => return,
    };
    // Whoever fails the handshake has been told why by an alert.
    let Ok(Ok(stream)) = accepted else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
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
        let (mut service, stop) = (service.clone(), stop.clone());
        async move {
            // Any error makes hyper drop the connection: there is nothing left to say.
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(|_| Closed)?;
            let response = service.call(request).await.map_err(|_| Closed)?;
            Ok::<_, Closed>(Closed::check(response)?.map(|body| UntilStop::new(body, stop)))
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout).max_header_size(MAX_HEAD);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // How a connection ended is between its client and the service: nobody here could do anything about it.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// A body that ends when the server stops, if it would not end by itself: one without a known length.
struct UntilStop<B> {
    body: Pin<Box<B>>,
    stop: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<B: Body> UntilStop<B> {
    fn new(body: B, mut stopping: watch::Receiver<bool>) -> Self {
        let streams = body.size_hint().exact().is_none();
        let stop = async move {
            // An error is a server that is gone, which has stopped too.
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        Self { body: Box::pin(body), stop: streams.then(|| Box::pin(stop) as _) }
    }
}

impl<B: Body> Body for UntilStop<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
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

/// A server on a socket. It stops when this is dropped, or in good order by [`stop`](Self::stop).
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    url: String,
    ca_pem: Option<String>,
    admin: Credentials,
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// Serves on `listen`, over TLS if there is an authority. The authenticator is the one that `service` asks: without
    /// tokens in it every caller is admin, and then only loopback is listened on. With tokens, other addresses need TLS.
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
            return Err(ListenError::Open(listen));
        }
        if !listen.ip().is_loopback() && authority.is_none() {
            return Err(ListenError::Readable(listen));
        }
        let tls = authority.map(|authority| authority.server(listen.ip())).transpose().map_err(ListenError::Tls)?;
        let admin = match authority {
            Some(authority) => Credentials::Certificate(
                authority.client_certificate("system:admin", &["system:masters"]).map_err(ListenError::Tls)?,
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
            url: format!("{scheme}://{}", reachable(addr)),
            ca_pem: authority.map(Authority::ca_pem),
            admin,
            stop,
            task: tokio::spawn(serve(listener, tls, limits, service, shutdown)),
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `https://127.0.0.1:34567`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificate by which clients know it; none without TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// A kubeconfig for the admin, by certificate. Without TLS it has no credentials: the admin is then whoever asks, or
    /// if there are tokens, whoever has the right one.
    pub fn kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig_for(self.admin.clone())
    }

    /// A kubeconfig for somebody else.
    pub fn kubeconfig_for(&self, credentials: Credentials) -> Kubeconfig {
        Kubeconfig { server: self.url.clone(), ca_pem: self.ca_pem.clone(), credentials }
    }

    /// Stops: requests end, within a few seconds, watches are ended, connections closed.
    pub async fn stop(mut self) {
        self.stop.send_replace(());
        // It can only fail by a panic, which has been told.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An address that clients on this machine can use: to listen everywhere is to be reached on loopback.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        _ => addr.ip(),
    };
    SocketAddr::new(ip, addr.port())
}

/// Why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// Everybody would be admin.
    Open(SocketAddr),
    /// Tokens are configured without TLS on an address other than loopback.
    Readable(SocketAddr),
    /// The address is not to be had.
    Bind(SocketAddr, io::Error),
    /// The certificates could not be made.
    Tls(TlsError),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(addr) => write!(
                f,
                "refusing to listen on {addr}: without tokens every caller is admin. \
                 Configure tokens (--token-auth-file) and TLS (--tls), or listen on loopback (127.0.0.1 or [::1])"
            ),
            Self::Readable(addr) => write!(
                f,
                "cannot accept tokens on {addr} without TLS: others could read them; \
                 serve TLS (--tls), or listen on loopback (127.0.0.1 or [::1])"
            ),
            Self::Bind(addr, error) => {
                write!(f, "cannot listen on {addr}: {error}: choose another address or port, 0 takes one that is free")
            }
            Self::Tls(error) => write!(f, "{error}"),
        }
    }
}

impl Error for ListenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The texts of `Bind` and `Tls` contain their error, so it is not returned again.
        match self {
            Self::Open(_) | Self::Readable(_) | Self::Bind(..) => None,
            Self::Tls(error) => error.source(),
        }
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
