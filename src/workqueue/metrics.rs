//! Where a queue's numbers go.
//!
//! A queue does not push: it hands out a [`Probe`], and whoever exports metrics reads it when asked. So counting costs the
//! queue next to nothing, a page never shows a depth that contradicts its counters, and the series of a queue that is gone
//! are gone.

use super::{Band, Histogram, Key, Stats, queue::Shared};
use crate::sync::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};
use std::{
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
/// A clone shares its queues. Of queues with one name, the page shows the one made last. `steersman_workqueue_oldest_seconds`, the age of the longest waiting key per band, and
/// `steersman_workqueue_rejected_total`, adds after shutdown, are what upstream does not measure.
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
        probes.retain(|other| other.name != probe.name && other.queue.strong_count() > 0);
        probes.push(probe);
    }
}

/// One queue on the page.
struct Row {
    /// As a label's value is written.
    name: String,
    stats: Stats,
}

type Labels<'a> = [(&'static str, &'a str); 2];

impl Row {
    fn labels(&self) -> Labels<'_> {
        [("name", &*self.name), ("controller", &*self.name)]
    }
}

/// A metric's name without what the encoder adds to it, and its help.
type Named = (&'static str, &'static str);

impl Collector for Prometheus {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        encode_queues(&mut page, self.read())
    }
}

/// Queues, by their names.
pub(crate) fn encode_queues(page: &mut DescriptorEncoder<'_>, queues: Vec<(String, Stats)>) -> fmt::Result {
    let rows: Vec<_> = queues.into_iter().map(|(name, stats)| Row { name: escape(&name), stats }).collect();
    if rows.is_empty() {
        return Ok(());
    }
    per_band(page, &rows, ("workqueue_depth", "Keys ready to run"), |stats, band| stats.band(band).depth as f64)?;
    per_band(
        page,
        &rows,
        ("steersman_workqueue_oldest_seconds", "How long the longest waiting ready key has waited"),
        |stats, band| stats.band(band).oldest.as_secs_f64(),
    )?;
    counter(page, &rows, ("workqueue_adds", "How often a key became ready"), |stats| stats.adds)?;
    counter(page, &rows, ("workqueue_retries", "How often a key was added with a delay"), |stats| stats.retries)?;
    counter(page, &rows, ("steersman_workqueue_rejected", "Adds ignored after shutdown"), |stats| stats.rejected)?;
    counter(
        page,
        &rows,
        ("steersman_workqueue_limiter_panics", "Panics of the limiter, answered with the default delay"),
        |stats| stats.limiter_panics,
    )?;
    histogram(page, &rows, ("workqueue_queue_duration_seconds", "From becoming ready to a worker"), |stats| {
        &stats.waited
    })?;
    histogram(page, &rows, ("workqueue_work_duration_seconds", "From a worker to finished"), |stats| &stats.worked)?;
    gauge(page, &rows, ("workqueue_unfinished_work_seconds", "The ages of all runs, added up"), |stats| {
        stats.unfinished.as_secs_f64()
    })?;
    gauge(page, &rows, ("workqueue_longest_running_processor_seconds", "The age of the longest run"), |stats| {
        stats.longest_running.as_secs_f64()
    })
}

impl Prometheus {
    /// The queues there are; those that are gone are forgotten.
    fn read(&self) -> Vec<(String, Stats)> {
        let mut queues = Vec::new();
        self.probes.lock().retain(|probe| {
            let stats = probe.stats();
            let alive = stats.is_some();
            queues.extend(stats.map(|stats| (probe.name.to_string(), stats)));
            alive
        });
        queues
    }
}

/// The encoder writes a label's value as it is.
fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

fn family(
    page: &mut DescriptorEncoder<'_>,
    (name, help): Named,
    kind: MetricType,
    encode: impl FnOnce(MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    encode(page.encode_descriptor(name, help, None, kind)?)
}

fn per_band(
    page: &mut DescriptorEncoder<'_>,
    rows: &[Row],
    named: Named,
    value: impl Fn(&Stats, Band) -> f64,
) -> fmt::Result {
    family(page, named, MetricType::Gauge, |mut metric| {
        for row in rows {
            let [name, controller] = row.labels();
            for band in Band::ALL {
                let priority = band.priority().0.to_string();
                let labels = [name, controller, ("priority", &priority)];
                metric.encode_family(&Pairs(&labels))?.encode_gauge(&value(&row.stats, band))?;
            }
        }
        Ok(())
    })
}

fn gauge(page: &mut DescriptorEncoder<'_>, rows: &[Row], named: Named, value: impl Fn(&Stats) -> f64) -> fmt::Result {
    family(page, named, MetricType::Gauge, |mut metric| {
        rows.iter().try_for_each(|row| metric.encode_family(&Pairs(&row.labels()))?.encode_gauge(&value(&row.stats)))
    })
}

fn counter(page: &mut DescriptorEncoder<'_>, rows: &[Row], named: Named, value: impl Fn(&Stats) -> u64) -> fmt::Result {
    family(page, named, MetricType::Counter, |mut metric| {
        rows.iter().try_for_each(|row| {
            metric.encode_family(&Pairs(&row.labels()))?.encode_counter::<NoLabelSet, _, u64>(&value(&row.stats), None)
        })
    })
}

fn histogram(
    page: &mut DescriptorEncoder<'_>,
    rows: &[Row],
    named: Named,
    value: impl Fn(&Stats) -> &Histogram,
) -> fmt::Result {
    family(page, named, MetricType::Histogram, |mut metric| {
        rows.iter().try_for_each(|row| {
            let histogram = value(&row.stats);
            let bounds = Histogram::BOUNDS.into_iter().chain([f64::MAX]);
            let buckets: Vec<_> = bounds.zip(*histogram.counts()).collect();
            metric.encode_family(&Pairs(&row.labels()))?.encode_histogram::<NoLabelSet>(
                histogram.seconds(),
                histogram.count(),
                &buckets,
                None,
            )
        })
    })
}

/// Labels of a length known only here.
#[derive(Debug)]
struct Pairs<'a>(&'a [(&'static str, &'a str)]);

impl EncodeLabelSet for Pairs<'_> {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|pair| prometheus_client::encoding::EncodeLabel::encode(pair, encoder.encode_label()))
    }
}
