//! Tests of the context of a reconcile.

use crate::test_controller::{
    TestController, advance, builder, manual_reconciler, ms, secs, settle, with_timeout,
};
use std::{collections::HashSet, time::Duration};
use steersman::{controller::Options, prelude::*, reconcile::Context};
use tokio::time::Instant;

fn reasons(cx: &Context) -> Vec<String> {
    cx.reasons().iter().map(ToString::to_string).collect()
}

fn because(reason: &str) -> Add {
    Add {
        reason: Some(reason.into()),
        ..Add::default()
    }
}

#[tokio::test(start_paused = true)]
async fn each_reconcile_has_a_unique_random_uuid() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    let uuid =
        regex::Regex::new("^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
            .unwrap();
    let mut ids = HashSet::new();
    for _ in 0..100 {
        test.queue().add("a");
        let run = runs.next().await;
        let id = run.cx.id().to_string();
        assert!(uuid.is_match(&id), "{id}");
        assert_eq!(
            run.cx.clone().id().to_string(),
            id,
            "a clone has the same id"
        );
        assert!(ids.insert(id));
        run.done();
    }
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_from_one_since_the_last_success() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    for attempt in 1..=4 {
        let run = runs.next().await;
        assert_eq!(run.cx.attempt(), attempt);
        if attempt < 4 { run.fail() } else { run.done() }
    }
    test.queue().add("a");
    assert_eq!(runs.next().await.cx.attempt(), 1);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_reasons_of_a_reconcile_are_those_of_the_events_since_the_last_one() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add("busy");
    let busy = runs.next().await;
    for reason in ["one", "two", "three", "four"] {
        test.queue().add_with("a", because(reason));
    }
    busy.done();
    let run = runs.next().await;
    assert_eq!(
        reasons(&run.cx),
        ["two", "three", "four"],
        "the last three, oldest first"
    );
    test.queue().add_with("a", because("five"));
    assert_eq!(reasons(&run.cx).len(), 3, "not those of the next run");
    run.done();
    let run = runs.next().await;
    assert_eq!(reasons(&run.cx), ["five"]);
    run.done();
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_context_has_the_time_that_the_request_waited_for_a_worker() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add("busy");
    let busy = runs.next().await;
    assert_eq!(busy.cx.waited(), Duration::ZERO);
    test.queue().add("a");
    advance(secs(3)).await;
    busy.done();
    assert_eq!(runs.next().await.cx.waited(), secs(3));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_when_the_reconcile_is_dropped() {
    let options = Options {
        reconcile_timeout: Some(secs(3)),
        ..Options::default()
    };
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder().options(options), reconciler);
    advance(secs(9)).await;
    test.queue().add("a");
    let run = runs.next().await;
    assert_eq!(run.cx.deadline(), Some(Instant::now() + secs(3)));
    tokio::time::sleep_until(run.cx.deadline().unwrap()).await;
    settle().await;
    assert!(run.was_dropped());
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_superseded_when_its_request_is_added_again() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    let run = runs.next().await;
    let cx = run.cx.clone();
    assert!(!cx.superseded());
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let cx = cx.clone();
            tokio::spawn(async move { cx.until_superseded().await })
        })
        .collect();
    test.queue().add("another");
    settle().await;
    assert!(
        !cx.superseded() && !waiting[0].is_finished(),
        "another request does not supersede"
    );
    test.queue().add("a");
    assert!(cx.superseded());
    for waiting in waiting {
        with_timeout(waiting).await.unwrap();
    }
    with_timeout(cx.until_superseded()).await;
    run.done();
    settle().await;
    assert!(!cx.superseded(), "the reconcile is finished");
    drop(runs);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_delayed_add_supersedes_the_reconcile_when_it_is_due() {
    // Covers a due time set before, one set after, and one that moves to an earlier time.
    for (before, after) in [
        (Some(3), None),
        (None, Some(3)),
        (Some(5), Some(3)),
        (Some(3), Some(5)),
    ] {
        let (reconciler, mut runs) = manual_reconciler();
        let test = TestController::run(builder(), reconciler);
        test.queue().add("a");
        let run = runs.next().await;
        let start = Instant::now();
        let add = |delay: Option<u64>| {
            if let Some(delay) = delay {
                test.queue().add_after("a", secs(delay));
            }
        };
        add(before);
        // All workers are busy, so only the reconcile itself keeps a timer.
        let waiting = tokio::spawn({
            let cx = run.cx.clone();
            async move { cx.until_superseded().await }
        });
        tokio::task::yield_now().await;
        add(after);
        assert!(!run.cx.superseded());
        with_timeout(waiting).await.unwrap();
        assert_eq!(
            (run.cx.superseded(), start.elapsed()),
            (true, secs(3)),
            "{before:?} {after:?}"
        );
        drop((run, runs));
        test.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn superseded_observes_a_delay_that_elapses_during_the_reconcile() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    let run = runs.next().await;
    test.queue().add_after("a", secs(3));
    advance(ms(2_999)).await;
    assert!(!run.cx.superseded());
    advance(ms(1)).await;
    assert!(run.cx.superseded());
    drop((run, runs));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_delay_does_not_supersede() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    let run = runs.next().await;
    test.queue().add_after("a", secs(3));
    let waiting = tokio::spawn({
        let cx = run.cx.clone();
        async move { cx.until_superseded().await }
    });
    settle().await;
    assert!(test.queue().cancel(&"a"));
    advance(secs(10)).await;
    assert!(!run.cx.superseded() && !waiting.is_finished());
    test.queue().add("a");
    with_timeout(waiting).await.unwrap();
    drop((run, runs));
    test.end().await;
}

/// Notifications about one reconcile are not delivered to a later one of the same request.
#[tokio::test(start_paused = true)]
async fn a_finished_reconcile_is_never_superseded() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    let first = runs.next().await;
    let cx = first.cx.clone();
    let waiting = tokio::spawn({
        let cx = cx.clone();
        async move { cx.until_superseded().await }
    });
    settle().await;
    first.done();
    settle().await;
    for _ in 0..3 {
        test.queue().add("a");
        let later = runs.next().await;
        test.queue().add("a");
        settle().await;
        assert!(later.cx.superseded() && !cx.superseded() && !waiting.is_finished());
        later.done();
        runs.next().await.done();
        settle().await;
    }
    test.end().await;
    settle().await;
    assert!(!cx.superseded() && !waiting.is_finished());
    waiting.abort();
}

