//! Helpers of the source tests: a running cache, objects, and recording handlers.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::json;
use std::{ops::Deref, sync::Arc, time::Duration};
use steersman::{
    cache::{Cache, CacheError, CacheOptions, Namespaces},
    event::Event,
    handler::Handler,
    prelude::*,
    testing::{Embedded, TestServer},
    workqueue::Key,
};
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

/// Runs a cache of one namespace.
pub(crate) fn running(client: Client, namespace: &str) -> Running {
    let namespaces = Namespaces::List(vec![namespace.into()]);
    Running::new(
        Cache::new(
            client,
            CacheOptions {
                namespaces,
                ..CacheOptions::default()
            },
        )
        .expect("a ready client"),
    )
}

/// Starts an embedded server and a cache of it.
pub(crate) fn embedded() -> (Embedded, Running) {
    let server = Embedded::start().expect("the server starts");
    let cache = Cache::new(server.client().expect("a client"), CacheOptions::default())
        .expect("a ready client");
    (server, Running::new(cache))
}

/// Returns a config map with label and data `color`.
pub(crate) fn map(namespace: &str, name: &str, color: &str) -> ConfigMap {
    let map = json!({
        "metadata": {"namespace": namespace, "name": name, "labels": {"color": color}}, "data": {"color": color},
    });
    serde_json::from_value(map).expect("a config map")
}

fn maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) async fn make(client: &Client, namespace: &str, name: &str, color: &str) {
    let result = maps(client, namespace)
        .create(&PostParams::default(), &map(namespace, name, color))
        .await;
    result.expect("the object is created");
}

/// Replaces the color of a config map.
pub(crate) async fn set_color(client: &Client, namespace: &str, name: &str, color: &str) {
    let result = maps(client, namespace)
        .replace(name, &PostParams::default(), &map(namespace, name, color))
        .await;
    result.expect("exists");
}

pub(crate) async fn delete(client: &Client, namespace: &str, name: &str) {
    maps(client, namespace)
        .delete(name, &DeleteParams::default())
        .await
        .expect("exists");
}

/// Events of a handler: first letter of the type, and name of the object.
#[derive(Clone, Default)]
pub(crate) struct RecordedEvents(Arc<Mutex<Vec<String>>>);

impl RecordedEvents {
    pub(crate) fn record(&self, line: impl Into<String>) {
        self.0.lock().push(line.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns a handler that records events here and enqueues the object's name.
    pub(crate) fn handler<K: 'static>(&self) -> impl Handler<K, String> + use<K> {
        let recorded = self.clone();
        handler::from_fn(move |event: &Event<K>, queue| {
            let name = event.object().name().to_owned();
            recorded.record(format!("{} {name}", event_type(event)));
            queue.add(name);
        })
    }
}

fn event_type<K>(event: &Event<K>) -> &'static str {
    match event {
        Event::Create { initial: true, .. } => "listed",
        Event::Create { .. } => "created",
        Event::Update { .. } => "updated",
        Event::Delete {
            state_unknown: true,
            ..
        } => "missed",
        Event::Delete { .. } => "deleted",
        Event::Generic { .. } => "generic",
    }
}

/// Takes all ready requests and returns them sorted.
pub(crate) fn ready<R: Key + Ord>(queue: &WorkQueue<R>) -> Vec<R> {
    let items = std::iter::from_fn(|| {
        let item = queue.try_get()?;
        let key = item.key().clone();
        item.finish(Outcome::done());
        Some(key)
    });
    let mut keys: Vec<_> = items.collect();
    keys.sort();
    keys
}

/// Waits until `holds` returns true. The test has its own timeout.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
