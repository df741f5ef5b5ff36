//! Manager, which owns client, cache and controllers and runs them.
//!
//! * [`Manager::builder`] creates a manager from a configuration or a client.
//!   [`ManagerHandle::controller`] builds controllers that the manager runs. [`Manager::run_until`]
//!   runs everything until it is stopped or a task fails.
//! * [`ManagerHandle::add`] adds other tasks in a [`Stage`]: servers, caches, gates that must
//!   return before any controller reconciles, and work of the leader. Tasks can be added until the
//!   shutdown.
//! * With [leader election](ManagerBuilder::leader_election), one process per Lease leads. It stops
//!   before another process can lead.
//! * [`ManagerHandle::add_cluster`] adds other clusters, which may be unreachable.
//!   [`ManagerHandle::readiness`] and [`ManagerHandle::add_check`] report whether the process can
//!   do its work.
//!
//! There is no global state: several managers can run in one process.
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
mod debug;
pub mod election;
mod error;
mod readiness;
mod recorders;
mod run;
mod shared_check;
pub mod signals;
mod stage;

pub use self::{
    builder::ManagerBuilder,
    cluster::Cluster,
    debug::CacheReport,
    error::ManagerError,
    readiness::{CheckReport, Probe, Readiness},
    stage::{RunContext, Stage},
};

use self::{
    cluster::AddedCluster,
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

/// Manager that is ready to run, once. It derefs to its [`ManagerHandle`].
#[must_use = "nothing happens before `run_until`"]
pub struct Manager {
    handle: Owner,
    failed: mpsc::UnboundedReceiver<Failed>,
    grace: Option<Duration>,
}

/// Handle to a manager, usable before, during and after the run.
///
/// Clones refer to the same manager. [`controller`](Self::controller) builds controllers.
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
    /// Names of controllers.
    names: Mutex<HashSet<String>>,
    clusters: Mutex<HashMap<String, AddedCluster>>,
    election: Option<Elector>,
    leads: watch::Sender<bool>,
    /// True while every stage before [`Stage::Leader`] has started.
    started: watch::Sender<bool>,
}

impl Manager {
    /// Creates a builder for the cluster of `connection`, best from a `Config`.
    ///
    /// [`Connection::with_options`] sets the time limits of all requests, including those of
    /// informers.
    pub fn builder(connection: impl Into<Connection>) -> ManagerBuilder {
        ManagerBuilder::new(connection.into())
    }

    /// Returns a handle that can be kept while the manager runs.
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

/// Drops all waiting and running tasks when it is dropped.
///
/// The tasks may own handles to the manager, which would otherwise form a cycle of `Arc`s.
struct Owner(ManagerHandle);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.0.groups.iter().rev().for_each(Group::abort);
        // Clusters own handles to their manager, too.
        let clusters = std::mem::take(&mut *self.0.0.clusters.lock());
        drop(clusters);
    }
}

impl ManagerHandle {
    /// Returns a client that reads from the cache and writes to the API server.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// Returns the cache that all controllers share.
    pub fn cache(&self) -> Cache {
        self.0.cache.clone()
    }

    /// Adds a task.
    ///
    /// It starts with its stage, or at once if the stage has already started.
    ///
    /// An error returned by the task ends the manager. A return without an error does not.
    ///
    /// # Errors
    /// Returns an error once the manager is stopping.
    pub fn add<F, Fut>(&self, stage: Stage, name: &str, run: F) -> Result<(), ManagerError>
    where
        F: FnOnce(RunContext) -> Fut + Send + 'static,
        Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.group(stage).add(Runnable::new(name, run))
    }

    /// Adds a check to `/healthz` or `/readyz`.
    ///
    /// The check is called on a blocking thread, at most once at a time; concurrent callers share
    /// the result. A check that panics or takes longer than five seconds fails. Other checks do not
    /// wait for it. A check that never returns blocks its thread, and with it the shutdown of the
    /// runtime.
    pub fn add_check(
        &self,
        probe: Probe,
        name: &str,
        ask: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.0.checks.add(probe, name, ask);
    }

    /// Adds a readiness check that fails until the returned handle reports ready.
    pub fn readiness(&self, name: &str) -> Readiness {
        Readiness::new(&self.0.checks, name)
    }

    /// Returns the results of all checks, in the order in which they were added.
    pub async fn check(&self, probe: Probe) -> Vec<CheckReport> {
        self.0.checks.run(probe, |_| true).await
    }

    /// Registers additional metrics on the metrics page.
    pub fn metrics<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.0.registry.lock())
    }

    /// Returns the metrics page as text in the `OpenMetrics` format.
    pub fn metrics_page(&self) -> String {
        let mut page = String::new();
        // Writing to a `String` does not fail.
        let _ = encode(&mut page, &self.0.registry.lock());
        page
    }

    /// Returns an added cluster by its name.
    pub fn cluster(&self, name: &str) -> Option<Cluster> {
        self.0
            .clusters
            .lock()
            .get(name)
            .map(|known| known.cluster.clone())
    }

    /// Waits until this process leads.
    ///
    /// Without leader election, waits until controllers start.
    pub async fn elected(&self) {
        // Never fails: the sender is in `self`.
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

    pub(crate) fn watch_certificates(&self, certificates: &Arc<crate::tls::CertificateWatcher>) {
        self.0.certificates.watch(certificates);
    }
}

