//! Tests of the reasons that `/debug/queues` shows after a reconcile.

use crate::test_controller::{
    Script, TestController, advance, builder, manual_reconciler, ms, secs, settle,
};
use anyhow::anyhow;
use kube_core::Status;
use steersman::{controller::Options, prelude::*};

/// Returns the reasons of the only request in the queue.
fn reasons(test: &TestController) -> Vec<String> {
    let snapshot = test.queue_snapshot(10, None);
    let [entry] = &snapshot.entries[..] else {
        panic!("one request instead of {snapshot:?}")
    };
    entry.reasons.iter().map(ToString::to_string).collect()
}

fn status(reason: &str) -> anyhow::Error {
    kube_client::Error::Api(Box::new(Status::failure("no", reason).with_code(409))).into()
}

fn panics() -> anyhow::Result<Outcome> {
    panic!("no luck")
}

#[tokio::test(start_paused = true)]
async fn a_requeue_has_the_class_of_the_error_or_the_delay_as_its_reason() {
    type Answer = Box<dyn FnOnce() -> anyhow::Result<Outcome> + Send>;
    let cases: [(Answer, &str); 8] = [
        (Box::new(|| Err(anyhow!("no luck"))), "retry: error"),
        (Box::new(|| Err(status("Conflict"))), "retry: Conflict"),
        (
            Box::new(|| Err(status("Forbidden").context("reading"))),
            "retry: Forbidden",
        ),
        (Box::new(|| Err(status("a proxy's page"))), "retry: error"),
        (Box::new(panics), "retry: panic"),
        (
            Box::new(|| Ok(Outcome::requeue_after(secs(60)))),
            "requeue after 60 s",
        ),
        (Box::new(|| Ok(Outcome::requeue())), "requeue"),
        (Box::new(|| Ok(Outcome::retry_after(secs(60)))), "requeue"),
    ];
    for (answer, expected) in cases {
        let test = TestController::run(builder(), Script::new().answer_with(answer));
        test.queue().add_with(
            "a",
            Add {
                reason: Some("created".into()),
                ..Add::default()
            },
        );
        settle().await;
        assert_eq!(reasons(&test), [expected]);
        test.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_reconcile_is_retried_for_that_reason() {
    let (reconciler, mut runs) = manual_reconciler();
    let timeout = Options {
        reconcile_timeout: Some(secs(3)),
        ..Options::default()
    };
    let test = TestController::run(builder().options(timeout), reconciler);
    test.queue().add("a");
    let _first = runs.next().await;
    let second = runs.next().await;
    assert_eq!(second.cx.reasons(), ["retry: timeout".into()]);
    second.done();
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_during_the_backoff_is_added_to_the_reason_of_the_retry() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    let event = |reason: &str| Add {
        reason: Some(reason.into()),
        ..Add::default()
    };
    test.queue().add_with("a", event("created"));
    runs.next()
        .await
        .answer(Ok(Outcome::requeue_after(secs(60))));
    settle().await;
    test.queue().add_with("a", event("updated"));
    let second = runs.next().await;
    assert_eq!(
        second.cx.reasons(),
        ["requeue after 60 s".into(), "updated".into()]
    );

    // During the reconcile, the event alone makes the request ready.
    test.queue().add_with("a", event("deleted"));
    second.fail();
    let third = runs.next().await;
    assert_eq!(third.cx.reasons(), ["deleted".into()]);
    third.done();
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_terminal_error_is_shown_until_the_request_ends_otherwise() {
    let terminal = || Err(Failure::terminal(anyhow!("replicas is negative")).into());
    let script = Script::new().fail().answer_with(terminal).fail();
    let test = TestController::run(builder(), script);
    test.queue().add("a");
    advance(secs(5)).await;
    let snapshot = test.queue_snapshot(10, None);
    let [outcome] = &snapshot.terminal[..] else {
        panic!("one outcome instead of {snapshot:?}")
    };
    assert_eq!((&*outcome.key, outcome.attempt), ("\"a\"", 2));
    assert_eq!(
        &*outcome.error,
        "terminal failure: no retry until the next event: replicas is negative"
    );
    assert_eq!(outcome.ended_ago, ms(4_995));
    assert!(snapshot.entries.is_empty(), "the request is not queued");

    test.queue().add("a");
    advance(secs(1)).await;
    assert!(test.queue_snapshot(10, None).terminal.is_empty());
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_hundred_terminal_errors_are_shown() {
    let test = TestController::run(
        Controller::builder("test"),
        reconcile::from_fn(async |_: u32, _| Err(Failure::terminal(anyhow!("no")).into())),
    );
    (0..150).for_each(|key| test.queue().add(key));
    advance(secs(1)).await;
    let terminal = test.queue_snapshot(10, None).terminal;
    assert_eq!(terminal.len(), 100);
    assert_eq!((&*terminal[0].key, &*terminal[99].key), ("149", "50"));
    test.end().await;
}
