//! The embedded server as a test sees it: the same calls as on the real one, and the server itself for what only it can do.

use super::{Error, TestServer, definitions, namespaces};
use kube_client::Client;
use serde::Serialize;
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};
use steersman_apiserver::{ApiServer, Authority, Identity, Options, Running};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// An embedded server, for one test. It ends when this and its clients are dropped.
pub struct Embedded {
    server: ApiServer,
    /// Opened when somebody asks for a kubeconfig.
    door: OnceCell<Door>,
}

/// The socket, and the kubeconfig that says where it is.
struct Door {
    _running: Running,
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
        Self { server, door: OnceCell::new() }
    }

    /// The server: its faults, its journal, its forks.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    async fn open(&self) -> Result<Door, Error> {
        let authority = Authority::generate().map_err(|error| Error::Certificates(error.to_string()))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let running = self.server.listen(address, Some(&authority)).await.map_err(|error| refused("listen", error))?;
        let directory = tempfile::tempdir().map_err(Error::io("make a directory among the temporary files"))?;
        let written = running.kubeconfig().write(&directory.path().join(KUBECONFIG));
        written.map_err(|error| refused("write its kubeconfig", error))?;
        Ok(Door { _running: running, directory })
    }
}

const KUBECONFIG: &str = "admin.kubeconfig";

impl TestServer for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn client(&self) -> Result<Client, Error> {
        Ok(Client::new(self.server.service(), "default"))
    }

    fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, Error> {
        let identity = Identity::new(user, "", groups.iter().copied());
        Ok(Client::new(self.server.service_as(identity), "default"))
    }

    async fn install(&self, definitions: impl IntoIterator<Item: Serialize> + Send) -> Result<(), Error> {
        for definition in definitions::values(definitions)? {
            self.server.install(definition).await.map_err(|failure| refused("install a definition", failure))?;
        }
        Ok(())
    }

    async fn restart(&self) -> Result<(), Error> {
        self.server.compact();
        Ok(())
    }

    async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        namespaces::create(&self.client()?, prefix).await
    }

    async fn kubeconfig(&self) -> Result<PathBuf, Error> {
        let door = self.door.get_or_try_init(|| self.open()).await?;
        Ok(door.directory.path().join(KUBECONFIG))
    }
}

fn refused(doing: &'static str, what: impl ToString) -> Error {
    Error::Embedded { doing, what: what.to_string() }
}
