//! A reconciler that does nothing: how many reconciles, how soon, at what price.

use crate::{
    fed::{self, Countdown},
    keys, number,
    open_loop::{CpuClock, OpenLoop, TICK, percentile},
    pick,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use steersman::{handler::Enqueue, reconcile::Request};

/// Adds that are made before the source gives way, as tokio's own resources do: unlike Go's runtime, tokio's does not interrupt a task.
const TURN: usize = 128;

/// How many there are per second of wall time. The source adds 100,000 distinct keys as fast as it can while the workers reconcile them, and again once all of
/// them are through.
pub(crate) fn reconciles(workers: usize, quick: bool) -> Vec<f64> {
    let keys = keys(100_000);
    let count = Arc::new(Countdown::default());
    let least = pick(quick, Duration::from_millis(300), Duration::from_secs(1));
    let reconcile = {
        let count = count.clone();
        move |_| {
            count.one();
            std::future::ready(())
        }
    };
    let rate = fed::run(workers, reconcile, async move |queue| {
        round(&queue, &keys[..10_000], &count).await;
        let (mut elapsed, mut total) = (Duration::ZERO, 0);
        while elapsed < least {
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
    for turn in keys.chunks(TURN) {
        for key in turn {
            queue.add(key.clone());
        }
        tokio::task::yield_now().await;
    }
    count.wait().await;
    start.elapsed()
}

/// From just before the source adds a key to the first thing that the reconciler does, at 10,000 keys per second and with 8 workers.
pub(crate) fn latency(quick: bool) -> Vec<f64> {
    let keys = keys(pick(quick, 10_000, 20_000));
    let (items, count) = (OpenLoop::new(keys.len()), Arc::new(Countdown::default()));
    let reconcile = {
        let (items, count) = (items.clone(), count.clone());
        move |request: Request| {
            items.arrived(number(&request));
            count.one();
            std::future::ready(())
        }
    };
    let mut latencies = fed::run(8, reconcile, async move |queue| {
        passed(&items, TICK, &count, |number| queue.add(keys[number].clone())).await;
        items.latencies()
    });
    latencies.sort_by(f64::total_cmp);
    vec![percentile(&latencies, 50.0), percentile(&latencies, 99.0)]
}

/// CPU time of the whole process per reconcile at 10,000 of them per second, less that of the same producer when it adds nothing.
pub(crate) fn cpu(quick: bool) -> Vec<f64> {
    let keys = keys(pick(quick, 10_000, 20_000));
    let (size, items, count) = (keys.len(), OpenLoop::new(keys.len()), Arc::new(Countdown::default()));
    let reconcile = {
        let count = count.clone();
        move |_| {
            count.one();
            std::future::ready(())
        }
    };
    let used = fed::run(8, reconcile, async move |queue| {
        let clock = CpuClock::start();
        items.produce(TICK, 1, |_| ()).await;
        let idle = clock.elapsed();
        let clock = CpuClock::start();
        passed(&items, TICK, &count, |number| queue.add(keys[number].clone())).await;
        clock.elapsed().saturating_sub(idle)
    });
    vec![used.as_nanos() as f64 / 1e3 / size as f64]
}

/// Until everything is sent and reconciled.
pub(crate) async fn passed(items: &OpenLoop, tick: Duration, count: &Countdown, send: impl FnMut(usize)) {
    count.expect(items.len());
    items.produce(tick, 1, send).await;
    count.wait().await;
}
