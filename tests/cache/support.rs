//! What the tests share: a cache that runs, and objects.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{Api, Client, api::PostParams};
use serde_json::json;
use std::{ops::Deref, time::Duration};
use steersman::cache::{Cache, CacheError, CacheOptions, Namespaces};
use tokio::{sync::oneshot, task::JoinHandle};

/// A cache that runs until it is stopped.
pub(crate) struct Running {
    cache: Cache,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), CacheError>>,
}

impl Running {
    pub(crate) fn new(cache: Cache) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(cache.clone().run_until(async { drop(stopped.await) }));
        Self { cache, stop, task }
    }

    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.task.await.expect("it does not panic").expect("it ran once");
    }
}

impl Deref for Running {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

/// A running cache of some namespaces: those of a test.
pub(crate) fn running(client: Client, namespaces: &[&str]) -> Running {
    Running::new(Cache::new(client, options(namespaces)).expect("it is ready"))
}

pub(crate) fn options(namespaces: &[&str]) -> CacheOptions {
    CacheOptions { namespaces: these(namespaces), ..CacheOptions::default() }
}

pub(crate) fn these(namespaces: &[&str]) -> Namespaces {
    Namespaces::These(namespaces.iter().map(|name| (*name).to_owned()).collect())
}

/// A config map in a namespace, with a label `app` and a door of that colour.
pub(crate) async fn make(client: &Client, namespace: &str, name: &str, app: &str) -> ConfigMap {
    let map = json!({"metadata": {"name": name, "labels": {"app": app}}, "data": {"door": app}});
    let map = serde_json::from_value(map).expect("a config map");
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    maps.create(&PostParams::default(), &map).await.expect("it is new")
}

/// Wait for what must come soon; a test has its own limit.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
