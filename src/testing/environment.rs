//! The environment: a real control plane that ends with its last handle, at the latest with this process; or an existing cluster,
//! which is only used.

use super::{
    Error, Options, User,
    apart::apart,
    control_plane::{ControlPlane, client},
    definitions,
};
use kube_client::{Client, Config};
use serde::Serialize;
use std::{
    env, fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::OnceCell;

/// The one that the tests of a binary share.
static SHARED: OnceCell<Result<Environment, Error>> = OnceCell::const_new();

/// A real kube-apiserver with its etcd, started for tests; or an existing cluster. A handle: clones are the same environment, and
/// without [`stop`](Self::stop) it ends with the last of them, at the latest when this process ends, however it ends.
///
/// Use it for what only the real server does, and [`env_test!`](crate::env_test) to run one test on both it and the embedded one.
/// It starts in a few seconds; [`shared`](Self::shared) starts one for all tests of a binary.
///
/// ```no_run
/// # async fn example(widget: serde_json::Value) -> Result<(), steersman::testing::Error> {
/// use steersman::testing::{Environment, Options};
///
/// let environment = Environment::start(Options::default()).await?;
/// environment.install([widget]).await?;
/// let client = environment.client()?;
/// println!("kubectl --kubeconfig {}", environment.kubeconfig()?.display());
/// // … what is to be tested …
/// environment.restart_apiserver().await?; // every watch breaks; the data stays
/// environment.stop().await
/// # }
/// ```
#[derive(Clone)]
pub struct Environment {
    inner: Arc<Inner>,
}

enum Inner {
    Started(Box<ControlPlane>),
    Existing { config: Box<Config>, kubeconfig: Option<PathBuf> },
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("directory", &self.directory()).finish_non_exhaustive()
    }
}

