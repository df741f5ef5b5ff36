//! What a reconciler answers, and what follows: the table of `steersman::reconcile`, row by row.
//!
//! `Catalogue n` names the row of `spec/controller-runtime.md` 3.1 that a case comes from.

use crate::rig::{Rig, Script, builder, by_hand, ms, pass, secs, settle};
use anyhow::{Context as _, anyhow};
use std::time::Duration;
use steersman::{prelude::*, workqueue::EntryState};

/// A controller with this script, which was asked for "a" and has had a long time.
async fn played(script: &Script) -> Rig {
    played_at(script, Priority::NORMAL).await
}

async fn played_at(script: &Script, priority: Priority) -> Rig {
    let rig = Rig::run(builder(), script.clone());
    rig.queue().add_with("a", Add { priority: Some(priority), ..Add::default() });
    pass(secs(1)).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn done_is_followed_by_nothing_and_forgets_failed_attempts() {
    let script = Script::new().fail().fail();
    let rig = played(&script).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3)]);
    assert!(rig.queue().snapshot().is_empty(), "nothing is kept of a request that is done");
    let stats = rig.stats();
    assert_eq!((stats.success, stats.errors, stats.time.count()), (1, 2, 3));
    rig.queue().add("a");
    settle().await;
    assert_eq!(script.runs().last(), Some(&(1000, 1)));
    rig.end().await;
}

// Catalogue 10
#[tokio::test(start_paused = true)]
async fn requeue_after_runs_once_more_after_that_time_and_forgets_failed_attempts() {
    let script = Script::new().fail().fail().answer(Ok(Outcome::requeue_after(ms(200)))).fail();
    let rig = played(&script).await;
    assert_eq!(
        script.runs(),
        [(0, 1), (5, 2), (15, 3), (215, 1), (220, 2)],
        "plain delay, then backoff from its start"
    );
    let stats = rig.stats();
    assert_eq!((stats.requeue_after, stats.requeue, stats.success, stats.errors), (1, 0, 1, 3));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn requeue_after_runs_sooner_if_an_event_comes_and_then_not_again() {
    let script = Script::new().answer(Ok(Outcome::requeue_after(ms(500))));
    let rig = Rig::run(builder(), script.clone());
    rig.queue().add("a");
    pass(ms(10)).await;
    rig.queue().add("a");
    pass(secs(2)).await;
    assert_eq!(script.runs(), [(0, 1), (10, 1)]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn requeue_runs_once_more_with_growing_backoff() {
    let script =
        Script::new().answer(Ok(Outcome::requeue())).answer(Ok(Outcome::requeue())).answer(Ok(Outcome::requeue()));
    let rig = played(&script).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3), (35, 4)]);
    let stats = rig.stats();
    assert_eq!((stats.requeue, stats.success, stats.errors), (3, 1, 0));
    rig.end().await;
}

// Catalogue 8
#[tokio::test(start_paused = true)]
async fn an_error_runs_once_more_with_growing_backoff() {
    let script = Script::new().fail().fail().fail();
    let rig = played(&script).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3), (35, 4)]);
    let stats = rig.stats();
    assert_eq!((stats.errors, stats.terminal, stats.conflicts, stats.requeue, stats.success), (3, 0, 0, 0, 1));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_error_is_shown_with_its_causes_until_the_request_succeeds() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("a");
    runs.next().await.answer(Err(anyhow!("connection refused")).context("reading the website"));
    settle().await;
    let [entry] = &rig.queue().snapshot()[..] else { panic!("one request") };
    assert_eq!(entry.last_error.as_deref(), Some("reading the website: connection refused"));
    assert_eq!((entry.attempts, entry.state), (1, EntryState::Delayed { ready_in: ms(4) }));
    let second = runs.next().await;
    assert!(rig.queue().snapshot()[0].last_error.is_some(), "also while it runs");
    second.done();
    settle().await;
    assert!(rig.queue().snapshot().is_empty());
    rig.end().await;
}

