//! How often each pair is repeated, and how a quick run keeps to its time.

use std::time::{Duration, Instant};

/// All of a quick run, building included, with a margin to the four minutes promised.
const QUICK: Duration = Duration::from_secs(210);
/// What a quick run measures at least, however long building took.
const QUICK_LEAST: Duration = Duration::from_secs(150);

pub(super) struct Pace {
    /// Repetitions of each pair that are kept.
    pub(super) rounds: usize,
    /// Repetitions beyond those, for each pair, when the machine is not quiet.
    pub(super) extra: usize,
    budget: Option<Duration>,
    started: Instant,
}

impl Pace {
    pub(super) fn full() -> Self {
        Self { rounds: 5, extra: 3, budget: None, started: Instant::now() }
    }

    /// A quick run that began, with building, at `begun`.
    pub(super) fn quick(begun: Instant) -> Self {
        let budget = QUICK.saturating_sub(begun.elapsed()).max(QUICK_LEAST);
        Self { rounds: 2, extra: 3, budget: Some(budget), started: Instant::now() }
    }

    /// Whether there is time to repeat something that took `cost` while the `position`th of `count` workloads runs.
    pub(super) fn affords(&self, cost: Duration, position: usize, count: usize) -> bool {
        self.budget.is_none_or(|budget| on_schedule(budget, self.started.elapsed(), cost, position, count))
    }

    /// What the rest will take if it goes on like this.
    pub(super) fn left(&self, position: usize, count: usize) -> Option<Duration> {
        extrapolated(self.started.elapsed(), position, count)
    }
}

/// The schedule gives every workload the same time, and what one leaves the next may use.
fn on_schedule(budget: Duration, elapsed: Duration, cost: Duration, position: usize, count: usize) -> bool {
    elapsed + cost <= budget.mul_f64((position + 1) as f64 / count as f64)
}

fn extrapolated(elapsed: Duration, position: usize, count: usize) -> Option<Duration> {
    (position > 0).then(|| elapsed.mul_f64((count - position) as f64 / position as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_repetition_is_afforded_while_the_run_is_on_schedule() {
        // 20 workloads in 200 s: the first three may take 30 s.
        let fits = |elapsed: u32, cost: u32| on_schedule(200 * SECOND, elapsed * SECOND, cost * SECOND, 2, 20);
        assert!(fits(12, 10));
        assert!(fits(20, 10));
        assert!(!fits(25, 10), "too slow a pair");
        assert!(!fits(31, 0), "behind the schedule");
    }

    #[test]
    fn a_full_run_affords_everything() {
        assert!(Pace::full().affords(3600 * SECOND, 0, 20));
    }

    #[test]
    fn the_time_left_is_extrapolated_once_something_is_done() {
        assert_eq!(extrapolated(SECOND, 0, 10), None);
        assert_eq!(extrapolated(30 * SECOND, 3, 10), Some(70 * SECOND));
    }
}
