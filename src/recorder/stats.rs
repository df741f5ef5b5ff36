//! Counters of a recorder.

use super::Recorder;
use crate::prometheus::{Named, Page};
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

/// Counters of a recorder. They never decrease, except `waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecorderStats {
    /// Events recorded.
    pub recorded: u64,
    /// Successful writes of new events and of counts.
    pub written: u64,
    /// Events that repeated an earlier one and were counted.
    pub repeated: u64,
    /// Events dropped because their object had too many.
    pub limited: u64,
    /// Events dropped because the queue was full or the recorder ended.
    pub dropped: u64,
    /// Events that the API server rejected, or that could not be written in time.
    pub failed: u64,
    /// Events waiting in the queue.
    pub waiting: usize,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) recorded: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) repeated: AtomicU64,
    pub(super) limited: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self) -> RecorderStats {
        let Self {
            recorded,
            written,
            repeated,
            limited,
            dropped,
            failed,
        } = self;
        let [recorded, written, repeated, limited, dropped, failed] =
            [recorded, written, repeated, limited, dropped, failed]
                .map(|counter| counter.load(Relaxed));
        RecorderStats {
            recorded,
            written,
            repeated,
            limited,
            dropped,
            failed,
            waiting: 0,
        }
    }
}

/// Metrics of recorders, labelled `reporter`. Clones share their recorders.
///
/// A recorder is shown until it is dropped.
///
/// | metric | meaning |
/// |---|---|
/// | `steersman_events_recorded_total` | events recorded |
/// | `steersman_events_written_total` | successful writes of events |
/// | `steersman_events_dropped_total` | events that were not written, by `reason`: `limited`, `full`, `failed` |
/// | `steersman_events_waiting` | events waiting in the queue |
#[derive(Clone, Debug, Default)]
pub struct RecorderMetrics(Arc<Mutex<Vec<Weak<super::Shared>>>>);

impl RecorderMetrics {
    /// Adds a recorder. Recorders with the same name are added up.
    pub fn watch(&self, recorder: &Recorder) {
        self.0.lock().push(Arc::downgrade(&recorder.0));
    }

    /// Returns the counters by name, with equal names added up.
    fn read(&self) -> Vec<(String, RecorderStats)> {
        let mut all: Vec<(String, RecorderStats)> = Vec::new();
        self.0.lock().retain(|recorder| {
            let Some(recorder) = recorder.upgrade().map(Recorder) else {
                return false;
            };
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
        self.recorded += other.recorded;
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
            page.counters(
                named,
                rows.iter().map(|(name, stats)| (of(name), value(stats))),
            )
        };
        counter(
            (
                "steersman_events_recorded",
                "Number of events that were recorded",
            ),
            |stats| stats.recorded,
        )?;
        counter(
            (
                "steersman_events_written",
                "Number of writes of events and of their counts",
            ),
            |stats| stats.written,
        )?;
        let dropped = rows.iter().flat_map(|(name, stats)| {
            let reasons = [
                ("limited", stats.limited),
                ("full", stats.dropped),
                ("failed", stats.failed),
            ];
            reasons.map(|(reason, count)| {
                (
                    vec![("reporter", name.clone()), ("reason", reason.to_owned())],
                    count,
                )
            })
        });
        page.counters(
            (
                "steersman_events_dropped",
                "Number of events that were not written, by reason",
            ),
            dropped,
        )?;
        page.gauges(
            (
                "steersman_events_waiting",
                "Number of events that wait to be written",
            ),
            rows.iter()
                .map(|(name, stats)| (of(name), stats.waiting as f64)),
        )
    }
}
