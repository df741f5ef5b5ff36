//! Helpers of the cache tests: a running cache, and objects.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{Api, Client, api::PostParams};
use serde_json::json;
use std::{collections::BTreeSet, ops::Deref, sync::Arc, time::Duration};
use steersman::cache::{Cache, CacheError, CacheOptions, Informer, Namespaces, Query};
use tokio::{sync::oneshot, task::JoinHandle};

/// Cache that runs until it is stopped.
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
        self.task
            .await
            .expect("no panic")
            .expect("the cache ran once");
    }
}

impl Deref for Running {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

/// Runs a cache of the given namespaces.
pub(crate) fn running(client: Client, namespaces: &[&str]) -> Running {
    Running::new(Cache::new(client, options(namespaces)).expect("a cache"))
}

pub(crate) fn options(namespaces: &[&str]) -> CacheOptions {
    CacheOptions {
        namespaces: namespace_list(namespaces),
        ..CacheOptions::default()
    }
}

pub(crate) fn namespace_list(namespaces: &[&str]) -> Namespaces {
    Namespaces::List(namespaces.iter().map(|name| (*name).into()).collect())
}

/// Runs a cache with these options.
pub(crate) fn cache(client: &Client, options: CacheOptions) -> Running {
    Running::new(Cache::new(client.clone(), options).expect("a ready client"))
}

/// Returns the informer's objects in these namespaces.
///
/// They are identified by the index of the namespace and the name.
pub(crate) fn stored_objects(
    maps: &Informer<ConfigMap>,
    namespaces: &[&str],
) -> BTreeSet<(usize, String)> {
    let number = |map: &Arc<ConfigMap>| {
        let namespace = map.metadata.namespace.as_deref().unwrap_or_default();
        Some((
            namespaces.iter().position(|one| *one == namespace)?,
            map.metadata.name.clone()?,
        ))
    };
    let all = maps
        .list(&Query::default())
        .expect("the informer is synced");
    all.iter()
        .filter_map(number)
        .filter(|(_, name)| name.len() == 1)
        .collect()
}

/// Creates a config map with label `app` and data `color`, both set to `app`.
pub(crate) async fn create_map(
    client: &Client,
    namespace: &str,
    name: &str,
    app: &str,
) -> ConfigMap {
    let map = json!({"metadata": {"name": name, "labels": {"app": app}}, "data": {"color": app}});
    let map = serde_json::from_value(map).expect("a config map");
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    maps.create(&PostParams::default(), &map)
        .await
        .expect("the object is created")
}

/// Waits until `holds` returns true. The test has its own timeout.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
