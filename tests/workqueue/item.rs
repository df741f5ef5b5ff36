//! Tests of the fields of an item and of the outcomes of a run.

use crate::support::{ByHand, at, because, ms, reasons, run, run_all, soon, strict, take};
use std::panic::{AssertUnwindSafe, catch_unwind};
use steersman::workqueue::{Add, Outcome, Priority, WorkQueue};
use tokio::time::advance;

#[tokio::test(start_paused = true)]
async fn an_item_carries_key_priority_attempt_wait_and_reasons() {
    let queue = WorkQueue::default();
    queue.add_with(
        "a",
        Add {
            reason: Some("created".into()),
            ..at(7)
        },
    );
    advance(ms(30)).await;
    let item = take(&queue);
    assert_eq!((*item.key(), *item), ("a", "a"));
    assert_eq!(
        (item.priority(), item.attempt(), item.waited()),
        (Priority(7), 1, ms(30))
    );
    assert_eq!(reasons(&item), ["created"]);
    assert!(format!("{item:?}").contains("\"a\""), "{item:?}");
}

#[test]
fn the_default_priority_is_normal() {
    let queue = WorkQueue::default();
    queue.add("a");
    queue.add_with("b", Add::default());
    for _ in 0..2 {
        assert_eq!(take(&queue).priority(), Priority::NORMAL);
    }
}

