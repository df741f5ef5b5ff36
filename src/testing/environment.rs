//! Test environment: a real control plane, or an existing cluster.
//!
//! A control plane ends with its last handle, at the latest with this process.

use super::{
    Error, Options, User,
    control_plane::{ControlPlane, client},
    definitions,
    own_runtime::run_on_own_runtime,
};
use kube_client::{Client, Config};
use serde::Serialize;
use std::{
    env, fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::OnceCell;

/// Environment that the tests of a binary share.
static SHARED: OnceCell<Result<Environment, Error>> = OnceCell::const_new();

/// Real kube-apiserver and etcd started for tests, or an existing cluster.
///
/// Clones refer to the same environment. It ends with [`stop`](Self::stop), with the last clone, or
/// at the latest when this process ends, even if it is killed.
///
/// Use it for features that only the real server has, and [`env_test!`](crate::env_test) to run a
/// test on it and on the embedded server. A start takes a few seconds; [`shared`](Self::shared)
/// starts one environment for all tests of a binary.
///
/// ```no_run
/// # async fn example(widget: serde_json::Value) -> Result<(), steersman::testing::Error> {
/// use steersman::testing::{Environment, Options};
///
/// let environment = Environment::start(Options::default()).await?;
/// environment.install([widget]).await?;
/// let client = environment.client()?;
/// println!("kubectl --kubeconfig {}", environment.kubeconfig()?.display());
/// // … the test …
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
    Existing {
        config: Box<Config>,
        kubeconfig: Option<PathBuf>,
    },
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("directory", &self.directory())
            .finish_non_exhaustive()
    }
}

