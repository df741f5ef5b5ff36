//! Prometheus metrics of controllers.
//!
//! Values are read when the page is collected. The series of a controller end with it.

use super::{Controller, ControllerReport, QueueReport, QueueSnapshot, ReconcileTimes, Shared};
use crate::{
    prometheus::{Buckets, Named, Page},
    source::WatchStats,
    workqueue::{Key, Metrics, encode_queues},
};
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{
    fmt,
    sync::{Arc, Weak},
};

/// Metrics of controllers and their queues.
///
/// Names and labels are those of controller-runtime, so that its dashboards work. Clones share
/// their controllers. If several controllers have the same name, the page shows the one that was
/// built last. A controller that has ended is not shown.
///
/// | metric | meaning |
/// |---|---|
/// | `controller_runtime_reconcile_total` | reconciles by `result`: `success`, `error`, `requeue`, `requeue_after` |
/// | `controller_runtime_reconcile_errors_total` | failed reconciles, including conflicts |
/// | `controller_runtime_terminal_reconcile_errors_total` | failed reconciles that are not retried |
/// | `controller_runtime_reconcile_panics_total` | failed reconciles that panicked |
/// | `controller_runtime_reconcile_timeouts_total` | failed reconciles that exceeded the timeout |
/// | `controller_runtime_reconcile_time_seconds` | histogram of the durations of reconciles |
/// | `controller_runtime_max_concurrent_reconciles` | limit of concurrent reconciles |
/// | `controller_runtime_active_workers` | running reconciles |
/// | `steersman_controller_stuck_reconciles` | reconciles that have been running for longer than [`Options::stuck_after`](super::Options::stuck_after) |
/// | `steersman_controller_conflicts_total` | failed reconciles whose error was a conflict |
/// | `steersman_controller_superseded_total` | reconciles cancelled because their request was queued again |
/// | `steersman_controller_deferred_total` | requests held back until the caches had observed their own writes |
/// | `steersman_controller_deferral_timeouts_total` | deferrals that timed out |
/// | `steersman_source_events_total` | events received, by `source` |
/// | `steersman_source_dropped_total` | events rejected by predicates, by `source` |
/// | `steersman_source_panics_total` | panics of predicates and handlers, by `source` |
/// | `steersman_source_undecoded_total` | events of objects that do not decode, by `source` |
/// | `steersman_source_failures_total` | failed attempts of handlers, by `source` |
/// | `steersman_source_dropped_mappings_total` | failing mappings that are not retried any more, by `source` |
///
/// The metrics of the queues are those of [`Prometheus`](crate::workqueue::Prometheus).
///
/// ```
/// use prometheus_client::registry::Registry;
/// use steersman::{controller::ControllerMetrics, prelude::*};
///
/// # fn example(reconciler: impl Reconciler) -> anyhow::Result<()> {
/// let metrics = ControllerMetrics::default();
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(metrics.clone()));
/// let (controller, task) = Controller::builder("website").metrics(&metrics).build(reconciler)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics {
    controllers: Arc<Mutex<Vec<Probe>>>,
}

/// Weak reference to a controller.
struct Probe {
    name: Arc<str>,
    controller: Weak<dyn Reported>,
}

/// Makes a queue measure its times. The values are read through the controller.
struct Measured;

impl Metrics for Measured {}

/// Controller with any type of request.
trait Reported: Send + Sync {
    /// Returns `None` once the controller has ended.
    fn report(self: Arc<Self>) -> Option<ControllerReport>;
    /// Returns `None` once the controller has ended.
    fn queue_report(self: Arc<Self>) -> Option<QueueReport>;
    fn name(&self) -> &str;
    /// See [`Controller::queue_snapshot`].
    fn queue(self: Arc<Self>, most: usize, key: Option<&str>) -> QueueSnapshot;
}

impl<R: Key> Reported for Shared<R> {
    fn report(self: Arc<Self>) -> Option<ControllerReport> {
        let ended = *self.ended.borrow();
        (!ended).then(|| Controller(self).report())
    }

    fn queue_report(self: Arc<Self>) -> Option<QueueReport> {
        let ended = *self.ended.borrow();
        (!ended).then(|| Controller(self).queue_report())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn queue(self: Arc<Self>, most: usize, key: Option<&str>) -> QueueSnapshot {
        Controller(self).queue_snapshot(most, key)
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Probe").field(&self.name).finish()
    }
}

impl ControllerMetrics {
    /// Returns the metrics to configure on the controller's queue.
    pub(crate) fn of_queue() -> Arc<dyn Metrics> {
        Arc::new(Measured)
    }

    pub(crate) fn watch<R: Key>(&self, controller: &Controller<R>) {
        let (name, shared): (_, Weak<Shared<R>>) =
            (controller.0.name.clone(), Arc::downgrade(&controller.0));
        let mut controllers = self.controllers.lock();
        controllers.retain(|other| other.name != name);
        controllers.push(Probe {
            name,
            controller: shared,
        });
    }

    /// Returns a report of every controller that has not ended.
    pub(crate) fn reports(&self) -> Vec<ControllerReport> {
        self.collect(Reported::report)
    }

    /// Reports the queue of every controller that has not ended.
    pub(crate) fn queues(&self) -> Vec<QueueReport> {
        self.collect(Reported::queue_report)
    }

