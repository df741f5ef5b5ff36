//! Clusters whose infrastructure is ready, on an embedded server that records calls.

use crate::recording_server::{Running, Server};
use anyhow::Context;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::{collections::HashSet, time::Duration};
use steersman::{cache::InformerEvent, client::Patch, prelude::*};
use steersman_controllers::{
    cluster,
    cluster_api::{self, Cluster},
};
use tokio::time::sleep;

/// Resource of the infrastructure.
pub(crate) const INFRASTRUCTURE: &str = "hutclusters";

const GROUP: &str = "infrastructure.cluster.x-k8s.io";
const KIND: &str = "HutCluster";
/// Version of the kind, and of the contract that it implements.
const VERSION: &str = "v1beta2";

pub(crate) struct Clusters {
    pub(crate) server: Server,
    clusters: usize,
}

impl Clusters {
    pub(crate) async fn new(clusters: usize) -> anyhow::Result<Self> {
        let definitions = cluster_api::definitions().into_iter();
        let server = Server::new(definitions.chain([definition()]), 100 * clusters).await?;
        let client = server.client()?;
        for number in 0..clusters {
            create_cluster(&client, number).await?;
        }
        Ok(Self { server, clusters })
    }

    /// Starts a manager and clears the recorded calls.
    pub(crate) fn start(&self, workers: Option<usize>) -> anyhow::Result<Running> {
        let options = cluster::Options {
            workers,
            ..cluster::Options::default()
        };
        self.server.start(|manager| {
            cluster::add_to(manager, &options)?;
            Ok(())
        })
    }

    /// Waits until all Clusters are provisioned and nothing is left to write.
    pub(crate) async fn wait_until_provisioned(&self, running: &Running) -> anyhow::Result<()> {
        let mut events = running.manager.cache().informer::<Cluster>()?.events();
        let mut complete = HashSet::new();
        while complete.len() < self.clusters {
            let event = events.next().await.context("the cache is closed")?;
            if let InformerEvent::Event(event) = event
                && is_complete(&*event.object().decode()?)
            {
                complete.insert(event.object().key().clone());
            }
        }
        Ok(())
    }

    /// Waits until each Cluster is reconciled.
    pub(crate) async fn wait_until_reconciled(&self, running: &Running) {
        let reconciles = || -> u64 {
            let controllers = running.manager.controllers();
            controllers.iter().map(|it| it.stats.success).sum()
        };
        while reconciles() < self.clusters as u64 {
            sleep(Duration::from_millis(1)).await;
        }
        running.manager.wait_queues_empty().await;
    }
}

/// Returns whether the status of a Cluster has all that the last reconcile writes.
fn is_complete(cluster: &Cluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| {
        status.is_infrastructure_provisioned()
            && status.observed_generation == cluster.metadata.generation
    })
}

fn definition() -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": anything, "status": anything}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{INFRASTRUCTURE}.{GROUP}"),
            "labels": {format!("cluster.x-k8s.io/{VERSION}"): VERSION},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND, "listKind": "HutClusterList", "plural": INFRASTRUCTURE,
                "singular": "hutcluster",
            },
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// Creates a Cluster and its infrastructure, which is provisioned.
async fn create_cluster(client: &Client, number: usize) -> anyhow::Result<()> {
    let name = format!("cluster-{number}");
    let host = format!("{name}.example.com");
    let infrastructure = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND, "metadata": {"name": name},
        "spec": {"controlPlaneEndpoint": {"host": host, "port": 6443}},
    });
    let infrastructure: DynamicObject = serde_json::from_value(infrastructure)?;
    let infrastructure = client.create(&infrastructure).await?;
    let status = Patch::Merge(json!({"status": {
        "initialization": {"provisioned": true}, "failureDomains": [{"name": "a"}],
    }}));
    let kind = GroupVersionKind::gvk(GROUP, VERSION, KIND);
    let status_client = client.status();
    let key = ObjectKey::of(&infrastructure);
    status_client.dynamic(&kind).patch(&key, &status).await?;
    let reference = json!({"apiGroup": GROUP, "kind": KIND, "name": name});
    let cluster = json!({"metadata": {"name": name}, "spec": {"infrastructureRef": reference}});
    let cluster: Cluster = serde_json::from_value(cluster)?;
    client.create(&cluster).await?;
    Ok(())
}
