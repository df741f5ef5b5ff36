//! Tests of delayed keys.

use crate::support::{
    ByHand, NANOSECOND, assert_elapsed, ms, nearly, run, run_all, secs, soon, strict, take,
};
use std::time::Duration;
use steersman::workqueue::{Add, Outcome, Priority, WorkQueue};
use tokio::time::{Instant, advance, timeout};

#[tokio::test(start_paused = true)]
async fn the_earliest_time_wins_in_both_orders_and_fires_once() {
    for (first, second) in [(50, 1000), (1000, 50)] {
        let queue = WorkQueue::default();
        queue.add_after("a", ms(first));
        queue.add_after("a", ms(second));
        assert_eq!(queue.stats().delayed, 1);
        advance(ms(49)).await;
        assert!(queue.try_get().is_none());
        advance(ms(1)).await;
        run(&queue, &"a");
        advance(secs(10)).await;
        assert!(queue.try_get().is_none(), "the later time is dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_is_handed_out_at_its_time_and_not_before() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(50));
    assert!(queue.try_get().is_none());
    advance(nearly(ms(50))).await;
    assert!(queue.try_get().is_none());
    advance(NANOSECOND).await;
    assert_eq!(take(&queue).waited(), Duration::ZERO);
}

/// Uses the real clock, which the queue reads coarsely.
///
/// Neither polling with `try_get` nor waiting in `get` returns a key early.
#[tokio::test]
async fn no_key_is_early_on_the_real_clock() {
    let queue = WorkQueue::default();
    for micros in (0..300).cycle().take(3_000) {
        let due = Instant::now() + Duration::from_micros(micros);
        queue.add_after("a", Duration::from_micros(micros));
        let item = loop {
            if let Some(item) = queue.try_get() {
                break item;
            }
        };
        assert!(Instant::now() >= due, "after {micros} us");
        item.finish(Outcome::done());
    }
    for micros in (0..3_000).step_by(100) {
        let due = Instant::now() + Duration::from_micros(micros);
        queue.add_after("a", Duration::from_micros(micros));
        let item = queue.get().await.expect("the queue is open");
        assert!(Instant::now() >= due, "after {micros} us");
        item.finish(Outcome::done());
    }
}

#[tokio::test(start_paused = true)]
async fn a_getter_that_sleeps_gets_a_delayed_key_at_its_time() {
    let queue = WorkQueue::default();
    for delay in [1, 2, 50, 1000, 3_600_000] {
        let start = Instant::now();
        queue.add_after("a", ms(delay));
        let item = soon(queue.get()).await.expect("open");
        assert_elapsed(start, ms(delay));
        item.finish(Outcome::done());
    }
}

// Fractions are rounded up to tokio's millisecond, never down.
#[tokio::test(start_paused = true)]
async fn a_getter_is_never_early() {
    let queue = WorkQueue::default();
    for nanos in [
        1,
        999,
        100_001,
        999_999,
        1_000_001,
        1_048_576,
        7_777_777,
        123_456_789,
    ] {
        let start = Instant::now();
        queue.add_after("a", Duration::from_nanos(nanos));
        drop(soon(queue.get()).await.expect("open"));
        let late = start
            .elapsed()
            .checked_sub(Duration::from_nanos(nanos))
            .expect("not early");
        assert!(late < ms(2), "late by {late:?}");
        advance(Duration::from_nanos(nanos % 1013)).await;
    }
}

// Port of client-go's `TestCopyShifting`: many delays in one queue.
#[tokio::test(start_paused = true)]
async fn delayed_keys_added_in_any_order_fire_in_the_order_of_their_times() {
    let queue = strict();
    for (key, delay) in [("third", 3), ("first", 1), ("second", 2), ("fourth", 4)] {
        queue.add_after(key, secs(delay));
    }
    let start = Instant::now();
    for (n, key) in ["first", "second", "third", "fourth"]
        .into_iter()
        .enumerate()
    {
        let item = soon(queue.get()).await.expect("open");
        assert_eq!(*item, key);
        assert_elapsed(start, secs(n as u64 + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_added_without_delay_is_handed_out_at_once_and_only_once() {
    let queue = WorkQueue::default();
    queue.add_after("a", secs(60));
    queue.add("a");
    run(&queue, &"a");
    assert_eq!(queue.stats().delayed, 0, "the add used up the delay");
    advance(secs(61)).await;
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_add_wakes_a_getter_that_sleeps_for_the_delay_of_the_same_key() {
    let queue = WorkQueue::default();
    queue.add_after("a", secs(60));
    let start = Instant::now();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { soon(queue.get()).await.map(|item| *item) }
    });
    tokio::time::sleep(secs(1)).await;
    queue.add("a");
    assert_eq!(soon(worker).await.expect("no panic"), Some("a"));
    assert_elapsed(start, secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_delay_added_to_a_ready_key_changes_nothing() {
    let queue = WorkQueue::default();
    queue.add("a");
    queue.add_after("a", ms(10));
    run(&queue, &"a");
    advance(ms(10)).await;
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_delayed_while_it_runs_waits_for_its_time_after_the_run() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    queue.add_after("a", ms(10));
    item.finish(Outcome::done());
    assert_eq!((queue.len(), queue.stats().delayed), (0, 1));
    advance(ms(10)).await;
    run(&queue, &"a");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_comes_due_while_it_runs_runs_once_more() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    queue.add_after("a", ms(10));
    assert!(!item.is_queued_again() || queue.is_empty());
    advance(ms(10)).await;
    assert!(queue.try_get().is_none(), "it runs");
    assert_eq!((queue.len(), item.is_queued_again()), (1, true));
    item.finish(Outcome::done());
    assert_eq!(run_all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_requeue_and_an_add_after_keep_the_earlier_time() {
    let queue = WorkQueue::default();
    for (added, requeued) in [(10, 50), (50, 10)] {
        queue.add("a");
        let item = take(&queue);
        queue.add_after("a", ms(added));
        item.finish(Outcome::requeue_after(ms(requeued)));
        advance(ms(9)).await;
        assert!(queue.try_get().is_none());
        advance(ms(1)).await;
        run(&queue, &"a");
        advance(secs(1)).await;
        assert!(queue.try_get().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn the_length_leaves_out_delayed_keys_until_they_are_due() {
    let queue = WorkQueue::default();
    queue.add("ready");
    for _ in 0..2 {
        queue.add_after("a", secs(1));
        queue.add_after("b", secs(2));
        assert_eq!(
            (queue.len(), queue.stats().depth(), queue.stats().delayed),
            (1, 1, 2)
        );
        advance(secs(1)).await;
        assert_eq!(queue.len(), 2);
        assert_eq!((queue.stats().depth(), queue.stats().delayed), (2, 1));
        advance(secs(1)).await;
        assert_eq!((queue.stats().depth(), queue.stats().delayed), (3, 0));
        assert_eq!(queue.len(), 3);
        assert_eq!(run_all(&queue), ["ready", "a", "b"]);
        queue.add("ready");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_delay_does_not_fire() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(10));
    queue.add_after("b", ms(20));
    assert!(queue.cancel(&"a"));
    assert!(!queue.cancel(&"a"), "the key is not queued any more");
    advance(ms(100)).await;
    assert_eq!(run_all(&queue), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn cancel_removes_only_the_given_ready_key() {
    let queue = strict();
    queue.add_all(["a", "b", "c"], Add::default());
    assert!(queue.cancel(&"b"));
    assert_eq!(queue.len(), 2);
    assert_eq!(run_all(&queue), ["a", "c"]);
    queue.add("b");
    run(&queue, &"b");
}

#[test]
fn cancel_removes_the_next_run_of_a_processing_key_but_not_the_current_one() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    assert!(!queue.cancel(&"a"), "the key is not delayed");
    queue.add("a");
    assert!(queue.cancel(&"a"));
    assert_eq!((queue.len(), item.is_queued_again()), (0, false));
    assert!(item.finish_and_try_get(Outcome::done()).is_none());
    assert!(queue.snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn cancel_forgets_priority_and_reasons_of_the_request_but_not_failed_attempts() {
    let queue = WorkQueue::default();
    queue.add("a");
    take(&queue).finish(Outcome::requeue());
    queue.add_with(
        "a",
        Add {
            reason: Some("cancelled".into()),
            ..crate::support::at(7)
        },
    );
    assert!(queue.cancel(&"a"));
    assert_eq!(queue.num_requeues(&"a"), 1);
    queue.add("a");
    let item = take(&queue);
    assert_eq!(
        (item.priority().0, item.reasons().len(), item.attempt()),
        (0, 0, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_getter_keeps_waiting_when_the_delayed_key_is_cancelled() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(10));
    queue.add_after("b", ms(30));
    let start = Instant::now();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { soon(queue.get()).await.map(|item| *item) }
    });
    tokio::time::sleep(ms(1)).await;
    assert!(queue.cancel(&"a"));
    assert_eq!(soon(worker).await.expect("no panic"), Some("b"));
    assert_elapsed(start, ms(30));

    queue.add_after("c", ms(10));
    let mut waiting = crate::support::ByHand::waiting(queue.get());
    queue.cancel(&"c");
    advance(secs(1)).await;
    assert!(waiting.poll().is_pending(), "nothing is left to wait for");
}

#[tokio::test(start_paused = true)]
async fn a_getter_of_a_key_delayed_forever_sleeps() {
    let queue = WorkQueue::default();
    queue.add_after("a", Duration::MAX);
    assert!(timeout(secs(3600), queue.get()).await.is_err());
    queue.add("a");
    run(&queue, &"a");
}

/// Happens when a queue outlives a runtime with paused and advanced time.
///
/// Outside of that runtime the queue reads the system clock.
#[test]
fn a_clock_that_goes_back_makes_no_key_late() {
    let queue = WorkQueue::default();
    let paused = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    paused.block_on(async {
        queue.add_after("a", secs(1800));
        advance(secs(3600)).await;
        run(&queue, &"a");
    });
    drop(paused);
    queue.add_after("b", NANOSECOND);
    let added = Instant::now();
    while Instant::now() <= added + NANOSECOND {}
    run(&queue, &"b");
}

/// A delayed add checks for due keys only if that affects the order.
#[tokio::test(start_paused = true)]
async fn a_key_raised_by_a_delayed_add_is_queued_behind_due_keys() {
    let queue = strict();
    let high = |after| Add {
        after: Some(after),
        priority: Some(Priority::HIGH),
        ..Add::default()
    };
    queue.add_with("due", high(ms(10)));
    queue.add("raised");
    advance(ms(10)).await;
    queue.add_with("raised", high(secs(1)));
    assert_eq!(run_all(&queue), ["due", "raised"]);
}

#[tokio::test(start_paused = true)]
async fn replacing_a_timer_does_not_postpone_a_due_key() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(10));
    advance(ms(10)).await;
    queue.add_with(
        "a",
        Add {
            after: Some(secs(1)),
            replace_timer: true,
            ..Add::default()
        },
    );
    run(&queue, &"a");
}

/// Only the adds read the clock: the getter's timer has a resolution of one millisecond.
#[tokio::test(start_paused = true)]
async fn an_add_wakes_a_getter_for_a_due_key() {
    let queue = WorkQueue::default();
    queue.add_after("due", Duration::from_micros(10_500));
    let mut getter = ByHand::waiting(queue.get());
    advance(Duration::from_micros(10_600)).await;
    assert!(!getter.was_woken());
    queue.add_after("other", secs(1));
    assert!(getter.was_woken());
    assert_eq!(*getter.ready().expect("open"), "due");
}
