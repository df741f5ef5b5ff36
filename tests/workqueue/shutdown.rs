//! Tests of the three kinds of shutdown.

use crate::support::{ByHand, ms, rate_limited, run_all, secs, soon, take, with_limiter};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use steersman::workqueue::{Add, Limiter, Outcome, WorkQueue};
use tokio::time::advance;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shutdown {
    AfterReady,
    Drain,
    Close,
}

impl Shutdown {
    pub(crate) const ALL: [Self; 3] = [Self::AfterReady, Self::Drain, Self::Close];

    /// Starts the shutdown without waiting for its completion.
    pub(crate) fn begin<K: steersman::workqueue::Key>(self, queue: &WorkQueue<K>) {
        match self {
            Self::AfterReady => queue.close_after_ready(),
            Self::Drain => drop(ByHand::new(queue.drain()).poll()),
            Self::Close => queue.close(),
        }
    }
}

/// Creates a queue with one key in every state.
fn full() -> (
    WorkQueue<&'static str>,
    steersman::workqueue::Item<&'static str>,
) {
    let queue = WorkQueue::default();
    queue.add("parked");
    take(&queue).park();
    queue.add("idle");
    take(&queue).finish(Outcome::requeue());
    queue.cancel(&"idle");
    queue.add("running");
    let running = take(&queue);
    queue.add("running");
    queue.add("ready");
    queue.add_after("delayed", ms(10));
    assert_eq!(queue.snapshot().len(), 5);
    (queue, running)
}