impl Environment {
    /// Start a control plane, ready when this returns; or use an existing cluster, if the options or `USE_EXISTING_CLUSTER` say so.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let existing = options.existing_cluster.unwrap_or_else(|| says_true("USE_EXISTING_CLUSTER"));
        let inner = apart(move || async move {
            if existing {
                existing_cluster().await
            } else {
                let plane = ControlPlane::start(&options).await?;
                Ok(Inner::Started(Box::new(plane)))
            }
        });
        Ok(Self { inner: Arc::new(inner.await?) })
    }

    /// The environment that all tests of a binary share, started by the first that asks, with a controller manager. If that fails, everybody
    /// is told the same. It ends with the process: do not stop it. Keep tests apart by a namespace for each.
    pub async fn shared() -> Result<Self, Error> {
        let options = Options { controller_manager: true, ..Options::default() };
        SHARED.get_or_init(|| Self::start(options)).await.clone()
    }

    /// The configuration of the admin's client: verifies the server, retries nothing by itself.
    pub fn config(&self) -> Config {
        match &*self.inner {
            Inner::Started(plane) => plane.admin.config(),
            Inner::Existing { config, .. } => *config.clone(),
        }
    }

    /// A new client of the admin's, for the runtime that this is called in: its connections are tasks there, so a client that outlives
    /// its runtime is of no use. Make one for each test.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn client(&self) -> Result<Client, Error> {
        client(self.config())
    }

    /// The admin's kubeconfig, for kubectl and other programs. It goes with the environment. An existing cluster has one unless it was found
    /// from inside.
    pub fn kubeconfig(&self) -> Result<&Path, Error> {
        match &*self.inner {
            Inner::Started(plane) => Ok(&plane.kubeconfig),
            Inner::Existing { kubeconfig, .. } => {
                kubeconfig.as_deref().ok_or(Error::Existing("give a kubeconfig file when it was found from inside"))
            }
        }
    }

    /// Somebody else, known by a client certificate, who may do what roles bound to them or to their groups allow.
    pub fn user(&self, name: &str, groups: &[&str]) -> Result<User, Error> {
        self.plane("make users: its certificate authority is not known")?.user(name, groups)
    }

    /// Install definitions, or update those that are there, and wait until they are established and in discovery. With kube-derive:
    /// `environment.install([Widget::crd()])`; from files: [`read_definitions`](super::read_definitions).
    pub async fn install(&self, definitions: impl IntoIterator<Item: Serialize>) -> Result<(), Error> {
        let definitions = definitions::values(definitions)?;
        self.on_client(|client| definitions::install(client, definitions)).await
    }

    /// Delete definitions with all their objects, and wait until they are gone. Those that are not there are no error.
    pub async fn uninstall(&self, definitions: impl IntoIterator<Item: Serialize>) -> Result<(), Error> {
        let definitions = definitions::values(definitions)?;
        self.on_client(|client| definitions::uninstall(client, definitions)).await
    }

    /// End kube-apiserver and start it again: the data, the port and the certificates stay, every connection and every watch breaks, and
    /// revisions from before are too old for a watch. Also brings back one that has crashed.
    pub async fn restart_apiserver(&self) -> Result<(), Error> {
        self.plane("be restarted")?;
        let inner = self.inner.clone();
        apart(move || async move {
            match &*inner {
                Inner::Started(plane) => plane.restart_api_server().await,
                Inner::Existing { .. } => Ok(()),
            }
        })
        .await
    }

    /// Stop kube-apiserver in the middle of everything, until the guard is dropped: it keeps its connections and answers nothing, as one that
    /// is overloaded.
    pub fn pause_apiserver(&self) -> Result<Paused, Error> {
        self.plane("be paused")?.signal_api_server("STOP")?;
        Ok(Paused { environment: self.clone() })
    }

    /// Fails if a program of the environment has ended, with what it said last: to tell a test's failure from the server's. An existing
    /// cluster is not looked at.
    pub fn check(&self) -> Result<(), Error> {
        match &*self.inner {
            Inner::Started(plane) => plane.check(),
            Inner::Existing { .. } => Ok(()),
        }
    }

    /// Where the logs are, while it runs; none for an existing cluster.
    pub fn directory(&self) -> Option<&Path> {
        match &*self.inner {
            Inner::Started(plane) => Some(plane.directory.path()),
            Inner::Existing { .. } => None,
        }
    }

    /// Keep the logs when the environment ends, and say once where they are: for a test that has failed.
    pub fn keep_logs(&self) {
        if let Inner::Started(plane) = &*self.inner {
            plane.directory.keep_and_tell();
        }
    }

    /// It is a cluster that was there before, and stays.
    pub fn is_existing(&self) -> bool {
        matches!(&*self.inner, Inner::Existing { .. })
    }

    /// End every program and remove the directory, logs that are kept aside. An existing cluster goes on.
    pub async fn stop(&self) -> Result<(), Error> {
        let inner = self.inner.clone();
        apart(move || async move {
            match &*inner {
                Inner::Started(plane) => plane.stop(),
                Inner::Existing { .. } => Ok(()),
            }
        })
        .await
    }

    fn plane(&self, what: &'static str) -> Result<&ControlPlane, Error> {
        match &*self.inner {
            Inner::Started(plane) => Ok(plane),
            Inner::Existing { .. } => Err(Error::Existing(what)),
        }
    }

    /// Work with a client of its own, apart. If it fails because the server has crashed, that is what is told.
    async fn on_client<F>(&self, work: impl FnOnce(Client) -> F + Send + 'static) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let config = self.config();
        let done = apart(move || async move { work(client(config)?).await }).await;
        done.or_else(|error| self.check().and(Err(error)))
    }
}

/// A kube-apiserver that is paused. Dropped, it goes on.
#[derive(Debug)]
#[must_use = "dropped, the server goes on"]
pub struct Paused {
    environment: Environment,
}

impl Drop for Paused {
    fn drop(&mut self) {
        if let Inner::Started(plane) = &*self.environment.inner {
            // One that was stopped meanwhile needs nothing.
            let _ = plane.signal_api_server("CONT");
        }
    }
}

async fn existing_cluster() -> Result<Inner, Error> {
    let mut config = Config::infer().await.map_err(|error| Error::NoCluster(error.to_string()))?;
    config.default_retry = false;
    let first = |paths: std::ffi::OsString| env::split_paths(&paths).next();
    let named = env::var_os("KUBECONFIG").and_then(first).filter(|path| !path.as_os_str().is_empty());
    let usual = || Some(PathBuf::from(env::var_os("HOME")?).join(".kube/config"));
    Ok(Inner::Existing { config: config.into(), kubeconfig: named.or_else(usual).filter(|path| path.is_file()) })
}

/// A variable that is set to `true`.
pub(super) fn says_true(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}
