//! Tests of the results of reconcilers.
//!
//! There is one test per row of the table in `steersman::reconcile`.

use crate::test_controller::{
    Script, TestController, advance, builder, manual_reconciler, ms, secs, settle,
};
use anyhow::{Context as _, anyhow};
use std::time::Duration;
use steersman::{prelude::*, reconcile::Result, workqueue::EntryState};

/// Runs a controller with this script, adds "a", and lets a long time pass.
async fn run_script(script: &Script) -> TestController {
    run_script_at(script, Priority::NORMAL).await
}

async fn run_script_at(script: &Script, priority: Priority) -> TestController {
    let test = TestController::run(builder(), script.clone());
    test.queue().add_with(
        "a",
        Add {
            priority: Some(priority),
            ..Add::default()
        },
    );
    advance(secs(1)).await;
    test
}

#[tokio::test(start_paused = true)]
async fn done_forgets_failed_attempts() {
    let script = Script::new().fail().fail();
    let test = run_script(&script).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3)]);
    assert!(
        test.queue().snapshot().is_empty(),
        "a finished request is freed"
    );
    let stats = test.stats();
    assert_eq!((stats.success, stats.errors, stats.time.count()), (1, 2, 3));
    test.queue().add("a");
    settle().await;
    assert_eq!(script.runs().last(), Some(&(1000, 1)));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn requeue_after_reconciles_again_after_the_delay_and_forgets_failed_attempts() {
    let script = Script::new()
        .fail()
        .fail()
        .answer(Ok(Outcome::requeue_after(ms(200))))
        .fail();
    let test = run_script(&script).await;
    assert_eq!(
        script.runs(),
        [(0, 1), (5, 2), (15, 3), (215, 1), (220, 2)],
        "plain delay, then backoff from its start"
    );
    let stats = test.stats();
    assert_eq!(
        (
            stats.requeue_after,
            stats.requeue,
            stats.success,
            stats.errors
        ),
        (1, 0, 1, 3)
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_before_requeue_after_replaces_it() {
    let script = Script::new().answer(Ok(Outcome::requeue_after(ms(500))));
    let test = TestController::run(builder(), script.clone());
    test.queue().add("a");
    advance(ms(10)).await;
    test.queue().add("a");
    advance(secs(2)).await;
    assert_eq!(script.runs(), [(0, 1), (10, 1)]);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn requeue_reconciles_again_with_growing_backoff() {
    let script = Script::new()
        .answer(Ok(Outcome::requeue()))
        .answer(Ok(Outcome::requeue()))
        .answer(Ok(Outcome::requeue()));
    let test = run_script(&script).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3), (35, 4)]);
    let stats = test.stats();
    assert_eq!((stats.requeue, stats.success, stats.errors), (3, 1, 0));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_is_retried_with_growing_backoff() {
    let script = Script::new().fail().fail().fail();
    let test = run_script(&script).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3), (35, 4)]);
    let stats = test.stats();
    assert_eq!(
        (
            stats.errors,
            stats.terminal,
            stats.conflicts,
            stats.requeue,
            stats.success
        ),
        (3, 0, 0, 0, 1)
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_error_is_shown_with_its_causes_until_the_request_succeeds() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    runs.next()
        .await
        .answer(Err(anyhow!("connection refused")).context("reading the website"));
    settle().await;
    let [entry] = &test.queue().snapshot()[..] else {
        panic!("one request")
    };
    assert_eq!(
        entry.last_error.as_deref(),
        Some("reading the website: connection refused")
    );
    assert_eq!(
        (entry.attempts, entry.state),
        (1, EntryState::Delayed { ready_in: ms(4) })
    );
    let second = runs.next().await;
    assert!(
        test.queue().snapshot()[0].last_error.is_some(),
        "during the reconcile"
    );
    second.done();
    settle().await;
    assert!(test.queue().snapshot().is_empty());
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn backoff_is_not_reset_before_a_result_that_is_neither_an_error_nor_a_requeue() {
    let script = Script::new()
        .fail()
        .answer(Ok(Outcome::requeue()))
        .fail()
        .answer(Ok(Outcome::done()))
        .fail();
    let test = run_script(&script).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3), (35, 4)]);
    test.queue().add("a");
    advance(secs(1)).await;
    assert_eq!(script.runs()[4..], [(1000, 1), (1005, 2)]);
    test.end().await;
}

