//! Tests of parked keys, which wait for an event instead of a time.

use crate::support::{
    ByHand, assert_elapsed, at, because, ms, rate_limited, reasons, replace, run, secs, soon,
    strict, take,
};
use std::time::Duration;
use steersman::workqueue::{Add, EntryState, Outcome, Priority, WorkQueue};
use tokio::time::{Instant, advance};

/// Creates a queue with one parked key.
fn parked() -> WorkQueue<&'static str> {
    let queue = strict();
    queue.add("a");
    take(&queue).park();
    queue
}

#[track_caller]
fn assert_parked(queue: &WorkQueue<&'static str>) {
    let stats = queue.stats();
    assert_eq!(
        (stats.depth(), stats.delayed, stats.parked, stats.running),
        (0, 0, 1, 0)
    );
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_parked_key_is_not_handed_out_until_it_is_unparked() {
    let queue = parked();
    assert_parked(&queue);
    advance(secs(1_000_000)).await;
    assert_parked(&queue);
    queue.unpark(&"a");
    assert_eq!((queue.len(), queue.stats().parked), (1, 0));
    run(&queue, &"a");
    assert!(queue.snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn adds_of_every_kind_to_a_parked_key_are_merged_and_do_not_unpark_it() {
    let queue = parked();
    queue.add("a");
    queue.add_after("a", ms(1));
    queue.add_with("a", at(9));
    queue.add_with("a", replace(ms(2)));
    queue.add_with("a", because("event"));
    advance(secs(1)).await;
    assert_parked(&queue);
    queue.unpark(&"a");
    let item = take(&queue);
    assert_eq!(
        (item.priority(), reasons(&item)),
        (Priority(9), vec!["event".to_owned()])
    );
    item.finish(Outcome::done());
    advance(secs(1)).await;
    assert!(queue.try_get().is_none(), "one run for all of them");
}

#[tokio::test(start_paused = true)]
async fn a_rate_limited_add_to_a_parked_key_counts_an_attempt_and_does_not_unpark_it() {
    let queue = parked();
    queue.add_with("a", rate_limited());
    advance(secs(1)).await;
    assert_parked(&queue);
    queue.unpark(&"a");
    assert_eq!(take(&queue).attempt(), 2);
}

#[test]
fn a_parked_key_keeps_priority_reasons_and_attempts_of_the_run_that_parked_it() {
    let queue = strict();
    queue.add_with(
        "a",
        Add {
            reason: Some("one".into()),
            ..at(5)
        },
    );
    take(&queue).park();
    queue.add_with("a", because("two"));
    queue.unpark(&"a");
    let item = take(&queue);
    assert_eq!(
        (item.priority(), reasons(&item)),
        (Priority(5), vec!["one".to_owned(), "two".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn parking_keeps_failed_attempts() {
    let queue = strict();
    queue.add("a");
    take(&queue).finish(Outcome::requeue());
    advance(ms(5)).await;
    take(&queue).park();
    assert_eq!(queue.num_requeues(&"a"), 1);
    queue.unpark(&"a");
    assert_eq!(take(&queue).attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn adds_that_came_while_the_key_ran_are_merged_into_its_parking() {
    for add in [
        at(3),
        Add {
            after: Some(ms(5)),
            ..at(3)
        },
    ] {
        let queue = strict();
        queue.add_with("a", because("one"));
        let item = take(&queue);
        queue.add_with(
            "a",
            Add {
                reason: Some("two".into()),
                ..add
            },
        );
        item.park();
        advance(secs(1)).await;
        assert_parked(&queue);
        queue.unpark(&"a");
        let item = take(&queue);
        assert_eq!(
            (item.priority(), reasons(&item)),
            (Priority(3), vec!["one".to_owned(), "two".to_owned()])
        );
    }
}

#[test]
fn an_unpark_that_comes_before_the_park_is_not_lost() {
    let queue = strict();
    queue.add_with(
        "a",
        Add {
            reason: Some("one".into()),
            ..at(5)
        },
    );
    let item = take(&queue);
    queue.unpark(&"a");
    assert_eq!(queue.len(), 0, "parking does not queue the key");
    item.park();
    assert_eq!(
        (queue.len(), queue.stats().parked),
        (1, 0),
        "parking did not last"
    );
    let item = take(&queue);
    assert_eq!(
        (item.priority(), reasons(&item)),
        (Priority(5), vec!["one".to_owned()])
    );
    item.park();
    assert_eq!(queue.stats().parked, 1, "the unpark was used up");
}

#[test]
fn an_unpark_during_a_run_that_does_not_park_has_no_effect() {
    let queue = strict();
    queue.add("a");
    let item = take(&queue);
    queue.unpark(&"a");
    queue.add("a");
    item.finish(Outcome::done());
    take(&queue).park();
    assert_eq!(queue.stats().parked, 1);

    let queue = strict();
    queue.add("a");
    let item = take(&queue);
    queue.unpark(&"a");
    item.finish(Outcome::done());
    queue.add("a");
    take(&queue).park();
    assert_eq!(queue.stats().parked, 1);
}

#[tokio::test(start_paused = true)]
async fn unpark_ignores_keys_that_are_not_parked_and_returns_false() {
    let queue = strict();
    assert!(!queue.unpark(&"unknown"));
    assert!(queue.snapshot().is_empty());
    queue.add("ready");
    assert!(!queue.unpark(&"ready"));
    queue.add_after("delayed", ms(10));
    assert!(!queue.unpark(&"delayed"));
    assert_eq!((queue.len(), queue.stats().delayed), (1, 1));
    take(&queue).park();
    assert_eq!(
        queue.stats().parked,
        1,
        "an unpark before the run does not count"
    );
}

#[tokio::test(start_paused = true)]
async fn a_bound_ends_the_parking() {
    let queue = strict();
    queue.add_with(
        "a",
        Add {
            reason: Some("one".into()),
            ..at(5)
        },
    );
    take(&queue).park_for(ms(50));
    advance(ms(49)).await;
    assert_parked(&queue);
    advance(ms(3)).await;
    let item = take(&queue);
    assert_eq!(
        (item.priority(), item.waited(), reasons(&item)),
        (Priority(5), ms(2), vec!["one".to_owned()])
    );
    assert_eq!(queue.stats().parked, 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_unparked_before_its_bound_runs_once() {
    let queue = strict();
    queue.add("a");
    take(&queue).park_for(ms(50));
    advance(ms(10)).await;
    queue.unpark(&"a");
    run(&queue, &"a");
    advance(secs(1)).await;
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn neither_adds_nor_replaced_timers_move_the_bound() {
    let queue = strict();
    queue.add("a");
    take(&queue).park_for(ms(50));
    queue.add_with("a", replace(ms(5)));
    queue.add_with("a", replace(secs(5)));
    queue.add_after("a", ms(1));
    advance(ms(49)).await;
    assert_parked(&queue);
    advance(ms(1)).await;
    run(&queue, &"a");
}

#[tokio::test(start_paused = true)]
async fn a_bound_of_zero_does_not_park_and_a_huge_one_parks_forever() {
    let queue = strict();
    queue.add("a");
    take(&queue).park_for(Duration::ZERO);
    assert_eq!(queue.len(), 1);
    take(&queue).park_for(Duration::MAX);
    advance(secs(1_000_000_000)).await;
    assert_parked(&queue);
    queue.unpark(&"a");
    run(&queue, &"a");
}

#[tokio::test(start_paused = true)]
async fn a_parked_key_can_be_cancelled() {
    for bound in [None, Some(ms(10))] {
        let queue = strict();
        queue.add_with("a", because("one"));
        match bound {
            None => take(&queue).park(),
            Some(bound) => take(&queue).park_for(bound),
        }
        assert!(queue.cancel(&"a"));
        assert_eq!(queue.stats().parked, 0);
        assert!(queue.snapshot().is_empty());
        queue.unpark(&"a");
        advance(ms(10)).await;
        assert!(queue.try_get().is_none());
        queue.add("a");
        assert!(take(&queue).reasons().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn every_shutdown_drops_parked_keys() {
    for close in [WorkQueue::close, WorkQueue::close_after_ready] {
        let queue = parked();
        queue.add("bounded");
        take(&queue).park_for(ms(10));
        close(&queue);
        assert_eq!(queue.stats().parked, 0);
        queue.unpark(&"a");
        advance(ms(10)).await;
        assert!(soon(queue.get()).await.is_none());
        assert!(queue.snapshot().is_empty());
    }
    let queue = parked();
    soon(queue.drain()).await;
    assert!(soon(queue.get()).await.is_none());
}

#[test]
fn a_key_parked_after_a_shutdown_is_dropped() {
    for close in [WorkQueue::close, WorkQueue::close_after_ready] {
        let queue = strict();
        queue.add_all(["a", "b", "c"], Add::default());
        let (a, b, c) = (take(&queue), take(&queue), take(&queue));
        queue.unpark(&"c");
        close(&queue);
        a.park();
        b.park_for(ms(1));
        c.park();
        let stats = queue.stats();
        assert_eq!((stats.parked, stats.running), (0, 0));
        assert!(queue.snapshot().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn unparking_and_a_bound_that_passes_wake_a_getter() {
    let queue = strict();
    queue.add("a");
    let mut getter = ByHand::waiting(take(&queue).finish_and_get(Outcome::done()));
    queue.add("a");
    let item = getter.ready().expect("open");
    item.park();
    let mut getter = ByHand::waiting(queue.get());
    queue.unpark(&"a");
    assert!(getter.was_woken());
    let item = getter.ready().expect("open");
    let start = Instant::now();
    item.park_for(ms(50));
    drop(soon(queue.get()).await.expect("open"));
    assert_elapsed(start, ms(50));
}

/// The getter already sleeps until the later time when the bound is set.
#[tokio::test(start_paused = true)]
async fn an_earlier_bound_moves_the_timer_of_a_sleeping_getter() {
    let queue = strict();
    queue.add_after("later", secs(100));
    queue.add("a");
    let item = take(&queue);
    let start = Instant::now();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { soon(queue.get()).await.map(|item| *item) }
    });
    tokio::task::yield_now().await;
    item.park_for(secs(1));
    assert_eq!(soon(worker).await.expect("no panic"), Some("a"));
    assert_elapsed(start, secs(1));
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_shows_parked_keys_and_their_bounds() {
    let queue = parked();
    assert_eq!(
        queue.snapshot()[0].state,
        EntryState::Parked { ready_in: None }
    );
    queue.unpark(&"a");
    take(&queue).park_for(ms(2500));
    advance(ms(500)).await;
    assert_eq!(
        queue.snapshot()[0].state,
        EntryState::Parked {
            ready_in: Some(secs(2))
        }
    );
}

#[tokio::test(start_paused = true)]
async fn unpark_returns_whether_the_key_was_parked() {
    let queue = parked();
    assert!(queue.unpark(&"a"));
    assert!(!queue.unpark(&"a"), "the key is ready already");
    let item = take(&queue);
    assert!(queue.unpark(&"a"), "the key is running and may be parked");
    item.finish(Outcome::requeue_after(secs(9)));
    assert!(!queue.unpark(&"a"), "the key is delayed");
    queue.add("bounded");
    take(&queue).park_for(secs(1));
    advance(secs(1)).await;
    assert!(!queue.unpark(&"bounded"), "its bound has passed");
    queue.add("cancelled");
    take(&queue).park();
    queue.cancel(&"cancelled");
    assert!(!queue.unpark(&"cancelled"));
    for close in [WorkQueue::close, WorkQueue::close_after_ready] {
        let queue = parked();
        close(&queue);
        assert!(!queue.unpark(&"a"));
    }
}
