//! One controller for several clusters: `cargo run --example multi_cluster`
//!
//! Clusters join and leave while the controller runs. Each has a cache and a watch of its own.

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use std::{collections::HashMap, future::pending, sync::Arc};
use steersman::{
    controller::WatchHandle,
    prelude::*,
    reconcile::ClusterRequest,
    reconcile::{Context, Result},
    source::Kind,
    testing::{Env, TestServer},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// Clients of the clusters that have joined, by name.
type Clusters = Arc<Mutex<HashMap<String, Client>>>;

struct FleetReconciler {
    clusters: Clusters,
    reconciled: mpsc::UnboundedSender<ClusterRequest>,
}

impl Reconciler<ClusterRequest> for FleetReconciler {
    async fn reconcile(&self, request: ClusterRequest, _cx: &Context) -> Result<Outcome> {
        let client = self.clusters.lock().get(&*request.cluster).cloned();
        let Some(client) = client else {
            return Ok(Outcome::done()); // the cluster has left
        };
        let map = client.get::<ConfigMap>(&request.request).await?;
        println!("{request}: exists: {}", map.is_some());
        self.reconciled.send(request)?;
        Ok(Outcome::done())
    }
}

/// A cluster that has joined.
struct Member {
    name: &'static str,
    client: Client,
    watch: WatchHandle,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), steersman::cache::CacheError>>,
}

impl Member {
    /// Starts a cache for the cluster and adds a watch on it to the controller.
    fn join(
        name: &'static str,
        server: &Env,
        controller: &Controller<ClusterRequest>,
        clusters: &Clusters,
    ) -> anyhow::Result<Self> {
        let cache = Cache::new(server.client()?, CacheOptions::default())?;
        let client = Client::new(server.client()?)?.with_cache(cache.clone());
        let handler = handler::in_cluster(name, handler::object());
        let watch = controller.watch(Kind::with_cache(
            &cache,
            Select::<ConfigMap>::new(),
            handler,
        ))?;
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(cache.run_until(async { drop(stopped.await) }));
        clusters.lock().insert(name.to_owned(), client.clone());
        Ok(Self {
            name,
            client,
            watch,
            stop,
            running,
        })
    }

    async fn create(&self, name: &str) -> anyhow::Result<()> {
        let map = json!({"metadata": {"namespace": "default", "name": name}});
        self.client
            .create::<ConfigMap>(&serde_json::from_value(map)?)
            .await?;
        Ok(())
    }

    /// Stops the watch and the cache. No handler is called for the cluster afterwards.
    async fn leave(self, clusters: &Clusters) -> anyhow::Result<()> {
        self.watch.stop().await;
        clusters.lock().remove(self.name);
        drop(self.stop);
        Ok(self.running.await??)
    }
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let clusters = Clusters::default();
    let (sender, mut reconciled) = mpsc::unbounded_channel();
    let (controller, task) = Controller::builder("fleet").build(FleetReconciler {
        clusters: clusters.clone(),
        reconciled: sender,
    })?;
    let running = tokio::spawn(task.run_until(pending()));

    println!("-- two clusters join");
    let eu_server = Env::embedded()?;
    let us_server = Env::embedded()?;
    let eu = Member::join("eu", &eu_server, &controller, &clusters)?;
    let us = Member::join("us", &us_server, &controller, &clusters)?;
    eu.watch.await_synced().await?;
    eu.create("colors").await?;
    us.create("colors").await?;
    for _ in 0..2 {
        reconciled.recv().await;
    }

    println!("-- one cluster leaves");
    eu.leave(&clusters).await?;
    us.create("shapes").await?;
    let last = reconciled.recv().await.map(|request| request.to_string());
    assert_eq!(last.as_deref(), Some("us: default/shapes"));

    us.leave(&clusters).await?;
    controller.stop().await;
    running.await?
}
