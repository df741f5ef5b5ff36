//! Helpers of the client tests: clients, objects, a CRD, and a running cache.

use k8s_openapi::{
    api::core::v1::ConfigMap,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
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

/// Returns a client without a cache, and a namespace of the test.
pub(crate) async fn live(env: &Env) -> anyhow::Result<(Client, String)> {
    Ok((Client::new(env.client()?)?, env.namespace("client").await?))
}

/// Returns a config map with data `color`.
pub(crate) fn config_map(namespace: &str, name: &str, color: &str) -> ConfigMap {
    let map = json!({
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}}, "data": {"color": color},
    });
    serde_json::from_value(map).expect("a config map")
}

pub(crate) fn color(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("color").map(String::as_str)
}

/// Custom resource with a status.
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
    let mut order = Order::new(
        name,
        OrderSpec {
            count,
            note: Some("soon".into()),
        },
    );
    order.metadata.namespace = Some(namespace.into());
    order
}

/// Returns the CRD of orders in another group.
pub(crate) fn definition(group: &str) -> CustomResourceDefinition {
    let mut definition = Order::crd();
    definition.metadata.name = Some(format!("orders.{group}"));
    definition.spec.group = group.into();
    definition
}

/// Cache that runs until it is stopped.
pub(crate) struct Running {
    pub(crate) cache: Cache,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), CacheError>>,
}

/// Returns the options of a cache of these namespaces.
pub(crate) fn cache_options(namespaces: &[&str]) -> CacheOptions {
    let these = namespaces.iter().map(|name| (*name).into()).collect();
    CacheOptions {
        namespaces: Namespaces::List(these),
        ..CacheOptions::default()
    }
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
