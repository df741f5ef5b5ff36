//! Connections of the admin server: HTTP/1.1, with limits of number and time.
//!
//! Invariant: every connection and every read of a request head is limited in time. If all
//! connections are in use, a few more are reserved for health pages, so that probes still succeed.
//! On shutdown the server accepts no connections, waits a few seconds for requests, and leaves no
//! task.

use super::access::{Authorizer, is_health};
use axum::{Router, body::Body, response::IntoResponse};
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use std::{convert::Infallible, io, pin::pin, sync::Arc, time::Duration};
use steersman_browser_guard::{BrowserGuard, Rejection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    select,
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the head of a request, also of the next one on a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a connection is closed gracefully.
const MAX_CONNECTION_AGE: Duration = Duration::from_mins(5);
/// Time that requests have to end after [`MAX_CONNECTION_AGE`] and on shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Additional connections for health pages.
const RESERVED: usize = 8;
/// Cap of the time limits on a reserved connection.
const RESERVED_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest head of a request in bytes.
const MAX_HEAD: usize = 32 << 10;

pub(super) struct Server {
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// Rejects requests of web pages. `None` if callers need a token.
    pub(super) guard: Option<BrowserGuard>,
    pub(super) authorizer: Option<Authorizer>,
    pub(super) router: Router,
    pub(super) max_connections: usize,
}

/// Type of a connection.
#[derive(Clone, Copy, PartialEq)]
enum ConnectionKind {
    Any,
    /// Serves one request for a health page.
    Reserved,
}

impl Server {
    /// Serves until `stop` resolves, then waits for running requests.
    ///
    /// The wait ends after [`SHUTDOWN_GRACE`], or when `abort` resolves.
    pub(super) async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
        abort: impl Future<Output = ()>,
    ) {
        let permits = Arc::new(Semaphore::new(
            self.max_connections
                .saturating_add(RESERVED)
                .min(Semaphore::MAX_PERMITS),
        ));
        let server = Arc::new(self);
        let stopping = CancellationToken::new();
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let next = async {
                // Never fails: the semaphore is not closed.
                let permit = permits.clone().acquire_owned().await;
                (permit, listener.accept().await)
            };
            let (permit, accepted) = select! {
                biased;
                () = &mut stop => break,
                Some(_) = connections.join_next() => continue,
                next = next => next,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (server, stopping) = (server.clone(), stopping.clone());
                    let kind = if permits.available_permits() < RESERVED {
                        ConnectionKind::Reserved
                    } else {
                        ConnectionKind::Any
                    };
                    connections.spawn(async move {
                        server.connection(stream, kind, stopping).await;
                        drop(permit);
                    });
                }
                // Ignore errors of one client. Others, such as too many open files, need a pause.
                Err(error) if is_client_error(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "accepting connection of admin server failed");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        stopping.cancel();
        let ended = async { while connections.join_next().await.is_some() {} };
        select! {
            _ = timeout(SHUTDOWN_GRACE, ended) => {}
            () = abort => {}
        }
        connections.shutdown().await;
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        kind: ConnectionKind,
        stopping: CancellationToken,
    ) {
        let Some(tls) = self.tls.clone() else {
            return self.http(stream, kind, stopping).await;
        };
        let handshake = timeout(
            kind.limit(HANDSHAKE_TIMEOUT),
            TlsAcceptor::from(tls).accept(stream),
        );
        let accepted = select! {
            accepted = handshake => accepted,
            () = stopping.cancelled() => return,
        };
        // A client whose handshake fails has received an alert.
        if let Ok(Ok(stream)) = accepted {
            self.http(stream, kind, stopping).await;
        }
    }

    async fn http(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        kind: ConnectionKind,
        stopping: CancellationToken,
    ) {
        let service = service_fn(move |request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.respond(request, kind).await) }
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(kind.limit(HEAD_TIMEOUT))
            .max_buf_size(MAX_HEAD);
        builder.keep_alive(kind == ConnectionKind::Any);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        // Errors of a connection concern only its client.
        select! {
            _ = &mut connection => return,
            () = stopping.cancelled() => {}
            () = sleep(MAX_CONNECTION_AGE) => {}
        }
        connection.as_mut().graceful_shutdown();
        drop(timeout(SHUTDOWN_GRACE, connection).await);
    }

    async fn respond(&self, request: Request<Incoming>, kind: ConnectionKind) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if kind == ConnectionKind::Reserved && !is_health(parts.uri.path()) {
            return too_many_connections();
        }
        if let Some(guard) = &self.guard
            && let Err(rejection) = guard.check(&parts, !body.is_end_stream())
        {
            return forbidden(&rejection);
        }
        if let Some(authorizer) = &self.authorizer
            && let Some(rejected) = authorizer.reject(&parts).await
        {
            return rejected;
        }
        // The router is always ready and does not fail.
        let mut router = self.router.clone();
        router
            .call(Request::from_parts(parts, body))
            .await
            .unwrap_or_else(|never| match never {})
    }
}

impl ConnectionKind {
    fn limit(self, time: Duration) -> Duration {
        if self == Self::Reserved {
            time.min(RESERVED_TIMEOUT)
        } else {
            time
        }
    }
}

fn forbidden(rejection: &Rejection) -> Response<Body> {
    let fix = match rejection {
        Rejection::Host(_) | Rejection::NoHost => {
            "use localhost, add the host to `Admin::hosts` (--admin-host), or require tokens with `Admin::access` (--admin-access)"
        }
        _ => {
            "use a program other than a browser, or require tokens with `Admin::access` (--admin-access)"
        }
    };
    (StatusCode::FORBIDDEN, format!("{rejection}; {fix}\n")).into_response()
}

fn too_many_connections() -> Response<Body> {
    let text = "cannot accept the connection: too many are open; close some, retry, or raise \
                 `Admin::max_connections`\n";
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}
