//! Tests of deduplication: a key is queued once and runs in one worker.

use crate::support::{ByHand, ms, rate_limited, run, run_all, soon, strict, take};
use std::collections::HashSet;
use steersman::workqueue::{Add, Outcome, Priority, WorkQueue};

#[test]
fn a_key_re_added_while_processing_runs_once_more() {
    let queue = WorkQueue::default();
    queue.add("a");
    let first = take(&queue);
    queue.add("a");
    assert!(
        queue.try_get().is_none(),
        "the key must not be in two workers"
    );
    first.finish(Outcome::done());
    run(&queue, &"a");
    assert!(queue.try_get().is_none(), "one add, one more run");
    assert_eq!(queue.len(), 0);
}

#[test]
fn adds_while_processing_collapse_and_a_second_worker_waits_for_the_end_of_the_run() {
    let queue = WorkQueue::default();
    queue.add("a");
    let first = take(&queue);
    let mut second = ByHand::waiting(queue.get());
    for _ in 0..5 {
        queue.add("a");
    }
    assert!(!second.was_woken(), "no key is ready");
    assert!(second.poll().is_pending());
    first.finish(Outcome::done());
    assert!(second.was_woken());
    let item = second.ready().expect("the queue is open");
    assert_eq!(*item, "a");
    item.finish(Outcome::done());
    assert!(queue.try_get().is_none(), "five adds, one more run");
}

#[test]
fn a_duplicate_add_before_get_collapses() {
    let queue = WorkQueue::default();
    for key in ["a", "b", "a", "b", "a"] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 2);
    assert_eq!(run_all(&queue), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn adds_of_every_kind_collapse() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(50));
    queue.add_rate_limited("a");
    queue.add("a");
    queue.add_with(
        "a",
        Add {
            priority: Some(Priority::HIGH),
            ..rate_limited()
        },
    );
    queue.add_all(
        ["a", "a"],
        Add {
            after: Some(ms(1)),
            ..Add::default()
        },
    );
    assert_eq!(run_all(&queue), ["a"]);
    tokio::time::advance(ms(1000)).await;
    assert_eq!(queue.len(), 0, "no further add is pending");
}

#[test]
fn a_key_added_again_after_its_run_is_a_new_request() {
    let queue = WorkQueue::default();
    for _ in 0..3 {
        queue.add("a");
        run(&queue, &"a");
        assert!(queue.try_get().is_none());
    }
}

#[test]
fn a_processing_key_is_not_returned_by_any_get() {
    let queue = WorkQueue::default();
    queue.add("a");
    queue.add("b");
    let a = take(&queue);
    let b = take(&queue);
    queue.add("a");
    assert!(queue.try_get().is_none());
    assert!(ByHand::new(queue.get()).poll().is_pending());
    assert!(b.finish_and_try_get(Outcome::done()).is_none());
    assert_eq!(*a, "a");
}

#[test]
fn a_key_added_while_it_runs_counts_as_ready_once() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    assert_eq!((queue.len(), item.is_queued_again()), (0, false));
    queue.add("a");
    queue.add("a");
    assert_eq!((queue.len(), item.is_queued_again()), (1, true));
    item.finish(Outcome::done());
    assert_eq!(queue.len(), 1);
    run(&queue, &"a");
    assert!(queue.is_empty());
}

#[test]
fn adds_of_a_second_run_are_kept_apart_from_those_of_the_first() {
    let queue = WorkQueue::default();
    queue.add("a");
    let first = take(&queue);
    queue.add("a");
    let second = first
        .finish_and_try_get(Outcome::done())
        .expect("the key was added again");
    assert!(!second.is_queued_again());
    queue.add("a");
    assert!(second.is_queued_again());
    drop(second);
    run(&queue, &"a");
    assert!(queue.is_empty());
}

#[test]
fn clones_share_one_queue() {
    let queue = WorkQueue::default();
    let clone = queue.clone();
    queue.add("a");
    clone.add("a");
    clone.add("b");
    assert_eq!(queue.len(), 2);
    let a = take(&clone);
    queue.add(*a);
    assert_eq!(run_all(&clone), ["b"]);
    drop(a);
    assert_eq!(run_all(&queue), ["a"]);
}

#[test]
fn a_batch_is_added_in_order_without_duplicates() {
    let queue = strict();
    let keys = (0..1000u32).chain(0..1000);
    queue.add_all(keys, Add::default());
    assert_eq!(queue.len(), 1000);
    assert_eq!(run_all(&queue), (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_batch_gives_priority_reason_and_delay_to_each_key() {
    let queue = WorkQueue::default();
    queue.add(1);
    let add = Add {
        priority: Some(Priority(7)),
        reason: Some("resync".into()),
        ..Add::default()
    };
    queue.add_all([1, 2], add);
    for _ in 0..2 {
        let item = take(&queue);
        assert_eq!(
            (item.priority(), item.reasons()),
            (Priority(7), vec!["resync".into()])
        );
    }
}

#[test]
fn an_empty_batch_adds_nothing() {
    let queue: WorkQueue<u8> = WorkQueue::default();
    queue.add_all([], Add::default());
    assert_eq!((queue.len(), queue.stats().adds), (0, 0));
}

#[test]
fn the_iterator_of_a_batch_can_call_the_queue() {
    let queue = strict();
    let keys = (0..600u32).inspect(|key| {
        queue.add(key + 10_000);
        assert!(!queue.is_empty());
    });
    queue.add_all(keys, Add::default());
    assert_eq!(
        run_all(&queue).into_iter().collect::<HashSet<_>>().len(),
        1200
    );
}

/// The slot table and the lists grow, shrink and are reused.
#[test]
fn many_keys_keep_their_identity_through_growth_and_reuse() {
    let queue = strict();
    for round in 0..3u32 {
        let keys: Vec<u32> = (round * 3000..round * 3000 + 5000).collect();
        for key in &keys {
            queue.add(*key);
        }
        for key in keys.iter().step_by(3) {
            assert!(queue.cancel(key));
            queue.add(*key);
        }
        let mut expected: Vec<u32> = keys
            .iter()
            .copied()
            .filter(|key| (key - round * 3000) % 3 != 0)
            .collect();
        expected.extend(keys.iter().step_by(3));
        assert_eq!(run_all(&queue), expected);
        assert!(queue.snapshot().is_empty());
    }
}

// `stress` covers the same with threads.
#[tokio::test(start_paused = true)]
async fn each_key_is_processed_once_by_one_of_several_workers() {
    let queue: WorkQueue<u32> = WorkQueue::default();
    let workers: Vec<_> = (0..10)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut runs = Vec::new();
                let mut next = soon(queue.get()).await;
                while let Some(item) = next {
                    runs.push(*item);
                    tokio::time::sleep(ms(3)).await;
                    next = item.finish_and_get(Outcome::done()).await;
                }
                runs
            })
        })
        .collect();
    queue.add_all(0..100, Add::default());
    soon(queue.drain()).await;
    let mut all = Vec::new();
    for worker in workers {
        let runs = soon(worker).await.expect("no worker panics");
        assert!(!runs.is_empty(), "every worker gets its part");
        all.extend(runs);
    }
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}
