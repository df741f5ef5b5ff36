//! What a run is told of itself.

use crate::rig::{Rig, builder, by_hand, ms, pass, secs, settle, soon};
use std::{collections::HashSet, time::Duration};
use steersman::{controller::Options, prelude::*};
use tokio::time::Instant;

fn reasons(cx: &Context) -> Vec<String> {
    cx.reasons().iter().map(ToString::to_string).collect()
}

fn because(reason: &str) -> Add {
    Add { reason: Some(reason.into()), ..Add::default() }
}

#[tokio::test(start_paused = true)]
async fn each_run_has_an_id_of_its_own_that_reads_as_a_random_uuid() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    let uuid = regex::Regex::new("^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$").unwrap();
    let mut ids = HashSet::new();
    for _ in 0..100 {
        rig.queue().add("a");
        let run = runs.next().await;
        let id = run.cx.id().to_string();
        assert!(uuid.is_match(&id), "{id}");
        assert_eq!(run.cx.clone().id().to_string(), id, "a clone is the same run");
        assert!(ids.insert(id));
        run.done();
    }
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_from_one_since_the_last_success() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("a");
    for attempt in 1..=4 {
        let run = runs.next().await;
        assert_eq!(run.cx.attempt(), attempt);
        if attempt < 4 { run.fail() } else { run.done() }
    }
    rig.queue().add("a");
    assert_eq!(runs.next().await.cx.attempt(), 1);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_reasons_of_a_run_are_those_of_the_events_since_the_last_one() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("busy");
    let busy = runs.next().await;
    for reason in ["one", "two", "three", "four"] {
        rig.queue().add_with("a", because(reason));
    }
    busy.done();
    let run = runs.next().await;
    assert_eq!(reasons(&run.cx), ["two", "three", "four"], "the last few, oldest first");
    rig.queue().add_with("a", because("five"));
    assert_eq!(reasons(&run.cx).len(), 3, "not those of the next run");
    run.done();
    let run = runs.next().await;
    assert_eq!(reasons(&run.cx), ["five"]);
    run.done();
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_knows_how_long_its_request_waited_for_a_worker() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("busy");
    let busy = runs.next().await;
    assert_eq!(busy.cx.waited(), Duration::ZERO);
    rig.queue().add("a");
    pass(secs(3)).await;
    busy.done();
    assert_eq!(runs.next().await.cx.waited(), secs(3));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_when_the_run_will_be_dropped() {
    let options = Options { reconcile_timeout: Some(secs(3)), ..Options::default() };
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().options(options), reconciler);
    pass(secs(9)).await;
    rig.queue().add("a");
    let run = runs.next().await;
    assert_eq!(run.cx.deadline(), Some(Instant::now() + secs(3)));
    tokio::time::sleep_until(run.cx.deadline().unwrap()).await;
    settle().await;
    assert!(run.was_dropped());
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_is_told_when_its_request_is_made_again() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("a");
    let run = runs.next().await;
    let cx = run.cx.clone();
    assert!(!cx.superseded());
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let cx = cx.clone();
            tokio::spawn(async move { cx.until_superseded().await })
        })
        .collect();
    rig.queue().add("another");
    settle().await;
    assert!(!cx.superseded() && !waiting[0].is_finished(), "another request is not it");
    rig.queue().add("a");
    assert!(cx.superseded());
    for waiting in waiting {
        soon(waiting).await.unwrap();
    }
    soon(cx.until_superseded()).await;
    run.done();
    settle().await;
    assert!(!cx.superseded(), "the run is over");
    drop(runs);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_made_again_with_a_delay_counts_when_that_has_passed() {
    // Who waits sees a time that is there, one that comes, and one that is earlier than that which was there.
    for (before, after) in [(Some(3), None), (None, Some(3)), (Some(5), Some(3)), (Some(3), Some(5))] {
        let (reconciler, mut runs) = by_hand();
        let rig = Rig::run(builder(), reconciler);
        rig.queue().add("a");
        let run = runs.next().await;
        let start = Instant::now();
        let add = |delay: Option<u64>| {
            if let Some(delay) = delay {
                rig.queue().add_after("a", secs(delay));
            }
        };
        add(before);
        // All workers are busy: nobody but the run itself keeps the time.
        let waiting = tokio::spawn({
            let cx = run.cx.clone();
            async move { cx.until_superseded().await }
        });
        tokio::task::yield_now().await;
        add(after);
        assert!(!run.cx.superseded());
        soon(waiting).await.unwrap();
        assert_eq!((run.cx.superseded(), start.elapsed()), (true, secs(3)), "{before:?} {after:?}");
        drop((run, runs));
        rig.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_passes_during_the_run_is_seen_by_whoever_asks() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("a");
    let run = runs.next().await;
    rig.queue().add_after("a", secs(3));
    pass(ms(2_999)).await;
    assert!(!run.cx.superseded());
    pass(ms(1)).await;
    assert!(run.cx.superseded());
    drop((run, runs));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_is_taken_back_does_not_count() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("a");
    let run = runs.next().await;
    rig.queue().add_after("a", secs(3));
    let waiting = tokio::spawn({
        let cx = run.cx.clone();
        async move { cx.until_superseded().await }
    });
    settle().await;
    assert!(rig.queue().cancel(&"a"));
    pass(secs(10)).await;
    assert!(!run.cx.superseded() && !waiting.is_finished());
    rig.queue().add("a");
    soon(waiting).await.unwrap();
    drop((run, runs));
    rig.end().await;
}

/// What is about a run is not told of a later one, though it is the same request.
#[tokio::test(start_paused = true)]
async fn who_asks_after_the_end_of_the_run_is_told_nothing() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("a");
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
        rig.queue().add("a");
        let later = runs.next().await;
        rig.queue().add("a");
        settle().await;
        assert!(later.cx.superseded() && !cx.superseded() && !waiting.is_finished());
        later.done();
        runs.next().await.done();
        settle().await;
    }
    rig.end().await;
    settle().await;
    assert!(!cx.superseded() && !waiting.is_finished());
    waiting.abort();
}

