//! Stress tests with ten producers and a hundred consumers.
//!
//! Modelled on controller-runtime's fuzz test.

use super::{on_threads, within_the_watchdog};
use crate::support::{Random, ms, with_share};
use std::{
    collections::{HashMap, HashSet},
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};
use steersman::workqueue::{Add, Item, Limiter, Outcome, Priority, QueueOptions, WorkQueue};
use steersman_testkit::this_test;
use tokio::{sync::Notify, task::JoinSet, time::timeout};

const KEYS: u64 = 100;
const PRODUCERS: u64 = 10;
const CONSUMERS: u64 = 100;

fn fuzzed(share: u32) -> WorkQueue<u64> {
    let limiter = Limiter::exponential(ms(1), ms(4)).jitter(0.5);
    WorkQueue::new(QueueOptions {
        share,
        limiter,
        ..QueueOptions::default()
    })
}

fn random_add(random: &mut Random) -> Add {
    let priority = random.below(6) as i32 - 3;
    Add {
        after: random
            .one_in(4)
            .then(|| Duration::from_micros(random.below(3000))),
        rate_limited: random.one_in(6),
        priority: random.one_in(2).then_some(Priority(priority)),
        reason: random.one_in(3).then(|| priority.to_string().into()),
        replace_timer: random.one_in(8),
    }
}

/// Expected state of the queue.
///
/// Invariant: each change of the queue holds the lock of this state, so the two stay consistent.
#[derive(Default)]
struct ExpectedState {
    /// Minimum priority of each key that is ready or becomes ready after its run.
    ready: HashMap<u64, i32>,
    running: HashSet<u64>,
}

impl ExpectedState {
    fn add(&mut self, queue: &WorkQueue<u64>, key: u64, add: Add) {
        if add.after.is_none_or(|after| after.is_zero()) && !add.rate_limited {
            let priority = add.priority.unwrap_or_default().0;
            let known = self.ready.entry(key).or_insert(priority);
            *known = priority.max(*known);
        }
        queue.add_with(key, add);
        assert!(
            queue.stats().depth() >= self.ready.len(),
            "a key that is ready is not counted"
        );
    }

    fn handed_out(&mut self, queue: &WorkQueue<u64>, item: &Item<u64>) {
        let better = self
            .ready
            .iter()
            .find(|(key, least)| !self.running.contains(key) && (**least > item.priority().0));
        assert_eq!(
            better, None,
            "a key of a higher priority was ready before {item:?}"
        );
        assert!(self.running.insert(**item), "{item:?} is in two workers");
        self.ready.remove(item);
        let stats = queue.stats();
        assert_eq!(stats.running, self.running.len());
        assert!(
            stats.depth() <= KEYS as usize,
            "a depth below zero: {stats:?}"
        );
    }

    fn finish(&mut self, item: Item<u64>, outcome: Option<Outcome>) {
        assert!(self.running.remove(&*item));
        match outcome {
            Some(outcome) => item.finish(outcome),
            None => drop(item),
        }
    }
}

/// Calls `get` and updates the expected state under the same lock.
async fn get(queue: &WorkQueue<u64>, expected: &Mutex<ExpectedState>) -> Option<Item<u64>> {
    let mut get = pin!(queue.get());
    poll_fn(|cx| {
        let mut expected = expected.lock().expect("no consumer panics");
        let polled = get.as_mut().poll(cx);
        if let Poll::Ready(Some(item)) = &polled {
            expected.handed_out(queue, item);
        }
        polled
    })
    .await
}

