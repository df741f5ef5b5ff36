//! Controllers on a Prometheus page.
//!
//! Nothing is pushed: controllers are read when the page is asked for, and the series of one that is gone are gone.

use super::{Controller, ControllerReport, QueueSnapshot, Shared, Times};
use crate::{
    page::{Buckets, Named, Page},
    source::WatchStats,
    workqueue::{Key, Metrics, encode_queues},
};
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{
    fmt,
    sync::{Arc, Weak},
};

/// Controllers and their queues as metrics, under controller-runtime's names and labels, so that dashboards keep working. A clone shares its controllers. Of
/// controllers with one name, the page shows the one made last; one that has ended is not shown.
///
/// | metric | |
/// |---|---|
/// | `controller_runtime_reconcile_total` | runs, by `result`: `success`, `error`, `requeue`, `requeue_after` |
/// | `controller_runtime_reconcile_errors_total` | errors, conflicts among them |
/// | `controller_runtime_terminal_reconcile_errors_total` | those that are not retried |
/// | `controller_runtime_reconcile_panics_total` | those that were panics |
/// | `controller_runtime_reconcile_timeouts_total` | those that took too long |
/// | `controller_runtime_reconcile_time_seconds` | how long runs take |
/// | `controller_runtime_max_concurrent_reconciles` | how many are allowed at once |
/// | `controller_runtime_active_workers` | how many there are |
/// | `steersman_controller_conflicts_total` | errors that were conflicts |
/// | `steersman_controller_superseded_total` | runs dropped because their request was made again |
/// | `steersman_controller_deferred_total` | requests held back until the caches showed what was written |
/// | `steersman_controller_deferral_timeouts_total` | those of them that waited in vain |
/// | `steersman_source_events_total`, `steersman_source_dropped_total`, `steersman_source_panics_total`, `steersman_source_undecoded_total`, `steersman_source_failures_total`, `steersman_source_given_up_total` | by `source`: events, those that predicates rejected, panics, events of deleted objects that could not be decoded, attempts that failed, what is not attempted any more |
///
/// and those of [`Prometheus`](crate::workqueue::Prometheus) for the queues.
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

/// One controller, which it does not keep alive.
struct Probe {
    name: Arc<str>,
    controller: Weak<dyn Reported>,
}

/// A queue whose numbers are read through its controller: it only has to measure.
struct Measured;

impl Metrics for Measured {}

/// A controller whose kind of request does not matter.
trait Reported: Send + Sync {
    /// `None` once it has ended.
    fn report(self: Arc<Self>) -> Option<ControllerReport>;
    fn name(&self) -> &str;
    /// See [`Controller::queue_snapshot`].
    fn queue(self: Arc<Self>, most: usize) -> QueueSnapshot;
}

impl<R: Key> Reported for Shared<R> {
    fn report(self: Arc<Self>) -> Option<ControllerReport> {
        let ended = *self.ended.borrow();
        (!ended).then(|| Controller(self).report())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn queue(self: Arc<Self>, most: usize) -> QueueSnapshot {
        Controller(self).queue_snapshot(most)
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Probe").field(&self.name).finish()
    }
}

impl ControllerMetrics {
    /// For the controller's queue.
    pub(crate) fn of_queue() -> Arc<dyn Metrics> {
        Arc::new(Measured)
    }

    pub(crate) fn watch<R: Key>(&self, controller: &Controller<R>) {
        let (name, shared): (_, Weak<Shared<R>>) = (controller.0.name.clone(), Arc::downgrade(&controller.0));
        let mut controllers = self.controllers.lock();
        controllers.retain(|other| other.name != name);
        controllers.push(Probe { name, controller: shared });
    }

