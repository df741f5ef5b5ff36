//! The number of repetitions of each pair, and the time limit of a quick run.

use std::time::{Duration, Instant};

/// Duration of a quick run, including the build. Documented as four minutes, so there is a margin.
const QUICK: Duration = Duration::from_secs(200);
/// Minimum time for the measurements of a quick run, however long the build takes.
const QUICK_LEAST: Duration = Duration::from_secs(140);
/// Repetitions longer than this are made less often.
const LONG: Duration = Duration::from_secs(10);

pub(super) struct Budget {
    /// Repetitions of each pair.
    pub(super) rounds: usize,
    /// Repetitions of pairs that measure memory, which hardly varies, and of pairs whose
    /// repetitions are longer than [`LONG`]. With them a full run takes less than an hour.
    reduced_rounds: usize,
    /// Additional repetitions of each pair after disturbances by other processes.
    pub(super) extra: usize,
    time_limit: Option<Duration>,
    started: Instant,
}

impl Budget {
    pub(super) fn full() -> Self {
        Self {
            rounds: 5,
            reduced_rounds: 3,
            extra: 3,
            time_limit: None,
            started: Instant::now(),
        }
    }

    /// Returns the budget of a quick run whose build began at `begun`.
    pub(super) fn quick(begun: Instant) -> Self {
        let time_limit = QUICK.saturating_sub(begun.elapsed()).max(QUICK_LEAST);
        Self {
            rounds: 2,
            reduced_rounds: 1,
            extra: 3,
            time_limit: Some(time_limit),
            started: Instant::now(),
        }
    }

    /// Returns the repetitions of a pair. `bytes`: it measures memory. `cost`: the duration of one.
    pub(super) fn rounds_of(&self, bytes: bool, cost: Duration) -> usize {
        if bytes || cost > LONG {
            self.reduced_rounds
        } else {
            self.rounds
        }
    }

    /// Returns whether there is time for a repetition of duration `cost`, in a workload that should
    /// be complete after `share` of the run.
    pub(super) fn affords(&self, cost: Duration, share: f64) -> bool {
        self.time_limit
            .is_none_or(|limit| on_schedule(limit, self.started.elapsed(), cost, share))
    }

    /// Extrapolates the remaining time after `share` of the run.
    pub(super) fn left(&self, share: f64) -> Option<Duration> {
        extrapolated(self.started.elapsed(), share)
    }
}

/// Each workload gets time by its weight. Time that a workload does not use is left to the next.
fn on_schedule(time_limit: Duration, elapsed: Duration, cost: Duration, share: f64) -> bool {
    elapsed + cost <= time_limit.mul_f64(share)
}

fn extrapolated(elapsed: Duration, share: f64) -> Option<Duration> {
    (share > 0.0).then(|| elapsed.mul_f64((1.0 - share) / share))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_repetition_is_afforded_while_the_run_is_on_schedule() {
        // 15 % of 200 s are 30 s.
        let fits = |elapsed: u32, cost: u32| {
            on_schedule(200 * SECOND, elapsed * SECOND, cost * SECOND, 0.15)
        };
        assert!(fits(12, 10));
        assert!(fits(20, 10));
        assert!(!fits(25, 10), "the pair is too slow");
        assert!(!fits(31, 0), "the run is behind schedule");
    }

    #[test]
    fn a_full_run_has_no_time_limit_and_repeats_long_and_memory_workloads_less_often() {
        let full = Budget::full();
        assert!(full.affords(3600 * SECOND, 0.01));
        assert_eq!(
            [(false, 9), (false, 11), (true, 1)]
                .map(|(bytes, cost)| full.rounds_of(bytes, cost * SECOND)),
            [5, 3, 3]
        );
    }

    #[test]
    fn the_remaining_time_is_extrapolated() {
        assert_eq!(extrapolated(SECOND, 0.0), None);
        assert_eq!(extrapolated(30 * SECOND, 0.25), Some(90 * SECOND));
    }
}
