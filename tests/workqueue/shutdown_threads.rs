//! Tests of shutdowns while many threads add and get.

use crate::{shutdown::Shutdown, stress::within_the_watchdog};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use steersman::workqueue::{Add, Outcome, WorkQueue};
use tokio::{sync::Barrier, task::JoinSet};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shutdown_while_keys_are_handed_out_does_not_deadlock() {
    for shutdown in Shutdown::ALL {
        for round in 0..50 {
            let queue: WorkQueue<u32> = WorkQueue::default();
            let mut workers = JoinSet::new();
            for n in 0..20 {
                let queue = queue.clone();
                workers.spawn(async move {
                    // Half of the workers use `finish_and_get`.
                    while let Some(item) = queue.get().await {
                        let mut next = Some(item);
                        while let Some(item) = next.take() {
                            if n % 2 == 0 {
                                next = item.finish_and_get(Outcome::done()).await;
                            }
                        }
                    }
                });
            }
            queue.add_all(0..100, Add::default());
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            match shutdown {
                Shutdown::Drain => within_the_watchdog(&queue, "draining", queue.drain()).await,
                other => other.begin(&queue),
            }
            within_the_watchdog(&queue, (shutdown, round), workers.join_all()).await;
        }
    }
}

// 50 producers, 10 consumers, every kind of shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_added_before_a_shutdown_are_returned_and_later_ones_are_not() {
    for shutdown in Shutdown::ALL {
        let queue: WorkQueue<(u32, bool)> = WorkQueue::default();
        let consumers = consume(&queue, 10);
        let mut producers = JoinSet::new();
        for producer in 0..50 {
            let queue = queue.clone();
            producers.spawn(async move {
                for n in 0..50 {
                    queue.add((producer * 1000 + n, false));
                }
            });
        }
        producers.join_all().await;
        match shutdown {
            Shutdown::Drain => within_the_watchdog(&queue, "draining", queue.drain()).await,
            other => other.begin(&queue),
        }
        for n in 0..50 {
            queue.add((n, true));
        }
        let runs = within_the_watchdog(&queue, shutdown, consumers.join_all())
            .await
            .concat();
        assert!(
            runs.iter().all(|(_, late)| !late),
            "{shutdown:?}: a key added after the shutdown ran"
        );
        let distinct: HashSet<_> = runs.iter().collect();
        assert_eq!(distinct.len(), runs.len(), "each key runs once");
        assert_eq!(queue.stats().rejected, 50);
        if shutdown != Shutdown::Close {
            assert_eq!(runs.len(), 50 * 50, "{shutdown:?}");
        }
    }
}

// The shutdown happens while the producers add.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_key_added_after_a_shutdown_runs() {
    for shutdown in Shutdown::ALL {
        let queue: WorkQueue<(u32, bool)> = WorkQueue::default();
        let consumers = consume(&queue, 10);
        let added = Arc::new(AtomicUsize::new(0));
        let start = Arc::new(Barrier::new(51));
        let mut producers = JoinSet::new();
        for producer in 0..50u32 {
            let (queue, added, start) = (queue.clone(), added.clone(), start.clone());
            producers.spawn(async move {
                start.wait().await;
                let mut late = 0;
                for n in 0.. {
                    let closed = queue.is_closed();
                    queue.add((producer * 1_000_000 + n, closed));
                    added.fetch_add(1, Ordering::Relaxed);
                    late += u32::from(closed);
                    if late > 5 {
                        break;
                    }
                    if n % 8 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        start.wait().await;
        while added.load(Ordering::Relaxed) < 500 {
            tokio::task::yield_now().await;
        }
        match shutdown {
            Shutdown::Drain => within_the_watchdog(&queue, "draining", queue.drain()).await,
            other => other.begin(&queue),
        }
        within_the_watchdog(
            &queue,
            "the producers, which see the shutdown,",
            producers.join_all(),
        )
        .await;
        let runs = within_the_watchdog(&queue, shutdown, consumers.join_all())
            .await
            .concat();
        assert!(runs.iter().all(|(_, late)| !late), "{shutdown:?}");
        let stats = queue.stats();
        assert_eq!(
            stats.adds + stats.rejected,
            added.load(Ordering::Relaxed) as u64,
            "every add did one or the other"
        );
        if shutdown != Shutdown::Close {
            assert_eq!(
                runs.len() as u64,
                stats.adds,
                "{shutdown:?}: what was accepted ran"
            );
        }
    }
}

fn consume<K: steersman::workqueue::Key>(
    queue: &WorkQueue<K>,
    consumers: usize,
) -> JoinSet<Vec<K>> {
    let mut tasks = JoinSet::new();
    for _ in 0..consumers {
        let queue = queue.clone();
        tasks.spawn(async move {
            let mut runs = Vec::new();
            while let Some(item) = queue.get().await {
                runs.push(item.key().clone());
            }
            runs
        });
    }
    tasks
}
