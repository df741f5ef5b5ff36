//! Runs a scenario under many schedules.
//!
//! Other model checks include this file beside `sync.rs`.

use super::sync;
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};
use steersman_testkit::{Seeds, Test};

/// Runs `scenario` under random schedules.
///
/// There are `schedules` of them, and as many that switch threads at few points. Both kinds of
/// schedules depend only on the seed.
pub(crate) fn check(test: Test, schedules: usize, scenario: fn()) {
    for seed in Seeds::new(test, 1) {
        run(RandomScheduler::new_from_seed(seed, schedules), scenario);
        run(PctScheduler::new_from_seed(seed, 3, schedules), scenario);
    }
}

fn run(scheduler: impl Scheduler + 'static, scenario: fn()) {
    Runner::new(scheduler, Config::new()).run(move || {
        sync::reset();
        scenario();
    });
}
