//! Tests of backoff.
//!
//! Counted per key, reset by success, raised by retries but not by events.

use crate::support::{
    NANOSECOND, ms, nearly, rate_limited, replace, run, run_all, secs, take, with_limiter,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use steersman::workqueue::{Add, EntryState, Limiter, Outcome, WorkQueue};
use tokio::time::{Instant, advance};

/// Returns the remaining delay of the only key in the queue.
#[track_caller]
fn backoff(queue: &WorkQueue<&'static str>) -> Duration {
    match queue.snapshot().as_slice() {
        [entry] => match entry.state {
            EntryState::Delayed { ready_in } => ready_in,
            state => panic!("{state:?}"),
        },
        entries => panic!("{entries:?}"),
    }
}

/// Creates a queue whose key "a" has failed `times` in a row at its retries.
async fn failed(times: u32) -> WorkQueue<&'static str> {
    let queue = WorkQueue::default();
    queue.add("a");
    for time in 0..times {
        take(&queue).finish(Outcome::requeue());
        if time + 1 < times {
            advance(backoff(&queue)).await;
        }
    }
    queue
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_waits_5_ms_and_then_twice_as_long_each_time_up_to_1000_s() {
    let queue = WorkQueue::default();
    queue.add("a");
    let mut expected = ms(5);
    for failure in 1..=25 {
        take(&queue).finish(Outcome::requeue());
        assert_eq!(
            (backoff(&queue), queue.num_requeues(&"a")),
            (expected, failure)
        );
        assert_eq!(
            expected == secs(1000),
            failure >= 19,
            "the cap is reached at the 19th failure"
        );
        advance(nearly(expected)).await;
        assert!(queue.try_get().is_none());
        advance(NANOSECOND).await;
        expected = (expected * 2).min(secs(1000));
    }
}

// Port of client-go's `TestRateLimitingQueue`.
#[tokio::test(start_paused = true)]
async fn rate_limited_adds_of_different_keys_count_apart() {
    let queue = with_limiter(Limiter::exponential(ms(1), secs(1)));
    for (key, requeues) in [("a", 1), ("a", 2), ("b", 1), ("a", 3), ("b", 2)] {
        queue.add_rate_limited(key);
        assert_eq!(queue.num_requeues(&key), requeues, "counted at the call");
    }
    assert_eq!(queue.stats().delayed, 2);
    advance(ms(1)).await;
    assert_eq!(run_all(&queue), ["a", "b"], "the earliest of their times");
    assert_eq!(
        (queue.num_requeues(&"a"), queue.num_requeues(&"b")),
        (0, 0),
        "success frees both"
    );
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_a_rate_limited_batch_do_not_influence_each_others_delay() {
    let queue = WorkQueue::default();
    let mut delay = ms(5);
    for _ in 0..3 {
        queue.add_all(["a", "b", "c"], rate_limited());
        advance(nearly(delay)).await;
        assert_eq!(queue.len(), 0);
        advance(NANOSECOND).await;
        assert_eq!(queue.len(), 3);
        for _ in 0..3 {
            drop(take(&queue));
        }
        delay *= 2;
    }
}

#[tokio::test(start_paused = true)]
async fn the_limiter_receives_key_attempt_and_time() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let queue = with_limiter(Limiter::new({
        let asked = asked.clone();
        move |key: &&str, attempt, now| {
            asked.lock().expect("no panic").push((*key, attempt, now));
            ms(10)
        }
    }));
    let start = Instant::now();
    queue.add_rate_limited("a");
    queue.add("b");
    take(&queue).finish(Outcome::requeue());
    advance(ms(3)).await;
    queue.add_rate_limited("a");
    assert_eq!(
        *asked.lock().expect("no panic"),
        [("a", 0, start), ("b", 0, start), ("a", 1, start + ms(3))]
    );
    advance(ms(7)).await;
    assert_eq!(run_all(&queue), ["a", "b"]);
    assert_eq!(asked.lock().expect("no panic").len(), 3, "and never again");
}

#[tokio::test(start_paused = true)]
async fn of_a_delay_and_the_limiter_the_shorter_wins_and_no_delay_means_the_limiter() {
    for (after, expected) in [
        (None, 5),
        (Some(0), 5),
        (Some(3), 3),
        (Some(5), 5),
        (Some(60), 5),
    ] {
        let queue = WorkQueue::default();
        queue.add_with(
            "a",
            Add {
                after: after.map(ms),
                ..rate_limited()
            },
        );
        assert_eq!(queue.num_requeues(&"a"), 1, "an attempt in any case");
        assert_eq!(backoff(&queue), ms(expected), "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_not_a_retry_forgets_the_attempts() {
    for outcome in [
        Outcome::done(),
        Outcome::requeue_after(ms(5)),
        Outcome::requeue_after(ms(0)),
    ] {
        let queue = failed(3).await;
        advance(ms(20)).await;
        let item = take(&queue);
        assert_eq!(item.attempt(), 4);
        item.finish(outcome);
        assert_eq!(queue.num_requeues(&"a"), 0, "{outcome:?}");
        queue.add("a");
        take(&queue).finish(Outcome::requeue());
        assert_eq!(backoff(&queue), ms(5), "the backoff starts over");
    }
}

// controller-runtime keeps the count after a terminal error, and leaks it if the object is deleted.
#[tokio::test(start_paused = true)]
async fn a_terminal_outcome_frees_the_backoff_and_the_key() {
    let queue = failed(3).await;
    advance(ms(20)).await;
    let mut item = take(&queue);
    item.set_error("will not heal");
    item.finish(Outcome::done());
    assert!(queue.snapshot().is_empty());
    assert_eq!(queue.num_requeues(&"a"), 0);
}

#[tokio::test(start_paused = true)]
async fn forget_frees_the_attempts_and_leaves_the_key_where_it_is() {
    let queue = failed(4).await;
    queue.forget(&"a");
    assert_eq!(
        (queue.num_requeues(&"a"), backoff(&queue)),
        (0, ms(40)),
        "the key still waits"
    );
    advance(ms(40)).await;
    let item = take(&queue);
    assert_eq!(item.attempt(), 1);
    queue.forget(&"a");
    assert!(queue.try_get().is_none(), "forget does not end a run");
    item.finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(5));
}

#[tokio::test(start_paused = true)]
async fn forget_removes_a_key_that_is_remembered_for_its_attempts_alone() {
    let queue = failed(2).await;
    assert!(queue.cancel(&"a"));
    assert_eq!((queue.num_requeues(&"a"), queue.snapshot().len()), (2, 1));
    queue.forget(&"a");
    assert!(queue.snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_event_before_the_backoff_elapsed_runs_the_key_now_and_does_not_escalate() {
    let queue = failed(3).await;
    for _ in 0..5 {
        assert_eq!(backoff(&queue), ms(20));
        advance(ms(7)).await;
        queue.add("a");
        take(&queue).finish(Outcome::requeue());
    }
    assert_eq!((queue.num_requeues(&"a"), backoff(&queue)), (3, ms(20)));
}

#[tokio::test(start_paused = true)]
async fn the_retry_itself_escalates_also_after_events_that_did_not() {
    let queue = failed(3).await;
    queue.add("a");
    take(&queue).finish(Outcome::requeue());
    advance(ms(20)).await;
    take(&queue).finish(Outcome::requeue());
    assert_eq!((queue.num_requeues(&"a"), backoff(&queue)), (4, ms(40)));
}

#[tokio::test(start_paused = true)]
async fn an_event_while_the_key_runs_does_not_escalate() {
    let queue = failed(3).await;
    advance(ms(20)).await;
    let retry = take(&queue);
    queue.add("a");
    let event = retry
        .finish_and_try_get(Outcome::requeue())
        .expect("the event wins over the backoff");
    assert_eq!(queue.num_requeues(&"a"), 4, "the retry failed");
    queue.add("a");
    let event = event
        .finish_and_try_get(Outcome::requeue())
        .expect("another event");
    event.finish(Outcome::requeue());
    assert_eq!(
        (queue.num_requeues(&"a"), backoff(&queue)),
        (4, ms(40)),
        "the events did not count"
    );
}

#[tokio::test(start_paused = true)]
async fn a_delayed_event_earlier_than_the_backoff_does_not_escalate() {
    let queue = failed(3).await;
    queue.add_after("a", ms(5));
    advance(ms(5)).await;
    take(&queue).finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(20));
    queue.add_with("a", replace(ms(6)));
    advance(ms(6)).await;
    take(&queue).finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(20));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_event_later_than_the_backoff_leaves_the_retry_a_retry() {
    let queue = failed(3).await;
    queue.add_after("a", ms(30));
    advance(ms(20)).await;
    take(&queue).finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(40));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_event_that_came_while_the_key_ran_and_before_the_backoff_does_not_escalate() {
    let queue = failed(3).await;
    advance(ms(20)).await;
    let retry = take(&queue);
    queue.add_after("a", ms(10));
    retry.finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(10));
    advance(ms(10)).await;
    take(&queue).finish(Outcome::requeue());
    assert_eq!((queue.num_requeues(&"a"), backoff(&queue)), (4, ms(40)));
}

/// The early run fails at 15 ms, so its backoff ends at 35 ms.
///
/// The previous one ended at 20 ms.
#[tokio::test(start_paused = true)]
async fn each_failure_begins_a_new_backoff_also_if_the_key_waits_for_a_later_time() {
    let queue = failed(3).await;
    queue.add("a");
    let early = take(&queue);
    queue.add_after("a", secs(3600));
    advance(ms(15)).await;
    early.finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(20));
    advance(ms(10)).await;
    queue.add("a");
    take(&queue).finish(Outcome::requeue());
    assert_eq!(
        (queue.num_requeues(&"a"), backoff(&queue)),
        (3, ms(20)),
        "an event before the backoff elapsed"
    );
}

/// After `forget`, the key's earlier due time counts as an ordinary event.
#[tokio::test(start_paused = true)]
async fn a_forgotten_backoff_does_not_end_the_next() {
    let queue = failed(1).await;
    advance(ms(1)).await;
    queue.forget(&"a");
    queue.add_rate_limited("a");
    assert_eq!(backoff(&queue), ms(4), "the earlier time");
    advance(ms(4)).await;
    take(&queue).finish(Outcome::requeue());
    assert_eq!(
        (queue.num_requeues(&"a"), backoff(&queue)),
        (1, ms(5)),
        "the run started 1 ms before the backoff had elapsed"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_after_the_backoff_has_elapsed_escalates() {
    let queue = failed(3).await;
    advance(ms(20)).await;
    queue.add("a");
    take(&queue).finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(40));
}

/// At that moment the backoff has elapsed.
#[tokio::test(start_paused = true)]
async fn an_event_that_becomes_due_exactly_when_the_backoff_ends_escalates() {
    let queue = failed(3).await;
    advance(ms(20)).await;
    let retry = take(&queue);
    queue.add_after("a", ms(40));
    retry.finish(Outcome::requeue());
    assert_eq!((queue.num_requeues(&"a"), backoff(&queue)), (4, ms(40)));
    advance(ms(40)).await;
    take(&queue).finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(80));
}

/// client-go's order on failure: `AddRateLimited` first, `Done` later.
#[tokio::test(start_paused = true)]
async fn adding_rate_limited_during_the_run_and_dropping_the_item_is_a_failure_like_any_other() {
    let queue = WorkQueue::default();
    queue.add("a");
    for (delay, event) in [(5, false), (10, true), (10, true), (10, false), (20, false)] {
        let item = take(&queue);
        queue.add_rate_limited("a");
        drop(item);
        assert_eq!(backoff(&queue), ms(delay));
        if event {
            queue.add("a");
        } else {
            advance(ms(delay)).await;
        }
    }
    assert_eq!(queue.num_requeues(&"a"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_had_to_wait_for_a_worker_escalates_too() {
    let queue = failed(3).await;
    advance(secs(5)).await;
    queue.add("a");
    take(&queue).finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(40));
}

/// The item of the early event is dropped.
///
/// The next event arrives long after the backoff.
#[tokio::test(start_paused = true)]
async fn an_early_run_that_was_dropped_does_not_excuse_a_run_after_the_backoff() {
    let queue = failed(3).await;
    queue.add("a");
    drop(take(&queue));
    advance(secs(5)).await;
    queue.add("a");
    take(&queue).finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(40));
}

/// The backoff ends at 20 ms.
///
/// The key is postponed to 60 s, then added without delay.
#[tokio::test(start_paused = true)]
async fn an_event_before_the_backoff_elapsed_does_not_escalate_after_the_timer_was_replaced() {
    let queue = failed(3).await;
    queue.add_with("a", replace(secs(60)));
    advance(ms(1)).await;
    queue.add("a");
    take(&queue).finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(20));
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_next_run_does_not_make_an_early_run_escalate() {
    let queue = failed(3).await;
    queue.add("a");
    let early = take(&queue);
    queue.add("a");
    assert!(queue.cancel(&"a"));
    early.finish(Outcome::requeue());
    assert_eq!(backoff(&queue), ms(20));
}

#[tokio::test(start_paused = true)]
async fn a_success_after_events_frees_everything() {
    let queue = failed(3).await;
    queue.add("a");
    run(&queue, &"a");
    advance(secs(1)).await;
    assert!(queue.try_get().is_none(), "the event used up the retry");
    assert!(queue.snapshot().is_empty());
}
