//! A producer that keeps a fixed rate, however long it takes to get rid of what it sends; and the time or the CPU that this takes. Shared by the benches of the
//! queue and the controller and by kube-runtime's.
//!
//! The producer sleeps between ticks and is woken through the runtime's poller, the way an informer waits for its connection; its counterpart in Go does
//! the same. One that spins fills one of two cores, and all one sees is how the kernel shares the other.

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

/// How often the producer wakes up: it sends one each time for 10,000 per second, ten in a row for 100,000 per second.
pub(crate) const TICK: Duration = Duration::from_micros(100);

/// When each of a number of things was sent, and when it arrived: nanoseconds since the start.
pub(crate) struct OpenLoop {
    start: Instant,
    sent: Vec<AtomicU64>,
    arrived: Vec<AtomicU64>,
}

impl OpenLoop {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let times = || (0..count).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { start: Instant::now(), sent: times(), arrived: times() })
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Sends numbers, so many at every tick, and records when. Makes up for ticks it missed at once.
    pub(crate) async fn produce(&self, tick: Duration, per_tick: usize, mut send: impl FnMut(usize)) {
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

    /// To be called first thing where it arrives.
    pub(crate) fn arrived(&self, number: usize) {
        self.arrived[number].store(self.now(), Ordering::Relaxed);
    }

    /// Microseconds, in the order of sending. All have to have arrived.
    pub(crate) fn latencies(&self) -> Vec<f64> {
        let time = |at: &AtomicU64| at.load(Ordering::Relaxed);
        self.arrived.iter().zip(&self.sent).map(|(arrived, sent)| (time(arrived) - time(sent)) as f64 / 1e3).collect()
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Wakes a task at regular times: a thread writes a byte to a socket at every tick.
struct Ticker(UnixStream);

impl Ticker {
    fn new(tick: Duration) -> Self {
        let (mut ours, theirs) = unix::net::UnixStream::pair().expect("sockets can be made");
        std::thread::spawn(move || {
            let start = Instant::now();
            // Until nobody listens any more.
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

    /// How many ticks have passed since the last call; at least one.
    async fn wait(&mut self) -> usize {
        self.0.read(&mut [0; 256]).await.expect("the thread ticks")
    }
}

/// Measures how long all threads of this process run, also those that end meanwhile.
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

/// `percent` of all values are at most this.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    sorted[((sorted.len() as f64 * percent / 100.0).ceil() as usize).clamp(1, sorted.len()) - 1]
}