// Catalogue 9
#[tokio::test(start_paused = true)]
async fn backoff_is_not_reset_before_a_result_that_is_neither_an_error_nor_a_requeue() {
    let script = Script::new().fail().answer(Ok(Outcome::requeue())).fail().answer(Ok(Outcome::done())).fail();
    let rig = played(&script).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3), (35, 4)]);
    rig.queue().add("a");
    pass(secs(1)).await;
    assert_eq!(script.runs()[4..], [(1000, 1), (1005, 2)]);
    rig.end().await;
}

// Catalogue 11, and 3.2: upstream keeps the count after a terminal error, and for ever if the object is gone.
#[tokio::test(start_paused = true)]
async fn a_terminal_failure_is_not_retried_and_forgets_failed_attempts() {
    let terminal = || Err(Failure::terminal(anyhow!("replicas is negative")).into());
    let script = Script::new().fail().fail().say(terminal).fail();
    let rig = played(&script).await;
    assert_eq!(script.runs().len(), 3);
    assert!(rig.queue().snapshot().is_empty());
    let stats = rig.stats();
    assert_eq!((stats.errors, stats.terminal, stats.success), (3, 1, 0));
    rig.queue().add("a");
    pass(secs(1)).await;
    assert_eq!(script.runs()[3..], [(1000, 1), (1005, 2)], "an event runs it, and backoff begins anew");
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_is_found_below_whatever_was_wrapped_around_it() {
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
        let rig = played(&script).await;
        assert_eq!((script.runs().len(), rig.stats().terminal), (1, 1), "{text}");
        rig.end().await;
    }
}

type Answer = fn(Option<i32>) -> Result<Outcome>;

/// Every answer that a run follows, with a priority or without.
const ANSWERS: [(&str, Answer); 6] = [
    ("requeue_after", |wanted| Ok(with(Outcome::requeue_after(ms(5)), wanted))),
    ("requeue_after zero", |wanted| Ok(with(Outcome::requeue_after(Duration::ZERO), wanted))),
    ("requeue", |wanted| Ok(with(Outcome::requeue(), wanted))),
    ("requeue_not_before", |wanted| Ok(with(Outcome::requeue_not_before(ms(7)), wanted))),
    ("retry_after", |wanted| Ok(with(Outcome::retry_after(ms(7)), wanted))),
    ("error", |wanted| match wanted {
        Some(priority) => Err(Failure::retry(anyhow!("no luck")).priority(Priority(priority))).context("reading"),
        None => Err(anyhow!("no luck")),
    }),
];

fn with(outcome: Outcome, priority: Option<i32>) -> Outcome {
    priority.map_or(outcome, |priority| outcome.priority(Priority(priority)))
}

// Catalogue 38
#[tokio::test(start_paused = true)]
async fn a_requeue_of_any_kind_is_at_the_priority_that_the_request_had_or_at_the_one_the_answer_says() {
    for (name, answer) in ANSWERS {
        for (wanted, expected) in [(None, 7), (Some(9), 9), (Some(-3), -3), (Some(0), 0)] {
            let script = Script::new().answer(answer(wanted));
            let rig = played_at(&script, Priority(7)).await;
            assert_eq!(script.priorities(), [7, expected], "{name} {wanted:?}");
            rig.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_at_a_higher_priority_during_the_run_wins_over_that_of_the_requeue() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add_with("a", Add { priority: Some(Priority::LOW), ..Add::default() });
    let first = runs.next().await;
    rig.queue().add_with("a", Add { priority: Some(Priority::HIGH), ..Add::default() });
    first.fail();
    let second = runs.next().await;
    assert_eq!(second.cx.priority(), Priority::HIGH);
    second.done();
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn backoff_does_not_grow_when_events_run_the_request_again() {
    let script = Script::new().fail().fail().fail().fail().fail().fail();
    let rig = Rig::run(builder(), script.clone());
    rig.queue().add("a");
    pass(ms(17)).await; // Failed at 0, 5 and 15: the next one is due at 35.
    for _ in 0..3 {
        rig.queue().add("a");
        pass(ms(3)).await;
    }
    pass(secs(1)).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3), (17, 4), (20, 4), (23, 4), (43, 4)], "20 ms each time");
    rig.end().await;
}
