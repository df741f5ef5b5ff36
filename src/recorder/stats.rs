//! What became of events.

use super::Recorder;
use crate::page::{Named, Page};
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use serde::Serialize;
use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// What became of what was said. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecorderStats {
    /// Events so far.
    pub said: u64,
    /// Writes: of a new event, or of how often one was repeated.
    pub written: u64,
    /// Those that were repeated, and are in a count.
    pub repeated: u64,
    /// Those that were dropped because too much was said of their object.
    pub limited: u64,
    /// Those that were dropped because the queue was full, or because it ended before them.
    pub dropped: u64,
    /// Those that the server did not take, or could not be asked to for too long.
    pub failed: u64,
    /// Those that wait.
    pub waiting: usize,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) said: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) repeated: AtomicU64,
    pub(super) limited: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self) -> RecorderStats {
        let Self { said, written, repeated, limited, dropped, failed } = self;
        let [said, written, repeated, limited, dropped, failed] =
            [said, written, repeated, limited, dropped, failed].map(|counter| counter.load(Relaxed));
        RecorderStats { said, written, repeated, limited, dropped, failed, waiting: 0 }
    }
}

/// Recorders as metrics, labelled `reporter`. It does not keep them alive; a clone shares them.
///
/// | metric | |
/// |---|---|
/// | `steersman_events_said_total` | events |
/// | `steersman_events_written_total` | writes of them |
/// | `steersman_events_dropped_total` | what was not written, by `why`: `limited`, `full`, `failed` |
/// | `steersman_events_waiting` | what waits to be written |
#[derive(Clone, Debug, Default)]
pub struct RecorderMetrics(Arc<Mutex<Vec<Weak<super::Shared>>>>);

impl RecorderMetrics {
    /// Show this one, too. Of recorders with one name the sum is shown.
    pub fn watch(&self, recorder: &Recorder) {
        self.0.lock().push(Arc::downgrade(&recorder.0));
    }

    /// By name; equal names are summed up, since series are told apart by it.
    fn read(&self) -> Vec<(String, RecorderStats)> {
        let mut all: Vec<(String, RecorderStats)> = Vec::new();
        self.0.lock().retain(|recorder| {
            let Some(recorder) = recorder.upgrade().map(Recorder) else { return false };
            let stats = recorder.stats();
            match all.iter_mut().find(|(name, _)| name == recorder.name()) {
                Some((_, sum)) => sum.add(&stats),
                None => all.push((recorder.name().to_owned(), stats)),
            }
            true
        });
        all
    }
}

impl RecorderStats {
    fn add(&mut self, other: &Self) {
        self.said += other.said;
        self.written += other.written;
        self.repeated += other.repeated;
        self.limited += other.limited;
        self.dropped += other.dropped;
        self.failed += other.failed;
        self.waiting += other.waiting;
    }
}

impl Collector for RecorderMetrics {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        let rows = self.read();
        if rows.is_empty() {
            return Ok(());
        }
        let of = |name: &str| vec![("reporter", name.to_owned())];
        let mut page = Page(&mut page);
        let mut counter = |named: Named, value: fn(&RecorderStats) -> u64| {
            page.counters(named, rows.iter().map(|(name, stats)| (of(name), value(stats))))
        };
        counter(("steersman_events_said", "Events of objects that were said"), |stats| stats.said)?;
        counter(("steersman_events_written", "Writes of events, and of how often they were repeated"), |stats| {
            stats.written
        })?;
        let dropped = rows.iter().flat_map(|(name, stats)| {
            let whys = [("limited", stats.limited), ("full", stats.dropped), ("failed", stats.failed)];
            whys.map(|(why, many)| (vec![("reporter", name.clone()), ("why", why.to_owned())], many))
        });
        page.counters(("steersman_events_dropped", "Events that were not written, and why"), dropped)?;
        page.gauges(
            ("steersman_events_waiting", "Events that wait to be written"),
            rows.iter().map(|(name, stats)| (of(name), stats.waiting as f64)),
        )
    }
}