// controller-runtime keeps the count after a terminal error, and leaks it if the object is deleted.
#[tokio::test(start_paused = true)]
async fn a_terminal_failure_is_not_retried_and_forgets_failed_attempts() {
    let terminal = || Err(Failure::terminal(anyhow!("replicas is negative")).into());
    let script = Script::new().fail().fail().answer_with(terminal).fail();
    let test = run_script(&script).await;
    assert_eq!(script.runs().len(), 3);
    assert!(test.queue().snapshot().is_empty());
    let stats = test.stats();
    assert_eq!((stats.errors, stats.terminal, stats.success), (3, 1, 0));
    test.queue().add("a");
    advance(secs(1)).await;
    assert_eq!(
        script.runs()[3..],
        [(1000, 1), (1005, 2)],
        "an event triggers a reconcile, and the backoff restarts"
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_is_found_in_wrapped_errors() {
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] anyhow::Error);
    impl Outer {
        fn around(error: anyhow::Error) -> anyhow::Error {
            Self(error).into()
        }
    }

    let terminal = || anyhow::Error::from(Failure::terminal(anyhow!("no")));
    let wrapped: [anyhow::Error; 4] = [
        terminal(),
        terminal().context("reading").context("reconciling"),
        Outer::around(terminal()),
        Outer::around(terminal().context("reading")).context("reconciling"),
    ];
    for error in wrapped {
        let text = format!("{error:#}");
        let script = Script::new().answer(Err(error));
        let test = run_script(&script).await;
        assert_eq!(
            (script.runs().len(), test.stats().terminal),
            (1, 1),
            "{text}"
        );
        test.end().await;
    }
}

type Answer = fn(Option<i32>) -> Result<Outcome>;

/// Every answer that leads to another reconcile, with or without a priority.
const ANSWERS: [(&str, Answer); 6] = [
    ("requeue_after", |wanted| {
        Ok(with(Outcome::requeue_after(ms(5)), wanted))
    }),
    ("requeue_after zero", |wanted| {
        Ok(with(Outcome::requeue_after(Duration::ZERO), wanted))
    }),
    ("requeue", |wanted| Ok(with(Outcome::requeue(), wanted))),
    ("requeue_not_before", |wanted| {
        Ok(with(Outcome::requeue_not_before(ms(7)), wanted))
    }),
    ("retry_after", |wanted| {
        Ok(with(Outcome::retry_after(ms(7)), wanted))
    }),
    ("error", |wanted| match wanted {
        Some(priority) => {
            Err(Failure::retry(anyhow!("no luck")).priority(Priority(priority))).context("reading")
        }
        None => Err(anyhow!("no luck")),
    }),
];

fn with(outcome: Outcome, priority: Option<i32>) -> Outcome {
    priority.map_or(outcome, |priority| outcome.priority(Priority(priority)))
}

#[tokio::test(start_paused = true)]
async fn a_requeue_keeps_the_priority_unless_the_result_sets_one() {
    for (name, answer) in ANSWERS {
        for (wanted, expected) in [(None, 7), (Some(9), 9), (Some(-3), -3), (Some(0), 0)] {
            let script = Script::new().answer(answer(wanted));
            let test = run_script_at(&script, Priority(7)).await;
            assert_eq!(script.priorities(), [7, expected], "{name} {wanted:?}");
            test.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_of_higher_priority_during_the_reconcile_overrides_the_requeue() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add_with(
        "a",
        Add {
            priority: Some(Priority::LOW),
            ..Add::default()
        },
    );
    let first = runs.next().await;
    test.queue().add_with(
        "a",
        Add {
            priority: Some(Priority::HIGH),
            ..Add::default()
        },
    );
    first.fail();
    let second = runs.next().await;
    assert_eq!(second.cx.priority(), Priority::HIGH);
    second.done();
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn backoff_does_not_grow_when_events_trigger_the_reconcile() {
    let script = Script::new().fail().fail().fail().fail().fail().fail();
    let test = TestController::run(builder(), script.clone());
    test.queue().add("a");
    advance(ms(17)).await; // Failed at 0, 5 and 15 ms: the next one is due at 35 ms.
    for _ in 0..3 {
        test.queue().add("a");
        advance(ms(3)).await;
    }
    advance(secs(1)).await;
    assert_eq!(
        script.runs(),
        [(0, 1), (5, 2), (15, 3), (17, 4), (20, 4), (23, 4), (43, 4)],
        "20 ms each time"
    );
    test.end().await;
}
