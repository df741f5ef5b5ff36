//! A wire that can be cut: between one candidate and the server.

use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

/// What comes is passed on, or kept until it is.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    flows: Arc<watch::Sender<bool>>,
    _serving: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let flows = Arc::new(watch::Sender::new(true));
        let gate = flows.clone();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut wires = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let gate = gate.subscribe();
                wires.spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::join!(pass(from_client, to_server, gate.clone()), pass(from_server, to_client, gate));
                });
                while wires.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, flows, _serving: serving })
    }

    /// Nothing comes through, in either direction, and nobody is told.
    pub(crate) fn cut(&self) {
        self.flows.send_replace(false);
    }

    /// What was on its way arrives now.
    pub(crate) fn mend(&self) {
        self.flows.send_replace(true);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut gate: watch::Receiver<bool>) {
    let mut part = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut part).await {
        if gate.wait_for(|flows| *flows).await.is_err() || to.write_all(&part[..length]).await.is_err() {
            return;
        }
    }
    // The end of one direction is passed on, too.
    if gate.wait_for(|flows| *flows).await.is_ok() {
        let _ = to.shutdown().await;
    }
}
