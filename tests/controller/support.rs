//! What the tests share: a cache that runs, objects, handlers that keep what they were told.

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

/// A running cache of one namespace: that of a test.
pub(crate) fn running(client: Client, namespace: &str) -> Running {
    let namespaces = Namespaces::These(vec![namespace.into()]);
    Running::new(Cache::new(client, CacheOptions { namespaces, ..CacheOptions::default() }).expect("a ready client"))
}

/// A server in this process, and a cache of it that runs.
pub(crate) fn embedded() -> (Embedded, Running) {
    let server = Embedded::start().expect("it starts");
    let cache = Cache::new(server.client().expect("a client"), CacheOptions::default()).expect("a ready client");
    (server, Running::new(cache))
}

/// A config map with a door of that colour.
pub(crate) fn map(namespace: &str, name: &str, door: &str) -> ConfigMap {
    let map = json!({
        "metadata": {"namespace": namespace, "name": name, "labels": {"door": door}}, "data": {"door": door},
    });
    serde_json::from_value(map).expect("a config map")
}

fn maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) async fn make(client: &Client, namespace: &str, name: &str, door: &str) {
    let made = maps(client, namespace).create(&PostParams::default(), &map(namespace, name, door)).await;
    made.expect("it is new");
}

/// Paint the door.
pub(crate) async fn paint(client: &Client, namespace: &str, name: &str, door: &str) {
    let painted = maps(client, namespace).replace(name, &PostParams::default(), &map(namespace, name, door)).await;
    painted.expect("it is there");
}

pub(crate) async fn delete(client: &Client, namespace: &str, name: &str) {
    maps(client, namespace).delete(name, &DeleteParams::default()).await.expect("it is there");
}

/// What a handler was told: the first letter of what happened, and to whom.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.0.lock().push(what.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// A handler that says it here, and adds the object's name.
    pub(crate) fn handler<K: 'static>(&self) -> impl Handler<K, String> + use<K> {
        let told = self.clone();
        handler::from_fn(move |event: &Event<K>, queue| {
            let name = event.object().name().to_owned();
            told.say(format!("{} {name}", letter(event)));
            queue.add(name);
        })
    }
}

fn letter<K>(event: &Event<K>) -> &'static str {
    match event {
        Event::Create { initial: true, .. } => "listed",
        Event::Create { .. } => "created",
        Event::Update { .. } => "updated",
        Event::Delete { state_unknown: true, .. } => "missed",
        Event::Delete { .. } => "deleted",
        Event::Generic { .. } => "told of",
    }
}

/// All that is ready, sorted.
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

/// Wait for what must come soon; a test has its own limit.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
