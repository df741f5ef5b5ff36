//! Runs a scenario under many schedules. Also for other model checks, which include this file beside `sync.rs`.

use super::sync;
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};
use std::time::Duration;

/// Run `scenario` under so many random schedules, and as many that change thread at few, nasty points; in a soak for as long as it lasts.
pub(crate) fn check(schedules: usize, scenario: fn()) {
    let soak = std::env::var("STEERSMAN_SOAK").ok().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    // For each of the two: what is given is for both.
    let soak = soak.map(|time| time / 2);
    let schedules = if soak.is_some() { usize::MAX } else { schedules };
    run(RandomScheduler::new(schedules), soak, scenario);
    run(PctScheduler::new(3, schedules), soak, scenario);
}

fn run(scheduler: impl Scheduler + 'static, soak: Option<Duration>, scenario: fn()) {
    let mut config = Config::new();
    config.max_time = soak;
    Runner::new(scheduler, config).run(move || {
        sync::reset();
        scenario();
    });
}
