//! TCP proxy between one candidate and the server that can be interrupted.

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

/// Proxy that forwards data, or withholds it while interrupted.
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
                    let Ok(server) = TcpStream::connect(server).await else {
                        return;
                    };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::join!(
                        pass(from_client, to_server, gate.clone()),
                        pass(from_server, to_client, gate)
                    );
                });
                while wires.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            flows,
            _serving: serving,
        })
    }

    /// Withholds all data in both directions without closing connections.
    pub(crate) fn cut(&self) {
        self.flows.send_replace(false);
    }

    /// Forwards the withheld data and everything after it.
    pub(crate) fn restore(&self) {
        self.flows.send_replace(true);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut gate: watch::Receiver<bool>) {
    let mut part = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut part).await {
        if gate.wait_for(|flows| *flows).await.is_err()
            || to.write_all(&part[..length]).await.is_err()
        {
            return;
        }
    }
    // Forward the end of one direction, too.
    if gate.wait_for(|flows| *flows).await.is_ok() {
        let _ = to.shutdown().await;
    }
}
