//! Metrics of queues.
//!
//! A queue does not push metrics. It registers a [`Probe`], which the exporter reads on demand.
//! Counting is therefore cheap, depth and counters are consistent, and the series of a dropped
//! queue disappear.

use super::{Band, BandStats, Histogram, Key, Stats, queue::Shared};
use crate::{
    prometheus::{Buckets, Named, Page},
    sync::Mutex,
};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Weak},
};

/// Receiver of the probes of queues.
///
/// Pass it as [`QueueOptions::metrics`](super::QueueOptions::metrics). Use [`Prometheus`], or
/// implement it for another system.
pub trait Metrics: Send + Sync + 'static {
    /// Registers the probe of a new queue that has a name. Default: does nothing.
    fn watch(&self, probe: Probe) {
        drop(probe);
    }
}

/// Weak handle that reads the counters of one queue.
#[derive(Clone)]
pub struct Probe {
    name: Arc<str>,
    queue: Weak<dyn Watched>,
}

/// Queue with any type of key.
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
        Self {
            name: name.into(),
            queue,
        }
    }

    /// Returns the name of the queue.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn is_alive(&self) -> bool {
        self.queue.strong_count() > 0
    }

    /// Returns the current counters; `None` once the queue is dropped.
    pub fn stats(&self) -> Option<Stats> {
        self.queue.upgrade().map(|queue| queue.stats())
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Prometheus collector of queues, with the metric names of client-go.
///
/// The labels are those of controller-runtime, so that dashboards work unchanged. The label
/// `priority` is that of the nearest [`Band`]: three series per queue, whatever priorities are
/// used.
///
/// Clones share the queues. If several queues have the same name, the newest one is exported. These
/// metrics are additional:
///
/// | metric | meaning |
/// |---|---|
/// | `steersman_workqueue_oldest_seconds` | longest time that a key has been ready, per band; only the next key of each priority is considered |
/// | `steersman_workqueue_retry_delay_seconds` | delays of keys that were added with one |
/// | `steersman_workqueue_delayed`, `steersman_workqueue_parked` | delayed and parked keys |
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

/// Name and counters of a queue.
type Row = (String, Stats);

impl Collector for Prometheus {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        encode_queues(&mut page, &self.read())
    }
}

impl Prometheus {
    /// Returns the newest queue of each name, and removes dropped ones.
    fn read(&self) -> Vec<Row> {
        // Read without the lock: this may wake getters or drop the last handle of a queue, and both
        // can create queues.
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

/// Encodes the metrics of queues.
pub(crate) fn encode_queues(page: &mut DescriptorEncoder<'_>, rows: &[Row]) -> fmt::Result {
    if rows.is_empty() {
        Ok(())
    } else {
        write(&mut Page(page), rows)
    }
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
    per_band(
        ("workqueue_depth", "Number of requests that are ready"),
        |band| band.depth as f64,
    )?;
    per_band(
        (
            "steersman_workqueue_oldest_seconds",
            "Time that the oldest ready request has waited",
        ),
        |band| band.oldest.as_secs_f64(),
    )?;
    let mut counter = |named: Named, value: fn(&Stats) -> u64| {
        page.counters(
            named,
            rows.iter().map(|(name, stats)| (of(name), value(stats))),
        )
    };
    counter(
        ("workqueue_adds", "Number of requests that became ready"),
        |stats| stats.adds,
    )?;
    counter(
        ("workqueue_retries", "Number of requests added with a delay"),
        |stats| stats.retries,
    )?;
    counter(
        (
            "steersman_workqueue_rejected",
            "Number of requests rejected after shutdown",
        ),
        |stats| stats.rejected,
    )?;
    counter(
        (
            "steersman_workqueue_limiter_panics",
            "Number of panics of the limiter, replaced by the default delay",
        ),
        |stats| stats.limiter_panics,
    )?;
    let mut histogram = |named: Named, value: fn(&Stats) -> &Histogram| {
        page.histograms(
            named,
            rows.iter()
                .map(|(name, stats)| (of(name), buckets(value(stats)))),
        )
    };
    histogram(
        (
            "workqueue_queue_duration_seconds",
            "Time from ready until a worker takes the request",
        ),
        |stats| &stats.waited,
    )?;
    histogram(
        (
            "workqueue_work_duration_seconds",
            "Time that a worker takes for a request",
        ),
        |stats| &stats.worked,
    )?;
    histogram(
        (
            "steersman_workqueue_retry_delay_seconds",
            "Delay of requests added with a delay",
        ),
        |stats| &stats.delays,
    )?;
    let mut gauge = |named: Named, value: fn(&Stats) -> f64| {
        page.gauges(
            named,
            rows.iter().map(|(name, stats)| (of(name), value(stats))),
        )
    };
    gauge(
        (
            "workqueue_unfinished_work_seconds",
            "Sum of the ages of all running reconciles",
        ),
        |stats| stats.unfinished.as_secs_f64(),
    )?;
    gauge(
        (
            "workqueue_longest_running_processor_seconds",
            "Age of the longest running reconcile",
        ),
        |stats| stats.longest_running.as_secs_f64(),
    )?;
    gauge(
        (
            "steersman_workqueue_delayed",
            "Number of requests that wait for their delay",
        ),
        |stats| stats.delayed as f64,
    )?;
    gauge(
        ("steersman_workqueue_parked", "Number of parked requests"),
        |stats| stats.parked as f64,
    )
}

fn buckets(histogram: &Histogram) -> Buckets {
    let bounds = Histogram::BOUNDS.into_iter().chain([f64::MAX]);
    Buckets {
        buckets: bounds.zip(*histogram.counts()).collect(),
        sum: histogram.seconds(),
    }
}
