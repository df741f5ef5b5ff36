//! Stress tests with many threads.
//!
//! By default, each test runs a fixed number of rounds, which take about a second.

mod fuzz;
mod wakes;

use crate::support::{secs, within};
use std::{fmt::Debug, future::Future, time::Duration};
use steersman::workqueue::{Key, WorkQueue};
use steersman_testkit::{Seeds, Test};
use tokio::runtime;

/// Runs `round` for each seed of `test` on a multi-threaded runtime.
///
/// By default, there are `count` rounds.
fn on_threads<F: Future<Output = ()>>(test: Test, count: u64, mut round: impl FnMut(u64) -> F) {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .expect("a runtime");
    for seed in Seeds::new(test, count) {
        runtime.block_on(round(seed));
    }
}

/// Only a lost wakeup or a deadlock takes this long.
const WATCHDOG: Duration = secs(30);

/// Returns the output of `future`.
///
/// Panics with a snapshot of the queue after the timeout.
pub(crate) async fn within_the_watchdog<K: Key, T>(
    queue: &WorkQueue<K>,
    what: impl Debug,
    future: impl Future<Output = T>,
) -> T {
    let output = within(WATCHDOG, future).await;
    output.unwrap_or_else(|| panic!("{what:?} takes too long: {queue:?} {:#?}", queue.snapshot()))
}
