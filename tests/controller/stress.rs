//! Stress tests of controllers.
//!
//! No request in two workers, no exceeded limit, no lost request, no leak.
//!
//! By default, each test runs a fixed number of rounds, which take about a second.

use crate::test_controller::{builder, ms};
use parking_lot::Mutex;
use std::{
    collections::HashSet,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};
use steersman::{
    controller::{Options, Retry},
    prelude::*,
    reconcile::Result,
    testing::seed_jitter,
};
use steersman_testkit::{Seeds, Test, this_test};
use tokio::{
    runtime::{self, Runtime},
    time::sleep,
};

const KEYS: u64 = 40;
const GROUPS: u64 = 4;
const MAX_PER_GROUP: usize = 3;
const MAX_CONCURRENT: usize = 8;

/// Deterministic random numbers (`splitmix64`).
struct Random(AtomicU64);

impl Random {
    fn below(&self, end: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Running reconciles and expectations of the test.
struct StressState {
    random: Random,
    running: Mutex<HashSet<u64>>,
    /// Violated invariants. A panic would not be noticed among the intended ones.
    violations: Mutex<Vec<String>>,
    /// Number of adds per key.
    ///
    /// `seen` is the number of adds that the last successful reconcile observed.
    added: Vec<AtomicU64>,
    seen: Vec<AtomicU64>,
    finished: AtomicUsize,
    /// Once set, all reconciles succeed, so that the test ends.
    must_succeed: AtomicUsize,
}

/// Removes its key when dropped, also after a cancellation or panic.
struct RunningGuard<'a>(&'a StressState, u64);

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.0.running.lock().remove(&self.1);
    }
}

impl StressState {
    fn new(seed: u64) -> Self {
        let zeros = || (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        Self {
            random: Random(AtomicU64::new(seed)),
            running: Mutex::default(),
            violations: Mutex::default(),
            added: zeros(),
            seen: zeros(),
            finished: AtomicUsize::new(0),
            must_succeed: AtomicUsize::new(0),
        }
    }

    fn enter(&self, key: u64) -> RunningGuard<'_> {
        let mut running = self.running.lock();
        let (new, count) = (running.insert(key), running.len());
        let count_of_group = running
            .iter()
            .filter(|other| *other % GROUPS == key % GROUPS)
            .count();
        if !new || count > MAX_CONCURRENT || count_of_group > MAX_PER_GROUP {
            let violation =
                format!("key {key}, new: {new}, {count} running, {count_of_group} in its group");
            self.violations.lock().push(violation);
        }
        RunningGuard(self, key)
    }

    async fn reconcile(&self, key: u64) -> Result<Outcome> {
        let added = self.added[key as usize].load(SeqCst);
        let entered = self.enter(key);
        match self.random.below(4) {
            0 => {}
            1 => tokio::task::yield_now().await,
            _ => sleep(Duration::from_micros(self.random.below(3_000))).await,
        }
        drop(entered);
        let good = self.must_succeed.load(SeqCst) > 0;
        match self.random.below(10) {
            0 if !good => resume_unwind(Box::new("intended")),
            1 if !good => anyhow::bail!("no luck"),
            2 if !good => return Ok(Outcome::requeue()),
            3 if !good => return Ok(Outcome::requeue_after(ms(self.random.below(4)))),
            4 if !good => return Ok(Outcome::requeue_not_before(ms(1)).priority(Priority::HIGH)),
            5 if !good => return Err(Failure::retry(anyhow::anyhow!("later")).after(ms(2)).into()),
            6 if !good => std::future::pending().await,
            _ => {}
        }
        self.seen[key as usize].store(added, SeqCst);
        self.finished.fetch_add(1, SeqCst);
        Ok(Outcome::done())
    }

    /// Returns whether a successful reconcile has observed every add.
    fn is_settled(&self) -> bool {
        self.added
            .iter()
            .zip(&self.seen)
            .all(|(added, seen)| added.load(SeqCst) == seen.load(SeqCst))
    }
}

async fn round(seed: u64) {
    let state = Arc::new(StressState::new(seed));
    let reconciler = reconcile::from_fn({
        let state = state.clone();
        move |key: u64, _| {
            let state = state.clone();
            async move { state.reconcile(key).await }
        }
    });
    let options = Options {
        reconcile_timeout: Some(ms(20)),
        cancel_superseded: Some(seed.is_multiple_of(2)),
        max_concurrent: Some(MAX_CONCURRENT),
        ..Options::default()
    };
    let options = options.on_error(|_, attempt| {
        if attempt % 5 == 0 {
            Retry::Immediately
        } else {
            Retry::In(ms(1))
        }
    });
    let builder = builder()
        .options(options)
        .max_per_group(MAX_PER_GROUP, |key: &u64| key % GROUPS);
    let (controller, task) = builder.build(reconciler).expect("a valid controller");
    let running = tokio::spawn(task.run_until(std::future::pending()));

    for _ in 0..400 {
        let key = state.random.below(KEYS);
        state.added[key as usize].fetch_add(1, SeqCst);
        let priority = Some(Priority(state.random.below(3) as i32 * 100 - 100));
        let after = state.random.one_in(3).then(|| ms(state.random.below(5)));
        controller.queue().add_with(
            key,
            Add {
                priority,
                after,
                ..Add::default()
            },
        );
        match state.random.below(20) {
            0 => controller
                .set_max_concurrent(1 + state.random.below(MAX_CONCURRENT as u64) as usize),
            1 => {
                // Raised again before or after the excess reconciles have ended.
                controller.set_max_concurrent(1);
                tokio::task::yield_now().await;
                controller.set_max_concurrent(MAX_CONCURRENT);
            }
            2..5 => sleep(Duration::from_micros(state.random.below(2_000))).await,
            _ => {}
        }
    }
    controller.set_max_concurrent(1 + state.random.below(MAX_CONCURRENT as u64) as usize);
    state.must_succeed.store(1, SeqCst);
    let settled = async {
        while !state.is_settled() {
            sleep(ms(1)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(25), settled).await;
    assert!(
        in_time.is_ok(),
        "a request was lost: {:?} {:#?}",
        controller.stats(),
        controller.queue().snapshot()
    );
    controller.stop().await;
    running
        .await
        .expect("no panic of the workers")
        .expect("no error");
    let panics = controller.stats().panics;
    assert_eq!(*state.violations.lock(), Vec::<String>::new());
    assert!(state.running.lock().is_empty(), "a reconcile is running");
    assert!(
        state.finished.load(SeqCst) > 0 && panics > 0,
        "no reconcile or no panic: {panics}"
    );
}

/// Runs a round for each seed of `test` on a new runtime.
///
/// By default, there are `count` rounds.
fn rounds(test: Test, count: u64, runtime: impl Fn() -> Runtime) {
    for seed in Seeds::new(test, count) {
        let _seeded = seed_jitter(seed);
        runtime().block_on(round(seed));
    }
}

#[test]
fn soak_random_operations_on_virtual_time_respect_limits_and_lose_no_request() {
    rounds(this_test!(), 40, || {
        runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
    });
}

#[test]
fn soak_random_operations_on_many_threads_respect_limits_and_lose_no_request() {
    rounds(this_test!(), 6, || {
        runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_time()
            .build()
            .expect("a runtime")
    });
}
