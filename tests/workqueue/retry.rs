//! Tests of outcomes with a delay: a minimum, or an exact one.

use crate::support::{at, ms, nearly, run_all, secs, strict, take, with_limiter};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use steersman::workqueue::{EntryState, Limiter, Outcome, Priority, WorkQueue};
use tokio::time::advance;

/// Returns the remaining delay of the only key in the queue.
#[track_caller]
fn waits(queue: &WorkQueue<&'static str>) -> Duration {
    match queue.snapshot()[..] {
        [ref entry] => match entry.state {
            EntryState::Delayed { ready_in } => ready_in,
            EntryState::Ready { .. } => Duration::ZERO,
            state => panic!("{state:?}"),
        },
        ref entries => panic!("{entries:?}"),
    }
}

/// Finishes the next run of "a". Returns its new delay and its number of failures.
async fn end(queue: &WorkQueue<&'static str>, outcome: Outcome) -> (Duration, u32) {
    if !queue.snapshot().is_empty() {
        advance(waits(queue)).await;
    }
    take(queue).finish(outcome);
    (waits(queue), queue.num_requeues(&"a"))
}

#[tokio::test(start_paused = true)]
async fn not_before_is_a_minimum_of_the_limiters_delay() {
    let queue = WorkQueue::default();
    queue.add("a");
    let delays = [
        (0, 5),
        (10, 10),
        (25, 25),
        (25, 40),
        (1_000, 1_000),
        (0, 160),
    ];
    for (failure, (at_least, expected)) in (1..).zip(delays) {
        assert_eq!(
            end(&queue, Outcome::requeue_not_before(ms(at_least))).await,
            (ms(expected), failure)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn not_before_calls_the_limiter_and_retry_after_does_not() {
    let asked = Arc::new(AtomicU32::new(0));
    let queue = with_limiter(Limiter::new({
        let asked = asked.clone();
        move |_: &&str, attempt, _| {
            asked.fetch_add(1, SeqCst);
            ms(7) * (attempt + 1)
        }
    }));
    queue.add("a");
    assert_eq!(
        end(&queue, Outcome::requeue_not_before(ms(1))).await,
        (ms(7), 1)
    );
    assert_eq!(end(&queue, Outcome::retry_after(ms(1))).await, (ms(1), 2));
    assert_eq!(asked.load(SeqCst), 1);
    assert_eq!(
        end(&queue, Outcome::requeue()).await,
        (ms(21), 3),
        "the attempt between was counted"
    );
}

#[tokio::test(start_paused = true)]
async fn retry_after_waits_exactly_and_counts_an_attempt() {
    let queue = WorkQueue::default();
    queue.add("a");
    for (failure, delay) in (1..).zip([30, 0, 0, 1, 3_600_000]) {
        assert_eq!(
            end(&queue, Outcome::retry_after(ms(delay))).await,
            (ms(delay), failure)
        );
    }
    advance(nearly(secs(3600))).await;
    assert!(queue.try_get().is_none());
    advance(ms(1)).await;
    let item = take(&queue);
    assert_eq!(item.attempt(), 6);
    item.finish(Outcome::done());
    assert!(queue.snapshot().is_empty(), "success frees the key");
}

#[tokio::test(start_paused = true)]
async fn an_event_before_the_retry_does_not_count_as_an_attempt() {
    for outcome in [
        Outcome::requeue_not_before(ms(50)),
        Outcome::retry_after(ms(50)),
    ] {
        let queue = WorkQueue::default();
        queue.add("a");
        assert_eq!(end(&queue, outcome).await, (ms(50), 1));
        for _ in 0..3 {
            advance(ms(20)).await; // The backoff alone would have elapsed.
            queue.add("a");
            take(&queue).finish(outcome);
            assert_eq!(
                (waits(&queue), queue.num_requeues(&"a")),
                (ms(50), 1),
                "{outcome:?}"
            );
        }
        assert_eq!(
            end(&queue, outcome).await,
            (ms(50), 2),
            "the retry itself does"
        );
    }
}

/// The early run's failure is retried without delay, so the next run counts as a retry.
#[tokio::test(start_paused = true)]
async fn a_retry_at_once_after_an_early_run_counts() {
    let queue = WorkQueue::default();
    queue.add("a");
    end(&queue, Outcome::requeue_not_before(secs(60))).await;
    queue.add("a");
    take(&queue).finish(Outcome::retry_after(Duration::ZERO));
    assert_eq!(
        (waits(&queue), queue.num_requeues(&"a")),
        (ms(0), 1),
        "the event did not count"
    );
    assert_eq!(end(&queue, Outcome::requeue()).await, (ms(10), 2));
}

#[test]
fn a_requeue_keeps_the_priority_unless_the_outcome_sets_one() {
    for outcome in [
        Outcome::retry_after(Duration::ZERO),
        Outcome::requeue_not_before(Duration::ZERO),
    ] {
        for (said, expected) in [(None, 5), (Some(-7), -7)] {
            let queue = with_limiter(Limiter::new(|_: &&str, _, _| Duration::ZERO));
            queue.add_with("a", at(5));
            take(&queue)
                .finish(said.map_or(outcome, |priority| outcome.priority(Priority(priority))));
            assert_eq!(take(&queue).priority(), Priority(expected));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_added_during_its_run_does_not_wait() {
    for outcome in [
        Outcome::retry_after(secs(60)),
        Outcome::requeue_not_before(secs(60)),
    ] {
        let queue = strict();
        queue.add("a");
        let item = take(&queue);
        queue.add("a");
        let again = item.finish_and_try_get(outcome).expect("a ready key");
        assert_eq!(again.attempt(), 2);
        again.finish(Outcome::done());
        advance(secs(60)).await;
        assert!(queue.try_get().is_none(), "that was the retry");
    }
}

#[tokio::test(start_paused = true)]
async fn a_requeue_keeps_the_last_error() {
    for outcome in [
        Outcome::retry_after(secs(60)),
        Outcome::requeue_not_before(secs(60)),
    ] {
        let queue = strict();
        queue.add("a");
        let mut item = take(&queue);
        item.set_error("down");
        item.finish(outcome);
        assert_eq!(queue.snapshot()[0].last_error.as_deref(), Some("down"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_requeue_after_a_shutdown_is_rejected() {
    for close in [WorkQueue::close, WorkQueue::close_after_ready] {
        for outcome in [
            Outcome::retry_after(Duration::ZERO),
            Outcome::requeue_not_before(ms(1)),
        ] {
            let queue = strict();
            queue.add("a");
            let item = take(&queue);
            close(&queue);
            item.finish(outcome);
            advance(secs(1)).await;
            assert_eq!((run_all(&queue).len(), queue.stats().rejected), (0, 1));
            assert!(queue.snapshot().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_huge_delay_never_elapses() {
    for outcome in [
        Outcome::retry_after(Duration::MAX),
        Outcome::requeue_not_before(Duration::MAX),
    ] {
        let queue = strict();
        queue.add("a");
        take(&queue).finish(outcome);
        advance(secs(1_000_000_000)).await;
        assert!(queue.try_get().is_none());
        queue.add("a");
        assert_eq!(run_all(&queue), ["a"]);
    }
}
