//! Watch kinds that are known only at run time: `cargo run --example dynamic_watch`
//!
//! A `Cluster` names the kind of its infrastructure. The reconciler starts a watch of each kind at
//! the first reference to it. The CRD of the kind may be installed later.

use kube::{CustomResource, CustomResourceExt, core::DynamicObject};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, from_value, json};
use std::{
    collections::{HashMap, hash_map::Entry},
    future::pending,
    sync::Arc,
};
use steersman::{
    client::owner,
    controller::{WatchError, WatchHandle, WatchState},
    prelude::*,
    reconcile::{Context, Result},
    source::Kind,
    testing::{Env, TestServer},
};
use tokio::sync::mpsc;

#[derive(CustomResource, JsonSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "example.com", version = "v1", kind = "Cluster", namespaced)]
struct ClusterSpec {
    infrastructure_kind: String,
}

fn infrastructure(kind: &str) -> GroupVersionKind {
    GroupVersionKind::gvk("infra.example.com", "v1", kind)
}

/// Holds one watch per infrastructure kind.
struct WatchTracker {
    controller: Controller,
    watches: Mutex<HashMap<String, WatchHandle>>,
}

impl WatchTracker {
    /// Starts a watch of `kind`, unless one is running. A watch that has failed is replaced.
    fn start(&self, kind: &str) -> Result<(), WatchError> {
        let mut watches = self.watches.lock();
        watches.retain(|_, watch| !matches!(watch.state(), WatchState::Failed(_)));
        if let Entry::Vacant(entry) = watches.entry(kind.to_owned()) {
            let select = Select::dynamic(infrastructure(kind));
            let source = Kind::new(select, handler::owner::<Cluster>());
            entry.insert(self.controller.watch(source)?);
        }
        Ok(())
    }

    async fn stop(&self, kind: &str) {
        let watch = self.watches.lock().remove(kind);
        if let Some(watch) = watch {
            watch.stop().await;
        }
    }
}

struct ClusterReconciler {
    client: Client,
    tracker: Arc<WatchTracker>,
    /// Receives whether the infrastructure of the reconciled Cluster exists.
    results: mpsc::UnboundedSender<bool>,
}

impl Reconciler for ClusterReconciler {
    async fn reconcile(&self, request: Request, _cx: &Context) -> Result<Outcome> {
        let Some(cluster) = self.client.get::<Cluster>(&request).await? else {
            return Ok(Outcome::done());
        };
        let kind = &cluster.spec.infrastructure_kind;
        self.tracker.start(kind)?;
        let live = self.client.live();
        let object = live.dynamic(&infrastructure(kind)).get(&request).await;
        // The request fails while the CRD is not installed.
        let exists = object.is_ok_and(|object| object.is_some());
        println!("{request}: {kind} exists: {exists}");
        self.results.send(exists)?;
        Ok(Outcome::done())
    }
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let server = Env::embedded()?;
    server.install([Cluster::crd()]).await?;
    let cache = Cache::new(server.client()?, CacheOptions::default())?;
    let client = Client::new(server.client()?)?.with_cache(cache.clone());

    let builder = Controller::builder("cluster")
        .cache(&cache)
        .for_::<Cluster>();
    let tracker = Arc::new(WatchTracker {
        controller: builder.handle(),
        watches: Mutex::default(),
    });
    let (results, mut reconciled) = mpsc::unbounded_channel();
    let reconciler = ClusterReconciler {
        client: client.clone(),
        tracker: tracker.clone(),
        results,
    };
    let (controller, task) = builder.build(reconciler)?;
    tokio::spawn(cache.run_until(pending()));
    let running = tokio::spawn(task.run_until(pending()));

    println!("-- create a Cluster whose infrastructure kind is not installed");
    let cluster = json!({
        "metadata": {"namespace": "default", "name": "east"},
        "spec": {"infrastructure_kind": "Rack"},
    });
    let cluster = client.create::<Cluster>(&from_value(cluster)?).await?;
    while reconciled.recv().await == Some(true) {}

    println!("-- install the kind and create an object: its event enqueues the Cluster");
    server.install([rack_crd()]).await?;
    let rack = json!({
        "apiVersion": "infra.example.com/v1", "kind": "Rack",
        "metadata": {"namespace": "default", "name": "east"},
    });
    let mut rack: DynamicObject = from_value(rack)?;
    owner::set_controller(&cluster, &mut rack)?;
    client.create(&rack).await?;
    while reconciled.recv().await == Some(false) {}
    println!("watches: {:?}", controller.watches());

    println!("-- stop the watch");
    tracker.stop("Rack").await;
    println!("watches: {:?}", controller.watches());
    controller.stop().await;
    running.await?
}

fn rack_crd() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "racks.infra.example.com"},
        "spec": {
            "group": "infra.example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "racks", "kind": "Rack"},
        },
    })
}
