//! Builder of a manager.

use super::{
    Manager, ManagerError, ManagerHandle, Owner, Shared,
    election::{ElectionMetrics, Elector, LeaderElection},
    readiness::{Checks, Probe},
    run_cache,
    stage::{Group, Runnable, Stage},
};
use crate::{
    cache::{Cache, CacheMetrics, CacheOptions},
    client::{Client, ClientMetrics, Connection},
    controller::{ControllerMetrics, Defaults, Options},
    object::StaticKind,
    recorder::RecorderMetrics,
};
use hashbrown::HashMap;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::{mpsc, watch};

/// Builder of a [`Manager`], created by [`Manager::builder`].
#[must_use = "finish with `build`"]
pub struct ManagerBuilder {
    connection: Connection,
    cache: CacheOptions,
    defaults: Defaults,
    grace: Option<Duration>,
    election: Option<LeaderElection>,
}

impl ManagerBuilder {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            cache: CacheOptions::default(),
            defaults: Defaults::default(),
            grace: Some(Duration::from_secs(30)),
            election: None,
        }
    }

    /// Runs controllers only while this process holds a Lease.
    ///
    /// One of the processes with the same Lease leads. Without leader election, every process does.
    ///
    /// The check `lease` of `/readyz` fails while the Lease cannot be read, or cannot be written
    /// although no other process holds it, and returns the server's message. It fails at once if
    /// the server answers 401 or 403, and after [`LeaderElection::renew_deadline`] of any other
    /// errors in a row. The first success ends the failure.
    pub fn leader_election(self, lease: &str, namespace: &str) -> Self {
        self.leader_election_with(LeaderElection::new(lease, namespace))
    }

    /// Configures [`Self::leader_election`] with other durations or an identity.
    pub fn leader_election_with(mut self, election: LeaderElection) -> Self {
        self.election = Some(election);
        self
    }

    /// Sets the options of the cache.
    pub fn cache(mut self, options: CacheOptions) -> Self {
        self.cache = options;
        self
    }

    /// Sets the options that all controllers inherit.
    pub fn controllers(mut self, options: Options) -> Self {
        self.defaults.all = options;
        self
    }

    /// Sets the options that controllers of kind `K` inherit, in every version.
    ///
    /// The kind of a controller is that of [`for_`](crate::builder::Builder::for_).
    pub fn controllers_of<K: StaticKind>(mut self, options: Options) -> Self {
        let gvk = K::static_gvk();
        self.defaults = self.defaults.kind(&gvk.group, &gvk.kind, options);
        self
    }

    /// Sets the time that all tasks together may take to stop.
    ///
    /// Tasks that are left are then dropped and named in an error. With zero, all tasks are dropped
    /// without an error. `None` waits without a limit. Default: 30 s.
    pub fn grace_period(mut self, grace: Option<Duration>) -> Self {
        self.grace = grace;
        self
    }

    /// Creates the manager.
    ///
    /// Validates the configuration without requests to the API server.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime if the connection is a configuration.
    pub fn build(self) -> Result<Manager, ManagerError> {
        let Self {
            connection,
            cache,
            defaults,
            grace,
            election,
        } = self;
        let cache = Cache::new(connection.clone(), cache)
            .map_err(|error| ManagerError::Cache(Arc::new(error)))?;
        // If `connection` is a configuration, the election gets its own TCP connection.
        let election = election
            .map(|election| Elector::new(connection.clone(), election))
            .transpose()?;
        let client = Client::new(connection)?.with_cache(cache.clone());
        let (controllers, recorders) = (ControllerMetrics::default(), RecorderMetrics::default());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(controllers.clone()));
        let (caches, clients) = (CacheMetrics::new(&cache), ClientMetrics::new(&client));
        registry.register_collector(Box::new(caches.clone()));
        registry.register_collector(Box::new(clients.clone()));
        registry.register_collector(Box::new(recorders.clone()));
        #[cfg(feature = "admin")]
        let certificates = crate::tls::TlsMetrics::default();
        #[cfg(feature = "admin")]
        registry.register_collector(Box::new(certificates.clone()));
        if let Some(election) = &election {
            let metrics = ElectionMetrics::default();
            metrics.watch(election);
            clients.watch_requests(election.requests());
            registry.register_collector(Box::new(metrics));
        }
        let (failures, failed) = mpsc::unbounded_channel();
        let handle = ManagerHandle(Arc::new(Shared {
            client,
            cache: cache.clone(),
            defaults,
            controllers,
            caches,
            clients,
            recorders,
            #[cfg(feature = "admin")]
            certificates,
            registry: Mutex::new(registry),
            checks: Checks::default(),
            groups: Stage::ALL.map(|_| Group::new(failures.clone())),
            names: Mutex::default(),
            clusters: Mutex::new(HashMap::new()),
            election,
            leads: watch::Sender::new(false),
            started: watch::Sender::new(false),
        }));
        handle.add_own_checks();
        let run = move |cx| async move { run_cache(&cache, &cx, cx.stopped()).await };
        handle.0.groups[Stage::Cache as usize]
            .add(Runnable::new("cache", run).with_subtasks(Vec::new))?;
        Ok(Manager {
            handle: Owner(handle),
            failed,
            grace,
        })
    }
}

impl ManagerHandle {
    /// Adds the checks for the manager's own state.
    fn add_own_checks(&self) {
        let checks = &self.0.checks;
        let started = self.0.started.subscribe();
        checks.add_builtin(Probe::Health, "ping", || Ok(()));
        let has_started = move || {
            if *started.borrow() {
                Ok(())
            } else {
                Err("the manager is starting or stopping".into())
            }
        };
        checks.add_builtin(Probe::Ready, "started", has_started);
        checks.add_cache("cache", &self.0.cache);
        if let Some(elector) = self.0.election.clone() {
            checks.add_builtin(Probe::Ready, "lease", move || elector.check());
        }
    }
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
