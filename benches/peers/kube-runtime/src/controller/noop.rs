//! Throughput, latency and CPU time with a reconciler that does nothing.

use crate::{
    harness::{self, Countdown, Feed, keys, number},
    open_loop::{CpuClock, OpenLoop, TICK, percentile},
    pick,
};
use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::reflector::ObjectRef;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Adds between two yields of the producer: tokio's cooperative budget.
const ADDS_PER_YIELD: usize = 128;

/// Reconciles per second of wall time.
///
/// The source adds 100,000 distinct keys as fast as it can while they are reconciled, and again
/// when all are reconciled.
pub(crate) fn reconciles(concurrency: u16, quick: bool) -> Result<Vec<f64>> {
    let keys: Arc<[ObjectRef<ConfigMap>]> = keys(100_000).into();
    let count = Arc::new(Countdown::default());
    let duration = pick(quick, Duration::from_millis(300), Duration::from_secs(1));
    let reconcile = {
        let count = count.clone();
        move |_| {
            count.decrement();
            std::future::ready(())
        }
    };
    let rate = harness::run(concurrency, &keys.clone(), reconcile, async move |feed| {
        round(&feed, &keys[..10_000], &count).await;
        let (mut elapsed, mut total) = (Duration::ZERO, 0);
        while elapsed < duration {
            elapsed += round(&feed, &keys, &count).await;
            total += keys.len();
        }
        total as f64 / elapsed.as_secs_f64()
    })?;
    Ok(vec![rate])
}

async fn round(feed: &Feed, keys: &[ObjectRef<ConfigMap>], count: &Countdown) -> Duration {
    count.expect(keys.len());
    let start = Instant::now();
    for turn in keys.chunks(ADDS_PER_YIELD) {
        for key in turn {
            feed.add(key);
        }
        tokio::task::yield_now().await;
    }
    count.wait().await;
    start.elapsed()
}

/// Time from just before the source adds a key until the reconciler starts, at 10,000 keys per
/// second.
pub(crate) fn latency(quick: bool) -> Result<Vec<f64>> {
    let keys = keys(pick(quick, 10_000, 20_000));
    let (items, count) = (OpenLoop::new(keys.len()), Arc::new(Countdown::default()));
    let reconcile = {
        let (items, count) = (items.clone(), count.clone());
        move |object: Arc<ConfigMap>| {
            items.arrived(number(&object));
            count.decrement();
            std::future::ready(())
        }
    };
    let mut latencies = harness::run(8, &keys.clone(), reconcile, async move |feed| {
        produce_and_wait(&items, TICK, &count, |number| feed.add(&keys[number])).await;
        items.latencies()
    })?;
    latencies.sort_by(f64::total_cmp);
    Ok(vec![
        percentile(&latencies, 50.0),
        percentile(&latencies, 99.0),
    ])
}

/// CPU time of the process per reconcile at 10,000 per second, less that of the same producer when
/// it adds nothing.
pub(crate) fn cpu(quick: bool) -> Result<Vec<f64>> {
    let keys = keys(pick(quick, 10_000, 20_000));
    let (size, items, count) = (
        keys.len(),
        OpenLoop::new(keys.len()),
        Arc::new(Countdown::default()),
    );
    let reconcile = {
        let count = count.clone();
        move |_| {
            count.decrement();
            std::future::ready(())
        }
    };
    let used = harness::run(8, &keys.clone(), reconcile, async move |feed| {
        let clock = CpuClock::start();
        items.produce(TICK, 1, |_| ()).await;
        let idle = clock.elapsed();
        let clock = CpuClock::start();
        produce_and_wait(&items, TICK, &count, |number| feed.add(&keys[number])).await;
        clock.elapsed().saturating_sub(idle)
    })?;
    Ok(vec![used.as_nanos() as f64 / 1e3 / size as f64])
}

/// Sends all items and waits until they are reconciled.
pub(crate) async fn produce_and_wait(
    items: &OpenLoop,
    tick: Duration,
    count: &Countdown,
    send: impl FnMut(usize),
) {
    count.expect(items.len());
    items.produce(tick, 1, send).await;
    count.wait().await;
}
