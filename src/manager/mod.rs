//! Owns the client, the cache and everything that runs; starts and stops it in order.
//!
//! * [`Manager::builder`] makes one from a configuration or a client; [`ManagerHandle::controller`] builds controllers that it runs; [`Manager::run_until`] runs
//!   everything until it is told to stop, or somebody fails.
//! * What else is to run is [added](ManagerHandle::add) with a [`Stage`]: servers, caches, the rest, gates that have to return before anything is reconciled, and what
//!   only the leader does. It can be added at any time before the end.
//! * With [leader election](ManagerBuilder::leader_election), of all processes with one lease one leads. It stops before another can.
//! * [`ManagerHandle::add_cluster`] adds other clusters, which may be unreachable.
//! * [`ManagerHandle::readiness`] and [`ManagerHandle::add_check`] report whether the process can
//!   do its work.
//! * There is no global state: several managers can run in one process.
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

mod asking;
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
    cluster::Known,
    election::Elector,
    readiness::Checks,
    stage::{Failed, Group, Runnable},
};
use crate::{
    cache::{Cache, CacheError, CacheMetrics},
    client::{Client, ClientMetrics, Connection},
    controller::{Controller, ControllerMetrics, ControllerTask, Defaults, WatchError},
    recorder::RecorderMetrics,
    workqueue::Key,
};
use hashbrown::{HashMap, HashSet};
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
    caches: CacheMetrics,
    clients: ClientMetrics,
    recorders: RecorderMetrics,
    #[cfg(feature = "admin")]
    certificates: crate::tls::TlsMetrics,
    registry: Mutex<Registry>,
    checks: Checks,
    groups: [Group; Stage::ALL.len()],
    /// Of controllers.
    names: Mutex<HashSet<String>>,
    clusters: Mutex<HashMap<String, Known>>,
    election: Option<Elector>,
    leads: watch::Sender<bool>,
    /// All that does not depend on leading.
    started: watch::Sender<bool>,
}

impl Manager {
    /// Creates a builder for this cluster, best from a `Config`. [`Connection::with_options`] sets the time
    /// limits of all its requests, those of the informers included.
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

    /// One more thing to ask before it is said that all is well. It is asked on a thread that may wait, once at a time: those who want to know meanwhile share the answer.
    /// One that panics, or gives no answer within five seconds, has failed; others do not wait for it. One that never returns keeps its thread, and with it the runtime.
    pub fn add_check(&self, probe: Probe, name: &str, ask: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.0.checks.add(probe, name, ask);
    }

    /// Not ready before this handle says so.
    pub fn readiness(&self, name: &str) -> Readiness {
        Readiness::new(&self.0.checks, name)
    }

    /// What all checks say now, in the order in which they were added.
    pub async fn check(&self, probe: Probe) -> Vec<CheckReport> {
        self.0.checks.ask(probe, |_| true).await
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
        self.0.clusters.lock().get(name).map(|known| known.cluster.clone())
    }

    /// Resolves when this process leads; without leader election, when controllers are started.
    pub async fn elected(&self) {
        // The sender is here.
        drop(self.0.leads.subscribe().wait_for(|leads| *leads).await);
    }

    fn group(&self, stage: Stage) -> &Group {
        &self.0.groups[stage as usize]
    }
}

#[cfg(feature = "admin")]
impl ManagerHandle {
    pub(crate) fn checks(&self) -> &Checks {
        &self.0.checks
    }

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

    /// Something of ours that has tasks of its own: see [`Runnable::with_parts`].
    pub(crate) fn add_with_parts<F, Fut>(
        &self,
        stage: Stage,
        name: &str,
        parts: impl Fn() -> Vec<String> + Send + Sync + 'static,
        run: F,
    ) -> Result<(), ManagerError>
    where
        F: FnOnce(RunContext) -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.group(stage).add(Runnable::new(name, run).with_parts(parts))
    }

    /// Run a controller; while it is a standby, too, its sources if it is to be warm.
    pub(crate) fn run<R: Key>(&self, controller: &Controller<R>, task: ControllerTask<R>) -> Result<(), ManagerError> {
        let (needs_leader, warms_up) = controller.leads();
        let stage = if needs_leader { Stage::Leader } else { Stage::Controllers };
        let name = controller.name().to_owned();
        let left = |controller: Controller<R>| move || controller.left();
        if needs_leader && warms_up {
            let (warm, parts) = (controller.clone(), left(controller.clone()));
            let name = format!("warm-up of controller {name}");
            self.add_with_parts(Stage::Controllers, &name, parts, async move |cx: RunContext| {
                let warmed = select! {
                    biased;
                    () = cx.stopped() => Ok(()),
                    warmed = warm.warm_up() => warmed,
                };
                match warmed {
                    // Somebody did not want it any more.
                    Ok(()) | Err(WatchError::ControllerStopped(_) | WatchError::Stopped { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                // If it has never led, its sources are left.
                cx.stopped().await;
                warm.stop().await;
                Ok(())
            })?;
        }
        let (manager, parts) = (self.clone(), left(controller.clone()));
        let checks = &self.0.checks;
        let stuck = controller.stuck_check().map(|check| {
            let id = checks.add_prompt(Probe::Ready, &format!("controller/{name}"), check);
            checks.held(id)
        });
        self.add_with_parts(stage, &format!("controller {name}"), parts, async move |cx: RunContext| {
            let ran = task.run_until_forsaken(cx.stopped(), cx.forsaken()).await;
            drop(stuck);
            manager.unclaim(&name);
            ran
        })
    }
}

/// Ready when everything is synced that somebody waits for.
async fn run_cache(cache: &Cache, cx: &RunContext, stopped: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
    let mut failed = None;
    let until = async {
        let synced = async {
            cache.await_needed(crate::source::SYNC_TIMEOUT).await?;
            cx.ready();
            std::future::pending::<Result<(), CacheError>>().await
        };
        select! {
            () = stopped => {}
            synced = synced => failed = synced.err(),
        }
    };
    cache.clone().run_until(until).await?;
    failed.map_or(Ok(()), |error| Err(error.into()))
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
