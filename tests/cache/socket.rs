//! A [`FaultyNetwork`] with a TCP address.
//!
//! It serves caches that are created from a configuration. Their watches drive their own
//! connections, and fail with them.
//!
//! Invariant: a restart closes every connection, and for some time every new one. Time may be
//! paused: client and server share a thread, and the kernel delivers data before the clock
//! advances. A late delivery would only be one more network fault.

use super::faulty_network::FaultyNetwork;
use futures::{FutureExt, future::BoxFuture};
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube_client::{Config, client::Body};
use std::{net::Ipv4Addr, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::Instant,
};
use tower_service::Service;

/// Downtime after a restart.
const DOWN: Duration = Duration::from_secs(3);

/// Listening socket. Dropping it closes it.
pub(crate) struct Socket {
    pub(crate) config: Config,
    task: JoinHandle<()>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Socket {
    pub(crate) async fn open(network: FaultyNetwork) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let config = Config::new(format!("http://{}", listener.local_addr()?).parse()?);
        Ok(Self {
            config,
            task: tokio::spawn(listen(listener, network)),
        })
    }
}

async fn listen(listener: TcpListener, network: FaultyNetwork) {
    let (mut connections, mut up) = (JoinSet::new(), Instant::now());
    let mut restarts = network.restarts();
    loop {
        tokio::select! {
            biased;
            () = restarts.next() => {
                connections.abort_all();
                up = Instant::now() + DOWN;
            }
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let (stream, _) = accepted.expect("a socket of this process");
                if Instant::now() >= up {
                    connections.spawn(answer(stream, network.clone()));
                }
            }
        }
    }
}

/// Serves a connection, and closes it if the network cuts a response or returns none.
///
/// Clients do not write through the socket, so requests have no bodies.
fn answer(stream: TcpStream, network: FaultyNetwork) -> BoxFuture<'static, ()> {
    let service = service_fn(move |request: Request<Incoming>| {
        network.clone().call(request.map(|_| Body::empty()))
    });
    Box::pin(
        http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .map(drop),
    )
}