    /// Of every controller that has not ended.
    pub(crate) fn reports(&self) -> Vec<ControllerReport> {
        let mut reports = Vec::new();
        self.controllers.lock().retain(|probe| {
            let report = probe.controller.upgrade().and_then(Reported::report);
            let alive = report.is_some();
            reports.extend(report);
            alive
        });
        reports
    }
}

impl ControllerMetrics {
    /// Of the controller with this name, if it is still there.
    pub(crate) fn queue(&self, name: &str, most: usize) -> Option<QueueSnapshot> {
        let alive: Vec<_> = self.controllers.lock().iter().filter_map(|probe| probe.controller.upgrade()).collect();
        // Of two of one name the earlier one has ended.
        let named = alive.into_iter().rev().find(|controller| controller.name() == name)?;
        named.clone().report()?;
        Some(named.queue(most))
    }
}

impl Collector for ControllerMetrics {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        let reports = self.reports();
        if !reports.is_empty() {
            write(&mut Page(&mut page), &reports)?;
        }
        let queues: Vec<_> = reports.into_iter().map(|report| (report.name, report.queue)).collect();
        encode_queues(&mut page, &queues)
    }
}

fn write(page: &mut Page<'_, '_>, reports: &[ControllerReport]) -> fmt::Result {
    let of = |report: &ControllerReport| vec![("controller", report.name.clone())];
    let mut counter = |named: Named, value: fn(&ControllerReport) -> u64| {
        page.counters(named, reports.iter().map(|report| (of(report), value(report))))
    };
    counter(("controller_runtime_reconcile_errors", "Runs that ended with an error"), |it| it.stats.errors)?;
    counter(("controller_runtime_terminal_reconcile_errors", "Errors that are not retried"), |it| it.stats.terminal)?;
    counter(("controller_runtime_reconcile_panics", "Runs that panicked"), |it| it.stats.panics)?;
    counter(("controller_runtime_reconcile_timeouts", "Runs that took too long"), |it| it.stats.timeouts)?;
    counter(("steersman_controller_conflicts", "Errors that were conflicts"), |it| it.stats.conflicts)?;
    counter(("steersman_controller_superseded", "Runs dropped because their request was made again"), |it| {
        it.stats.superseded
    })?;
    counter(("steersman_controller_deferred", "Requests held back until own writes were shown"), |it| {
        it.stats.deferred
    })?;
    counter(("steersman_controller_deferral_timeouts", "Requests that waited for own writes in vain"), |it| {
        it.stats.deferral_timeouts
    })?;
    let results = reports.iter().flat_map(|report| {
        let stats = &report.stats;
        let results = [
            ("success", stats.success),
            ("error", stats.errors),
            ("requeue", stats.requeue),
            ("requeue_after", stats.requeue_after),
        ];
        results.map(|(result, many)| (vec![("controller", report.name.clone()), ("result", result.to_owned())], many))
    });
    page.counters(("controller_runtime_reconcile", "Runs, by how they ended"), results)?;
    page.histograms(
        ("controller_runtime_reconcile_time_seconds", "How long runs take"),
        reports.iter().map(|report| {
            let times = &report.stats.time;
            let bounds = Times::BOUNDS.into_iter().chain([f64::MAX]);
            let buckets = bounds.zip(times.counts().iter().copied()).collect();
            (of(report), Buckets { buckets, sum: times.seconds() })
        }),
    )?;
    page.gauges(
        ("controller_runtime_max_concurrent_reconciles", "How many runs are allowed at once"),
        reports.iter().map(|report| (of(report), report.max_concurrent as f64)),
    )?;
    page.gauges(
        ("controller_runtime_active_workers", "How many runs there are"),
        reports.iter().map(|report| (of(report), report.queue.running as f64)),
    )?;
    let mut per_source = |named: Named, value: fn(&WatchStats) -> u64| {
        let samples = reports.iter().flat_map(|report| {
            report.sources.iter().map(|(source, stats)| {
                (vec![("controller", report.name.clone()), ("source", source.clone())], value(stats))
            })
        });
        page.counters(named, samples)
    };
    per_source(("steersman_source_events", "Events that came"), |stats| stats.events)?;
    per_source(("steersman_source_dropped", "Events that a predicate rejected"), |stats| stats.dropped)?;
    per_source(("steersman_source_panics", "Panics of predicates and handlers"), |stats| stats.panics)?;
    per_source(("steersman_source_undecoded", "Events of deleted objects that could not be decoded"), |stats| {
        stats.undecoded
    })?;
    per_source(("steersman_source_failures", "Attempts of handlers that failed"), |stats| stats.failures)?;
    per_source(("steersman_source_given_up", "What is not attempted any more"), |stats| stats.given_up)
}