impl Environment {
    /// Starts a control plane, and returns when it is ready.
    ///
    /// Uses an existing cluster instead if the options or `USE_EXISTING_CLUSTER` ask for it.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let existing = options
            .existing_cluster
            .unwrap_or_else(|| says_true("USE_EXISTING_CLUSTER"));
        let inner = run_on_own_runtime(move || async move {
            if existing {
                existing_cluster().await
            } else {
                let plane = ControlPlane::start(&options).await?;
                Ok(Inner::Started(Box::new(plane)))
            }
        });
        Ok(Self {
            inner: Arc::new(inner.await?),
        })
    }

    /// Returns the environment that all tests of a binary share.
    ///
    /// The first call starts it, with a controller manager. If the start fails, every call returns
    /// the error. The environment ends with the process: do not stop it. Isolate tests by
    /// namespaces.
    pub async fn shared() -> Result<Self, Error> {
        let options = Options {
            controller_manager: true,
            ..Options::default()
        };
        SHARED.get_or_init(|| Self::start(options)).await.clone()
    }

    /// Returns the configuration of an admin client. It does not retry.
    pub fn config(&self) -> Config {
        match &*self.inner {
            Inner::Started(plane) => plane.admin.config(),
            Inner::Existing { config, .. } => *config.clone(),
        }
    }

    /// Creates an admin client for the current runtime.
    ///
    /// The connections of a client are tasks of its runtime, so create one per test.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn client(&self) -> Result<Client, Error> {
        client(self.config())
    }

    /// Returns an admin kubeconfig for kubectl and other programs.
    ///
    /// It is removed with the environment. An existing cluster has one unless it is accessed from a
    /// pod.
    pub fn kubeconfig(&self) -> Result<&Path, Error> {
        match &*self.inner {
            Inner::Started(plane) => Ok(&plane.kubeconfig),
            Inner::Existing { kubeconfig, .. } => kubeconfig.as_deref().ok_or(Error::Existing(
                "provide a kubeconfig file to a process in a pod",
            )),
        }
    }

    /// Creates a user with a client certificate, for tests of RBAC.
    pub fn user(&self, name: &str, groups: &[&str]) -> Result<User, Error> {
        self.plane("create users without its certificate authority")?
            .user(name, groups)
    }

    /// Installs or updates CRDs, and waits until they are in discovery.
    ///
    /// With kube-derive use `environment.install([Widget::crd()])`, and for files
    /// [`read_definitions`](super::read_definitions).
    pub async fn install(
        &self,
        definitions: impl IntoIterator<Item: Serialize>,
    ) -> Result<(), Error> {
        let definitions = definitions::values(definitions)?;
        self.on_client(|client| definitions::install(client, definitions))
            .await
    }

    /// Deletes CRDs with all their objects, and waits until they are gone.
    ///
    /// A CRD that does not exist is not an error.
    pub async fn uninstall(
        &self,
        definitions: impl IntoIterator<Item: Serialize>,
    ) -> Result<(), Error> {
        let definitions = definitions::values(definitions)?;
        self.on_client(|client| definitions::uninstall(client, definitions))
            .await
    }

    /// Restarts kube-apiserver. It also starts one that has crashed.
    ///
    /// Data, port and certificates are kept. Connections and watches break, and resource versions
    /// from before are too old for a watch.
    pub async fn restart_apiserver(&self) -> Result<(), Error> {
        self.plane("be restarted")?;
        let inner = self.inner.clone();
        run_on_own_runtime(move || async move {
            match &*inner {
                Inner::Started(plane) => plane.restart_api_server().await,
                Inner::Existing { .. } => Ok(()),
            }
        })
        .await
    }

    /// Pauses kube-apiserver until the guard is dropped.
    ///
    /// It keeps its connections and does not answer, like an overloaded server.
    pub fn pause_apiserver(&self) -> Result<Paused, Error> {
        self.plane("be paused")?.signal_api_server("STOP")?;
        Ok(Paused {
            environment: self.clone(),
        })
    }

    /// Returns an error if a program of the environment has ended.
    ///
    /// The error has the end of its log. Use it to distinguish a failed test from a failed server.
    /// An existing cluster is not checked.
    pub fn check(&self) -> Result<(), Error> {
        match &*self.inner {
            Inner::Started(plane) => plane.check(),
            Inner::Existing { .. } => Ok(()),
        }
    }

    /// Returns the directory of the logs; `None` for an existing cluster.
    pub fn directory(&self) -> Option<&Path> {
        match &*self.inner {
            Inner::Started(plane) => Some(plane.directory.path()),
            Inner::Existing { .. } => None,
        }
    }

    /// Keeps the logs when the environment ends, and prints their location once.
    ///
    /// Use it in a test that has failed.
    pub fn keep_logs(&self) {
        if let Inner::Started(plane) = &*self.inner {
            plane.directory.keep_and_print();
        }
    }

    /// Returns whether this is an existing cluster.
    pub fn is_existing(&self) -> bool {
        matches!(&*self.inner, Inner::Existing { .. })
    }

    /// Stops all programs and removes the directory, except for logs that are kept.
    ///
    /// An existing cluster is not affected.
    pub async fn stop(&self) -> Result<(), Error> {
        let inner = self.inner.clone();
        run_on_own_runtime(move || async move {
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

    /// Runs `work` with a separate client and thread.
    ///
    /// If it fails because the server has crashed, returns the error of the server.
    async fn on_client<F>(
        &self,
        work: impl FnOnce(Client) -> F + Send + 'static,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let config = self.config();
        let done = run_on_own_runtime(move || async move { work(client(config)?).await }).await;
        done.or_else(|error| self.check().and(Err(error)))
    }
}

/// Paused kube-apiserver, which continues when this is dropped.
#[derive(Debug)]
#[must_use = "dropped, the server goes on"]
pub struct Paused {
    environment: Environment,
}

impl Drop for Paused {
    fn drop(&mut self) {
        if let Inner::Started(plane) = &*self.environment.inner {
            // Fails if the server was stopped meanwhile, which needs no action.
            let _ = plane.signal_api_server("CONT");
        }
    }
}

async fn existing_cluster() -> Result<Inner, Error> {
    let mut config = Config::infer()
        .await
        .map_err(|error| Error::NoCluster(error.to_string()))?;
    config.default_retry = false;
    let first = |paths: std::ffi::OsString| env::split_paths(&paths).next();
    let named = env::var_os("KUBECONFIG")
        .and_then(first)
        .filter(|path| !path.as_os_str().is_empty());
    let usual = || Some(PathBuf::from(env::var_os("HOME")?).join(".kube/config"));
    Ok(Inner::Existing {
        config: config.into(),
        kubeconfig: named.or_else(usual).filter(|path| path.is_file()),
    })
}

/// Returns whether a variable is `true` or `1`.
pub(super) fn says_true(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}
