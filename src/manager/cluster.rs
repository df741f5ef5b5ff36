//! Other clusters, which are added and removed while the manager runs.

use super::{ManagerError, ManagerHandle, Stage, readiness::CheckGuard, stage::RunContext};
use crate::{
    cache::{Cache, CacheOptions},
    client::{Client, Connection},
    source::SYNC_TIMEOUT,
};
use std::{
    convert::Infallible,
    fmt,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use tokio::{select, sync::watch};
use tokio_util::sync::CancellationToken;

/// Another cluster with its own client and cache.
///
/// Created by [`ManagerHandle::add_cluster`]. Clones refer to the same cluster.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    client: Client,
    cache: Cache,
    manager: ManagerHandle,
    stop: CancellationToken,
    began: AtomicBool,
    ended: watch::Sender<bool>,
}

impl Cluster {
    pub(super) fn new(
        name: &str,
        connection: Connection,
        options: CacheOptions,
        manager: ManagerHandle,
    ) -> Result<Self, ManagerError> {
        let cache = Cache::for_added_cluster(connection.clone(), options)
            .map_err(|error| ManagerError::Cache(Arc::new(error)))?;
        let client = Client::new(connection)?.with_cache(cache.clone());
        let (stop, ended) = (CancellationToken::new(), watch::Sender::new(false));
        Ok(Self(Arc::new(Inner {
            name: name.into(),
            client,
            cache,
            manager,
            stop,
            began: AtomicBool::new(false),
            ended,
        })))
    }

    /// Returns the name of the cluster.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns a client that reads from the cache and writes to the API server.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// Returns the cache, for [`Kind::with_cache`](crate::source::Kind::with_cache).
    pub fn cache(&self) -> Cache {
        self.0.cache.clone()
    }

    /// Stops the cache and its watches, and frees the name.
    ///
    /// Remaining handles still read the last known objects.
    pub async fn remove(&self) {
        self.0.stop.cancel();
        self.0.manager.unregister_cluster(self);
        // A cache that has not started stops as soon as it does.
        if !self.0.began.load(SeqCst) {
            return;
        }
        // Never fails: the sender is in `self`.
        drop(self.0.ended.subscribe().wait_for(|ended| *ended).await);
    }

    pub(super) async fn run(self, cx: RunContext) -> anyhow::Result<()> {
        let Inner { cache, stop, .. } = &*self.0;
        // Stored before `stop` is checked, so that a concurrent `remove` waits or prevents the run.
        self.0.began.store(true, SeqCst);
        let stopped = async {
            select! {
                () = stop.cancelled() => {}
                () = cx.stopped() => {}
            }
        };
        // Later stages do not wait for a cluster that fails: it must not stop the others.
        let ready = async {
            cache.await_synced_or_failed(SYNC_TIMEOUT).await;
            cx.ready();
            pending::<Infallible>().await
        };
        let until = async {
            select! {
                () = stopped => {}
                never = ready => match never {},
            }
        };
        let ended = Ended(&self.0);
        let ran = cache.clone().run_until(until).await;
        drop(ended);
        Ok(ran?)
    }
}

/// Reports the end of the cache, also if its future is dropped.
struct Ended<'a>(&'a Inner);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended.send_replace(true);
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name())
            .field("cache", &self.0.cache)
            .finish()
    }
}

impl ManagerHandle {
    /// Adds a cluster with a client and a cache of its own.
    ///
    /// The cache starts with that of the manager, or at once if the manager already runs.
    /// Controllers watch it with [`Kind::with_cache`](crate::source::Kind::with_cache) and
    /// [`handler::in_cluster`](crate::handler::in_cluster).
    ///
    /// [`Connection::with_options`] sets the time and rate limits of its requests.
    ///
    /// # Unreachable clusters
    /// An added cluster that does not sync never ends the manager. The manager's start waits for it
    /// until its informers are synced or the first request fails, and for at most 2 minutes. Until
    /// the cluster is [removed](Cluster::remove), its state is visible in two places:
    ///
    /// * The check `cache/NAME` of `/readyz` fails while a required informer is not synced, and
    ///   returns the reason. A probe that must not depend on the cluster asks for
    ///   `/readyz?exclude=cache/NAME`.
    /// * The metric `steersman_cache_synced` is 0 for each informer with `cluster="NAME"` that is
    ///   not synced.
    ///
    /// A controller waits for its watches of the cluster until they are synced or fail, and for at
    /// most [`sync_timeout`](crate::controller::Options::sync_timeout), then starts without them.
    /// It reconciles their objects as soon as the cluster syncs. Until then, cached reads of the
    /// cluster return an error. Other controllers do not wait for them.
    ///
    /// Errors: the name is empty or taken, or the connection or the options are invalid.
    pub fn add_cluster(
        &self,
        name: &str,
        connection: impl Into<Connection>,
    ) -> Result<Cluster, ManagerError> {
        self.add_cluster_with(name, connection, CacheOptions::default())
    }

    /// Adds a cluster like [`Self::add_cluster`], with other options of its cache.
    pub fn add_cluster_with(
        &self,
        name: &str,
        connection: impl Into<Connection>,
        options: CacheOptions,
    ) -> Result<Cluster, ManagerError> {
        let cluster = Cluster::new(name, connection.into(), options, self.clone())?;
        self.register_cluster(&cluster)?;
        let runs = cluster.clone();
        let named = format!("cache of cluster {name}");
        let added = self.add_with_subtasks(Stage::Cache, &named, Vec::new, move |cx| runs.run(cx));
        if let Err(error) = added {
            self.unregister_cluster(&cluster);
            return Err(error);
        }
        Ok(cluster)
    }

    /// Adds the cluster to `/readyz` and to the metrics page.
    fn register_cluster(&self, cluster: &Cluster) -> Result<(), ManagerError> {
        let name = cluster.name();
        let mut clusters = self.0.clusters.lock();
        // The empty name is that of the manager's own cluster.
        if name.is_empty() || clusters.contains_key(name) {
            return Err(ManagerError::NameTaken(format!("cluster {name}")));
        }
        let checks = &self.0.checks;
        let ready = checks.guard(checks.add_cache(&format!("cache/{name}"), &cluster.0.cache));
        self.0.caches.watch(name, &cluster.0.cache);
        self.0.clients.watch(&cluster.0.client);
        clusters.insert(
            name.to_owned(),
            AddedCluster {
                cluster: cluster.clone(),
                _ready: ready,
            },
        );
        Ok(())
    }

    fn unregister_cluster(&self, cluster: &Cluster) {
        let mut clusters = self.0.clusters.lock();
        let name = cluster.name();
        // The name may belong to a newer cluster.
        if clusters
            .get(name)
            .is_some_and(|known| Arc::ptr_eq(&known.cluster.0, &cluster.0))
        {
            let known = clusters.remove(name);
            self.0.caches.forget(name);
            self.0.clients.forget(&cluster.0.client);
            drop(clusters);
            drop(known);
        }
    }
}

/// Cluster that has not been removed.
pub(super) struct AddedCluster {
    pub(super) cluster: Cluster,
    _ready: CheckGuard,
}
