//! One controller over clusters that come and go. `cargo run --example multi_cluster`

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use std::{collections::HashMap, future::pending, sync::Arc};
use steersman::{
    controller::WatchHandle,
    prelude::*,
    reconcile::ClusterRequest,
    source::Kind,
    testing::{Env, TestServer},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// The clients of the clusters that are there.
type Clusters = Arc<Mutex<HashMap<String, Client>>>;

struct Fleet {
    clusters: Clusters,
    seen: mpsc::UnboundedSender<ClusterRequest>,
}

impl Reconciler<ClusterRequest> for Fleet {
    async fn reconcile(&self, request: ClusterRequest, _cx: &Context) -> Result<Outcome> {
        let client = self.clusters.lock().get(&*request.cluster).cloned();
        // One that has left is done with.
        let Some(client) = client else { return Ok(Outcome::done()) };
        let map = client.get::<ConfigMap>(&request.request).await?;
        println!("{request}: there: {}", map.is_some());
        self.seen.send(request)?;
        Ok(Outcome::done())
    }
}

/// A cluster that takes part.
struct Member {
    name: &'static str,
    client: Client,
    watch: WatchHandle,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), steersman::cache::CacheError>>,
}

impl Member {
    fn join(
        name: &'static str,
        server: &Env,
        fleet: &Controller<ClusterRequest>,
        all: &Clusters,
    ) -> anyhow::Result<Self> {
        let cache = Cache::new(server.client()?, CacheOptions::default())?;
        let client = Client::new(server.client()?)?.with_cache(cache.clone());
        let handler = handler::in_cluster(name, handler::object());
        let watch = fleet.watch(Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler))?;
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(cache.run_until(async { drop(stopped.await) }));
        all.lock().insert(name.to_owned(), client.clone());
        Ok(Self { name, client, watch, stop, running })
    }

    async fn make(&self, name: &str) -> anyhow::Result<()> {
        let map = json!({"metadata": {"namespace": "default", "name": name}});
        self.client.create::<ConfigMap>(&serde_json::from_value(map)?).await?;
        Ok(())
    }

    /// When this returns, nothing of it is told any more, and its cache has ended.
    async fn leave(self, all: &Clusters) -> anyhow::Result<()> {
        self.watch.stop().await;
        all.lock().remove(self.name);
        drop(self.stop);
        Ok(self.running.await??)
    }
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let clusters = Clusters::default();
    let (seen, mut reconciled) = mpsc::unbounded_channel();
    let (fleet, task) = Controller::builder("fleet").build(Fleet { clusters: clusters.clone(), seen })?;
    let running = tokio::spawn(task.run_until(pending()));

    println!("-- two clusters join");
    let (in_eu, in_us) = (Env::embedded()?, Env::embedded()?);
    let eu = Member::join("eu", &in_eu, &fleet, &clusters)?;
    let us = Member::join("us", &in_us, &fleet, &clusters)?;
    eu.watch.await_synced().await?;
    eu.make("colors").await?;
    us.make("colors").await?;
    for _ in 0..2 {
        reconciled.recv().await;
    }

    println!("-- one leaves, the other goes on");
    eu.leave(&clusters).await?;
    us.make("shapes").await?;
    let last = reconciled.recv().await.map(|request| request.to_string());
    assert_eq!(last.as_deref(), Some("us: default/shapes"));

    us.leave(&clusters).await?;
    fleet.stop().await;
    running.await?
}
