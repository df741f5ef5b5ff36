//! A producer that keeps a fixed rate, eight workers, and the time or the CPU it takes to bring an item from one to the other.

use crate::{
    Rows, Setup, Workload, keys, number, percentile, runtime,
    timers::{micros, two_percentiles},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
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
            run: |setup| two_percentiles(["latency-10k-p50", "latency-10k-p99"], latencies(setup, 10_000)),
        },
        Workload {
            names: &["latency-100k-p99"],
            unit: "us",
            run: |setup| {
                let mut latencies = latencies(setup, 100_000);
                latencies.sort_by(f64::total_cmp);
                vec![("latency-100k-p99", percentile(&latencies, 99.0))]
            },
        },
        Workload { names: &["cpu-10k"], unit: "us", run: cpu },
    ]
}

/// Times in nanoseconds since the start, by the key's number.
struct OpenLoop {
    keys: Vec<ObjectKey>,
    gap: Duration,
    added: Vec<AtomicU64>,
    got: Vec<AtomicU64>,
}

impl OpenLoop {
    fn new(setup: &Setup, rate: usize) -> Arc<Self> {
        let count = rate * setup.pick(1, 2);
        let times = || (0..count).map(|_| AtomicU64::new(0)).collect();
        let gap = Duration::from_secs(1) / rate as u32;
        Arc::new(Self { keys: keys(count), gap, added: times(), got: times() })
    }

    /// When key `i` is to be added.
    fn due(&self, i: usize) -> Duration {
        self.gap * i as u32
    }

    fn spawn_workers(self: &Arc<Self>, queue: &WorkQueue<ObjectKey>, start: Instant) {
        for _ in 0..WORKERS {
            let (this, queue) = (self.clone(), queue.clone());
            tokio::spawn(async move {
                let mut next = queue.get().await;
                while let Some(item) = next {
                    this.got[number(&item)].store(nanos(start.elapsed()), Ordering::Relaxed);
                    next = item.finish_and_get(Outcome::done()).await;
                }
            });
        }
    }
}

/// The time from just before `add` to just after `get`. The producer is a task that polls the clock and yields to others in
/// between, as its counterpart in Go does.
fn latencies(setup: &Setup, rate: usize) -> Vec<f64> {
    let this = OpenLoop::new(setup, rate);
    let queue = setup.queue();
    runtime().block_on(async {
        let start = Instant::now();
        this.spawn_workers(&queue, start);
        let producer = tokio::spawn({
            let (this, queue) = (this.clone(), queue.clone());
            async move {
                for (i, key) in this.keys.iter().enumerate() {
                    while start.elapsed() < this.due(i) {
                        tokio::task::yield_now().await;
                    }
                    this.added[i].store(nanos(start.elapsed()), Ordering::Relaxed);
                    queue.add(key.clone());
                }
            }
        });
        producer.await.expect("the producer does not panic");
        queue.drain().await;
    });
    this.got
        .iter()
        .zip(&this.added)
        .map(|(got, added)| micros(Duration::from_nanos(got.load(Ordering::Relaxed) - added.load(Ordering::Relaxed))))
        .collect()
}

/// CPU time of the whole process per item at 10,000 items per second, less that of the same producer without a queue. The
/// producer is a thread that sleeps between items.
fn cpu(setup: &Setup) -> Rows {
    let this = OpenLoop::new(setup, 10_000);
    let queue = setup.queue();
    let pace = |each: &dyn Fn(&ObjectKey)| {
        let start = Instant::now();
        for (i, key) in this.keys.iter().enumerate() {
            std::thread::sleep(this.due(i).saturating_sub(start.elapsed()));
            each(key);
        }
    };
    let runtime = runtime();
    let before = cpu_time();
    pace(&|_| {});
    let idle = cpu_time() - before;

    let _inside = runtime.enter();
    this.spawn_workers(&queue, Instant::now());
    let before = cpu_time();
    pace(&|key| queue.add(key.clone()));
    let used = cpu_time() - before;
    vec![("cpu-10k", (used - idle) / 1e3 / this.keys.len() as f64)]
}

/// Nanoseconds that this process's threads have run, from the kernel's own books.
fn cpu_time() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is there: this is measured on Linux only");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|line| line.split(' ').next()?.parse::<f64>().ok())
        .sum()
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