#[tokio::test(start_paused = true)]
async fn the_attempt_counts_failures_and_starts_over_after_success() {
    let queue = WorkQueue::default();
    queue.add("a");
    for attempt in 1..=5 {
        let item = soon(queue.get()).await.expect("open");
        assert_eq!(item.attempt(), attempt);
        item.finish(Outcome::requeue());
        assert_eq!(queue.num_requeues(&"a"), attempt);
    }
    soon(queue.get())
        .await
        .expect("open")
        .finish(Outcome::done());
    assert_eq!(queue.num_requeues(&"a"), 0);
    queue.add("a");
    assert_eq!(take(&queue).attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_wait_counts_from_becoming_ready() {
    let queue = WorkQueue::default();
    queue.add_after("delayed", ms(10));
    advance(ms(25)).await;
    let item = take(&queue);
    assert_eq!(item.waited(), ms(15), "not the delay itself");
    queue.add("delayed");
    advance(ms(4)).await;
    queue.add("delayed");
    item.finish(Outcome::done());
    advance(ms(2)).await;
    assert_eq!(
        take(&queue).waited(),
        ms(6),
        "since the first add during the run"
    );
}

#[tokio::test(start_paused = true)]
async fn raising_a_key_does_not_shorten_its_wait() {
    let queue = WorkQueue::default();
    queue.add("a");
    advance(ms(5)).await;
    queue.add_with("a", at(100));
    advance(ms(5)).await;
    assert_eq!(take(&queue).waited(), ms(10));
}

#[test]
fn the_last_three_reasons_are_kept_oldest_first() {
    let queue = WorkQueue::default();
    for reason in ["1", "2", "3", "4", "5", "6"] {
        queue.add_with("a", because(reason));
    }
    assert_eq!(reasons(&take(&queue)), ["4", "5", "6"]);
}

#[test]
fn adds_without_a_reason_keep_those_given() {
    let queue = WorkQueue::default();
    queue.add("a");
    queue.add_with("a", because("changed"));
    queue.add("a");
    assert_eq!(reasons(&take(&queue)), ["changed"]);
}

#[test]
fn reasons_given_while_a_key_runs_belong_to_its_next_run() {
    let queue = WorkQueue::default();
    queue.add_with("a", because("first"));
    let item = take(&queue);
    queue.add_with("a", because("second"));
    assert_eq!(reasons(&item), ["first"]);
    let item = item
        .finish_and_try_get(Outcome::done())
        .expect("added again");
    assert_eq!(reasons(&item), ["second"]);
    drop(item);
    queue.add("a");
    assert_eq!(
        reasons(&take(&queue)),
        Vec::<String>::new(),
        "a new request, without a reason"
    );
}

#[test]
fn keys_with_the_same_reason_do_not_disturb_each_other() {
    let queue = WorkQueue::default();
    queue.add_all(["a", "b"], because("resync"));
    run(&queue, &"a");
    queue.add_with("c", because("other"));
    assert_eq!(reasons(&take(&queue)), ["resync"]);
    assert_eq!(reasons(&take(&queue)), ["other"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_an_item_ends_its_run_without_an_outcome() {
    let queue = WorkQueue::default();
    queue.add("a");
    take(&queue).finish(Outcome::requeue());
    advance(ms(5)).await;
    drop(take(&queue));
    assert_eq!(queue.num_requeues(&"a"), 1, "failed attempts stay counted");
    assert!(queue.try_get().is_none(), "the key is not requeued");
    queue.add("a");
    let item = take(&queue);
    queue.add_after("a", ms(10));
    drop(item);
    assert_eq!(
        (queue.len(), queue.stats().delayed),
        (0, 1),
        "what was added meanwhile stays"
    );
    advance(ms(10)).await;
    drop(take(&queue));
}

#[test]
fn a_panicking_worker_releases_its_key() {
    let queue = WorkQueue::default();
    queue.add("a");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let item = take(&queue);
        queue.add(*item);
        std::panic::resume_unwind(Box::new("the worker fails"));
    }));
    assert!(panicked.is_err());
    assert_eq!(queue.stats().running, 0);
    run(&queue, &"a");
    queue.add("b");
    assert_eq!(run_all(&queue), ["b"], "the queue works on");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_or_aborted_task_releases_its_key() {
    let queue = WorkQueue::default();
    queue.add_all(["a", "b"], Add::default());
    let (a, b) = (take(&queue), take(&queue));
    let panics = tokio::spawn(async move {
        let _a = a;
        std::panic::resume_unwind(Box::new("the worker fails"));
    });
    let aborted = tokio::spawn(async move {
        let _b = b;
        std::future::pending::<()>().await;
    });
    queue.add_all(["a", "b"], Add::default());
    assert!(panics.await.is_err());
    aborted.abort();
    assert!(aborted.await.is_err());
    assert_eq!(run_all(&queue), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn requeue_after_runs_the_key_again_after_the_delay_at_its_priority() {
    let queue = WorkQueue::default();
    queue.add_with("a", at(5));
    take(&queue).finish(Outcome::requeue_after(ms(20)));
    advance(ms(19)).await;
    assert!(queue.try_get().is_none());
    advance(ms(1)).await;
    let item = take(&queue);
    assert_eq!((item.priority(), item.attempt()), (Priority(5), 1));
    item.finish(Outcome::requeue_after(ms(0)));
    assert_eq!(take(&queue).priority(), Priority(5), "zero is now");
}

#[tokio::test(start_paused = true)]
async fn the_outcome_can_set_the_priority_of_a_requeue() {
    let queue = WorkQueue::default();
    queue.add_with("a", at(5));
    take(&queue).finish(Outcome::requeue_after(ms(1)).priority(Priority::LOW));
    advance(ms(1)).await;
    let item = take(&queue);
    assert_eq!(item.priority(), Priority::LOW, "lower than before");
    item.finish(Outcome::requeue().priority(Priority::HIGH));
    advance(ms(5)).await;
    let item = take(&queue);
    assert_eq!(item.priority(), Priority::HIGH);
    item.finish(Outcome::requeue());
    advance(ms(10)).await;
    assert_eq!(
        take(&queue).priority(),
        Priority::HIGH,
        "the priority is kept by default"
    );
}

#[tokio::test(start_paused = true)]
async fn finish_and_try_get_ends_one_run_and_begins_the_next() {
    let queue = strict();
    queue.add_with(
        "a",
        Add {
            reason: Some("one".into()),
            ..at(2)
        },
    );
    queue.add_with(
        "b",
        Add {
            reason: Some("two".into()),
            rate_limited: true,
            ..at(1)
        },
    );
    advance(ms(8)).await;
    let item = take(&queue)
        .finish_and_try_get(Outcome::done())
        .expect("b is ready");
    assert_eq!(
        (*item, item.priority(), reasons(&item)),
        ("b", Priority(1), vec!["two".to_owned()])
    );
    assert_eq!((item.attempt(), item.waited()), (2, ms(3)));
    assert_eq!(queue.stats().running, 1);
    assert!(item.finish_and_try_get(Outcome::done()).is_none());
    assert_eq!(queue.stats().running, 0);
}

#[test]
fn a_key_requeued_at_once_is_behind_those_that_wait() {
    let queue = strict();
    queue.add_all(["a", "b"], Add::default());
    let item = take(&queue)
        .finish_and_try_get(Outcome::requeue_after(ms(0)))
        .expect("b is ready");
    assert_eq!(*item, "b");
    let item = item
        .finish_and_try_get(Outcome::done())
        .expect("a was requeued");
    assert_eq!(*item, "a");
}

#[tokio::test(start_paused = true)]
async fn finish_and_get_returns_the_next_key_or_waits_for_one() {
    let queue = WorkQueue::default();
    queue.add_all(["a", "b"], Add::default());
    let item = take(&queue)
        .finish_and_get(Outcome::requeue())
        .await
        .expect("open");
    assert_eq!((*item, item.attempt()), ("b", 1));
    advance(ms(2)).await;
    let item = item.finish_and_get(Outcome::done()).await.expect("open");
    assert_eq!(
        (*item, item.attempt()),
        ("a", 2),
        "its backoff passed while this waited"
    );
    let mut next = ByHand::waiting(item.finish_and_get(Outcome::done()));
    assert_eq!(
        queue.stats().running,
        0,
        "the outcome takes effect while the worker waits for the next key"
    );
    queue.add("c");
    assert_eq!(*next.ready().expect("open"), "c");
}

#[test]
fn finish_and_get_dropped_before_it_is_polled_is_a_drop_of_the_item() {
    let queue = WorkQueue::default();
    queue.add("a");
    drop(take(&queue).finish_and_get(Outcome::requeue()));
    assert_eq!((queue.num_requeues(&"a"), queue.stats().running), (0, 0));
    assert!(queue.snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn finish_and_get_dropped_while_it_waits_loses_no_key() {
    let queue = WorkQueue::default();
    queue.add("a");
    let waiting = ByHand::waiting(take(&queue).finish_and_get(Outcome::requeue()));
    assert_eq!(queue.num_requeues(&"a"), 1, "the outcome counted");
    queue.add("b");
    assert!(waiting.was_woken());
    drop(waiting);
    run(&queue, &"b");
}

#[test]
fn an_item_can_outlive_every_handle_of_its_queue() {
    let queue = WorkQueue::default();
    queue.add("a");
    queue.add("b");
    let item = take(&queue);
    drop(queue);
    let item = item
        .finish_and_try_get(Outcome::done())
        .expect("the queue lives as long as its items");
    assert_eq!(*item, "b");
}

/// Otherwise a worker that always finds a ready key starves the other tasks of its thread.
#[tokio::test(start_paused = true)]
async fn a_worker_that_never_waits_yields_to_other_tasks() {
    let queue = WorkQueue::default();
    queue.add("a");
    let other = tokio::spawn(async {});
    let mut item = queue.get().await.expect("open");
    for _ in 0..10_000 {
        item = item
            .finish_and_get(Outcome::requeue_after(ms(0)))
            .await
            .expect("open");
    }
    assert!(other.is_finished());

    let other = tokio::spawn(async {});
    item.finish(Outcome::done());
    for _ in 0..10_000 {
        queue.add("a");
        drop(queue.get().await);
    }
    assert!(other.is_finished());
}

#[test]
fn a_requeue_has_the_reason_that_the_run_has_set() {
    let queue = WorkQueue::default();
    queue.add_with("a", because("created"));
    let mut item = take(&queue);
    item.set_reason("not there yet");
    let mut item = item
        .finish_and_try_get(Outcome::retry_after(ms(0)))
        .expect("a ready key");
    assert_eq!(reasons(&item), ["not there yet"]);

    item.set_reason("dropped: nothing is requeued");
    item.finish(Outcome::done());
    queue.add_with("a", because("updated"));
    let mut item = take(&queue);
    assert_eq!(reasons(&item), ["updated"]);

    queue.add_with("a", because("deleted"));
    item.set_reason("dropped: an event has made it ready");
    let item = item
        .finish_and_try_get(Outcome::requeue_after(ms(5)))
        .expect("a ready key");
    assert_eq!(reasons(&item), ["deleted"]);
    item.finish(Outcome::retry_after(ms(0)));
    assert!(
        reasons(&take(&queue)).is_empty(),
        "the reason belongs to one run"
    );
}
