//! The embedded server as a test sees it: the same calls as on the real one, and the server itself for what only it can do.

use super::{Error, TestServer, cut::Connection, definitions, namespaces};
use kube_client::Client;
use serde::Serialize;
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};
use steersman_apiserver::{ApiServer, Authority, Identity, Options, Running, Service};
use tempfile::TempDir;
use tokio::sync::{Mutex, watch};

const KUBECONFIG: &str = "admin.kubeconfig";

/// An embedded server, for one test. It ends when this and its clients are dropped.
pub struct Embedded {
    server: ApiServer,
    restarts: watch::Sender<()>,
    /// Opened when somebody asks for a kubeconfig.
    door: Mutex<Option<Box<Door>>>,
}

/// The socket, and the kubeconfig that says where it is.
struct Door {
    running: Running,
    authority: Authority,
    directory: TempDir,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Embedded {
    /// A server with the default settings.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn start() -> Result<Self, Error> {
        ApiServer::new(Options::default()).map(Self::new).map_err(|error| refused("start", error))
    }

    /// A server with settings of your own.
    pub fn new(server: ApiServer) -> Self {
        Self { server, restarts: watch::Sender::new(()), door: Mutex::default() }
    }

    /// The server: its faults, its journal, its forks.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    fn connect(&self, service: Service) -> Client {
        Client::new(Connection { service, restarts: self.restarts.subscribe() }, "default")
    }

    async fn open(&self) -> Result<Box<Door>, Error> {
        let authority = Authority::generate().map_err(|error| Error::Certificates(error.to_string()))?;
        let running = self.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &authority).await?;
        let directory = tempfile::tempdir().map_err(Error::io("make a directory among the temporary files"))?;
        let written = running.kubeconfig().write(&directory.path().join(KUBECONFIG));
        written.map_err(|error| refused("write its kubeconfig", error))?;
        Ok(Box::new(Door { running, authority, directory }))
    }

    async fn listen(&self, address: SocketAddr, authority: &Authority) -> Result<Running, Error> {
        self.server.listen(address, Some(authority)).await.map_err(|error| refused("listen", error))
    }
}

impl TestServer for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn client(&self) -> Result<Client, Error> {
        Ok(self.connect(self.server.service()))
    }

    fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, Error> {
        let identity = Identity::new(user, "", groups.iter().copied());
        Ok(self.connect(self.server.service_as(identity)))
    }

    async fn install(&self, definitions: impl IntoIterator<Item: Serialize> + Send) -> Result<(), Error> {
        for definition in definitions::values(definitions)? {
            self.server.install(definition).await.map_err(|failure| refused("install a definition", failure))?;
        }
        Ok(())
    }

    async fn restart(&self) -> Result<(), Error> {
        let mut door = self.door.lock().await;
        self.server.compact();
        self.restarts.send_replace(());
        if let Some(open) = door.take() {
            let Door { running, authority, directory } = *open;
            let address = running.addr();
            running.stop().await;
            let running = self.listen(address, &authority).await?;
            *door = Some(Box::new(Door { running, authority, directory }));
        }
        Ok(())
    }

    async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        namespaces::create(&self.client()?, prefix).await
    }

    async fn kubeconfig(&self) -> Result<PathBuf, Error> {
        let mut door = self.door.lock().await;
        let open = match door.take() {
            Some(open) => open,
            None => self.open().await?,
        };
        Ok(door.insert(open).directory.path().join(KUBECONFIG))
    }
}

fn refused(doing: &'static str, what: impl ToString) -> Error {
    Error::Embedded { doing, what: what.to_string() }
}
