//! A producer that keeps a fixed rate, eight workers, and the time or the CPU it takes to bring an item from one to the other.
//!
//! The producer sleeps between items and is woken through the runtime's poller, the way an informer waits for its connection; its
//! counterpart in Go does the same. One that spins fills one of two cores, and all one sees is how the kernel shares the other.

use crate::{
    Rows, Setup, Workload, keys, number, percentile, runtime,
    timers::{micros, two_percentiles},
};
use std::{
    io::Write,
    os::unix,
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
use tokio::{io::AsyncReadExt, net::UnixStream};

const WORKERS: usize = 8;

/// How often the producer wakes up: it adds one item each time for 10,000 per second, ten in a row for 100,000 per second.
const TICK: Duration = Duration::from_micros(100);

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            names: &["latency-10k-p50", "latency-10k-p99"],
            unit: "us",
            run: |setup| two_percentiles(["latency-10k-p50", "latency-10k-p99"], latencies(setup, 1)),
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
        Workload { names: &["cpu-10k"], unit: "us", run: cpu },
    ]
}

/// Times in nanoseconds since the start, by the key's number.
struct OpenLoop {
    keys: Vec<ObjectKey>,
    per_tick: usize,
    added: Vec<AtomicU64>,
    got: Vec<AtomicU64>,
}

impl OpenLoop {
    fn new(setup: &Setup, per_tick: usize) -> Arc<Self> {
        let count = 10_000 * per_tick * setup.pick(1, 2);
        let times = || (0..count).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { keys: keys(count), per_tick, added: times(), got: times() })
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

    /// Add the keys, and record when. Makes up for ticks it missed at once.
    async fn produce(self: Arc<Self>, start: Instant, add: impl Fn(&ObjectKey)) {
        let mut ticks = Ticker::new();
        let mut next = 0;
        while next < self.keys.len() {
            let end = (next + ticks.wait().await * self.per_tick).min(self.keys.len());
            for i in next..end {
                self.added[i].store(nanos(start.elapsed()), Ordering::Relaxed);
                add(&self.keys[i]);
            }
            next = end;
        }
    }
}

/// Wakes a task at regular times: a thread writes a byte to a socket at every tick.
struct Ticker(UnixStream);

impl Ticker {
    fn new() -> Self {
        let (mut ours, theirs) = unix::net::UnixStream::pair().expect("sockets can be made");
        std::thread::spawn(move || {
            let start = Instant::now();
            // Until nobody listens any more.
            for tick in 1.. {
                std::thread::sleep((TICK * tick).saturating_sub(start.elapsed()));
                if ours.write_all(&[0]).is_err() {
                    return;
                }
            }
        });
        theirs.set_nonblocking(true).expect("sockets can be polled");
        Self(UnixStream::from_std(theirs).expect("the runtime polls"))
    }

    /// How many ticks have passed since the last call; at least one.
    async fn wait(&mut self) -> usize {
        self.0.read(&mut [0; 256]).await.expect("the thread ticks")
    }
}

/// The time from just before `add` to just after `get`.
fn latencies(setup: &Setup, per_tick: usize) -> Vec<f64> {
    let this = OpenLoop::new(setup, per_tick);
    let queue = setup.queue();
    runtime().block_on(async {
        let start = Instant::now();
        this.spawn_workers(&queue, start);
        let producer = tokio::spawn(this.clone().produce(start, {
            let queue = queue.clone();
            move |key| queue.add(key.clone())
        }));
        producer.await.expect("the producer does not panic");
        queue.drain().await;
    });
    this.got
        .iter()
        .zip(&this.added)
        .map(|(got, added)| micros(Duration::from_nanos(got.load(Ordering::Relaxed) - added.load(Ordering::Relaxed))))
        .collect()
}

/// CPU time of the whole process per item at 10,000 items per second, less that of the same producer without a queue.
fn cpu(setup: &Setup) -> Rows {
    let this = OpenLoop::new(setup, 1);
    let queue = setup.queue();
    let start = Instant::now();
    let runtime = runtime();
    let produce = |add: Box<dyn Fn(&ObjectKey) + Send>| {
        let before = cpu_time();
        runtime.block_on(runtime.spawn(this.clone().produce(start, add))).expect("the producer does not panic");
        cpu_time() - before
    };
    let idle = produce(Box::new(|_| ()));
    runtime.block_on(async { this.spawn_workers(&queue, start) });
    let used = produce(Box::new(move |key| queue.add(key.clone())));
    vec![("cpu-10k", (used - idle) / 1e3 / this.keys.len() as f64)]
}

/// Nanoseconds that this process has run, also in threads that have ended, to the hundredth of a second.
fn cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc is there: this is measured on Linux only");
    // Behind the name, which may hold anything, user and system time are the 12th and 13th field.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * 1e7
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
