//! Tests of `replace_timer`, which postpones or debounces a key.

use crate::support::{
    ByHand, assert_elapsed, at, ms, rate_limited, replace, run, run_all, secs, soon, take,
};
use std::time::Duration;
use steersman::workqueue::{Add, Outcome, Priority, WorkQueue};
use tokio::time::{Instant, advance};

#[tokio::test(start_paused = true)]
async fn a_replaced_timer_postpones_the_key() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(10));
    queue.add_with("a", replace(ms(30)));
    advance(ms(29)).await;
    assert!(queue.try_get().is_none());
    advance(ms(1)).await;
    run(&queue, &"a");
    advance(secs(1)).await;
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_replaced_timer_can_be_earlier() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(30));
    queue.add_with("a", replace(ms(10)));
    advance(ms(10)).await;
    run(&queue, &"a");
    advance(secs(1)).await;
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_is_debounced_until_it_pauses() {
    let queue: WorkQueue<&str> = WorkQueue::default();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let mut runs = Vec::new();
            let start = Instant::now();
            let mut next = soon(queue.get()).await;
            while let Some(item) = next {
                runs.push(start.elapsed().as_millis());
                next = item.finish_and_get(Outcome::done()).await;
            }
            runs
        }
    });
    for pause in [10, 10, 10, 10, 500, 10, 10] {
        queue.add_with("a", replace(ms(100)));
        tokio::time::sleep(ms(pause)).await;
    }
    tokio::time::sleep(secs(1)).await;
    soon(queue.drain()).await;
    let runs = soon(worker).await.expect("no panic");
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert!(
        (140..=141).contains(&runs[0]) && (650..=651).contains(&runs[1]),
        "{runs:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_ready_key_stays_ready() {
    let queue = WorkQueue::default();
    queue.add("a");
    queue.add_with("a", replace(ms(10)));
    run(&queue, &"a");
    assert_eq!(queue.stats().delayed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_due_key_stays_ready() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(10));
    advance(ms(10)).await;
    assert_eq!(queue.len(), 1);
    queue.add_with("a", replace(ms(10)));
    run(&queue, &"a");
}

/// Like the test above, but no call inspects the queue after the key came due.
#[tokio::test(start_paused = true)]
async fn a_due_key_that_was_not_polled_stays_ready() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(10));
    advance(ms(20)).await;
    queue.add_with("a", replace(ms(10)));
    run(&queue, &"a");
}

#[tokio::test(start_paused = true)]
async fn a_new_key_waits_for_its_delay() {
    let queue = WorkQueue::default();
    queue.add_with("a", replace(ms(10)));
    assert!(queue.try_get().is_none());
    advance(ms(10)).await;
    run(&queue, &"a");
}

#[tokio::test(start_paused = true)]
async fn without_a_delay_the_key_is_ready_at_once() {
    for add in [
        Add {
            replace_timer: true,
            ..Add::default()
        },
        replace(Duration::ZERO),
    ] {
        let queue = WorkQueue::default();
        queue.add_after("a", ms(10));
        queue.add_with("a", add);
        run(&queue, &"a");
        advance(ms(10)).await;
        assert!(queue.try_get().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn replacing_keeps_the_highest_priority_and_all_reasons() {
    let queue = WorkQueue::default();
    queue.add_with(
        "a",
        Add {
            after: Some(ms(10)),
            reason: Some("one".into()),
            ..at(5)
        },
    );
    queue.add_with(
        "a",
        Add {
            reason: Some("two".into()),
            ..replace(ms(30))
        },
    );
    advance(ms(30)).await;
    let item = take(&queue);
    assert_eq!(item.priority(), Priority(5));
    assert_eq!(crate::support::reasons(&item), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn add_after_keeps_the_earlier_time_of_a_replaced_timer() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(10));
    queue.add_with("a", replace(ms(30)));
    queue.add_after("a", ms(40));
    queue.add_after("a", ms(20));
    advance(ms(20)).await;
    run(&queue, &"a");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_requeue_can_be_replaced_while_the_key_runs_and_after() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    queue.add_after("a", ms(10));
    queue.add_with("a", replace(ms(50)));
    item.finish(Outcome::requeue_after(ms(60)));
    queue.add_with("a", replace(ms(70)));
    advance(ms(69)).await;
    assert_eq!(run_all(&queue), Vec::<&str>::new());
    advance(ms(1)).await;
    assert_eq!(run_all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_rate_limited_add_may_replace_a_timer_too() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(1));
    queue.add_with(
        "a",
        Add {
            replace_timer: true,
            ..rate_limited()
        },
    );
    advance(ms(4)).await;
    assert!(queue.try_get().is_none());
    advance(ms(1)).await;
    run(&queue, &"a");
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_getter_follows_a_replaced_timer() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(50));
    let start = Instant::now();
    let mut getter = ByHand::waiting(queue.get());
    queue.add_with("a", replace(ms(100)));
    advance(ms(60)).await;
    assert!(getter.poll().is_pending());
    queue.add_with("a", replace(ms(10)));
    assert!(getter.was_woken(), "its alarm is too late now");
    assert!(getter.poll().is_pending());
    advance(ms(11)).await;
    assert!(getter.was_woken());
    assert_eq!(*getter.ready().expect("open"), "a");
    assert_elapsed(start, ms(71));
}

/// A run before the replaced backoff has elapsed does not increase the delay.
#[tokio::test(start_paused = true)]
async fn a_replaced_backoff_ends_with_the_new_timer() {
    for (event, attempts) in [(7, 2), (10, 3)] {
        let queue = WorkQueue::default();
        queue.add_rate_limited("a"); // 5 ms
        queue.add_with(
            "a",
            Add {
                replace_timer: true,
                ..rate_limited()
            },
        ); // 10 ms
        advance(ms(event)).await;
        queue.add("a");
        take(&queue).finish(Outcome::requeue());
        assert_eq!(queue.num_requeues(&"a"), attempts, "after {event} ms");
    }
}
