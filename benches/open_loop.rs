//! A producer with a fixed rate that does not wait for its consumer, and clocks to measure it.
//!
//! The benches of the queue, the controller and kube-runtime share this file.
//!
//! The producer sleeps between ticks and is woken through the runtime's poller, like an informer
//! that waits for its connection. The producer of the Go peers does the same. A producer that spins
//! would occupy a core, and on a machine with two the result would depend on the kernel's
//! scheduler.

use rustix::time::{ClockId, clock_gettime};
use std::{
    io::Write,
    os::unix,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{io::AsyncReadExt, net::UnixStream};

/// Interval of the producer. It sends one item per tick for 10,000 per second, ten for 100,000.
pub(crate) const TICK: Duration = Duration::from_micros(100);

/// Times at which items were sent and have arrived, in nanoseconds since the start.
pub(crate) struct OpenLoop {
    start: Instant,
    sent: Vec<AtomicU64>,
    arrived: Vec<AtomicU64>,
}

impl OpenLoop {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let times = || (0..count).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            start: Instant::now(),
            sent: times(),
            arrived: times(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Sends all items, `per_tick` at every tick, and records the times. Sends the items of missed
    /// ticks at once.
    pub(crate) async fn produce(
        &self,
        tick: Duration,
        per_tick: usize,
        mut send: impl FnMut(usize),
    ) {
        let mut ticks = Ticker::new(tick);
        let mut next = 0;
        while next < self.len() {
            let end = (next + ticks.wait().await * per_tick).min(self.len());
            for number in next..end {
                self.sent[number].store(self.now(), Ordering::Relaxed);
                send(number);
            }
            next = end;
        }
    }

    /// Records the arrival of an item. The consumer calls it first.
    pub(crate) fn arrived(&self, number: usize) {
        self.arrived[number].store(self.now(), Ordering::Relaxed);
    }

    /// Returns the latencies in microseconds, in the order of sending. All items must have arrived.
    pub(crate) fn latencies(&self) -> Vec<f64> {
        let time = |at: &AtomicU64| at.load(Ordering::Relaxed);
        self.arrived
            .iter()
            .zip(&self.sent)
            .map(|(arrived, sent)| (time(arrived) - time(sent)) as f64 / 1e3)
            .collect()
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Wakes a task at a fixed interval: a thread writes a byte to a socket at every tick.
struct Ticker(UnixStream);

impl Ticker {
    fn new(tick: Duration) -> Self {
        let (mut ours, theirs) = unix::net::UnixStream::pair().expect("sockets can be made");
        std::thread::spawn(move || {
            let start = Instant::now();
            // Ends when the other end of the socket is closed.
            for number in 1.. {
                std::thread::sleep((tick * number).saturating_sub(start.elapsed()));
                if ours.write_all(&[0]).is_err() {
                    return;
                }
            }
        });
        theirs.set_nonblocking(true).expect("sockets can be polled");
        Self(UnixStream::from_std(theirs).expect("the runtime polls"))
    }

    /// Waits for a tick. Returns the number of ticks since the last call.
    async fn wait(&mut self) -> usize {
        self.0.read(&mut [0; 256]).await.expect("the thread ticks")
    }
}

/// Measures the CPU time of all threads of the process, including those that have exited.
pub(crate) struct CpuClock(Duration);

impl CpuClock {
    pub(crate) fn start() -> Self {
        Self(Self::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Self::now().saturating_sub(self.0)
    }

    fn now() -> Duration {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// Returns the smallest value that is not exceeded by `percent` of all values.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    sorted[((sorted.len() as f64 * percent / 100.0).ceil() as usize).clamp(1, sorted.len()) - 1]
}
