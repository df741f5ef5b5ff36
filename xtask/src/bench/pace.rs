//! How often each pair is repeated, and how a quick run keeps to its time.

use std::time::{Duration, Instant};

/// All of a quick run, building included, with a margin to the four minutes promised.
const QUICK: Duration = Duration::from_secs(200);
/// What a quick run measures at least, however long building took.
const QUICK_LEAST: Duration = Duration::from_secs(140);
/// A repetition that takes longer is a long one.
const LONG: Duration = Duration::from_secs(10);

pub(super) struct Pace {
    /// Repetitions of each pair that are kept.
    pub(super) rounds: usize,
    /// The same for pairs that measure memory, which hardly varies, and for those whose repetitions are long, so that a full run takes less than an hour.
    rounds_of_some: usize,
    /// Repetitions beyond those, for each pair, when the machine is not quiet.
    pub(super) extra: usize,
    budget: Option<Duration>,
    started: Instant,
}

impl Pace {
    pub(super) fn full() -> Self {
        Self { rounds: 5, rounds_of_some: 3, extra: 3, budget: None, started: Instant::now() }
    }

    /// A quick run that began, with building, at `begun`.
    pub(super) fn quick(begun: Instant) -> Self {
        let budget = QUICK.saturating_sub(begun.elapsed()).max(QUICK_LEAST);
        Self { rounds: 2, rounds_of_some: 1, extra: 3, budget: Some(budget), started: Instant::now() }
    }

    /// Repetitions of a pair that measures memory, or time, and took `cost` for one.
    pub(super) fn rounds_of(&self, bytes: bool, cost: Duration) -> usize {
        if bytes || cost > LONG { self.rounds_of_some } else { self.rounds }
    }

    /// Whether there is time to repeat something that took `cost`, in the workload that ends at `share` of the run.
    pub(super) fn affords(&self, cost: Duration, share: f64) -> bool {
        self.budget.is_none_or(|budget| on_schedule(budget, self.started.elapsed(), cost, share))
    }

    /// What the rest will take if it goes on like this, after `share` of the run.
    pub(super) fn left(&self, share: f64) -> Option<Duration> {
        extrapolated(self.started.elapsed(), share)
    }
}

/// The schedule gives every workload time by its weight, and what one leaves the next may use.
fn on_schedule(budget: Duration, elapsed: Duration, cost: Duration, share: f64) -> bool {
    elapsed + cost <= budget.mul_f64(share)
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
        let fits = |elapsed: u32, cost: u32| on_schedule(200 * SECOND, elapsed * SECOND, cost * SECOND, 0.15);
        assert!(fits(12, 10));
        assert!(fits(20, 10));
        assert!(!fits(25, 10), "too slow a pair");
        assert!(!fits(31, 0), "behind the schedule");
    }

    #[test]
    fn a_full_run_affords_everything_and_repeats_what_is_long_or_of_memory_less_often() {
        let full = Pace::full();
        assert!(full.affords(3600 * SECOND, 0.01));
        assert_eq!(
            [(false, 9), (false, 11), (true, 1)].map(|(bytes, cost)| full.rounds_of(bytes, cost * SECOND)),
            [5, 3, 3]
        );
    }

    #[test]
    fn the_time_left_is_extrapolated_once_something_is_done() {
        assert_eq!(extrapolated(SECOND, 0.0), None);
        assert_eq!(extrapolated(30 * SECOND, 0.25), Some(90 * SECOND));
    }
}
