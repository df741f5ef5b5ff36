//! What the tests share: clients, objects, a definition, a cache that runs.

use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use steersman::{
    cache::{Cache, CacheError, CacheOptions, Namespaces},
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

/// What a shop has to do; of a type, and with a status.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "client.steersman.example",
    version = "v1",
    kind = "Order",
    namespaced,
    status = "OrderStatus",
    derive = "PartialEq"
)]
pub(crate) struct OrderSpec {
    pub(crate) count: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct OrderStatus {
    #[serde(default)]
    pub(crate) done: i64,
}

pub(crate) fn order(namespace: &str, name: &str, count: i64) -> Order {
    let mut order = Order::new(name, OrderSpec { count, note: Some("soon".into()) });
    order.metadata.namespace = Some(namespace.into());
    order
}

/// The definition of orders in another group.
pub(crate) fn definition(group: &str) -> CustomResourceDefinition {
    let mut definition = Order::crd();
    definition.metadata.name = Some(format!("orders.{group}"));
    definition.spec.group = group.into();
    definition
}

/// A cache that runs until it is stopped.
pub(crate) struct Running {
    pub(crate) cache: Cache,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), CacheError>>,
}

/// Of some namespaces.
pub(crate) fn of(namespaces: &[&str]) -> CacheOptions {
    let these = namespaces.iter().map(|name| (*name).to_owned()).collect();
    CacheOptions { namespaces: Namespaces::These(these), ..CacheOptions::default() }
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
