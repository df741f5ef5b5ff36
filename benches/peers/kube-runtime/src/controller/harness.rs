//! Runs a controller whose requests come from a channel.
//!
//! kube-rs passes objects to the reconciler, so the store has all of them before the start.

use crate::runtime;
use anyhow::Result;
use futures::{
    StreamExt,
    channel::mpsc::{UnboundedSender, unbounded},
    future, stream,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::core::ObjectMeta;
use kube_runtime::{
    Controller,
    controller::{Action, Config},
    reflector::{self, ObjectRef, Store},
    watcher::Event,
};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::Notify;

/// Waits for a number of reconciles, at the cost of one atomic operation for each.
#[derive(Default)]
pub(crate) struct Countdown {
    remaining: AtomicUsize,
    reached_zero: Notify,
}

impl Countdown {
    pub(crate) fn expect(&self, count: usize) {
        self.remaining.store(count, Ordering::Relaxed);
    }

    pub(crate) fn decrement(&self) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.reached_zero.notify_one();
        }
    }

    pub(crate) async fn wait(&self) {
        self.reached_zero.notified().await;
    }
}

/// Returns the keys of all benches: `namespace-042/object-00012345`.
pub(crate) fn keys(count: usize) -> Vec<ObjectRef<ConfigMap>> {
    let key = |number: usize| {
        ObjectRef::new(&format!("object-{number:08}"))
            .within(&format!("namespace-{:03}", number % 100))
    };
    (0..count).map(key).collect()
}

/// Returns the number of an object from [`keys`].
pub(crate) fn number(object: &ConfigMap) -> usize {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    name.bytes()
        .skip("object-".len())
        .fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

fn store<'a>(keys: impl IntoIterator<Item = &'a ObjectRef<ConfigMap>>) -> Store<ConfigMap> {
    let (reader, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    for key in keys {
        let metadata = ObjectMeta {
            name: Some(key.name.clone()),
            namespace: key.namespace.clone(),
            ..ObjectMeta::default()
        };
        writer.apply_watcher_event(&Event::InitApply(ConfigMap {
            metadata,
            ..ConfigMap::default()
        }));
    }
    writer.apply_watcher_event(&Event::InitDone);
    reader
}

/// Sends requests to the controller.
pub(crate) struct Feed(UnboundedSender<ObjectRef<ConfigMap>>);

impl Feed {
    pub(crate) fn add(&self, key: &ObjectRef<ConfigMap>) {
        self.0
            .unbounded_send(key.clone())
            .expect("the controller runs");
    }
}

/// Runs a controller until `feed` returns. `feed` is called after a first reconcile.
pub(crate) fn run<T, Reconciled, Fed>(
    concurrency: u16,
    keys: &[ObjectRef<ConfigMap>],
    reconcile: impl Fn(Arc<ConfigMap>) -> Reconciled + Send + Sync + 'static,
    feed: impl FnOnce(Feed) -> Fed,
) -> Result<T>
where
    T: Send + 'static,
    Reconciled: Future<Output = ()> + Send + 'static,
    Fed: Future<Output = T> + Send + 'static,
{
    let first = ObjectRef::<ConfigMap>::new("first");
    let reader = store(keys.iter().chain([&first]));
    let (sender, requests) = unbounded();
    let runtime = runtime()?;
    runtime.block_on(async {
        let ready = Arc::new(Notify::new());
        let reconcile = {
            let ready = ready.clone();
            move |object: Arc<ConfigMap>, _: Arc<()>| {
                let is_first = object.metadata.namespace.is_none();
                if is_first {
                    ready.notify_one();
                }
                let run = (!is_first).then(|| reconcile(object));
                async move {
                    if let Some(run) = run {
                        run.await;
                    }
                    Ok::<_, Infallible>(Action::await_change())
                }
            }
        };
        let controller = Controller::for_shared_stream(stream::pending(), reader)
            .with_config(Config::default().concurrency(concurrency))
            .reconcile_on(requests)
            .run(reconcile, |_, _, _| Action::await_change(), Arc::new(()));
        let running = tokio::spawn(controller.for_each(|_| future::ready(())));
        let feeding = Feed(sender);
        feeding.add(&first);
        ready.notified().await;
        let result = tokio::spawn(feed(feeding)).await?;
        running.abort();
        Ok(result)
    })
}
