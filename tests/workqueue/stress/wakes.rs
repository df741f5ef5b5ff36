//! Stress tests of wakeups.
//!
//! No getter sleeps while a key is ready, and no key is early.

use super::{on_threads, within_the_watchdog};
use crate::support::{Random, ms, secs};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use steersman::workqueue::{Add, Outcome, WorkQueue};
use steersman_testkit::this_test;
use tokio::{
    sync::{Barrier, Notify, mpsc},
    task::JoinSet,
    time::timeout,
};

/// Each key is added after the previous one was processed, so all getters sleep or are about to.
#[test]
fn soak_each_single_add_wakes_a_getter() {
    on_threads(this_test!(), 5, |seed| async move {
        let queue: WorkQueue<u32> = WorkQueue::default();
        let (done, mut processed) = mpsc::unbounded_channel();
        let mut getters = JoinSet::new();
        for n in 0..8u64 {
            let (queue, done) = (queue.clone(), done.clone());
            let mut random = Random::new(seed ^ (n << 32));
            getters.spawn(async move {
                while !queue.is_closed() {
                    // Some getters are cancelled at any time, also after they were woken.
                    let item = if n % 2 == 0 {
                        queue.get().await
                    } else {
                        let patience = Duration::from_micros(random.below(200));
                        timeout(patience, queue.get()).await.unwrap_or_default()
                    };
                    if let Some(item) = item {
                        let key = *item;
                        item.finish(Outcome::done());
                        if done.send(key).is_err() {
                            return;
                        }
                    }
                }
            });
        }
        for key in 0..2000 {
            match key % 100 {
                0 => queue.add_after(key, Duration::from_micros(u64::from(key))),
                1 => queue.add_with(
                    key,
                    Add {
                        rate_limited: true,
                        ..Add::default()
                    },
                ),
                _ => queue.add(key),
            }
            let got = within_the_watchdog(&queue, key, processed.recv()).await;
            assert_eq!(got, Some(key));
        }
        queue.close();
        within_the_watchdog(&queue, "the end of the getters", getters.join_all()).await;
    });
}

/// The producer's busy thread may hold the first woken getter.
///
/// The others can run elsewhere.
#[test]
fn a_producer_that_does_not_yield_does_not_block_the_workers() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let queue: WorkQueue<usize> = WorkQueue::default();
        let processed = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let (queue, processed) = (queue.clone(), processed.clone());
            tokio::spawn(async move {
                while let Some(item) = queue.get().await {
                    processed.fetch_add(1, Ordering::SeqCst);
                    item.finish(Outcome::done());
                }
            });
        }
        let producer = tokio::spawn(async move {
            for round in 1..=20 {
                queue.add_all(0..10, Add::default());
                let start = Instant::now();
                while processed.load(Ordering::SeqCst) < round * 10 - 1 && start.elapsed() < secs(5)
                {
                    std::hint::spin_loop();
                }
                assert!(
                    processed.load(Ordering::SeqCst) >= round * 10 - 1,
                    "workers sleep while keys are ready: {queue:?}"
                );
                while processed.load(Ordering::SeqCst) < round * 10 {
                    tokio::task::yield_now().await;
                }
            }
        });
        producer.await.expect("the workers work");
    });
}

/// All getters sleep, then all keys become ready at once.
#[test]
fn soak_a_batch_wakes_one_getter_per_key() {
    on_threads(this_test!(), 200, |_| async {
        let queue: WorkQueue<u32> = WorkQueue::default();
        for after in [Duration::ZERO, ms(1)] {
            // No worker continues before every worker has a key.
            let together = Arc::new(Barrier::new(51));
            let mut workers = JoinSet::new();
            for _ in 0..50 {
                let (queue, together) = (queue.clone(), together.clone());
                workers.spawn(async move {
                    let item = queue.get().await.expect("open");
                    together.wait().await;
                    *item
                });
            }
            queue.add_all(
                0..50,
                Add {
                    after: Some(after),
                    ..Add::default()
                },
            );
            within_the_watchdog(&queue, "50 keys for 50 workers", together.wait()).await;
            let mut keys = workers.join_all().await;
            keys.sort_unstable();
            assert_eq!(keys, (0..50).collect::<Vec<_>>());
        }
    });
}

#[test]
fn soak_no_delayed_key_is_early_and_none_is_lost() {
    on_threads(this_test!(), 40, |seed| async move {
        let queue: WorkQueue<(u64, Instant)> = WorkQueue::default();
        let processed = Arc::new((AtomicUsize::new(0), Notify::new()));
        let mut consumers = JoinSet::new();
        for _ in 0..100 {
            let (queue, processed) = (queue.clone(), processed.clone());
            consumers.spawn(async move {
                while let Some(item) = queue.get().await {
                    let (_, due) = *item;
                    let early = due.saturating_duration_since(Instant::now());
                    assert!(early.is_zero(), "early by {early:?}");
                    processed.0.fetch_add(1, Ordering::SeqCst);
                    processed.1.notify_one();
                }
            });
        }
        let mut producers = JoinSet::new();
        for producer in 0..10 {
            let queue = queue.clone();
            let mut random = Random::new(seed ^ (producer << 48));
            producers.spawn(async move {
                for n in 0..100 {
                    let delay = Duration::from_micros(random.below(20_000));
                    queue.add_after((producer * 100 + n, Instant::now() + delay), delay);
                    if random.one_in(10) {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        producers.join_all().await;
        within_the_watchdog(&queue, "all delays", async {
            while processed.0.load(Ordering::SeqCst) < 1000 {
                processed.1.notified().await;
            }
        })
        .await;
        within_the_watchdog(&queue, "the last run", queue.drain()).await;
        within_the_watchdog(&queue, "the end of the consumers", consumers.join_all()).await;
        assert_eq!(processed.0.load(Ordering::SeqCst), 1000);
    });
}
