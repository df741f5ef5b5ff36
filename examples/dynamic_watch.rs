//! Watch kinds that are known only when an object refers to them, each once, and let go of them again. `cargo run --example dynamic_watch`

use kube::{CustomResource, CustomResourceExt, core::DynamicObject};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::{HashMap, hash_map::Entry},
    future::pending,
    sync::Arc,
};
use steersman::{
    client::owner,
    controller::{WatchError, WatchHandle, WatchState},
    predicate::Predicate,
    prelude::*,
    source::{Kind, Watch},
    testing::{Env, TestServer},
};
use tokio::sync::mpsc;

#[derive(CustomResource, JsonSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "cluster.example.com", version = "v1", kind = "Cluster", namespaced)]
struct ClusterSpec {
    infrastructure: Infrastructure,
}
#[derive(JsonSchema, Clone, Debug, Serialize, Deserialize)]
struct Infrastructure {
    group: String,
    version: String,
    kind: String,
}

type GroupKind = (String, String);

struct ObjectTracker {
    controller: Controller,
    cache: Cache,
    predicates: Vec<Arc<dyn Predicate<DynamicObject>>>,
    watched: Mutex<HashMap<GroupKind, WatchHandle>>,
}

impl ObjectTracker {
    /// One watch per group and kind, whatever the version. `watch` does not wait, so the lock spans all of it; when it fails nothing stays behind, and a watch
    /// that failed later is replaced.
    fn watch(&self, gvk: &GroupVersionKind) -> Result<(), WatchError> {
        let mut watched = self.watched.lock();
        watched.retain(|_, watch| !matches!(watch.state(), WatchState::Failed(_)));
        if let Entry::Vacant(entry) = watched.entry((gvk.group.clone(), gvk.kind.clone())) {
            let watch = Watch::from(Select::dynamic(gvk.clone()));
            let watch = self.predicates.iter().cloned().fold(watch, Watch::filter);
            let watch = watch.filter(predicate::object(not_paused));
            let source = Kind::with_cache(&self.cache, watch, handler::owner::<Cluster>());
            entry.insert(self.controller.watch(source)?);
        }
        Ok(())
    }

    async fn untrack(&self, key: &GroupKind) {
        let watch = self.watched.lock().remove(key);
        if let Some(watch) = watch {
            watch.stop().await;
        }
    }
}

fn not_paused<K>(object: &Object<K>) -> bool {
    !object.meta().annotations().contains("cluster.example.com/paused")
}

struct ClusterReconciler {
    client: Client,
    tracker: Arc<ObjectTracker>,
    seen: mpsc::UnboundedSender<bool>,
}

impl Reconciler for ClusterReconciler {
    async fn reconcile(&self, request: Request, _cx: &Context) -> Result<Outcome> {
        let Some(cluster) = self.client.get::<Cluster>(&request).await? else { return Ok(Outcome::done()) };
        let Infrastructure { group, version, kind } = &cluster.spec.infrastructure;
        let gvk = GroupVersionKind::gvk(group, version, kind);
        self.tracker.watch(&gvk)?;
        // The kind may be installed later: until it is, there is nothing of it.
        let infrastructure = self.client.live().dynamic(&gvk).get(&request).await.unwrap_or_default();
        println!("{request}: its {kind} is there: {}", infrastructure.is_some());
        self.seen.send(infrastructure.is_some())?;
        Ok(Outcome::done())
    }
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let server = Env::embedded()?;
    server.install([Cluster::crd()]).await?;
    let cache = Cache::new(server.client()?, CacheOptions::default())?;
    let client = Client::new(server.client()?)?.with_cache(cache.clone());

    let builder = Controller::builder("cluster").cache(&cache).for_::<Cluster>();
    let tracker = Arc::new(ObjectTracker {
        controller: builder.handle(),
        cache: cache.clone(),
        predicates: vec![Arc::new(predicate::ResourceVersionChanged)],
        watched: Mutex::default(),
    });
    let (seen, mut reconciled) = mpsc::unbounded_channel();
    let reconciler = ClusterReconciler { client: client.clone(), tracker: tracker.clone(), seen };
    let (controller, task) = builder.build(reconciler)?;
    tokio::spawn(cache.clone().run_until(pending()));
    let running = tokio::spawn(task.run_until(pending()));

    println!("-- a cluster whose infrastructure nobody knows yet");
    let infrastructure =
        Infrastructure { group: "infra.example.com".into(), version: "v1".into(), kind: "Rack".into() };
    let mut cluster = Cluster::new("east", ClusterSpec { infrastructure });
    cluster.metadata.namespace = Some("default".into());
    let cluster = client.create(&cluster).await?;
    while reconciled.recv().await == Some(true) {}

    println!("-- its kind is installed, and one is made: that is told without anybody asking for it");
    server.install([rack_definition()]).await?;
    let rack = json!({
        "apiVersion": "infra.example.com/v1", "kind": "Rack", "metadata": {"namespace": "default", "name": "east"},
    });
    let mut rack: DynamicObject = serde_json::from_value(rack)?;
    owner::set_controller(&cluster, &mut rack)?;
    client.create(&rack).await?;
    while reconciled.recv().await == Some(false) {}
    println!("watching {:?}", controller.watches());

    println!("-- nobody refers to it any more");
    tracker.untrack(&("infra.example.com".into(), "Rack".into())).await;
    println!("watching {:?}", controller.watches());
    controller.stop().await;
    running.await?
}

fn rack_definition() -> serde_json::Value {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "racks.infra.example.com"},
        "spec": {
            "group": "infra.example.com", "scope": "Namespaced", "names": {"plural": "racks", "kind": "Rack"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}