/// Functions for the controllers of a manager.
impl ManagerHandle {
    pub(crate) fn defaults(&self) -> &Defaults {
        &self.0.defaults
    }

    pub(crate) fn controller_metrics(&self) -> &ControllerMetrics {
        &self.0.controllers
    }

    /// Reserves the name of a controller.
    pub(crate) fn claim(&self, name: &str) -> Result<(), ManagerError> {
        let free = self.0.names.lock().insert(name.to_owned());
        if free {
            Ok(())
        } else {
            Err(ManagerError::NameTaken(format!("controller {name}")))
        }
    }

    pub(crate) fn unclaim(&self, name: &str) {
        self.0.names.lock().remove(name);
    }

    /// Adds a task that has tasks of its own: see [`Runnable::with_subtasks`].
    pub(crate) fn add_with_subtasks<F, Fut>(
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
        self.group(stage)
            .add(Runnable::new(name, run).with_subtasks(parts))
    }

    /// Runs a controller, and warms up its sources on a standby if configured.
    pub(crate) fn run<R: Key>(
        &self,
        controller: &Controller<R>,
        task: ControllerTask<R>,
    ) -> Result<(), ManagerError> {
        let (needs_leader, warms_up) = controller.leads();
        let stage = if needs_leader {
            Stage::Leader
        } else {
            Stage::Controllers
        };
        let name = controller.name().to_owned();
        let left = |controller: Controller<R>| move || controller.unfinished();
        if needs_leader && warms_up {
            let (warm, parts) = (controller.clone(), left(controller.clone()));
            let name = format!("warm-up of controller {name}");
            self.add_with_subtasks(
                Stage::Controllers,
                &name,
                parts,
                async move |cx: RunContext| {
                    let warmed = select! {
                        biased;
                        () = cx.stopped() => Ok(()),
                        warmed = warm.warm_up() => warmed,
                    };
                    match warmed {
                        // A controller or watch that was stopped on purpose is not a failure.
                        Ok(())
                        | Err(WatchError::ControllerStopped(_) | WatchError::Stopped { .. }) => {}
                        Err(error) => return Err(error.into()),
                    }
                    // Stops the sources of a controller that has never led.
                    cx.stopped().await;
                    warm.stop().await;
                    Ok(())
                },
            )?;
        }
        let (manager, parts) = (self.clone(), left(controller.clone()));
        let checks = &self.0.checks;
        let stuck = controller.stuck_check().map(|check| {
            let id = checks.add_builtin(Probe::Ready, &format!("controller/{name}"), check);
            checks.guard(id)
        });
        self.add_with_subtasks(
            stage,
            &format!("controller {name}"),
            parts,
            async move |cx: RunContext| {
                let ran = task.run_until_aborted(cx.stopped(), cx.aborted()).await;
                drop(stuck);
                manager.unclaim(&name);
                ran
            },
        )
    }
}

/// Runs a cache, and reports ready when all required informers are synced.
async fn run_cache(
    cache: &Cache,
    cx: &RunContext,
    stopped: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let mut failed = None;
    let until = async {
        let synced = async {
            cache.await_required(crate::source::SYNC_TIMEOUT).await?;
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
        f.debug_struct("ManagerHandle")
            .field("cache", &self.0.cache)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Manager").field(&self.handle.0).finish()
    }
}
