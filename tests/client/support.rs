//! What the tests share: clients, objects, a definition, a cache that runs.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::GroupVersionKind;
use serde_json::{Value, json};
use steersman::{
    cache::{Cache, CacheError, CacheOptions},
    client::Client,
    testing::{Env, TestServer},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// A client without a cache, and a namespace of the test's own.
pub(crate) async fn live(env: &Env) -> anyhow::Result<(Client, String)> {
    Ok((Client::new(env.client()?)?, env.namespace("client").await?))
}

/// A config map with a door of that colour.
pub(crate) fn map(namespace: &str, name: &str, door: &str) -> ConfigMap {
    let map = json!({
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}}, "data": {"door": door},
    });
    serde_json::from_value(map).expect("a config map")
}

pub(crate) fn door(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("door").map(String::as_str)
}

/// `orders.GROUP`, with a status.
pub(crate) fn definition(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("orders.{group}")},
        "spec": {
            "group": group,
            "names": {"plural": "orders", "singular": "order", "kind": "Order", "listKind": "OrderList"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {
                            "count": {"type": "integer", "format": "int64"}, "note": {"type": "string"},
                        }},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }],
        },
    })
}

pub(crate) fn order(group: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", "Order")
}

/// A cache that runs until it is stopped.
pub(crate) struct Running {
    pub(crate) cache: Cache,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), CacheError>>,
}

impl Running {
    pub(crate) fn new(env: &Env, options: CacheOptions) -> anyhow::Result<Self> {
        let cache = Cache::new(env.client()?, options)?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(cache.clone().run_until(async { drop(stopped.await) }));
        Ok(Self { cache, stop, task })
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        Ok(self.task.await??)
    }
}
