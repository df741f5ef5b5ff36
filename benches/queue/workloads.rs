//! Throughput: plain adds, gets and finishes, by one or by many.

use crate::{Rows, Setup, Workload, keys, runtime};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use steersman::{
    object::ObjectKey,
    workqueue::{Add, Outcome, Priority, WorkQueue},
};
use tokio::sync::{Barrier, Notify};

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload { names: &["steady"], unit: "ns", run: steady },
        Workload { names: &["filldrain-1k"], unit: "ns", run: |s| fill_drain(s, "filldrain-1k", 1_000, (200, 1000)) },
        Workload { names: &["filldrain-100k"], unit: "ns", run: |s| fill_drain(s, "filldrain-100k", 100_000, (2, 10)) },
        Workload { names: &["filldrain-1m"], unit: "ns", run: |s| fill_drain(s, "filldrain-1m", 1_000_000, (1, 1)) },
        Workload { names: &["mpmc-1p1w"], unit: "ns", run: |s| many_to_many(s, "mpmc-1p1w", 1, 1) },
        Workload { names: &["mpmc-8p8w"], unit: "ns", run: |s| many_to_many(s, "mpmc-8p8w", 8, 8) },
        Workload { names: &["mpmc-64p64w"], unit: "ns", run: |s| many_to_many(s, "mpmc-64p64w", 64, 64) },
        Workload { names: &["mpmc-1p64w"], unit: "ns", run: |s| many_to_many(s, "mpmc-1p64w", 1, 64) },
        Workload { names: &["dedup-1m"], unit: "ns", run: dedup },
        Workload { names: &["priorities-100k"], unit: "ns", run: priorities },
    ]
}

/// Add, get and finish one key at a time, over 1024 keys in turn.
fn steady(setup: &Setup) -> Rows {
    let keys = keys(1024);
    let items = setup.pick(300_000, 2_000_000);
    let queue = setup.queue();
    cycle(&queue, &keys, items / 10);
    let start = Instant::now();
    cycle(&queue, &keys, items);
    vec![("steady", per_item(start.elapsed(), items))]
}

/// A worker's loop: it finishes a key when it gets the next.
pub(crate) fn cycle(queue: &WorkQueue<ObjectKey>, keys: &[ObjectKey], items: usize) {
    let mut keys = keys.iter().cycle().take(items);
    keys.by_ref().take(1).for_each(|key| queue.add(key.clone()));
    let mut item = queue.try_get().expect("the key is there");
    for key in keys {
        queue.add(key.clone());
        item = item.finish_and_try_get(Outcome::done()).expect("the key is there");
    }
    item.finish(Outcome::done());
}

/// Add distinct keys, then get and finish all of them, a number of times on one queue. A tenth goes through it before.
fn fill_drain(setup: &Setup, name: &'static str, size: usize, (quick, full): (usize, usize)) -> Rows {
    let keys = keys(size);
    let rounds = setup.pick(quick, full);
    let queue = setup.queue();
    fill_and_drain(&queue, &keys[..size / 10]);
    let start = Instant::now();
    for _ in 0..rounds {
        fill_and_drain(&queue, &keys);
    }
    vec![(name, per_item(start.elapsed(), rounds * size))]
}

pub(crate) fn fill_and_drain(queue: &WorkQueue<ObjectKey>, keys: &[ObjectKey]) {
    for key in keys {
        queue.add(key.clone());
    }
    drain(queue);
}

fn drain(queue: &WorkQueue<ObjectKey>) {
    let mut next = queue.try_get();
    while let Some(item) = next {
        next = item.finish_and_try_get(Outcome::done());
    }
}

/// Producers add equal shares of distinct keys while workers get and finish them. All of them are tasks, and all exist before
/// the clock starts. A producer gives way as tokio's own resources do, every 128 adds: unlike Go's runtime, tokio's does not
/// interrupt a task.
fn many_to_many(setup: &Setup, name: &'static str, producers: usize, workers: usize) -> Rows {
    let total = setup.pick(200_000, 1_000_000);
    let keys: Arc<[ObjectKey]> = keys(total).into();
    vec![(name, per_item(pass(&setup.queue(), &keys, producers, workers), total))]
}

pub(crate) fn pass(
    queue: &WorkQueue<ObjectKey>,
    keys: &Arc<[ObjectKey]>,
    producers: usize,
    workers: usize,
) -> Duration {
    runtime().block_on(async {
        let total = keys.len();
        let begin = Arc::new(Barrier::new(producers + 1));
        let (done, all_done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        for _ in 0..workers {
            let (queue, done, all_done) = (queue.clone(), done.clone(), all_done.clone());
            tokio::spawn(async move {
                let mut next = queue.get().await;
                while let Some(item) = next {
                    if done.fetch_add(1, Ordering::Relaxed) + 1 == total {
                        all_done.notify_one();
                    }
                    next = item.finish_and_get(Outcome::done()).await;
                }
            });
        }
        for producer in 0..producers {
            let (queue, keys, begin) = (queue.clone(), keys.clone(), begin.clone());
            tokio::spawn(async move {
                begin.wait().await;
                for key in &keys[producer * total / producers..(producer + 1) * total / producers] {
                    queue.add(key.clone());
                    tokio::task::consume_budget().await;
                }
            });
        }
        let start = Instant::now();
        begin.wait().await;
        all_done.notified().await;
        let elapsed = start.elapsed();
        queue.drain().await;
        elapsed
    })
}

/// Add 1000 keys a thousand times each while nobody gets.
fn dedup(setup: &Setup) -> Rows {
    const ADDS: usize = 1_000_000;
    let keys = keys(1_000);
    let queue = setup.queue();
    let start = Instant::now();
    for key in keys.iter().cycle().take(ADDS) {
        queue.add(key.clone());
    }
    let len = queue.len();
    let elapsed = start.elapsed();
    assert_eq!(len, keys.len());
    vec![("dedup-1m", per_item(elapsed, ADDS))]
}

/// Fill and drain over 100 priorities.
fn priorities(setup: &Setup) -> Rows {
    const SIZE: usize = 100_000;
    let keys = keys(SIZE);
    let rounds = setup.pick(2, 5);
    let queue = setup.queue();
    let start = Instant::now();
    for _ in 0..rounds {
        fill_and_drain_priorities(&queue, &keys);
    }
    vec![("priorities-100k", per_item(start.elapsed(), rounds * SIZE))]
}

pub(crate) fn fill_and_drain_priorities(queue: &WorkQueue<ObjectKey>, keys: &[ObjectKey]) {
    for (key, level) in keys.iter().zip((0..100).cycle()) {
        queue.add_with(key.clone(), Add { priority: Some(Priority(level)), ..Add::default() });
    }
    drain(queue);
}

pub(crate) fn per_item(elapsed: Duration, items: usize) -> f64 {
    elapsed.as_nanos() as f64 / items as f64
}
