//! The embedded API server behind the interface of [`TestServer`].

use super::{Error, TestServer, definitions, namespaces, restartable::Connection};
use kube_client::Client;
use serde::Serialize;
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};
use steersman_apiserver::{ApiServer, Authority, Identity, Options, RunningServer, Service};
use tempfile::TempDir;
use tokio::sync::{Mutex, watch};

const KUBECONFIG: &str = "admin.kubeconfig";

/// Embedded API server for one test.
///
/// The server stops when this value and all its clients are dropped.
pub struct Embedded {
    server: ApiServer,
    restarts: watch::Sender<()>,
    /// Listener that the first call of `kubeconfig` starts.
    listener: Mutex<Option<Box<KubeconfigListener>>>,
}

/// Listening socket, and the kubeconfig with its address.
struct KubeconfigListener {
    running: RunningServer,
    authority: Authority,
    directory: TempDir,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Embedded {
    /// Starts a server with default options.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn start() -> Result<Self, Error> {
        ApiServer::new(Options::default())
            .map(Self::new)
            .map_err(|error| embedded_error("start", error))
    }

    /// Wraps a server with custom options.
    pub fn new(server: ApiServer) -> Self {
        Self {
            server,
            restarts: watch::Sender::new(()),
            listener: Mutex::default(),
        }
    }

    /// Returns the server, for faults, the journal and forks.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    fn connect(&self, service: Service) -> Client {
        Client::new(
            Connection {
                service,
                restarts: self.restarts.subscribe(),
            },
            "default",
        )
    }

    async fn open(&self) -> Result<Box<KubeconfigListener>, Error> {
        let authority =
            Authority::generate().map_err(|error| Error::Certificates(error.to_string()))?;
        let running = self
            .listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &authority)
            .await?;
        let directory = tempfile::tempdir().map_err(Error::io("create a temporary directory"))?;
        let written = running
            .kubeconfig()
            .write(&directory.path().join(KUBECONFIG));
        written.map_err(|error| embedded_error("write its kubeconfig", error))?;
        Ok(Box::new(KubeconfigListener {
            running,
            authority,
            directory,
        }))
    }

    async fn listen(
        &self,
        address: SocketAddr,
        authority: &Authority,
    ) -> Result<RunningServer, Error> {
        self.server
            .listen(address, Some(authority))
            .await
            .map_err(|error| embedded_error("listen", error))
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

    async fn install(
        &self,
        definitions: impl IntoIterator<Item: Serialize> + Send,
    ) -> Result<(), Error> {
        for definition in definitions::values(definitions)? {
            self.server
                .install(definition)
                .await
                .map_err(|failure| embedded_error("install a definition", failure))?;
        }
        Ok(())
    }

    async fn restart(&self) -> Result<(), Error> {
        let mut listener = self.listener.lock().await;
        self.server.compact();
        self.restarts.send_replace(());
        if let Some(open) = listener.take() {
            let KubeconfigListener {
                running,
                authority,
                directory,
            } = *open;
            let address = running.addr();
            running.stop().await;
            let running = self.listen(address, &authority).await?;
            *listener = Some(Box::new(KubeconfigListener {
                running,
                authority,
                directory,
            }));
        }
        Ok(())
    }

    async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        namespaces::create(&self.client()?, prefix).await
    }

    async fn kubeconfig(&self) -> Result<PathBuf, Error> {
        let mut listener = self.listener.lock().await;
        let open = match listener.take() {
            Some(open) => open,
            None => self.open().await?,
        };
        Ok(listener.insert(open).directory.path().join(KUBECONFIG))
    }
}

fn embedded_error(operation: &'static str, problem: impl ToString) -> Error {
    Error::Embedded {
        operation,
        problem: problem.to_string(),
    }
}
