//! Counters of a controller.

use super::result::Class;
use crate::workqueue::serialize_histogram;
use serde::{Serialize, Serializer};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Counts of a controller's reconciles by result. Counters never decrease.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ControllerStats {
    /// Reconciles that succeeded without a requeue.
    pub success: u64,
    /// Reconciles that asked for a requeue with backoff.
    pub requeue: u64,
    /// Reconciles that asked for a requeue after a delay.
    pub requeue_after: u64,
    /// Reconciles that failed, including conflicts.
    pub errors: u64,
    /// Failed reconciles that are not retried.
    pub terminal: u64,
    /// Failed reconciles whose error was a conflict.
    pub conflicts: u64,
    /// Failed reconciles that panicked.
    pub panics: u64,
    /// Failed reconciles that exceeded the timeout.
    pub timeouts: u64,
    /// Reconciles that were cancelled because their request was queued again.
    pub superseded: u64,
    /// Times that a request was held back until the caches observed its writes.
    pub deferred: u64,
    /// Times that the caches did not observe those writes in time.
    pub deferral_timeouts: u64,
    /// Durations of reconciles.
    pub time: ReconcileTimes,
}

/// Histogram of the durations of reconciles, in the buckets of controller-runtime.
///
/// Serialized with the buckets that are not empty, each with its upper bound in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct ReconcileTimes {
    counts: Vec<u64>,
    seconds: f64,
}

impl Serialize for ReconcileTimes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_histogram(&Self::BOUNDS, &self.counts, self.seconds, serializer)
    }
}

impl ReconcileTimes {
    /// Upper bounds of the buckets in seconds.
    ///
    /// One more bucket holds longer reconciles.
    pub const BOUNDS: [f64; 40] = [
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8,
        0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0,
        15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
    ];

    /// Returns the number of reconciles in each bucket, not cumulative.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the number of all reconciles.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
}

impl Default for ReconcileTimes {
    fn default() -> Self {
        Self {
            counts: vec![0; Self::BOUNDS.len() + 1],
            seconds: 0.0,
        }
    }
}

#[derive(Default)]
pub(super) struct ReconcileCounters {
    success: AtomicU64,
    requeue: AtomicU64,
    requeue_after: AtomicU64,
    failed: AtomicU64,
    terminal: AtomicU64,
    conflicts: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) timeouts: AtomicU64,
    pub(super) superseded: AtomicU64,
    nanos: AtomicU64,
    /// Buckets except the first, which is the difference to the total.
    ///
    /// Most reconciles belong to the first bucket and save an atomic operation.
    slow: Slow,
}

struct Slow([AtomicU64; ReconcileTimes::BOUNDS.len()]);

impl Default for Slow {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; ReconcileTimes::BOUNDS.len()])
    }
}

impl ReconcileCounters {
    /// Counts a reconcile that has ended.
    pub(super) fn count(&self, class: Class, took: Duration) {
        let counter = match class {
            Class::Success => &self.success,
            Class::Requeue => &self.requeue,
            Class::RequeueAfter => &self.requeue_after,
            Class::Failed => &self.failed,
            Class::Conflict => &self.conflicts,
            Class::Terminal => &self.terminal,
        };
        counter.fetch_add(1, Relaxed);
        self.nanos.fetch_add(took.as_nanos() as u64, Relaxed); // Overflows after 580 years.
        let seconds = took.as_secs_f64();
        if seconds > ReconcileTimes::BOUNDS[0] {
            let bucket = ReconcileTimes::BOUNDS.partition_point(|bound| *bound < seconds);
            self.slow.0[bucket - 1].fetch_add(1, Relaxed);
        }
    }

    pub(super) fn read(&self) -> ControllerStats {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let slow: Vec<_> = self.slow.0.iter().map(load).collect();
        let [success, requeue, requeue_after] =
            [&self.success, &self.requeue, &self.requeue_after].map(load);
        let [failed, terminal, conflicts] =
            [&self.failed, &self.terminal, &self.conflicts].map(load);
        let errors = failed + terminal + conflicts;
        let all = success + requeue + requeue_after + errors;
        let fast = all.saturating_sub(slow.iter().sum());
        ControllerStats {
            success,
            requeue,
            requeue_after,
            errors,
            terminal,
            conflicts,
            panics: load(&self.panics),
            timeouts: load(&self.timeouts),
            superseded: load(&self.superseded),
            deferred: 0,
            deferral_timeouts: 0,
            time: ReconcileTimes {
                counts: [fast].into_iter().chain(slow).collect(),
                seconds: load(&self.nanos) as f64 / 1e9,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_bucket_that_bounds_it() {
        let numbers = ReconcileCounters::default();
        for millis in [0, 5, 6, 10, 60_000, 60_001] {
            numbers.count(Class::Success, Duration::from_millis(millis));
        }
        let times = numbers.read().time;
        assert_eq!(
            (
                times.counts()[0],
                times.counts()[1],
                times.counts()[39],
                times.counts()[40]
            ),
            (2, 2, 1, 1)
        );
        assert_eq!(times.count(), 6);
        assert!((times.seconds() - 120.022).abs() < 1e-9);
    }

    #[test]
    fn every_error_is_one_of_the_errors() {
        let numbers = ReconcileCounters::default();
        for class in [
            Class::Failed,
            Class::Conflict,
            Class::Terminal,
            Class::Requeue,
        ] {
            numbers.count(class, Duration::ZERO);
        }
        let stats = numbers.read();
        assert_eq!(
            (stats.errors, stats.conflicts, stats.terminal, stats.requeue),
            (3, 1, 1, 1)
        );
    }
}
