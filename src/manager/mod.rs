//! Owns the client, the cache and everything that runs; starts and stops it in order.
//!
//! * [`Manager::builder`] makes one from a configuration or a client; [`ManagerHandle::controller`] builds controllers that it runs; [`Manager::run_until`] runs
//!   everything until it is told to stop, or somebody fails.
//! * What else is to run is [added](ManagerHandle::add) with a [`Stage`]: servers, caches, the rest, gates that have to return before anything is reconciled, and what
//!   only the leader does. It can be added at any time before the end.
//! * With [leader election](ManagerBuilder::leader_election), of all processes with one lease one leads. It stops before another can.
//! * [`ManagerHandle::add_cluster`] adds other clusters, [`ManagerHandle::readiness`] and [`ManagerHandle::add_check`] say whether the process can do its work.
//! * Nothing is global: two managers in one process never meet.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steersman::{manager::Stage, prelude::*, testing::{Env, TestServer}};
//! use tokio::sync::oneshot;
//!
//! let connection = Env::embedded()?.client()?; // or a `Config`
//! let manager = Manager::builder(connection).build()?;
//! manager.controller("maps").for_::<ConfigMap>().reconcile(reconcile::from_fn(async |request: Request, _cx| {
//!     println!("{request}");
//!     Ok(Outcome::done())
//! }))?;
//!
//! let (stop, stopped) = oneshot::channel::<()>();
//! manager.add(Stage::Leader, "the end", async move |_cx| {
//!     drop(stop); // all controllers have been started
//!     Ok(())
//! })?;
//! manager.run_until(async { drop(stopped.await) }).await?; // or `signals::shutdown()`
//! # Ok(())
//! # }
//! ```

mod builder;
mod cluster;
pub mod election;
mod error;
mod readiness;
mod recording;
mod reports;
mod run;
pub mod signals;
mod stage;

pub use self::{
    builder::ManagerBuilder,
    cluster::Cluster,
    error::ManagerError,
    readiness::{CheckReport, Probe, Readiness},
    reports::CacheReport,
    stage::{RunContext, Stage},
};

use self::{
    election::Elector,
    readiness::Checks,
    stage::{Failed, Group, Runnable},
};
use crate::{
    cache::{Cache, CacheError},
    client::{Client, Connection},
    controller::{Controller, ControllerMetrics, ControllerTask, Defaults, WatchError},
    recorder::RecorderMetrics,
    workqueue::Key,
};
use hashbrown::{HashMap, HashSet, hash_map::Entry};
use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};
use std::{fmt, ops::Deref, sync::Arc, time::Duration};
use tokio::{
    select,
    sync::{mpsc, watch},
};

/// A manager to be run, once. Everything else is on the [`ManagerHandle`] that it derefs to.
#[must_use = "nothing happens before `run_until`"]
pub struct Manager {
    handle: Owner,
    failed: mpsc::UnboundedReceiver<Failed>,
    grace: Option<Duration>,
}

/// For before, during and after the start. Clones mean the same manager. Controllers are built by [`controller`](Self::controller).
#[derive(Clone)]
pub struct ManagerHandle(Arc<Shared>);

struct Shared {
    client: Client,
    cache: Cache,
    defaults: Defaults,
    controllers: ControllerMetrics,
    recorders: RecorderMetrics,
    #[cfg(feature = "admin")]
    certificates: crate::tls::TlsMetrics,
    registry: Mutex<Registry>,
    checks: Checks,
    groups: [Group; Stage::ALL.len()],
    /// Of controllers.
    names: Mutex<HashSet<String>>,
    clusters: Mutex<HashMap<String, Cluster>>,
    election: Option<Elector>,
    leads: watch::Sender<bool>,
    /// All that does not depend on leading.
    started: watch::Sender<bool>,
}

impl Manager {
    /// One for this cluster. Best from a `Config`: see [`Connection`].
    pub fn builder(connection: impl Into<Connection>) -> ManagerBuilder {
        ManagerBuilder::new(connection.into())
    }

    /// To keep while the manager runs.
    pub fn handle(&self) -> ManagerHandle {
        self.handle.0.clone()
    }
}

impl Deref for Manager {
    type Target = ManagerHandle;

    fn deref(&self) -> &ManagerHandle {
        &self.handle.0
    }
}

/// With it goes everything that waits or runs: that may well own a handle of its manager.
struct Owner(ManagerHandle);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.0.groups.iter().rev().for_each(Group::end);
        // They have handles of their manager, too.
        let clusters = std::mem::take(&mut *self.0.0.clusters.lock());
        drop(clusters);
    }
}

impl ManagerHandle {
    /// Reads from the cache, writes to the server.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// Shared by all controllers.
    pub fn cache(&self) -> Cache {
        self.0.cache.clone()
    }

