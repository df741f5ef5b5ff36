//! Many threads at once. Each test is a slice of about a second of a soak that lasts as long as `STEERSMAN_SOAK` says.

mod fuzz;
mod wakes;

use crate::support::{secs, within};
use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant},
};
use steersman::workqueue::{Key, WorkQueue};
use tokio::runtime;

/// Again and again with another seed, for the seconds that the environment variable `STEERSMAN_SOAK` gives, or one.
pub(crate) fn soak(mut round: impl FnMut(u64)) {
    let seconds = std::env::var("STEERSMAN_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let end = Instant::now() + secs(seconds);
    // Another run, other schedules; the seed is shown if something fails.
    let first = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    for seed in first.. {
        round(seed);
        if Instant::now() >= end {
            return;
        }
    }
}

/// [`soak`] on a runtime with several threads.
fn soak_on_threads<F: Future<Output = ()>>(mut round: impl FnMut(u64) -> F) {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().expect("a runtime");
    soak(|seed| {
        println!("seed {seed}");
        runtime.block_on(round(seed));
    });
}

/// Only a lost wake-up or a deadlock takes that long.
const WATCHDOG: Duration = secs(30);

/// The outcome, or a look inside the queue that does not get there.
pub(crate) async fn within_the_watchdog<K: Key, T>(
    queue: &WorkQueue<K>,
    what: impl Debug,
    future: impl Future<Output = T>,
) -> T {
    let output = within(WATCHDOG, future).await;
    output.unwrap_or_else(|| panic!("{what:?} takes too long: {queue:?} {:#?}", queue.snapshot()))
}