    fn collect<T>(&self, report: impl Fn(Arc<dyn Reported>) -> Option<T>) -> Vec<T> {
        let mut reports = Vec::new();
        self.controllers.lock().retain(|probe| {
            let report = probe.controller.upgrade().and_then(&report);
            let alive = report.is_some();
            reports.extend(report);
            alive
        });
        reports
    }
}

impl ControllerMetrics {
    /// Returns the queue of the controller with this name, unless it has ended.
    pub(crate) fn queue(
        &self,
        name: &str,
        most: usize,
        key: Option<&str>,
    ) -> Option<QueueSnapshot> {
        let alive: Vec<_> = self
            .controllers
            .lock()
            .iter()
            .filter_map(|probe| probe.controller.upgrade())
            .collect();
        // Of two controllers with one name, the later one is running.
        let named = alive
            .into_iter()
            .rev()
            .find(|controller| controller.name() == name)?;
        named.clone().report()?;
        Some(named.queue(most, key))
    }
}

impl Collector for ControllerMetrics {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        let reports = self.reports();
        if !reports.is_empty() {
            write(&mut Page(&mut page), &reports)?;
        }
        let queues: Vec<_> = reports
            .into_iter()
            .map(|report| (report.name, report.queue))
            .collect();
        encode_queues(&mut page, &queues)
    }
}

fn write(page: &mut Page<'_, '_>, reports: &[ControllerReport]) -> fmt::Result {
    let of = |report: &ControllerReport| vec![("controller", report.name.clone())];
    let mut counter = |named: Named, value: fn(&ControllerReport) -> u64| {
        page.counters(
            named,
            reports.iter().map(|report| (of(report), value(report))),
        )
    };
    counter(
        (
            "controller_runtime_reconcile_errors",
            "Number of reconciles that failed",
        ),
        |it| it.stats.errors,
    )?;
    counter(
        (
            "controller_runtime_terminal_reconcile_errors",
            "Number of reconciles that failed and are not retried",
        ),
        |it| it.stats.terminal,
    )?;
    counter(
        (
            "controller_runtime_reconcile_panics",
            "Number of reconciles that panicked",
        ),
        |it| it.stats.panics,
    )?;
    counter(
        (
            "controller_runtime_reconcile_timeouts",
            "Number of reconciles that timed out",
        ),
        |it| it.stats.timeouts,
    )?;
    counter(
        (
            "steersman_controller_conflicts",
            "Number of reconciles that failed with a conflict",
        ),
        |it| it.stats.conflicts,
    )?;
    counter(
        (
            "steersman_controller_superseded",
            "Number of reconciles cancelled because their request was queued again",
        ),
        |it| it.stats.superseded,
    )?;
    counter(
        (
            "steersman_controller_deferred",
            "Number of requests deferred until the cache observed own writes",
        ),
        |it| it.stats.deferred,
    )?;
    counter(
        (
            "steersman_controller_deferral_timeouts",
            "Number of deferred requests that timed out waiting for own writes",
        ),
        |it| it.stats.deferral_timeouts,
    )?;
    let results = reports.iter().flat_map(|report| {
        let stats = &report.stats;
        let results = [
            ("success", stats.success),
            ("error", stats.errors),
            ("requeue", stats.requeue),
            ("requeue_after", stats.requeue_after),
        ];
        results.map(|(result, many)| {
            (
                vec![
                    ("controller", report.name.clone()),
                    ("result", result.to_owned()),
                ],
                many,
            )
        })
    });
    page.counters(
        (
            "controller_runtime_reconcile",
            "Number of reconciles, by result",
        ),
        results,
    )?;
    page.histograms(
        (
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles",
        ),
        reports.iter().map(|report| {
            let times = &report.stats.time;
            let bounds = ReconcileTimes::BOUNDS.into_iter().chain([f64::MAX]);
            let buckets = bounds.zip(times.counts().iter().copied()).collect();
            (
                of(report),
                Buckets {
                    buckets,
                    sum: times.seconds(),
                },
            )
        }),
    )?;
    page.gauges(
        (
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles",
        ),
        reports
            .iter()
            .map(|report| (of(report), report.max_concurrent as f64)),
    )?;
    page.gauges(
        (
            "controller_runtime_active_workers",
            "Number of running reconciles",
        ),
        reports
            .iter()
            .map(|report| (of(report), report.queue.running as f64)),
    )?;
    page.gauges(
        (
            "steersman_controller_stuck_reconciles",
            "Number of reconciles that run for longer than stuck_after",
        ),
        reports
            .iter()
            .map(|report| (of(report), report.stuck.len() as f64)),
    )?;
    let mut per_source = |named: Named, value: fn(&WatchStats) -> u64| {
        let samples = reports.iter().flat_map(|report| {
            report.sources.iter().map(|(source, stats)| {
                (
                    vec![
                        ("controller", report.name.clone()),
                        ("source", source.clone()),
                    ],
                    value(stats),
                )
            })
        });
        page.counters(named, samples)
    };
    per_source(
        ("steersman_source_events", "Number of received events"),
        |stats| stats.events,
    )?;
    per_source(
        (
            "steersman_source_dropped",
            "Number of events that a predicate rejected",
        ),
        |stats| stats.dropped,
    )?;
    per_source(
        (
            "steersman_source_panics",
            "Number of panics of predicates and handlers",
        ),
        |stats| stats.panics,
    )?;
    per_source(
        (
            "steersman_source_undecoded",
            "Number of events whose object could not be decoded because only its metadata was kept",
        ),
        |stats| stats.undecoded,
    )?;
    per_source(
        (
            "steersman_source_failures",
            "Number of failed attempts to map an event to requests",
        ),
        |stats| stats.failures,
    )?;
    per_source(
        (
            "steersman_source_dropped_mappings",
            "Number of mappings that were dropped after they failed",
        ),
        |stats| stats.dropped_mappings,
    )
}