#[test]
fn a_sleeping_getter_is_woken_by_every_shutdown() {
    for shutdown in Shutdown::ALL {
        let queue: WorkQueue<u8> = WorkQueue::default();
        let mut getters: Vec<_> = (0..20).map(|_| ByHand::waiting(queue.get())).collect();
        shutdown.begin(&queue);
        for getter in &mut getters {
            assert!(getter.was_woken(), "{shutdown:?}");
            assert!(getter.ready().is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_getter_that_sleeps_for_a_delayed_key_is_woken_by_every_shutdown() {
    for shutdown in Shutdown::ALL {
        let queue = WorkQueue::default();
        queue.add_after("a", secs(60));
        let mut getter = ByHand::waiting(queue.get());
        shutdown.begin(&queue);
        assert!(getter.was_woken());
        assert!(getter.ready().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn get_after_close_returns_none_although_keys_were_queued() {
    let (queue, running) = full();
    queue.close();
    assert!(soon(queue.get()).await.is_none());
    assert!(queue.try_get().is_none());
    assert!(running.finish_and_get(Outcome::done()).await.is_none());
    assert_eq!(queue.len(), 0);
}

#[test]
fn a_getter_woken_for_a_key_gets_none_if_the_queue_is_closed_first() {
    let queue = WorkQueue::default();
    let mut getter = ByHand::waiting(queue.get());
    queue.add("a");
    queue.close();
    assert!(getter.ready().is_none());
}

#[tokio::test(start_paused = true)]
async fn close_after_ready_returns_ready_keys_and_keys_added_during_their_run() {
    let (queue, running) = full();
    queue.close_after_ready();
    let ready = soon(queue.get()).await.expect("ready before the shutdown");
    assert_eq!(*ready, "ready");
    drop(ready);
    let again = running
        .finish_and_get(Outcome::done())
        .await
        .expect("added again before the shutdown");
    assert_eq!(*again, "running");
    assert!(again.finish_and_get(Outcome::requeue()).await.is_none());
    advance(secs(1)).await;
    assert!(
        soon(queue.get()).await.is_none(),
        "delayed and parked keys were dropped"
    );
    assert!(queue.snapshot().is_empty());
}

/// The key is due, although no call has inspected the queue since.
#[tokio::test(start_paused = true)]
async fn close_after_ready_returns_due_keys() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(10));
    advance(ms(20)).await;
    queue.close_after_ready();
    assert_eq!(run_all(&queue), ["a"]);
    assert!(soon(queue.get()).await.is_none());
}

#[test]
fn close_does_not_wait_for_running_keys() {
    for shutdown in Shutdown::ALL {
        let queue = WorkQueue::default();
        queue.add_all(0..6, Add::default());
        let mut items: Vec<_> = (0..6).map(|_| take(&queue)).collect();
        shutdown.begin(&queue);
        assert_eq!(queue.stats().running, 6);
        items.pop().expect("six items").finish(Outcome::done());
        items.pop().expect("six items").finish(Outcome::requeue());
        items
            .pop()
            .expect("six items")
            .finish(Outcome::requeue_after(ms(1)));
        items
            .pop()
            .expect("six items")
            .finish(Outcome::requeue_after(ms(0)));
        items.pop().expect("six items").park();
        drop(items);
        let stats = queue.stats();
        assert_eq!(
            (stats.running, stats.depth(), stats.delayed, stats.parked),
            (0, 0, 0, 0),
            "{shutdown:?}"
        );
        assert!(queue.try_get().is_none());
        assert!(queue.snapshot().is_empty());
    }
}

#[test]
fn drain_waits_for_the_last_running_key() {
    let queue = WorkQueue::default();
    queue.add_all(["a", "b"], Add::default());
    let (a, b) = (take(&queue), take(&queue));
    let mut drain = ByHand::waiting(queue.drain());
    a.finish(Outcome::done());
    assert!(drain.poll().is_pending());
    assert!(!drain.was_woken());
    drop(b);
    assert!(drain.was_woken());
    drain.ready();
}

// client-go returns immediately if no item is in flight. This drain first hands out ready keys.
#[test]
fn drain_waits_until_all_ready_keys_were_returned() {
    let queue = WorkQueue::default();
    queue.add_all(["a", "b"], Add::default());
    let mut drain = ByHand::waiting(queue.drain());
    let item = take(&queue);
    let item = item
        .finish_and_try_get(Outcome::done())
        .expect("ready before the shutdown");
    assert!(drain.poll().is_pending());
    assert!(item.finish_and_try_get(Outcome::done()).is_none());
    assert!(drain.was_woken());
    drain.ready();
}

#[test]
fn drain_returns_keys_added_during_their_run() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    queue.add("a");
    let mut drain = ByHand::waiting(queue.drain());
    item.finish(Outcome::done());
    assert!(drain.poll().is_pending());
    let item = take(&queue);
    assert!(drain.poll().is_pending());
    item.finish(Outcome::done());
    drain.ready();
}

/// A dispatcher gets the keys, and other tasks finish the runs.
#[tokio::test(start_paused = true)]
async fn drain_ends_when_runs_finish_without_a_getter() {
    let queue: WorkQueue<&str> = WorkQueue::default();
    let dispatcher = tokio::spawn({
        let queue = queue.clone();
        async move {
            while let Some(item) = queue.get().await {
                tokio::spawn(async move {
                    tokio::time::sleep(secs(1)).await;
                    item.finish(Outcome::done());
                });
            }
        }
    });
    queue.add("a");
    tokio::time::sleep(ms(10)).await;
    queue.add("a");
    soon(queue.drain()).await;
    soon(dispatcher).await.expect("no panic");
    assert_eq!(queue.stats().adds, 2);
}

#[test]
fn getters_wait_for_a_key_added_during_its_run() {
    let queue = WorkQueue::default();
    queue.add_all(["a", "b"], Add::default());
    let (a, b) = (take(&queue), take(&queue));
    queue.add("a");
    let mut before = ByHand::waiting(queue.get());
    queue.close_after_ready();
    let mut after = ByHand::waiting(queue.get());
    let mut worker = ByHand::waiting(b.finish_and_get(Outcome::done()));
    assert!(before.poll().is_pending());
    a.finish(Outcome::done());
    assert!(worker.was_woken() || before.was_woken() || after.was_woken());
    assert_eq!(
        *after
            .ready()
            .expect("the key was added before the shutdown"),
        "a"
    );
    assert!(before.was_woken() && worker.was_woken(), "all getters end");
    assert!(before.ready().is_none() && worker.ready().is_none());
}

#[test]
fn cancelling_the_last_key_ends_waiting_getters() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    queue.add("a");
    queue.close_after_ready();
    let mut getter = ByHand::waiting(queue.get());
    assert!(queue.cancel(&"a"));
    assert!(getter.was_woken());
    assert!(getter.ready().is_none());
    drop(item);
}

#[test]
fn close_ends_the_wait_of_a_drain() {
    let queue = WorkQueue::default();
    queue.add_all(["a", "b"], Add::default());
    let running = take(&queue);
    let mut drain = ByHand::waiting(queue.drain());
    queue.close();
    assert!(drain.was_woken());
    drain.ready();
    assert_eq!(*running, "a", "the key is still processed");
}

#[test]
fn a_drain_after_close_waits_for_running_keys() {
    let queue = WorkQueue::default();
    queue.add_all(["a", "b", "c"], Add::default());
    let (one, other) = (take(&queue), take(&queue));
    queue.close();
    let mut drain = ByHand::waiting(queue.drain());
    drop(one);
    assert!(
        !drain.was_woken() && drain.poll().is_pending(),
        "another key is still processed"
    );
    let mut dismissed = ByHand::waiting(queue.drain());
    queue.close();
    assert!(dismissed.was_woken() && drain.was_woken());
    dismissed.ready();
    drain.ready();

    let mut drain = ByHand::waiting(queue.drain());
    drop(other);
    assert!(
        drain.was_woken(),
        "the last run has ended, and what was queued is dropped"
    );
    drain.ready();
    ByHand::new(queue.drain()).ready();
}

#[test]
fn close_after_ready_does_not_wait_and_does_not_end_the_wait_of_a_drain() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    queue.close_after_ready();
    let mut drain = ByHand::waiting(queue.drain());
    queue.close_after_ready();
    assert!(drain.poll().is_pending());
    drop(item);
    drain.ready();
}

#[test]
fn drain_ends_at_once_when_idle_and_any_number_can_wait() {
    let queue: WorkQueue<&str> = WorkQueue::default();
    ByHand::new(queue.drain()).ready();
    ByHand::new(queue.drain()).ready();

    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    let mut drains: Vec<_> = (0..3).map(|_| ByHand::waiting(queue.drain())).collect();
    drop(item);
    assert!(drains.iter().all(ByHand::was_woken));
    drains.iter_mut().for_each(ByHand::ready);
}

#[test]
fn dropping_a_drain_leaves_the_queue_shut_down() {
    let queue = WorkQueue::default();
    queue.add("a");
    drop(ByHand::waiting(queue.drain()));
    assert!(queue.is_closed());
    queue.add("b");
    assert_eq!(run_all(&queue), ["a"]);
}

#[test]
fn cancelling_the_last_key_ends_a_drain() {
    let queue = WorkQueue::default();
    queue.add("a");
    let mut drain = ByHand::waiting(queue.drain());
    assert!(queue.cancel(&"a"));
    assert!(drain.was_woken(), "no ready and no running key");
    drain.ready();
}

#[tokio::test(start_paused = true)]
async fn drain_with_workers_ends_after_their_work() {
    let queue: WorkQueue<u32> = WorkQueue::default();
    let worked = Arc::new(AtomicU32::new(0));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (queue, worked) = (queue.clone(), worked.clone());
            tokio::spawn(async move {
                let mut next = soon(queue.get()).await;
                while let Some(item) = next {
                    tokio::time::sleep(ms(10)).await;
                    worked.fetch_add(1, Ordering::Relaxed);
                    next = item.finish_and_get(Outcome::done()).await;
                }
            })
        })
        .collect();
    queue.add_all(0..50, Add::default());
    soon(queue.drain()).await;
    assert_eq!(worked.load(Ordering::Relaxed), 50);
    for worker in workers {
        soon(worker).await.expect("no panic");
    }
}

