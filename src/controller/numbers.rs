//! What a controller counts.

use super::verdict::Class;
use serde::Serialize;
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// How the runs of a controller ended. Counters only grow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ControllerStats {
    /// Nothing left to do.
    pub success: u64,
    /// Once more with backoff, without an error.
    pub requeue: u64,
    /// Once more after a time.
    pub requeue_after: u64,
    /// With an error, of whatever kind; a conflict, too.
    pub errors: u64,
    /// Those of them that are not retried.
    pub terminal: u64,
    /// Those of them that were conflicts.
    pub conflicts: u64,
    /// Those of them that were panics.
    pub panics: u64,
    /// Those of them that took too long.
    pub timeouts: u64,
    /// Runs that were dropped because their request was made again.
    pub superseded: u64,
    /// How often a request was held back until the caches showed what its last run had written.
    pub deferred: u64,
    /// How often that took too long.
    pub deferral_timeouts: u64,
    /// How long runs took.
    pub time: Times,
}

/// How long runs took, in the buckets that controller-runtime has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    counts: Vec<u64>,
    seconds: f64,
}

impl Times {
    /// The upper bounds of the buckets, in seconds; there is one more for what takes longer.
    pub const BOUNDS: [f64; 40] = [
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
        1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
    ];

    /// Runs in each bucket, those of lower ones not among them.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// All runs.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long they took together.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
}

impl Default for Times {
    fn default() -> Self {
        Self { counts: vec![0; Self::BOUNDS.len() + 1], seconds: 0.0 }
    }
}

#[derive(Default)]
pub(super) struct Numbers {
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
    /// The first bucket has next to all of them: it is what the others leave.
    slow: Slow,
}

struct Slow([AtomicU64; Times::BOUNDS.len()]);

impl Default for Slow {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Times::BOUNDS.len()])
    }
}

impl Numbers {
    /// A run has ended so.
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
        self.nanos.fetch_add(took.as_nanos() as u64, Relaxed); // Overflows after 580 years of work.
        let seconds = took.as_secs_f64();
        if seconds > Times::BOUNDS[0] {
            let bucket = Times::BOUNDS.partition_point(|bound| *bound < seconds);
            self.slow.0[bucket - 1].fetch_add(1, Relaxed);
        }
    }

    pub(super) fn read(&self) -> ControllerStats {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let slow: Vec<_> = self.slow.0.iter().map(load).collect();
        let [success, requeue, requeue_after] = [&self.success, &self.requeue, &self.requeue_after].map(load);
        let [failed, terminal, conflicts] = [&self.failed, &self.terminal, &self.conflicts].map(load);
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
            time: Times { counts: [fast].into_iter().chain(slow).collect(), seconds: load(&self.nanos) as f64 / 1e9 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        let numbers = Numbers::default();
        for millis in [0, 5, 6, 10, 60_000, 60_001] {
            numbers.count(Class::Success, Duration::from_millis(millis));
        }
        let times = numbers.read().time;
        assert_eq!((times.counts()[0], times.counts()[1], times.counts()[39], times.counts()[40]), (2, 2, 1, 1));
        assert_eq!(times.count(), 6);
        assert!((times.seconds() - 120.022).abs() < 1e-9);
    }

    #[test]
    fn every_error_is_one_of_the_errors() {
        let numbers = Numbers::default();
        for class in [Class::Failed, Class::Conflict, Class::Terminal, Class::Requeue] {
            numbers.count(class, Duration::ZERO);
        }
        let stats = numbers.read();
        assert_eq!((stats.errors, stats.conflicts, stats.terminal, stats.requeue), (3, 1, 1, 1));
    }
}
