//! With a server, that of [`serve`](crate::serve), over a socket: an event's way from there to a worker, and how long it takes until everything
//! is there.

use crate::{
    FORMS, Form, Rows, Workload, micros, nanos, runtime,
    serve::{events, objects},
};
use k8s_openapi::api::core::v1::Pod;
use kube::Config;
use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};
use steersman::{
    cache::{Cache, CacheOptions, Informer, Notice, Select},
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
            forms: FORMS,
            run: |form, quick| {
                let time = match form {
                    Form::Typed => ingest(Select::<Pod>::new(), quick),
                    Form::Compact => ingest(Select::<Pod>::new().compact(), quick),
                    Form::Metadata => ingest(Select::<Metadata<Pod>>::new(), quick),
                };
                vec![("ingest-event", time)]
            },
        },
        Workload {
            names: &["sync-100k-embedded"],
            unit: "ms",
            forms: FORMS,
            run: |form, quick| sync("sync-100k-embedded", form, quick),
        },
        Workload {
            names: &["sync-100k-real"],
            unit: "ms",
            forms: FORMS,
            run: |form, quick| sync("sync-100k-real", form, quick),
        },
    ]
}

async fn cache() -> Cache {
    let config = Config::infer().await.expect("KUBECONFIG names the server: see `--serve`");
    Cache::new(config, CacheOptions::default()).expect("a client")
}

/// Socket, watch line, store, handler, queue, worker: wall time per event, from the first that the handler sees to the last that a worker gets.
fn ingest<K: KubeObject>(select: Select<K>, quick: bool) -> f64 {
    runtime().block_on(async {
        let cache = cache().await;
        let informer: Informer<K> = cache.informer_of(select).expect("it can be declared");
        let queue = WorkQueue::<ObjectKey>::new(QueueOptions::default());
        let (begun, done) = (Arc::new(OnceLock::new()), Arc::new(Notify::new()));
        let last = events::last(quick);
        let handler = {
            let (mut events, queue, begun) = (informer.events(), queue.clone(), begun.clone());
            tokio::spawn(async move {
                while let Some(notice) = events.next().await {
                    if let Notice::Event(event) = notice {
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
        let elapsed = begun.get().expect("there was an event").elapsed();
        drop(stop);
        running.await.expect("the cache does not panic").expect("it ran");
        handler.await.expect("the handler does not panic");
        // Counted once all was told.
        assert_eq!(informer.stats().events, events::count(quick) as u64);
        nanos(elapsed, events::count(quick)) / 1e3
    })
}

fn sync(name: &'static str, form: Form, quick: bool) -> Rows {
    let time = runtime().block_on(async {
        match form {
            Form::Typed => synced(Select::<Pod>::new(), quick).await,
            Form::Compact => synced(Select::<Pod>::new().compact(), quick).await,
            Form::Metadata => synced(Select::<Metadata<Pod>>::new(), quick).await,
        }
    });
    vec![(name, time)]
}

async fn synced<K: KubeObject>(select: Select<K>, quick: bool) -> f64 {
    let start = Instant::now();
    let cache = cache().await;
    let informer: Informer<K> = cache.informer_of(select).expect("it can be declared");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(cache.run_until(async { drop(stopped.await) }));
    informer.await_synced().await.expect("the server answers");
    let elapsed = micros(start.elapsed()) / 1e3;
    assert_eq!(informer.stats().objects, objects::count(quick));
    drop(stop);
    running.await.expect("the cache does not panic").expect("it ran");
    elapsed
}
