//! Connections: so many, each for so long, HTTP/1.1.
//!
//! What holds: nobody can keep a connection without asking, nor ask for ever. When all places are taken, a few more are there for health pages: whoever restarts
//! this process for want of an answer has one. When the server is told to stop, it accepts nobody, lets requests end for a few seconds, and leaves no task.

use super::access::{Gate, is_health};
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

/// How long a client may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long it may take for the head of a request, also for the next one on its connection.
const HEAD: Duration = Duration::from_secs(30);
/// How long a connection is used; the request that it has then can end.
const LIFE: Duration = Duration::from_mins(5);
/// How long requests may take to end, then, and once the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// How many places there are beside, for health pages.
const RESERVED: usize = 8;
/// How long a client may take there, for each of the above.
const BRIEF: Duration = Duration::from_secs(2);
/// How many bytes the head of a request may have.
const MAX_HEAD: usize = 32 << 10;

pub(super) struct Door {
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// Rejects requests of web pages. `None` if callers need a token.
    pub(super) guard: Option<BrowserGuard>,
    pub(super) gate: Option<Gate>,
    pub(super) router: Router,
    pub(super) most: usize,
}

/// Where a connection is.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Any,
    /// Health pages only, one each.
    Reserved,
}

impl Door {
    /// Until it is told to stop, and requests have ended, or their time is over, or nobody waits for them: it is `forsaken`.
    pub(super) async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
        forsaken: impl Future<Output = ()>,
    ) {
        let places = Arc::new(Semaphore::new(self.most.saturating_add(RESERVED).min(Semaphore::MAX_PERMITS)));
        let door = Arc::new(self);
        let stopping = CancellationToken::new();
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let next = async {
                // Nobody closes it.
                let taken = places.clone().acquire_owned().await;
                (taken, listener.accept().await)
            };
            let (taken, accepted) = select! {
                biased;
                () = &mut stop => break,
                Some(_) = connections.join_next() => continue,
                next = next => next,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (door, stopping) = (door.clone(), stopping.clone());
                    let place = if places.available_permits() < RESERVED { Place::Reserved } else { Place::Any };
                    connections.spawn(async move {
                        door.connection(stream, place, stopping).await;
                        drop(taken);
                    });
                }
                // A client that gave up is its own affair. Anything else, as too many open files, takes a while to pass.
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "the admin server cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        stopping.cancel();
        let ended = async { while connections.join_next().await.is_some() {} };
        select! {
            _ = timeout(GRACE, ended) => {}
            () = forsaken => {}
        }
        connections.shutdown().await;
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, place: Place, stopping: CancellationToken) {
        let Some(tls) = self.tls.clone() else { return self.http(stream, place, stopping).await };
        let handshake = timeout(place.most(HANDSHAKE), TlsAcceptor::from(tls).accept(stream));
        let accepted = select! {
            accepted = handshake => accepted,
            () = stopping.cancelled() => return,
        };
        // Whoever fails the handshake has been told why by an alert.
        if let Ok(Ok(stream)) = accepted {
            self.http(stream, place, stopping).await;
        }
    }

    async fn http(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        place: Place,
        stopping: CancellationToken,
    ) {
        let service = service_fn(move |request| {
            let door = self.clone();
            async move { Ok::<_, Infallible>(door.answer(request, place).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(place.most(HEAD)).max_buf_size(MAX_HEAD);
        builder.keep_alive(place == Place::Any);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        // How a connection ends is its client's affair.
        select! {
            _ = &mut connection => return,
            () = stopping.cancelled() => {}
            () = sleep(LIFE) => {}
        }
        connection.as_mut().graceful_shutdown();
        drop(timeout(GRACE, connection).await);
    }

    async fn answer(&self, request: Request<Incoming>, place: Place) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if place == Place::Reserved && !is_health(parts.uri.path()) {
            return crowded();
        }
        if let Some(guard) = &self.guard
            && let Err(rejection) = guard.check(&parts, !body.is_end_stream())
        {
            return forbidden(&rejection);
        }
        if let Some(gate) = &self.gate
            && let Some(refused) = gate.refuse(&parts).await
        {
            return refused;
        }
        // It is ready at once, and does not fail.
        let mut router = self.router.clone();
        router.call(Request::from_parts(parts, body)).await.unwrap_or_else(|never| match never {})
    }
}

impl Place {
    fn most(self, time: Duration) -> Duration {
        if self == Self::Reserved { time.min(BRIEF) } else { time }
    }
}

fn forbidden(rejection: &Rejection) -> Response<Body> {
    let fix = match rejection {
        Rejection::Host(_) | Rejection::NoHost => {
            "use localhost, add the host to `Admin::hosts` (--admin-host), or require tokens with `Admin::access` (--admin-access)"
        }
        _ => "use a program other than a browser, or require tokens with `Admin::access` (--admin-access)",
    };
    (StatusCode::FORBIDDEN, format!("{rejection}; {fix}\n")).into_response()
}

fn crowded() -> Response<Body> {
    let words = "too many connections: end some, ask again, or raise `Admin::max_connections`\n";
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, words).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
