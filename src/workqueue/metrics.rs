//! Where a queue's numbers go.
//!
//! A queue does not push: it hands out a [`Probe`], and whoever exports metrics reads it when asked. So counting costs the
//! queue next to nothing, a page never shows a depth that contradicts its counters, and the series of a queue that is gone
//! are gone.

use super::{Band, BandStats, Histogram, Key, Stats, queue::Shared};
use crate::{
    page::{Buckets, Named, Page},
    sync::Mutex,
};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Weak},
};

/// Takes the probes of the queues it is given to: [`QueueOptions::metrics`](super::QueueOptions::metrics).
/// Use [`Prometheus`], or implement it for another system.
pub trait Metrics: Send + Sync + 'static {
    /// A queue with a name was made. Nothing is done with it by default.
    fn watch(&self, probe: Probe) {
        drop(probe);
    }
}

/// Reads the numbers of one queue, without keeping it alive.
#[derive(Clone)]
pub struct Probe {
    name: Arc<str>,
    queue: Weak<dyn Watched>,
}

/// A queue whose kind of key does not matter.
trait Watched: Send + Sync {
    fn stats(&self) -> Stats;
}

impl<K: Key> Watched for Shared<K> {
    fn stats(&self) -> Stats {
        Self::stats(self)
    }
}

impl Probe {
    pub(super) fn new<K: Key>(name: String, queue: &Arc<Shared<K>>) -> Self {
        let queue: Weak<Shared<K>> = Arc::downgrade(queue);
        Self { name: name.into(), queue }
    }

    /// The queue's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn is_alive(&self) -> bool {
        self.queue.strong_count() > 0
    }

    /// The numbers now; `None` once the queue is gone.
    pub fn stats(&self) -> Option<Stats> {
        self.queue.upgrade().map(|queue| queue.stats())
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Queues on a Prometheus page, with client-go's names and controller-runtime's labels, so that dashboards keep working.
/// The label `priority` is that of the nearest [`Band`]: three series per queue, whatever priorities are used.
///
/// A clone shares its queues. Of queues with one name, the page shows the one made last of those that are still there. What upstream does not
/// measure:
///
/// | metric | |
/// |---|---|
/// | `steersman_workqueue_oldest_seconds` | how long the key that is next in its line has been ready, per band, the longest of all lines |
/// | `steersman_workqueue_retry_delay_seconds` | how long keys were to wait that were added with a delay |
/// | `steersman_workqueue_delayed`, `steersman_workqueue_parked` | keys that wait for a time, or to be unparked |
/// | `steersman_workqueue_rejected_total` | adds after shutdown |
/// | `steersman_workqueue_limiter_panics_total` | panics of the limiter |
///
/// ```
/// use prometheus_client::{encoding::text::encode, registry::Registry};
/// use std::sync::Arc;
/// use steersman::workqueue::{Prometheus, QueueOptions, WorkQueue};
///
/// let metrics = Prometheus::default();
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(metrics.clone()));
///
/// let queue = WorkQueue::new(QueueOptions {
///     name: "website".into(),
///     metrics: Some(Arc::new(metrics)),
///     ..QueueOptions::default()
/// });
/// queue.add("home");
///
/// let mut page = String::new();
/// encode(&mut page, &registry).unwrap();
/// assert!(page.contains(r#"workqueue_depth{name="website",controller="website",priority="0"} 1"#));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Prometheus {
    probes: Arc<Mutex<Vec<Probe>>>,
}

impl Metrics for Prometheus {
    fn watch(&self, probe: Probe) {
        let mut probes = self.probes.lock();
        probes.retain(Probe::is_alive);
        probes.push(probe);
    }
}

/// One queue on the page.
type Row = (String, Stats);

impl Collector for Prometheus {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        encode_queues(&mut page, &self.read())
    }
}

