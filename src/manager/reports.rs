//! What a manager says of itself, for debug pages: as JSON or as it is.

use super::{
    ManagerHandle,
    election::{Elector, LeaseReport},
};
use crate::{
    cache::InformerReport,
    controller::{ControllerReport, QueueReport, QueueSnapshot},
};
use serde::Serialize;

/// A cache at one moment: see [`ManagerHandle::caches`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CacheReport {
    /// Of which [other cluster](ManagerHandle::add_cluster); `None` for the manager's own.
    pub cluster: Option<String>,
    /// What is in it.
    pub informers: Vec<InformerReport>,
}

impl ManagerHandle {
    /// State and numbers of every controller.
    pub fn controllers(&self) -> Vec<ControllerReport> {
        self.0.controllers.reports()
    }

    /// Reports every controller's queue: its numbers, and the requests that ended with a terminal error.
    pub fn queues(&self) -> Vec<QueueReport> {
        self.0.controllers.queues()
    }

    /// What is in a controller's queue, at most so many keys: those that run first, then those that wait longest. `None` if there is no such controller. It looks
    /// at every key: in async code call it from a blocking task.
    pub fn queue(&self, controller: &str, most: usize) -> Option<QueueSnapshot> {
        self.0.controllers.queue(controller, most)
    }

    /// Every informer, of the manager's own cache first, then of other clusters by name. It looks at every object: in async code call it from a blocking task.
    pub fn caches(&self) -> Vec<CacheReport> {
        let own = CacheReport { cluster: None, informers: self.0.cache.informers() };
        let clusters: Vec<_> = self.0.clusters.lock().values().map(|known| known.cluster.clone()).collect();
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

    /// The election it stands in, if there is one.
    pub fn lease(&self) -> Option<LeaseReport> {
        self.0.election.as_ref().map(Elector::report)
    }
}
