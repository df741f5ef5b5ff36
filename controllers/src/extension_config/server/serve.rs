//! Connections of the server: HTTP/1.1 over TLS, with limits of number and time.
//!
//! Invariant: a connection ends at [`MAX_CONNECTION_AGE`] plus [`SHUTDOWN_GRACE`] at the latest. On
//! shutdown, the server accepts no connections, waits for running calls, and ends all of its tasks.

use super::{certificate::LoadedCertificate, routes::Routes};
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the head of a request. It also closes an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a connection is closed gracefully.
const MAX_CONNECTION_AGE: Duration = Duration::from_mins(5);
/// Time for running calls to end, after [`MAX_CONNECTION_AGE`] and on shutdown.
///
/// It is the maximum time limit of a handler.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);
/// Maximum size of the head of a request, in bytes.
const MAX_HEAD: usize = 32 << 10;

/// Running server of an extension.
///
/// Dropping it stops the server without waiting for running calls.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    task: JoinHandle<()>,
    /// Stops the server when it is dropped.
    stop: DropGuard,
}

impl Running {
    /// Returns the address of the server, with the port that was selected for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server, and waits at most 30 s for running calls.
    ///
    /// Cancel safety: the server also stops if the future is dropped.
    pub async fn stop(self) {
        drop(self.stop);
        // Fails only if the runtime shuts down.
        drop(self.task.await);
    }
}

pub(super) struct Server {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) routes: Routes,
    pub(super) max_connections: usize,
}

impl Server {
    /// Serves in a new task.
    pub(super) fn start(
        self,
        listener: TcpListener,
        address: SocketAddr,
        certificate: LoadedCertificate,
    ) -> Running {
        let stopping = CancellationToken::new();
        let stop = stopping.clone().drop_guard();
        let task = tokio::spawn(async move {
            select! {
                () = self.serve(listener, stopping) => {}
                () = certificate.reload() => {}
            }
        });
        Running {
            address,
            task,
            stop,
        }
    }

    async fn serve(self, listener: TcpListener, stopping: CancellationToken) {
        let limit = self.max_connections.min(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(limit));
        let server = Arc::new(self);
        let mut connections = JoinSet::new();
        loop {
            let next = async {
                // Never fails: the semaphore is not closed.
                let permit = permits.clone().acquire_owned().await;
                (permit, listener.accept().await)
            };
            let (permit, accepted) = select! {
                biased;
                () = stopping.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                next = next => next,
            };
            match accepted {
                Ok((stream, remote)) => {
                    let (server, stopping) = (server.clone(), stopping.clone());
                    connections.spawn(async move {
                        server.connection(stream, remote, stopping).await;
                        drop(permit);
                    });
                }
                // Other errors than those of one client, such as too many open files, need a pause.
                Err(error) if is_client_error(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "accepting connection failed, retrying");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        let ended = async { while connections.join_next().await.is_some() {} };
        drop(timeout(SHUTDOWN_GRACE, ended).await);
        connections.shutdown().await;
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        remote: SocketAddr,
        stopping: CancellationToken,
    ) {
        let handshake = TlsAcceptor::from(self.tls.clone()).accept(stream);
        let accepted = select! {
            accepted = timeout(HANDSHAKE_TIMEOUT, handshake) => accepted,
            () = stopping.cancelled() => return,
        };
        // A client whose handshake fails has received an alert.
        let Ok(Ok(stream)) = accepted else { return };
        let service = service_fn(move |request: Request<Incoming>| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.routes.respond(request, remote).await) }
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        // Ignore errors of the connection, because they affect only its client.
        select! {
            _ = &mut connection => return,
            () = stopping.cancelled() => {}
            () = sleep(MAX_CONNECTION_AGE) => {}
        }
        connection.as_mut().graceful_shutdown();
        drop(timeout(SHUTDOWN_GRACE, connection).await);
    }
}

fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}