impl Prometheus {
    /// The queues there are, the last of each name; those that are gone are forgotten.
    fn read(&self) -> Vec<Row> {
        // Read without the lock: that may wake getters, or drop what a queue held last, and either may make queues.
        let probes = self.probes.lock().clone();
        let mut shown = HashSet::new();
        let mut rows = Vec::new();
        for probe in probes.iter().rev() {
            if !shown.contains(probe.name())
                && let Some(stats) = probe.stats()
            {
                shown.insert(probe.name());
                rows.push((probe.name().to_owned(), stats));
            }
        }
        rows.reverse();
        self.probes.lock().retain(Probe::is_alive);
        rows
    }
}

/// Queues, by their names.
pub(crate) fn encode_queues(page: &mut DescriptorEncoder<'_>, rows: &[Row]) -> fmt::Result {
    if rows.is_empty() { Ok(()) } else { write(&mut Page(page), rows) }
}

fn write(page: &mut Page<'_, '_>, rows: &[Row]) -> fmt::Result {
    let of = |name: &str| vec![("name", name.to_owned()), ("controller", name.to_owned())];
    let mut per_band = |named: Named, value: fn(&BandStats) -> f64| {
        let samples = rows.iter().flat_map(|(name, stats)| {
            Band::ALL.map(|band| {
                let mut labels = of(name);
                labels.push(("priority", band.priority().0.to_string()));
                (labels, value(&stats.band(band)))
            })
        });
        page.gauges(named, samples)
    };
    per_band(("workqueue_depth", "Keys ready to run"), |band| band.depth as f64)?;
    per_band(
        (
            "steersman_workqueue_oldest_seconds",
            "How long the key that is next in its line has been ready, the longest of all lines",
        ),
        |band| band.oldest.as_secs_f64(),
    )?;
    let mut counter = |named: Named, value: fn(&Stats) -> u64| {
        page.counters(named, rows.iter().map(|(name, stats)| (of(name), value(stats))))
    };
    counter(("workqueue_adds", "How often a key became ready"), |stats| stats.adds)?;
    counter(("workqueue_retries", "How often a key was added with a delay"), |stats| stats.retries)?;
    counter(("steersman_workqueue_rejected", "Adds ignored after shutdown"), |stats| stats.rejected)?;
    counter(
        ("steersman_workqueue_limiter_panics", "Panics of the limiter, answered with the default delay"),
        |stats| stats.limiter_panics,
    )?;
    let mut histogram = |named: Named, value: fn(&Stats) -> &Histogram| {
        page.histograms(named, rows.iter().map(|(name, stats)| (of(name), buckets(value(stats)))))
    };
    histogram(("workqueue_queue_duration_seconds", "From becoming ready to a worker"), |stats| &stats.waited)?;
    histogram(("workqueue_work_duration_seconds", "From a worker to finished"), |stats| &stats.worked)?;
    histogram(
        ("steersman_workqueue_retry_delay_seconds", "How long keys were to wait that were added with a delay"),
        |stats| &stats.delays,
    )?;
    let mut gauge = |named: Named, value: fn(&Stats) -> f64| {
        page.gauges(named, rows.iter().map(|(name, stats)| (of(name), value(stats))))
    };
    gauge(("workqueue_unfinished_work_seconds", "The ages of all runs, added up"), |stats| {
        stats.unfinished.as_secs_f64()
    })?;
    gauge(("workqueue_longest_running_processor_seconds", "The age of the longest run"), |stats| {
        stats.longest_running.as_secs_f64()
    })?;
    gauge(("steersman_workqueue_delayed", "Keys that wait for a time"), |stats| stats.delayed as f64)?;
    gauge(("steersman_workqueue_parked", "Keys that are parked"), |stats| stats.parked as f64)
}

fn buckets(histogram: &Histogram) -> Buckets {
    let bounds = Histogram::BOUNDS.into_iter().chain([f64::MAX]);
    Buckets { buckets: bounds.zip(*histogram.counts()).collect(), sum: histogram.seconds() }
}