#[test]
fn shutdowns_are_idempotent_and_the_strictest_holds_in_every_order() {
    for first in Shutdown::ALL {
        for second in Shutdown::ALL {
            for third in Shutdown::ALL {
                let queue = WorkQueue::default();
                queue.add("a");
                queue.add_after("b", ms(1));
                assert!(!queue.is_closed());
                let mut strictest = first;
                for shutdown in [first, second, third] {
                    strictest = strictest.max(shutdown);
                    shutdown.begin(&queue);
                    assert!(queue.is_closed());
                    assert_eq!(queue.len(), usize::from(strictest != Shutdown::Close));
                }
                let expected: &[&str] = if strictest == Shutdown::Close {
                    &[]
                } else {
                    &["a"]
                };
                assert_eq!(run_all(&queue), expected, "{first:?} {second:?} {third:?}");
                ByHand::new(queue.drain()).ready();
                assert!(ByHand::new(queue.get()).ready().is_none());
            }
        }
    }
}

#[test]
fn adds_of_every_kind_are_ignored_and_counted_after_every_shutdown() {
    for shutdown in Shutdown::ALL {
        let queue = WorkQueue::default();
        shutdown.begin(&queue);
        queue.add("a");
        queue.add_after("a", ms(1));
        queue.add_rate_limited("a");
        queue.add_with(
            "a",
            Add {
                replace_timer: true,
                ..rate_limited()
            },
        );
        queue.add_all(["b", "c", "d"], Add::default());
        let stats = queue.stats();
        assert_eq!(
            (stats.rejected, stats.adds, stats.retries),
            (7, 0, 0),
            "{shutdown:?}"
        );
        assert_eq!((queue.len(), queue.num_requeues(&"a")), (0, 0));
        assert!(queue.snapshot().is_empty());
    }
}

#[test]
fn an_add_after_shutdown_does_not_change_a_key_that_is_still_handed_out() {
    let queue = WorkQueue::default();
    queue.add("a");
    queue.close_after_ready();
    queue.add_with(
        "a",
        Add {
            reason: Some("late".into()),
            ..crate::support::at(9)
        },
    );
    let item = take(&queue);
    assert_eq!((item.priority().0, item.reasons().len()), (0, 0));
}

#[test]
fn the_limiter_is_not_charged_after_a_shutdown() {
    for shutdown in Shutdown::ALL {
        let asked = Arc::new(AtomicU32::new(0));
        let queue = with_limiter(Limiter::new({
            let asked = asked.clone();
            move |_: &&str, _, _| {
                asked.fetch_add(1, Ordering::Relaxed);
                ms(1)
            }
        }));
        queue.add("a");
        let item = take(&queue);
        shutdown.begin(&queue);
        queue.add_rate_limited("b");
        item.finish(Outcome::requeue());
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
}