fn cancelling() -> Options {
    Options {
        cancel_superseded: Some(true),
        ..Options::default()
    }
}

#[tokio::test(start_paused = true)]
async fn cancel_superseded_drops_the_reconcile_when_its_request_is_added_again() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder().options(cancelling()), reconciler);
    test.queue().add("a");
    let first = runs.next().await;
    advance(secs(5)).await;
    test.queue().add_with("a", because("newer"));
    let second = runs.next().await;
    assert!(first.was_dropped());
    assert_eq!(
        (reasons(&second.cx), second.cx.attempt()),
        (vec!["newer".to_owned()], 1)
    );
    second.done();
    settle().await;
    let stats = test.stats();
    assert_eq!(
        (
            stats.superseded,
            stats.success,
            stats.errors,
            stats.time.count()
        ),
        (1, 1, 0, 1)
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_stay_counted_when_a_reconcile_is_superseded() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder().options(cancelling()), reconciler);
    test.queue().add("a");
    runs.next().await.fail();
    runs.next().await.fail();
    let third = runs.next().await;
    test.queue().add("a");
    assert_eq!(runs.next().await.cx.attempt(), 3);
    assert!(third.was_dropped());
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_result_returned_before_a_newer_event_is_not_lost() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder().options(cancelling()), reconciler);
    test.queue().add("a");
    let run = runs.next().await;
    run.done();
    test.queue().add("a");
    runs.next().await.done();
    settle().await;
    assert_eq!((test.stats().success, test.stats().superseded), (2, 0));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_drops_the_reconcile_when_it_is_due() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder().options(cancelling()), reconciler);
    test.queue().add("a");
    let first = runs.next().await;
    test.queue().add_after("a", secs(3));
    advance(ms(2_999)).await;
    assert!(!first.was_dropped());
    advance(ms(2)).await;
    assert!(first.was_dropped());
    assert_eq!(test.stats().superseded, 1);
    drop(runs);
    test.end().await;
}

#[tokio::test]
async fn the_default_context_is_a_first_attempt_that_is_not_interrupted() {
    let cx = Context::default();
    assert_eq!(
        (
            cx.attempt(),
            cx.priority(),
            cx.reasons().len(),
            cx.deadline()
        ),
        (1, Priority::NORMAL, 0, None)
    );
    assert!(!cx.superseded() && !cx.is_shutting_down());
    tokio::select! {
        biased;
        () = cx.until_superseded() => panic!("interrupted"),
        () = cx.shutdown() => panic!("interrupted"),
        () = tokio::task::yield_now() => {}
    }
}
