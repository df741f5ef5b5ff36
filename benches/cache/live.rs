//! Workloads with a server ([`serve`](crate::serve)): events from the socket to a worker, and sync.

use crate::{
    REPRESENTATIONS, Representation, Rows, Workload, micros, nanos, runtime,
    serve::{events, objects},
};
use k8s_openapi::api::core::v1::Pod;
use kube::Config;
use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};
use steersman::{
    cache::{Cache, CacheOptions, Informer, InformerEvent, Select},
    object::{KubeObject, Metadata, ObjectKey},
    workqueue::{Outcome, QueueOptions, WorkQueue},
};
use tokio::sync::Notify;

const WORKERS: usize = 8;

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            names: &["ingest-event"],
            unit: "us",
            representations: REPRESENTATIONS,
            run: |representation, quick| {
                let time = match representation {
                    Representation::Typed => ingest(Select::<Pod>::new(), quick),
                    Representation::Compact => ingest(Select::<Pod>::new().compact(), quick),
                    Representation::Metadata => ingest(Select::<Metadata<Pod>>::new(), quick),
                };
                vec![("ingest-event", time)]
            },
        },
        Workload {
            names: &["sync-100k-embedded"],
            unit: "ms",
            representations: REPRESENTATIONS,
            run: |representation, quick| sync("sync-100k-embedded", representation, quick),
        },
        Workload {
            names: &["sync-100k-real"],
            unit: "ms",
            representations: REPRESENTATIONS,
            run: |representation, quick| sync("sync-100k-real", representation, quick),
        },
    ]
}

async fn cache() -> Cache {
    let config = Config::infer()
        .await
        .expect("KUBECONFIG is set to the output of `--serve`");
    Cache::new(config, CacheOptions::default()).expect("a client")
}

/// Wall time per event through socket, watch, store, handler and queue to a worker.
///
/// The measurement starts with the first event of the handler and ends with the last item of a worker.
fn ingest<K: KubeObject>(select: Select<K>, quick: bool) -> f64 {
    runtime().block_on(async {
        let cache = cache().await;
        let informer: Informer<K> = cache.informer_of(select).expect("a valid selection");
        let queue = WorkQueue::<ObjectKey>::new(QueueOptions::default());
        let begun = Arc::new(OnceLock::new());
        let done = Arc::new(Notify::new());
        let last = events::last(quick);
        let handler = {
            let (mut events, queue, begun) = (informer.events(), queue.clone(), begun.clone());
            tokio::spawn(async move {
                while let Some(item) = events.next().await {
                    if let InformerEvent::Event(event) = item {
                        begun.get_or_init(Instant::now);
                        queue.add(event.object().key().clone());
                    }
                }
            })
        };
        for _ in 0..WORKERS {
            let (queue, done, last) = (queue.clone(), done.clone(), last.clone());
            tokio::spawn(async move {
                let mut next = queue.get().await;
                while let Some(item) = next {
                    if *item == last {
                        done.notify_one();
                    }
                    next = item.finish_and_get(Outcome::done()).await;
                }
            });
        }
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(cache.run_until(async { drop(stopped.await) }));
        done.notified().await;
        let elapsed = begun.get().expect("an event").elapsed();
        drop(stop);
        running
            .await
            .expect("the cache does not panic")
            .expect("the cache does not fail");
        handler.await.expect("the handler does not panic");
        assert_eq!(informer.stats().events, events::count(quick) as u64);
        nanos(elapsed, events::count(quick)) / 1e3
    })
}

fn sync(name: &'static str, representation: Representation, quick: bool) -> Rows {
    let time = runtime().block_on(async {
        match representation {
            Representation::Typed => synced(Select::<Pod>::new(), quick).await,
            Representation::Compact => synced(Select::<Pod>::new().compact(), quick).await,
            Representation::Metadata => synced(Select::<Metadata<Pod>>::new(), quick).await,
        }
    });
    vec![(name, time)]
}

async fn synced<K: KubeObject>(select: Select<K>, quick: bool) -> f64 {
    let start = Instant::now();
    let cache = cache().await;
    let informer: Informer<K> = cache.informer_of(select).expect("a valid selection");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(cache.run_until(async { drop(stopped.await) }));
    informer.await_synced().await.expect("the server answers");
    let elapsed = micros(start.elapsed()) / 1e3;
    assert_eq!(informer.stats().objects, objects::count(quick));
    drop(stop);
    running
        .await
        .expect("the cache does not panic")
        .expect("the cache does not fail");
    elapsed
}
