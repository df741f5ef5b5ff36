//! Throughput of adds, gets and finishes, with one or many producers and workers.

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
    workqueue::{Add, Item, Outcome, Priority, WorkQueue},
};
use tokio::sync::{Barrier, Notify};

/// Operations of the plain workloads, for our queue and the [floor](crate::floor).
pub(crate) trait Queue: Clone + Send + Sync + 'static {
    type Item: Send;
    fn new(setup: &Setup) -> Self;
    fn add(&self, key: ObjectKey);
    fn try_get(&self) -> Option<Self::Item>;
    fn get(&self) -> impl Future<Output = Option<Self::Item>> + Send;
    fn done_and_try_get(item: Self::Item) -> Option<Self::Item>;
    fn done_and_get(item: Self::Item) -> impl Future<Output = Option<Self::Item>> + Send;
}

impl Queue for WorkQueue<ObjectKey> {
    type Item = Item<ObjectKey>;

    fn new(setup: &Setup) -> Self {
        setup.queue()
    }

    fn add(&self, key: ObjectKey) {
        self.add(key);
    }

    fn try_get(&self) -> Option<Self::Item> {
        self.try_get()
    }

    fn get(&self) -> impl Future<Output = Option<Self::Item>> + Send {
        self.get()
    }

    fn done_and_try_get(item: Self::Item) -> Option<Self::Item> {
        item.finish_and_try_get(Outcome::done())
    }

    fn done_and_get(item: Self::Item) -> impl Future<Output = Option<Self::Item>> + Send {
        item.finish_and_get(Outcome::done())
    }
}

pub(crate) fn all() -> Vec<Workload> {
    let mut all = plain::<WorkQueue<ObjectKey>>();
    all.push(Workload {
        names: &["dedup-1m"],
        unit: "ns",
        run: dedup,
    });
    all.push(Workload {
        names: &["priorities-100k"],
        unit: "ns",
        run: priorities,
    });
    all
}

pub(crate) fn plain<Q: Queue>() -> Vec<Workload> {
    let workload = |names, run| Workload {
        names,
        unit: "ns",
        run,
    };
    vec![
        workload(&["steady"], steady::<Q>),
        workload(&["filldrain-1k"], |s| {
            fill_drain::<Q>(s, "filldrain-1k", 1_000, (200, 1000))
        }),
        workload(&["filldrain-100k"], |s| {
            fill_drain::<Q>(s, "filldrain-100k", 100_000, (2, 10))
        }),
        workload(&["filldrain-1m"], |s| {
            fill_drain::<Q>(s, "filldrain-1m", 1_000_000, (1, 1))
        }),
        workload(&["mpmc-1p1w"], |s| many_to_many::<Q>(s, "mpmc-1p1w", 1, 1)),
        workload(&["mpmc-8p8w"], |s| many_to_many::<Q>(s, "mpmc-8p8w", 8, 8)),
        workload(&["mpmc-64p64w"], |s| {
            many_to_many::<Q>(s, "mpmc-64p64w", 64, 64)
        }),
        workload(&["mpmc-1p64w"], |s| {
            many_to_many::<Q>(s, "mpmc-1p64w", 1, 64)
        }),
    ]
}

/// Adds, gets and finishes one key at a time, cycling over 1024 keys.
fn steady<Q: Queue>(setup: &Setup) -> Rows {
    let keys = keys(1024);
    let items = setup.pick(300_000, 2_000_000);
    let queue = Q::new(setup);
    cycle(&queue, &keys, items / 10);
    let start = Instant::now();
    cycle(&queue, &keys, items);
    vec![("steady", per_item(start.elapsed(), items))]
}

/// The loop of a worker, which finishes a key when it gets the next.
pub(crate) fn cycle<Q: Queue>(queue: &Q, keys: &[ObjectKey], items: usize) {
    let mut keys = keys.iter().cycle().take(items);
    keys.by_ref().take(1).for_each(|key| queue.add(key.clone()));
    let mut item = queue.try_get().expect("the key is there");
    for key in keys {
        queue.add(key.clone());
        item = Q::done_and_try_get(item).expect("the key is there");
    }
    assert!(Q::done_and_try_get(item).is_none());
}

/// Adds distinct keys, then gets and finishes all of them, in several rounds on one queue. A tenth
/// of the keys warms it up.
fn fill_drain<Q: Queue>(
    setup: &Setup,
    name: &'static str,
    size: usize,
    (quick, full): (usize, usize),
) -> Rows {
    let keys = keys(size);
    let rounds = setup.pick(quick, full);
    let queue = Q::new(setup);
    fill_and_drain(&queue, &keys[..size / 10]);
    let start = Instant::now();
    for _ in 0..rounds {
        fill_and_drain(&queue, &keys);
    }
    vec![(name, per_item(start.elapsed(), rounds * size))]
}

pub(crate) fn fill_and_drain<Q: Queue>(queue: &Q, keys: &[ObjectKey]) {
    for key in keys {
        queue.add(key.clone());
    }
    drain(queue);
}

fn drain<Q: Queue>(queue: &Q) {
    let mut next = queue.try_get();
    while let Some(item) = next {
        next = Q::done_and_try_get(item);
    }
}

/// Producers add equal shares of distinct keys while workers get and finish them.
///
/// All producers and workers are tasks that exist before the measurement. A producer yields every
/// 128 adds, tokio's cooperative budget. Unlike Go's runtime, tokio does not preempt tasks.
fn many_to_many<Q: Queue>(
    setup: &Setup,
    name: &'static str,
    producers: usize,
    workers: usize,
) -> Rows {
    let total = setup.pick(200_000, 1_000_000);
    let keys: Arc<[ObjectKey]> = keys(total).into();
    vec![(
        name,
        per_item(
            produce_and_consume(&Q::new(setup), &keys, producers, workers),
            total,
        ),
    )]
}

/// Returns the time until the workers have finished all keys of the producers.
pub(crate) fn produce_and_consume<Q: Queue>(
    queue: &Q,
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
                    next = Q::done_and_get(item).await;
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
        start.elapsed()
    })
}

/// Adds 1000 keys a thousand times each without a worker.
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

/// Adds and drains keys of 100 priorities.
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
        queue.add_with(
            key.clone(),
            Add {
                priority: Some(Priority(level)),
                ..Add::default()
            },
        );
    }
    drain(queue);
}

pub(crate) fn per_item(elapsed: Duration, items: usize) -> f64 {
    elapsed.as_nanos() as f64 / items as f64
}
