//! Latency and CPU time of items from a producer with a fixed rate to eight workers.

use crate::{
    Rows, Setup, Workload, keys, number,
    open_loop::{CpuClock, OpenLoop, TICK, percentile},
    runtime,
    timers::{micros, two_percentiles},
};
use std::sync::Arc;
use steersman::{
    object::ObjectKey,
    workqueue::{Outcome, WorkQueue},
};

const WORKERS: usize = 8;

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            names: &["latency-10k-p50", "latency-10k-p99"],
            unit: "us",
            run: |setup| {
                two_percentiles(["latency-10k-p50", "latency-10k-p99"], latencies(setup, 1))
            },
        },
        Workload {
            names: &["latency-100k-p99"],
            unit: "us",
            run: |setup| {
                let mut latencies = latencies(setup, 10);
                latencies.sort_by(f64::total_cmp);
                vec![("latency-100k-p99", percentile(&latencies, 99.0))]
            },
        },
        Workload {
            names: &["cpu-10k"],
            unit: "us",
            run: cpu,
        },
    ]
}

fn count(setup: &Setup, per_tick: usize) -> usize {
    10_000 * per_tick * setup.pick(1, 2)
}

fn spawn_workers(queue: &WorkQueue<ObjectKey>, items: &Arc<OpenLoop>) {
    for _ in 0..WORKERS {
        let (queue, items) = (queue.clone(), items.clone());
        tokio::spawn(async move {
            let mut next = queue.get().await;
            while let Some(item) = next {
                items.arrived(number(&item));
                next = item.finish_and_get(Outcome::done()).await;
            }
        });
    }
}

/// Time from just before `add` to just after `get`.
fn latencies(setup: &Setup, per_tick: usize) -> Vec<f64> {
    let keys = keys(count(setup, per_tick));
    let items = OpenLoop::new(keys.len());
    let queue = setup.queue();
    runtime().block_on(async {
        spawn_workers(&queue, &items);
        let producer = tokio::spawn({
            let (queue, items) = (queue.clone(), items.clone());
            async move {
                items
                    .produce(TICK, per_tick, |number| queue.add(keys[number].clone()))
                    .await;
            }
        });
        producer.await.expect("the producer does not panic");
        queue.drain().await;
    });
    items.latencies()
}

/// CPU time of the process per item at 10,000 items per second, less that of the same producer
/// without a queue.
fn cpu(setup: &Setup) -> Rows {
    let keys = keys(count(setup, 1));
    let items = OpenLoop::new(keys.len());
    let queue = setup.queue();
    let runtime = runtime();
    let produce = |mut add: Box<dyn FnMut(usize) + Send>| {
        let (clock, items) = (CpuClock::start(), items.clone());
        let producer = runtime.spawn(async move { items.produce(TICK, 1, &mut add).await });
        runtime
            .block_on(producer)
            .expect("the producer does not panic");
        clock.elapsed()
    };
    let idle = produce(Box::new(|_| ()));
    runtime.block_on(async { spawn_workers(&queue, &items) });
    let used = produce(Box::new(move |number| queue.add(keys[number].clone())));
    vec![(
        "cpu-10k",
        micros(used.saturating_sub(idle)) / items.len() as f64,
    )]
}
