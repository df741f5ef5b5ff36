//! Reports of a manager for the debug pages.

use super::{
    ManagerHandle,
    election::{Elector, LeaseReport},
};
use crate::{
    cache::InformerReport,
    controller::{ControllerReport, QueueReport, QueueSnapshot},
};
use serde::Serialize;

/// State of a cache at one moment: see [`ManagerHandle::caches`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CacheReport {
    /// Name of the [added cluster](ManagerHandle::add_cluster).
    ///
    /// `None` for the manager's own.
    pub cluster: Option<String>,
    /// Informers of the cache.
    pub informers: Vec<InformerReport>,
}

impl ManagerHandle {
    /// Reports the state of every controller.
    pub fn controllers(&self) -> Vec<ControllerReport> {
        self.0.controllers.reports()
    }

    /// Reports every controller's queue and its requests with a terminal error.
    pub fn queues(&self) -> Vec<QueueReport> {
        self.0.controllers.queues()
    }

    /// Returns the requests in a controller's queue, at most `most` of them: running ones first,
    /// then those that have waited longest. `None` if there is no such controller.
    ///
    /// With a `key`, only the request with that text (`NAMESPACE/NAME`) is returned. The call reads
    /// every request: in async code, make it from a blocking task.
    pub fn queue(&self, controller: &str, most: usize, key: Option<&str>) -> Option<QueueSnapshot> {
        self.0.controllers.queue(controller, most, key)
    }

    /// Waits until no controller has a request that is ready or being reconciled. For tests.
    ///
    /// Requests that wait for a time do not count: a retry after a failure, a `requeue_after`, a
    /// parked request. Events that the cache has not delivered yet are not in a queue. So write,
    /// wait for the effect with [`testing::eventually`](crate::testing::eventually), and use this
    /// function to check that nothing further happens. The queues are read every millisecond on
    /// tokio's clock.
    #[cfg(all(feature = "testing", unix))]
    pub async fn wait_queues_empty(&self) {
        let is_busy = |queue: &QueueReport| queue.stats.depth() + queue.stats.running > 0;
        while self.queues().iter().any(is_busy) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// Reports every informer: of the manager's cache, then of clusters by name.
    ///
    /// The call reads every object: in async code, make it from a blocking task.
    pub fn caches(&self) -> Vec<CacheReport> {
        let own = CacheReport {
            cluster: None,
            informers: self.0.cache.informers(),
        };
        let clusters: Vec<_> = self
            .0
            .clusters
            .lock()
            .values()
            .map(|known| known.cluster.clone())
            .collect();
        let mut others: Vec<_> = clusters
            .iter()
            .map(|cluster| CacheReport {
                cluster: Some(cluster.name().to_owned()),
                informers: cluster.cache().informers(),
            })
            .collect();
        others.sort_by(|one, other| one.cluster.cmp(&other.cluster));
        [own].into_iter().chain(others).collect()
    }

    /// Reports the state of the leader election; `None` without one.
    pub fn lease(&self) -> Option<LeaseReport> {
        self.0.election.as_ref().map(Elector::report)
    }
}