fn cancelling() -> Options {
    Options { cancel_superseded: Some(true), ..Options::default() }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_dropped_when_its_request_is_made_again_if_the_controller_is_told_so() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().options(cancelling()), reconciler);
    rig.queue().add("a");
    let first = runs.next().await;
    pass(secs(5)).await;
    rig.queue().add_with("a", because("newer"));
    let second = runs.next().await;
    assert!(first.was_dropped());
    assert_eq!((reasons(&second.cx), second.cx.attempt()), (vec!["newer".to_owned()], 1));
    second.done();
    settle().await;
    let stats = rig.stats();
    assert_eq!((stats.superseded, stats.success, stats.errors, stats.time.count()), (1, 1, 0, 1));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_stay_counted_when_a_run_is_dropped_for_a_newer_one() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().options(cancelling()), reconciler);
    rig.queue().add("a");
    runs.next().await.fail();
    runs.next().await.fail();
    let third = runs.next().await;
    rig.queue().add("a");
    assert_eq!(runs.next().await.cx.attempt(), 3);
    assert!(third.was_dropped());
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_given_before_the_newer_event_is_not_lost() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().options(cancelling()), reconciler);
    rig.queue().add("a");
    let run = runs.next().await;
    run.done();
    rig.queue().add("a");
    runs.next().await.done();
    settle().await;
    assert_eq!((rig.stats().success, rig.stats().superseded), (2, 0));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_drops_the_run_when_it_is_due() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().options(cancelling()), reconciler);
    rig.queue().add("a");
    let first = runs.next().await;
    rig.queue().add_after("a", secs(3));
    pass(ms(2_999)).await;
    assert!(!first.was_dropped());
    pass(ms(2)).await;
    assert!(first.was_dropped());
    assert_eq!(rig.stats().superseded, 1);
    drop(runs);
    rig.end().await;
}

#[tokio::test]
async fn the_context_of_a_unit_test_is_a_first_attempt_that_nobody_interrupts() {
    let cx = Context::default();
    assert_eq!((cx.attempt(), cx.priority(), cx.reasons().len(), cx.deadline()), (1, Priority::NORMAL, 0, None));
    assert!(!cx.superseded() && !cx.is_shutting_down());
    tokio::select! {
        biased;
        () = cx.until_superseded() => panic!("by whom?"),
        () = cx.shutdown() => panic!("by whom?"),
        () = tokio::task::yield_now() => {}
    }
}