    /// Run something beside the controllers: with its stage, or at once if that has come already. What it returns in error ends the manager; returning without one
    /// does not. Once the manager is stopping, this is an error.
    pub fn add<F, Fut>(&self, stage: Stage, name: &str, run: F) -> Result<(), ManagerError>
    where
        F: FnOnce(RunContext) -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.group(stage).add(Runnable::new(name, run))
    }

    /// One more thing to ask before it is said that all is well.
    pub fn add_check(&self, probe: Probe, name: &str, ask: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.0.checks.add(probe, name, ask);
    }

    /// Not ready before this handle says so.
    pub fn readiness(&self, name: &str) -> Readiness {
        Readiness::new(&self.0.checks, name)
    }

    /// What all checks say now.
    pub fn check(&self, probe: Probe) -> Vec<CheckReport> {
        self.0.checks.ask(probe)
    }

    /// Add metrics of your own to the page.
    pub fn metrics<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.0.registry.lock())
    }

    /// The metrics page, as text in the format `OpenMetrics`.
    pub fn metrics_page(&self) -> String {
        let mut page = String::new();
        // Into a string it cannot fail.
        let _ = encode(&mut page, &self.0.registry.lock());
        page
    }

    /// Another cluster by its name.
    pub fn cluster(&self, name: &str) -> Option<Cluster> {
        self.0.clusters.lock().get(name).cloned()
    }

    /// Resolves when this process leads; without leader election, when controllers are started.
    pub async fn elected(&self) {
        // The sender is here.
        drop(self.0.leads.subscribe().wait_for(|leads| *leads).await);
    }

    fn group(&self, stage: Stage) -> &Group {
        &self.0.groups[stage as usize]
    }

    fn keep_cluster(&self, cluster: &Cluster) -> Result<(), ManagerError> {
        match self.0.clusters.lock().entry(cluster.name().to_owned()) {
            Entry::Occupied(taken) => Err(ManagerError::NameTaken(format!("cluster {}", taken.key()))),
            Entry::Vacant(free) => {
                free.insert(cluster.clone());
                Ok(())
            }
        }
    }

    /// False if it was forgotten before.
    fn forget_cluster(&self, cluster: &Cluster) -> bool {
        let mut clusters = self.0.clusters.lock();
        let known = clusters.get(cluster.name()).is_some_and(|known| known.is(cluster));
        if known {
            clusters.remove(cluster.name());
        }
        known
    }
}

#[cfg(feature = "admin")]
impl ManagerHandle {
    pub(crate) fn watch_certificates(&self, certificates: &Arc<crate::tls::Certificates>) {
        self.0.certificates.watch(certificates);
    }
}

/// What controllers need of a manager.
impl ManagerHandle {
    pub(crate) fn defaults(&self) -> &Defaults {
        &self.0.defaults
    }

    pub(crate) fn controller_metrics(&self) -> &ControllerMetrics {
        &self.0.controllers
    }

    /// Its name is taken from now on.
    pub(crate) fn claim(&self, name: &str) -> Result<(), ManagerError> {
        let free = self.0.names.lock().insert(name.to_owned());
        if free { Ok(()) } else { Err(ManagerError::NameTaken(format!("controller {name}"))) }
    }

    pub(crate) fn unclaim(&self, name: &str) {
        self.0.names.lock().remove(name);
    }

    /// Run a controller; while it is a standby, too, its sources if it is to be warm.
    pub(crate) fn run<R: Key>(&self, controller: &Controller<R>, task: ControllerTask<R>) -> Result<(), ManagerError> {
        let (needs_leader, warms_up) = controller.leads();
        let stage = if needs_leader { Stage::Leader } else { Stage::Controllers };
        let name = controller.name().to_owned();
        if needs_leader && warms_up {
            let warm = controller.clone();
            self.add(Stage::Controllers, &format!("warm-up of controller {name}"), async move |cx: RunContext| {
                let warm = select! {
                    biased;
                    () = cx.stopped() => return Ok(()),
                    warm = warm.warm_up() => warm,
                };
                match warm {
                    // Somebody did not want it any more.
                    Err(WatchError::ControllerStopped(_) | WatchError::Stopped { .. }) => Ok(()),
                    warm => Ok(warm?),
                }
            })?;
        }
        let manager = self.clone();
        self.add(stage, &format!("controller {name}"), async move |cx: RunContext| {
            let ran = task.run_until(async move { cx.stopped().await }).await;
            manager.unclaim(&name);
            ran
        })
    }
}

/// Ready when everything is synced that somebody waits for.
async fn run_cache(cache: &Cache, cx: &RunContext, stopped: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
    let synced = async {
        cache.await_needed(crate::source::SYNC_TIMEOUT).await?;
        cx.ready();
        std::future::pending::<Result<(), CacheError>>().await
    };
    select! {
        ran = cache.clone().run_until(stopped) => ran?,
        failed = synced => failed?,
    }
    Ok(())
}

impl fmt::Debug for ManagerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerHandle").field("cache", &self.0.cache).finish_non_exhaustive()
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Manager").field(&self.handle.0).finish()
    }
}
