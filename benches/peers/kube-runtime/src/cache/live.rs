//! Events from the reflector to its subscribers and from a server to a worker, and sync.
//!
//! The server is the one that `KUBECONFIG` names.

use crate::{
    nanos, pick,
    pods::{self, FIRST_REVISION},
    store::decoded,
};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, future, stream};
use k8s_openapi::api::core::v1::Pod;
use kube_client::{Api, Client, ResourceExt};
use kube_runtime::{
    WatchStreamExt,
    controller::{Action, Config, applier},
    reflector::{self, ObjectRef, reflector},
    watcher::{self, watcher},
};
use std::{
    convert::Infallible,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
    task::JoinSet,
};

/// Maximum number of events that wait for the slowest subscriber.
const BUFFER: usize = 1_024;

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

/// Number of events of the server in `benches/cache/serve`.
fn events(quick: bool) -> usize {
    pick(quick, 20_000, 60_000)
}

fn objects(quick: bool) -> usize {
    pick(quick, 10_000, 100_000)
}

/// Creates `count` objects, updates each, and creates one more as the last event.
pub(crate) fn handlers(quick: bool, handlers: usize) -> Result<Vec<f64>> {
    let count = pick(quick, 5_000, 10_000);
    let events = decoded((0..count).chain(0..=count), FIRST_REVISION + 1);
    let total = events.len();
    let last = pods::key(count).1;
    let (_reader, writer) = reflector::store_shared::<Pod>(BUFFER);
    runtime()?.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..handlers {
            let mut subscriber = writer.subscribe().context("the store is not shared")?;
            let last = last.clone();
            tasks.spawn(async move {
                while subscriber
                    .next()
                    .await
                    .is_some_and(|pod| pod.name_any() != last)
                {}
            });
        }
        let start = Instant::now();
        let reflecting = reflector(writer, stream::iter(events.into_iter().map(Ok)));
        let reflecting =
            tokio::spawn(async move { reflecting.for_each(|_| future::ready(())).await });
        while let Some(ended) = tasks.join_next().await {
            ended?;
        }
        let elapsed = start.elapsed();
        reflecting.await?;
        Ok(vec![nanos(elapsed, total)])
    })
}

/// Time per event from the first that the reflector stores to the last that a reconciler gets, with
/// eight concurrent reconciles.
pub(crate) fn ingest(quick: bool) -> Result<Vec<f64>> {
    let last = pods::key(events(quick)).1;
    runtime()?.block_on(async {
        let client = Client::try_default().await?;
        let begun = Arc::new(OnceLock::new());
        let seen = Arc::new(AtomicUsize::new(0));
        let done = Arc::new(Notify::new());
        let (reader, writer) = reflector::store::<Pod>();
        let stored = reflector(
            writer,
            watcher(Api::<Pod>::all(client), watcher::Config::default()),
        );
        let requests = {
            let (begun, seen) = (begun.clone(), seen.clone());
            stored.applied_objects().map_ok(move |pod| {
                begun.get_or_init(Instant::now);
                seen.fetch_add(1, Relaxed);
                ObjectRef::from_obj(&pod)
            })
        };
        let reconcile = {
            let done = done.clone();
            move |pod: Arc<Pod>, _: Arc<()>| {
                if pod.name_any() == last {
                    done.notify_one();
                }
                future::ready(Ok::<_, Infallible>(Action::await_change()))
            }
        };
        let config = Config::default().concurrency(8);
        let working = applier(
            reconcile,
            |_, _, _| Action::await_change(),
            Arc::new(()),
            reader,
            requests,
            config,
        );
        let working = tokio::spawn(async move { working.for_each(|_| future::ready(())).await });
        done.notified().await;
        let elapsed = begun.get().context("no event arrived")?.elapsed();
        working.abort();
        let seen = seen.load(Relaxed);
        ensure!(
            seen == events(quick),
            "{seen} events instead of {}",
            events(quick)
        );
        Ok(vec![nanos(elapsed, seen) / 1e3])
    })
}

pub(crate) fn sync(quick: bool) -> Result<Vec<f64>> {
    runtime()?.block_on(async {
        let start = Instant::now();
        let client = Client::try_default().await?;
        let (reader, writer) = reflector::store::<Pod>();
        let stored = reflector(
            writer,
            watcher(Api::<Pod>::all(client), watcher::Config::default()),
        );
        let storing = tokio::spawn(async move { stored.for_each(|_| future::ready(())).await });
        reader.wait_until_ready().await?;
        let elapsed = start.elapsed();
        storing.abort();
        ensure!(
            reader.len() == objects(quick),
            "{} pods instead of {}",
            reader.len(),
            objects(quick)
        );
        Ok(vec![elapsed.as_secs_f64() * 1e3])
    })
}
