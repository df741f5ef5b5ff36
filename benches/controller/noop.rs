//! Throughput, latency and CPU time with a reconciler that does nothing.

use crate::{
    harness::{self, Countdown},
    keys, number,
    open_loop::{CpuClock, OpenLoop, TICK, percentile},
    pick,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use steersman::{handler::Enqueue, reconcile::Request};

/// Adds between two yields of the source. It is tokio's cooperative budget. Unlike Go's runtime,
/// tokio does not preempt tasks.
const ADDS_PER_YIELD: usize = 128;

/// Reconciles per second of wall time.
///
/// The source adds 100,000 distinct keys as fast as it can while the workers reconcile them, and
/// again when all are reconciled.
pub(crate) fn reconciles(workers: usize, quick: bool) -> Vec<f64> {
    let keys = keys(100_000);
    let count = Arc::new(Countdown::default());
    let duration = pick(quick, Duration::from_millis(300), Duration::from_secs(1));
    let reconcile = {
        let count = count.clone();
        move |_| {
            count.decrement();
            std::future::ready(())
        }
    };
    let rate = harness::run(workers, reconcile, async move |queue| {
        round(&queue, &keys[..10_000], &count).await;
        let mut elapsed = Duration::ZERO;
        let mut total = 0;
        while elapsed < duration {
            elapsed += round(&queue, &keys, &count).await;
            total += keys.len();
        }
        total as f64 / elapsed.as_secs_f64()
    });
    vec![rate]
}

async fn round(queue: &Enqueue<Request>, keys: &[Request], count: &Countdown) -> Duration {
    count.expect(keys.len());
    let start = Instant::now();
    for chunk in keys.chunks(ADDS_PER_YIELD) {
        for key in chunk {
            queue.add(key.clone());
        }
        tokio::task::yield_now().await;
    }
    count.wait().await;
    start.elapsed()
}

/// Time from just before the source adds a key until the reconciler starts, at 10,000 keys per
/// second and with 8 workers.
pub(crate) fn latency(quick: bool) -> Vec<f64> {
    let keys = keys(pick(quick, 10_000, 20_000));
    let items = OpenLoop::new(keys.len());
    let count = Arc::new(Countdown::default());
    let reconcile = {
        let (items, count) = (items.clone(), count.clone());
        move |request: Request| {
            items.arrived(number(&request));
            count.decrement();
            std::future::ready(())
        }
    };
    let mut latencies = harness::run(8, reconcile, async move |queue| {
        produce_and_wait(&items, TICK, &count, |number| {
            queue.add(keys[number].clone());
        })
        .await;
        items.latencies()
    });
    latencies.sort_by(f64::total_cmp);
    vec![percentile(&latencies, 50.0), percentile(&latencies, 99.0)]
}

/// CPU time of the process per reconcile at 10,000 per second, less that of the same producer when
/// it adds nothing.
pub(crate) fn cpu(quick: bool) -> Vec<f64> {
    let keys = keys(pick(quick, 10_000, 20_000));
    let size = keys.len();
    let items = OpenLoop::new(size);
    let count = Arc::new(Countdown::default());
    let reconcile = {
        let count = count.clone();
        move |_| {
            count.decrement();
            std::future::ready(())
        }
    };
    let used = harness::run(8, reconcile, async move |queue| {
        let clock = CpuClock::start();
        items.produce(TICK, 1, |_| ()).await;
        let idle = clock.elapsed();
        let clock = CpuClock::start();
        produce_and_wait(&items, TICK, &count, |number| {
            queue.add(keys[number].clone());
        })
        .await;
        clock.elapsed().saturating_sub(idle)
    });
    vec![used.as_nanos() as f64 / 1e3 / size as f64]
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