#[test]
fn soak_at_share_zero_the_highest_priority_is_handed_out_and_no_key_to_two_workers() {
    on_threads(this_test!(), 40, |seed| async move {
        let queue = fuzzed(0);
        let expected = Arc::new(Mutex::new(ExpectedState::default()));
        let finished = Arc::new(Notify::new());
        let mut consumers = JoinSet::new();
        for n in 0..CONSUMERS {
            let (queue, expected, finished) = (queue.clone(), expected.clone(), finished.clone());
            let mut random = Random::new(seed ^ (n << 32));
            consumers.spawn(async move {
                while let Some(item) = get(&queue, &expected).await {
                    if random.one_in(2) {
                        tokio::task::yield_now().await;
                    }
                    let outcome = match random.below(10) {
                        0 => None,
                        1 => Some(Outcome::requeue()),
                        _ => Some(Outcome::done()),
                    };
                    expected
                        .lock()
                        .expect("no consumer panics")
                        .finish(item, outcome);
                    finished.notify_one();
                }
            });
        }
        let mut producers = JoinSet::new();
        for n in 0..PRODUCERS {
            let (queue, expected) = (queue.clone(), expected.clone());
            let mut random = Random::new(seed ^ (n << 48));
            producers.spawn(async move {
                for n in 0..100 {
                    let (key, add) = (random.below(KEYS), random_add(&mut random));
                    expected
                        .lock()
                        .expect("no consumer panics")
                        .add(&queue, key, add);
                    if n % 10 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        producers.join_all().await;
        let empty = || {
            let stats = queue.stats();
            stats.depth() + stats.delayed + stats.running == 0
        };
        within_the_watchdog(&queue, "handing out everything", async {
            while !empty() {
                finished.notified().await;
            }
        })
        .await;
        assert_eq!(queue.len(), 0);
        queue.close();
        within_the_watchdog(&queue, "the end of the consumers", consumers.join_all()).await;
    });
}

/// Lock-free state of a key.
#[derive(Default)]
struct Watched {
    running: AtomicBool,
    /// Number of adds, and in `seen` the number of those that the last run observed.
    added: AtomicU64,
    seen: AtomicU64,
}

async fn consume(
    queue: WorkQueue<u64>,
    keys: Arc<Vec<Watched>>,
    seen: Arc<Notify>,
    mut random: Random,
) {
    let mut item = queue.get().await;
    loop {
        let Some(key) = item.as_deref().copied() else {
            return;
        };
        let watched = &keys[key as usize];
        assert!(
            !watched.running.swap(true, Ordering::SeqCst),
            "{key} is in two workers"
        );
        watched
            .seen
            .store(watched.added.load(Ordering::SeqCst), Ordering::SeqCst);
        seen.notify_one();
        if random.one_in(3) {
            tokio::task::yield_now().await;
        }
        watched.running.store(false, Ordering::SeqCst);
        let Some(run) = item.take() else { return };
        let next = match random.below(12) {
            0 => {
                drop(run);
                None
            }
            1 => {
                run.finish(Outcome::requeue());
                None
            }
            2 => {
                // The event and the parking race.
                let queue = queue.clone();
                let event = tokio::spawn(async move { queue.unpark(&key) });
                run.park();
                event.await.expect("no panic");
                None
            }
            3 => {
                run.park_for(Duration::from_micros(random.below(2000)));
                None
            }
            4..7 => run.finish_and_try_get(Outcome::requeue_after(Duration::from_micros(
                random.below(1000),
            ))),
            _ => Some(run.finish_and_get(Outcome::done()).await).flatten(),
        };
        item = next;
        // Impatient getters are cancelled at any time.
        while item.is_none() && !queue.is_closed() {
            let patience = Duration::from_micros(random.below(4000));
            match timeout(patience, queue.get()).await {
                Ok(got) => item = got,
                Err(_) if random.one_in(2) => item = queue.get().await,
                Err(_) => {}
            }
        }
    }
}

#[test]
fn soak_no_key_is_in_two_workers_and_no_add_is_lost() {
    on_threads(this_test!(), 25, |seed| async move {
        let queue = fuzzed(if seed % 2 == 0 { 0 } else { 16 });
        let keys: Arc<Vec<Watched>> = Arc::new((0..KEYS).map(|_| Watched::default()).collect());
        let seen = Arc::new(Notify::new());
        let mut consumers = JoinSet::new();
        for n in 0..CONSUMERS {
            let random = Random::new(seed ^ (n << 32));
            consumers.spawn(consume(queue.clone(), keys.clone(), seen.clone(), random));
        }
        let mut producers = JoinSet::new();
        for n in 0..PRODUCERS {
            let (queue, keys) = (queue.clone(), keys.clone());
            let mut random = Random::new(seed ^ (n << 48));
            producers.spawn(async move {
                for _ in 0..500 {
                    let (key, add) = (random.below(KEYS), random_add(&mut random));
                    keys[key as usize].added.fetch_add(1, Ordering::SeqCst);
                    queue.add_with(key, add);
                    if random.one_in(50) {
                        queue.forget(&random.below(KEYS));
                        let entries = queue.snapshot();
                        let distinct: HashSet<u64> =
                            entries.iter().map(|entry| entry.key).collect();
                        assert_eq!(distinct.len(), entries.len(), "a key is shown twice");
                    }
                    if random.one_in(20) {
                        let stats = queue.stats();
                        assert!(
                            stats.depth() <= KEYS as usize,
                            "a depth below zero: {stats:?}"
                        );
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        producers.join_all().await;
        within_the_watchdog(&queue, "a run after every add", async {
            let unseen =
                |key: &Watched| key.seen.load(Ordering::SeqCst) < key.added.load(Ordering::SeqCst);
            while keys.iter().any(unseen) {
                seen.notified().await;
            }
        })
        .await;
        // Requeues never end. Closing drops the remaining keys.
        queue.close();
        within_the_watchdog(&queue, "the end of the consumers", consumers.join_all()).await;
        let stats = queue.stats();
        assert_eq!(
            (stats.depth(), stats.running, stats.delayed, stats.parked),
            (0, 0, 0, 0)
        );
    });
}

/// The bound does not depend on the number of workers.
#[test]
fn soak_a_low_key_does_not_starve_among_many_workers() {
    on_threads(this_test!(), 1000, |_| async move {
        let queue: WorkQueue<u64> = with_share(16);
        queue.add_all(1..=200, Add::default());
        queue.add_with(
            0,
            Add {
                priority: Some(Priority::LOW),
                ..Add::default()
            },
        );
        let turns = Arc::new(Mutex::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..20 {
            let (queue, turns) = (queue.clone(), turns.clone());
            workers.spawn(async move {
                loop {
                    let mut get = pin!(queue.get());
                    let got = poll_fn(|cx| {
                        let mut turns = turns.lock().expect("no worker panics");
                        let got = get.as_mut().poll(cx);
                        *turns += u64::from(got.is_ready());
                        got.map(|item| (item, *turns))
                    });
                    match got.await {
                        (None, _) => return,
                        (Some(item), turn) if *item == 0 => {
                            assert!(turn <= 16 * (200 + 2), "{turn} turns");
                            queue.close();
                        }
                        // Keys of normal priority are requeued forever.
                        (Some(item), _) => item.finish(Outcome::requeue_after(Duration::ZERO)),
                    }
                }
            });
        }
        within_the_watchdog(&queue, "handing out the low key", workers.join_all()).await;
    });
}
