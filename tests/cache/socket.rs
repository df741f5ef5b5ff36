//! The [`Door`] with an address, for a cache that is made from a configuration: its watches drive connections of their own, and break with them.
//!
//! What holds: a restart closes every connection, and for some time every new one. Time may be paused: who asks and who answers are one thread, and the system passes on
//! what one has sent before the clock moves. Were it late once, that would be one more failure of the network.

use super::chaos::Door;
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

/// How long nobody answers after a restart.
const DOWN: Duration = Duration::from_secs(3);

/// Dropped, it closes.
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
    pub(crate) async fn open(door: Door) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let config = Config::new(format!("http://{}", listener.local_addr()?).parse()?);
        Ok(Self { config, task: tokio::spawn(listen(listener, door)) })
    }
}

async fn listen(listener: TcpListener, door: Door) {
    let (mut connections, mut up) = (JoinSet::new(), Instant::now());
    let mut restarts = door.restarts();
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
                    connections.spawn(answer(stream, door.clone()));
                }
            }
        }
    }
}

/// What the door cuts, or gives no answer to, is closed. Nobody writes through a socket, so that requests have no bodies.
fn answer(stream: TcpStream, door: Door) -> BoxFuture<'static, ()> {
    let service = service_fn(move |request: Request<Incoming>| door.clone().call(request.map(|_| Body::empty())));
    Box::pin(http1::Builder::new().serve_connection(TokioIo::new(stream), service).map(drop))
}
