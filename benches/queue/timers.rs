//! Cost and lateness of delayed adds.

use crate::{
    Rows, Setup, Workload, keys, number, open_loop::percentile, runtime, workloads::per_item,
};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use steersman::workqueue::{Outcome, WorkQueue};

const MILLION: usize = 1_000_000;

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            names: &["add-after-1m"],
            unit: "ns",
            run: add_after,
        },
        Workload {
            names: &["rate-limited-1m"],
            unit: "ns",
            run: rate_limited,
        },
        Workload {
            names: &["add-after-lateness-p50", "add-after-lateness-p99"],
            unit: "us",
            run: sparse,
        },
        Workload {
            names: &["fire-100k-p50", "fire-100k-p99"],
            unit: "us",
            run: fire,
        },
    ]
}

/// Returns delays between 1 h and 2 h in a scattered order.
pub(crate) fn delay(i: usize) -> Duration {
    let draw = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    Duration::from_hours(1) + Duration::from_micros(draw * 3_600_000_000 / (1 << 24))
}

fn add_after(setup: &Setup) -> Rows {
    let keys = keys(MILLION);
    let queue = setup.queue();
    let start = Instant::now();
    for (i, key) in keys.iter().enumerate() {
        queue.add_after(key.clone(), delay(i));
    }
    let elapsed = start.elapsed();
    assert_eq!(queue.stats().delayed, MILLION);
    vec![("add-after-1m", per_item(elapsed, MILLION))]
}

/// The limiter's delay of 5 ms ends while others are added, so the time includes making most keys
/// ready, as for the peers.
fn rate_limited(setup: &Setup) -> Rows {
    let keys = keys(MILLION);
    let queue = setup.queue();
    let start = Instant::now();
    for key in &keys {
        queue.add_rate_limited(key.clone());
    }
    queue.len();
    let elapsed = start.elapsed();
    while queue.len() < MILLION {}
    vec![("rate-limited-1m", per_item(elapsed, MILLION))]
}

/// Delays of 5 ms, one after another, with one worker that waits in `get`.
fn sparse(setup: &Setup) -> Rows {
    let keys = keys(setup.pick(100, 200));
    let queue = setup.queue();
    let lateness = runtime().block_on(async {
        let mut lateness = Vec::with_capacity(keys.len());
        for key in keys {
            let worker = tokio::spawn({
                let queue = queue.clone();
                async move {
                    let item = queue.get().await.expect("the queue is open");
                    let got = Instant::now();
                    item.finish(Outcome::done());
                    got
                }
            });
            let due = Instant::now() + Duration::from_millis(5);
            queue.add_after(key, Duration::from_millis(5));
            let got = worker.await.expect("the worker does not panic");
            assert!(got >= due, "fired early");
            lateness.push(micros(got - due));
        }
        lateness
    });
    two_percentiles(
        ["add-after-lateness-p50", "add-after-lateness-p99"],
        lateness,
    )
}

/// 100,000 delays that end evenly distributed over one second, with eight workers.
fn fire(setup: &Setup) -> Rows {
    const SIZE: usize = 100_000;
    let keys = keys(SIZE);
    let queue = setup.queue();
    let lateness = Arc::new(Mutex::new(Vec::with_capacity(SIZE)));
    runtime().block_on(async {
        let start = Instant::now() + Duration::from_secs(1);
        let due = move |number: usize| start + Duration::from_micros(10 * number as u64);
        for (i, key) in keys.into_iter().enumerate() {
            queue.add_after(key, due(i).saturating_duration_since(Instant::now()));
        }
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let (queue, lateness): (WorkQueue<_>, _) = (queue.clone(), lateness.clone());
                tokio::spawn(async move {
                    let mut mine = Vec::with_capacity(SIZE);
                    let mut next = queue.get().await;
                    while let Some(item) = next {
                        mine.push(micros(due(number(&item)).elapsed()));
                        if number(&item) == SIZE - 1 {
                            queue.close_after_ready();
                        }
                        next = item.finish_and_get(Outcome::done()).await;
                    }
                    lateness.lock().expect("no worker panics").extend(mine);
                })
            })
            .collect();
        for worker in workers {
            worker.await.expect("the worker does not panic");
        }
    });
    let lateness = std::mem::take(&mut *lateness.lock().expect("no worker panics"));
    two_percentiles(["fire-100k-p50", "fire-100k-p99"], lateness)
}

pub(crate) fn two_percentiles(names: [&'static str; 2], mut values: Vec<f64>) -> Rows {
    values.sort_by(f64::total_cmp);
    vec![
        (names[0], percentile(&values, 50.0)),
        (names[1], percentile(&values, 99.0)),
    ]
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}
