//! Other clusters, which come and go.

use super::{ManagerError, ManagerHandle, Stage, readiness::Held, stage::RunContext};
use crate::{
    cache::{Cache, CacheOptions},
    client::{Client, Connection},
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use tokio::{select, sync::watch};
use tokio_util::sync::CancellationToken;

/// Another cluster: its own client and cache. Made by [`ManagerHandle::add_cluster`]; clones mean the same one.
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
        let cache = Cache::new(connection.clone(), options).map_err(|error| ManagerError::Cache(Arc::new(error)))?;
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

    /// As it was added.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Reads from its cache, writes to it.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// For [`Kind::with_cache`](crate::source::Kind::with_cache).
    pub fn cache(&self) -> Cache {
        self.0.cache.clone()
    }

    /// Stop its cache. Watches on it end, its name is free again. What was there is served until the handles are gone.
    pub async fn remove(&self) {
        self.0.stop.cancel();
        self.0.manager.forget_cluster(self);
        // What has not begun ends as soon as it does.
        if !self.0.began.load(SeqCst) {
            return;
        }
        // The sender is here.
        drop(self.0.ended.subscribe().wait_for(|ended| *ended).await);
    }

    pub(super) async fn run(self, cx: RunContext) -> anyhow::Result<()> {
        let Inner { cache, stop, .. } = &*self.0;
        // Before it is looked whether it was removed.
        self.0.began.store(true, SeqCst);
        let stopped = async {
            select! {
                () = stop.cancelled() => {}
                () = cx.stopped() => {}
            }
        };
        let ended = Ended(&self.0);
        let ran = super::run_cache(cache, &cx, stopped).await;
        drop(ended);
        ran
    }
}

/// Also if it is dropped.
struct Ended<'a>(&'a Inner);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended.send_replace(true);
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name()).field("cache", &self.0.cache).finish()
    }
}

impl ManagerHandle {
    /// One more cluster. Its cache starts with the manager's, or at once, and is waited for as that is. The name must be free.
    ///
    /// Until it is [removed](Cluster::remove), this process is ready only if that cache is (`/readyz/cache/NAME`), and metrics of the cache have its name in the label
    /// `cluster`.
    ///
    /// Controllers watch it with [`Kind::with_cache`](crate::source::Kind::with_cache) and [`handler::in_cluster`](crate::handler::in_cluster).
    /// [`Connection::with_options`] sets the time limits of its requests.
    pub fn add_cluster(&self, name: &str, connection: impl Into<Connection>) -> Result<Cluster, ManagerError> {
        self.add_cluster_with(name, connection, CacheOptions::default())
    }

    /// [`Self::add_cluster`] with other options of its cache.
    pub fn add_cluster_with(
        &self,
        name: &str,
        connection: impl Into<Connection>,
        options: CacheOptions,
    ) -> Result<Cluster, ManagerError> {
        let cluster = Cluster::new(name, connection.into(), options, self.clone())?;
        self.keep_cluster(&cluster)?;
        let runs = cluster.clone();
        let named = format!("cache of cluster {name}");
        let added = self.add_with_parts(Stage::Cache, &named, Vec::new, move |cx| runs.run(cx));
        if let Err(error) = added {
            self.forget_cluster(&cluster);
            return Err(error);
        }
        Ok(cluster)
    }

    /// From now on it is on `/readyz` and on the metrics page.
    fn keep_cluster(&self, cluster: &Cluster) -> Result<(), ManagerError> {
        let name = cluster.name();
        let mut clusters = self.0.clusters.lock();
        // The one without a name is the manager's own.
        if name.is_empty() || clusters.contains_key(name) {
            return Err(ManagerError::NameTaken(format!("cluster {name}")));
        }
        let checks = &self.0.checks;
        let ready = checks.held(checks.add_cache(&format!("cache/{name}"), &cluster.0.cache));
        self.0.caches.watch(name, &cluster.0.cache);
        self.0.clients.watch(&cluster.0.client);
        clusters.insert(name.to_owned(), Known { cluster: cluster.clone(), _ready: ready });
        Ok(())
    }

    fn forget_cluster(&self, cluster: &Cluster) {
        let mut clusters = self.0.clusters.lock();
        let name = cluster.name();
        // Not one that has its name by now.
        if clusters.get(name).is_some_and(|known| Arc::ptr_eq(&known.cluster.0, &cluster.0)) {
            let known = clusters.remove(name);
            self.0.caches.forget(name);
            self.0.clients.forget(&cluster.0.client);
            drop(clusters);
            drop(known);
        }
    }
}

/// A cluster that was not removed yet.
pub(super) struct Known {
    pub(super) cluster: Cluster,
    _ready: Held,
}
