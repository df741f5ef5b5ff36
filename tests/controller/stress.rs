//! Random operations on a controller: no request is in two workers, no limit is exceeded, nothing is lost and nothing is left.
//!
//! The gate runs a fixed number of rounds, which take about a second for each test.

use crate::rig::{builder, ms};
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
};
use steersman_testkit::{Seeds, Test, this_test};
use tokio::{
    runtime::{self, Runtime},
    time::sleep,
};

const KEYS: u64 = 40;
const GROUPS: u64 = 4;
const PER_GROUP: usize = 3;
const MOST: usize = 8;

/// Random numbers, the same for the same seed (`splitmix64`).
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

/// Who runs, and what has to be seen by a run yet.
struct World {
    random: Random,
    running: Mutex<HashSet<u64>>,
    /// What must not happen and did: a panic in a run would be one of many.
    violations: Mutex<Vec<String>>,
    /// How often each key was asked for, and how much of that its last good run has seen.
    wanted: Vec<AtomicU64>,
    seen: Vec<AtomicU64>,
    finished: AtomicUsize,
    /// From some time on all runs succeed, so that there is an end.
    calm: AtomicUsize,
}

/// Takes its key out again, also if the run is dropped or panics.
struct Entered<'a>(&'a World, u64);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.running.lock().remove(&self.1);
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let zeros = || (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        Self {
            random: Random(AtomicU64::new(seed)),
            running: Mutex::default(),
            violations: Mutex::default(),
            wanted: zeros(),
            seen: zeros(),
            finished: AtomicUsize::new(0),
            calm: AtomicUsize::new(0),
        }
    }

    fn enter(&self, key: u64) -> Entered<'_> {
        let mut running = self.running.lock();
        let (new, many) = (running.insert(key), running.len());
        let of_group = running.iter().filter(|other| *other % GROUPS == key % GROUPS).count();
        if !new || many > MOST || of_group > PER_GROUP {
            let violation = format!("key {key}, new: {new}, {many} at once, {of_group} of its group");
            self.violations.lock().push(violation);
        }
        Entered(self, key)
    }

    async fn reconcile(&self, key: u64) -> Result<Outcome> {
        let wanted = self.wanted[key as usize].load(SeqCst);
        let entered = self.enter(key);
        match self.random.below(4) {
            0 => {}
            1 => tokio::task::yield_now().await,
            _ => sleep(Duration::from_micros(self.random.below(3_000))).await,
        }
        drop(entered);
        let good = self.calm.load(SeqCst) > 0;
        match self.random.below(10) {
            0 if !good => resume_unwind(Box::new("as asked")),
            1 if !good => anyhow::bail!("no luck"),
            2 if !good => return Ok(Outcome::requeue()),
            3 if !good => return Ok(Outcome::requeue_after(ms(self.random.below(4)))),
            4 if !good => return Ok(Outcome::requeue_not_before(ms(1)).priority(Priority::HIGH)),
            5 if !good => return Err(Failure::retry(anyhow::anyhow!("later")).after(ms(2)).into()),
            6 if !good => std::future::pending().await,
            _ => {}
        }
        self.seen[key as usize].store(wanted, SeqCst);
        self.finished.fetch_add(1, SeqCst);
        Ok(Outcome::done())
    }

    /// Everything that was asked for was seen by a run that succeeded.
    fn is_settled(&self) -> bool {
        self.wanted.iter().zip(&self.seen).all(|(wanted, seen)| wanted.load(SeqCst) == seen.load(SeqCst))
    }
}

async fn round(seed: u64) {
    let world = Arc::new(World::new(seed));
    let reconciler = reconcile::from_fn({
        let world = world.clone();
        move |key: u64, _| {
            let world = world.clone();
            async move { world.reconcile(key).await }
        }
    });
    let options = Options {
        reconcile_timeout: Some(ms(20)),
        cancel_superseded: Some(seed.is_multiple_of(2)),
        max_concurrent: Some(MOST),
        ..Options::default()
    };
    let options = options.on_error(|_, attempt| if attempt % 5 == 0 { Retry::Immediately } else { Retry::In(ms(1)) });
    let builder = builder().options(options).max_per_group(PER_GROUP, |key: &u64| key % GROUPS);
    let (controller, task) = builder.build(reconciler).expect("nothing is wrong with it");
    let running = tokio::spawn(task.run_until(std::future::pending()));

    for _ in 0..400 {
        let key = world.random.below(KEYS);
        world.wanted[key as usize].fetch_add(1, SeqCst);
        let priority = Some(Priority(world.random.below(3) as i32 * 100 - 100));
        let after = world.random.one_in(3).then(|| ms(world.random.below(5)));
        controller.queue().add_with(key, Add { priority, after, ..Add::default() });
        match world.random.below(20) {
            0 => controller.set_max_concurrent(1 + world.random.below(MOST as u64) as usize),
            1 => {
                // Back before those above the lower limit have ended, or after.
                controller.set_max_concurrent(1);
                tokio::task::yield_now().await;
                controller.set_max_concurrent(MOST);
            }
            2..5 => sleep(Duration::from_micros(world.random.below(2_000))).await,
            _ => {}
        }
    }
    controller.set_max_concurrent(1 + world.random.below(MOST as u64) as usize);
    world.calm.store(1, SeqCst);
    let settled = async {
        while !world.is_settled() {
            sleep(ms(1)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(25), settled).await;
    assert!(in_time.is_ok(), "something is lost: {:?} {:#?}", controller.stats(), controller.queue().snapshot());
    controller.stop().await;
    running.await.expect("no panic of the workers").expect("no error");
    let panics = controller.stats().panics;
    assert_eq!(*world.violations.lock(), Vec::<String>::new());
    assert!(world.running.lock().is_empty(), "a run is left");
    assert!(world.finished.load(SeqCst) > 0 && panics > 0, "nothing happened: {panics}");
}

/// Runs a round for each seed of `test`, on a runtime of its own. The gate runs `count` rounds.
fn rounds(test: Test, count: u64, runtime: impl Fn() -> Runtime) {
    for seed in Seeds::new(test, count) {
        runtime().block_on(round(seed));
    }
}

#[test]
fn soak_random_operations_on_virtual_time_keep_every_limit_and_lose_nothing() {
    rounds(this_test!(), 40, || {
        runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
    });
}

#[test]
fn soak_random_operations_on_many_threads_keep_every_limit_and_lose_nothing() {
    rounds(this_test!(), 6, || {
        runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().expect("a runtime")
    });
}
