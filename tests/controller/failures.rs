//! Tests of errors with a delay, conflicts, and custom error policies.

use crate::{
    log_capture::LogCapture,
    test_controller::{Script, TestController, advance, builder, ms, secs},
};
use anyhow::{Context as _, Error, anyhow};
use kube_core::Status;
use parking_lot::Mutex;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use steersman::{
    client,
    controller::{Options, Retry},
    prelude::*,
};
use tracing::Level;

/// Returns the status of an overloaded server.
fn busy(seconds: u32) -> Status {
    let status = json!({"reason": "TooManyRequests", "code": 429, "details": {"retryAfterSeconds": seconds}});
    serde_json::from_value(status).expect("a status")
}

fn conflict() -> Status {
    Status::failure("the object has been modified", "Conflict").with_code(409)
}

fn kube(status: Status) -> kube_client::Error {
    kube_client::Error::Api(Box::new(status))
}

/// Error type of a program.
#[derive(Debug, thiserror::Error)]
enum WrappingError {
    #[error(transparent)]
    Kube(#[from] kube_client::Error),
    #[error("reading the website")]
    Reading(#[source] client::Error),
    #[error(transparent)]
    Client(client::Error),
    #[error(transparent)]
    Any(Error),
}

/// Returns the status in every error type in which a reconciler may return it.
fn in_every_error_type(status: &Status) -> Vec<(&'static str, Error)> {
    let (client_error, kube_error) = (
        || client::Error::from(status.clone()),
        || kube(status.clone()),
    );
    vec![
        ("ours", client_error().into()),
        ("kube's", kube_error().into()),
        (
            "ours in context",
            Error::from(client_error())
                .context("reading")
                .context("reconciling"),
        ),
        (
            "kube's in context",
            Error::from(kube_error()).context("reading"),
        ),
        (
            "ours in another",
            WrappingError::Reading(client_error()).into(),
        ),
        (
            "kube's as another",
            WrappingError::from(kube_error()).into(),
        ),
        (
            "ours as another",
            WrappingError::Client(client_error()).into(),
        ),
        (
            "ours as any",
            WrappingError::Any(client_error().into()).into(),
        ),
        (
            "ours from a closure",
            client::Error::Mutate(Box::new(client_error())).into(),
        ),
        (
            "ours, retried, as any",
            WrappingError::Any(Failure::retry(client_error()).into()).into(),
        ),
        ("ours, retried", Failure::retry(client_error()).into()),
        (
            "kube's, retried, in context",
            Error::from(Failure::retry(kube_error())).context("reading"),
        ),
    ]
}

/// Returns the delays after a first failure and after `answer`.
async fn delays(options: Options, answer: Error) -> Vec<u128> {
    let script = Script::new().fail().answer(Err(answer));
    let test = TestController::run(builder().options(options), script.clone());
    test.queue().add("a");
    advance(secs(3600)).await;
    test.end().await;
    script
        .runs()
        .windows(2)
        .map(|runs| runs[1].0 - runs[0].0)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_a_minimum_delay_in_every_error_type() {
    for (name, error) in in_every_error_type(&busy(2)) {
        assert_eq!(delays(Options::default(), error).await, [5, 2000], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_with_retry_after_waits_longer_if_the_backoff_is_longer() {
    let mut script = Script::new();
    for _ in 0..10 {
        script = script.fail();
    }
    let script = script.answer(Err(kube(busy(1)).into()));
    let test = TestController::run(builder(), script.clone());
    test.queue().add("a");
    advance(secs(60)).await;
    let runs = script.runs();
    assert_eq!(
        runs[11].0 - runs[10].0,
        5 << 10,
        "the backoff of the eleventh failure"
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_waits_for_the_longer_of_its_delay_and_retry_after() {
    let cases: [(Error, u128); 5] = [
        (
            Failure::retry(anyhow!("no disk")).after(secs(7)).into(),
            7_000,
        ),
        (Failure::retry(anyhow!("no disk")).after(ms(1)).into(), 10),
        (
            Error::from(Failure::retry(anyhow!("no disk")).after(secs(7))).context("mounting"),
            7_000,
        ),
        (Failure::retry(kube(busy(2))).after(secs(7)).into(), 7_000),
        (Failure::retry(kube(busy(9))).after(secs(7)).into(), 9_000),
    ];
    for (error, expected) in cases {
        let text = format!("{error:?}");
        assert_eq!(
            delays(Options::default(), error).await,
            [5, expected],
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_capped_at_five_minutes_or_as_configured() {
    let capped = |cap| Options {
        max_retry_after: cap,
        ..Options::default()
    };
    for (cap, expected) in [
        (None, 300_000),
        (Some(secs(20)), 20_000),
        (Some(Duration::ZERO), 10),
    ] {
        for (name, error) in in_every_error_type(&busy(u32::MAX)) {
            assert_eq!(
                delays(capped(cap), error).await,
                [5, expected],
                "{name}, {cap:?}"
            );
        }
    }
    let own = Failure::retry(kube(busy(u32::MAX))).after(secs(1000));
    assert_eq!(
        delays(Options::default(), own.into()).await,
        [5, 1_000_000],
        "the reconciler's delay is not capped"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_is_not_delayed_by_retry_after() {
    let script = Script::new().answer(Err(kube(busy(60)).into()));
    let test = TestController::run(builder(), script.clone());
    test.queue().add("a");
    advance(secs(1)).await;
    test.queue().add("a");
    advance(secs(100)).await;
    assert_eq!(script.runs(), [(0, 1), (1000, 2)]);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_counted_separately_retried_by_the_limiter_and_logged_at_debug() {
    for (name, error) in in_every_error_type(&conflict()) {
        let (log, _guard) = LogCapture::capture();
        let script = Script::new().answer(Err(error));
        let test = TestController::run(builder(), script.clone());
        test.queue().add("a");
        advance(secs(1)).await;
        assert_eq!(script.runs(), [(0, 1), (5, 2)], "{name}");
        let stats = test.stats();
        assert_eq!(
            (stats.conflicts, stats.errors, stats.terminal),
            (1, 1, 0),
            "{name}"
        );
        let above_debug: Vec<_> = log
            .events()
            .into_iter()
            .filter(|event| event.level < Level::INFO)
            .collect();
        assert!(above_debug.is_empty(), "{name}: {above_debug:?}");
        let at_debug = log
            .events()
            .into_iter()
            .find(|event| event.message() == "reconcile failed with conflict, retrying");
        let at_debug = at_debug.unwrap_or_else(|| panic!("{name}: it is logged"));
        let span = &log.spans("reconcile")[0].1.fields.0;
        assert_eq!(
            (at_debug.level, span["controller"].as_str()),
            (Level::DEBUG, "test")
        );
        assert!(
            at_debug.fields.0["error"].contains("the object has been modified"),
            "{name}: {at_debug:?}"
        );
        test.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_already_exists_error_is_not_a_conflict() {
    let exists = || Status::failure("it exists", "AlreadyExists").with_code(409);
    let script = Script::new()
        .answer(Err(kube(exists()).into()))
        .answer(Err(client::Error::from(exists()).into()));
    let test = TestController::run(builder(), script);
    test.queue().add("a");
    advance(secs(1)).await;
    assert_eq!((test.stats().conflicts, test.stats().errors), (0, 2));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn errors_are_logged_as_errors_with_the_request_and_the_attempt() {
    let (log, _guard) = LogCapture::capture();
    let terminal = Failure::terminal(anyhow!("negative")).into();
    let test = TestController::run(builder(), Script::new().fail().answer(Err(terminal)));
    test.queue().add("a");
    advance(secs(1)).await;
    let errors: Vec<_> = log
        .events()
        .into_iter()
        .filter(|event| event.level == Level::ERROR)
        .collect();
    let spans = log.spans("reconcile");
    assert_eq!(
        spans[0].1.level(),
        Level::ERROR,
        "the span has the level of the error, so no filter drops only the span"
    );
    let text: Vec<_> = errors
        .iter()
        .map(|event| {
            let span = &spans[event.span.expect("in the span of the reconcile")]
                .1
                .fields
                .0;
            [
                event.message(),
                &span["controller"],
                &span["request"],
                &span["attempt"],
                &event.fields.0["error"],
            ]
            .join("|")
        })
        .collect();
    assert_eq!(
        text,
        [
            "reconcile failed, retrying|test|\"a\"|1|no luck",
            "reconcile failed, not retrying|test|\"a\"|2|terminal failure: no retry until the next event: negative"
        ]
    );
    test.end().await;
}

fn policy(decide: impl Fn(&Error, u32) -> Retry + Send + Sync + 'static) -> Options {
    Options::default().on_error(decide)
}

#[tokio::test(start_paused = true)]
async fn a_policy_decides_when_the_request_is_retried() {
    for (retry, expected) in [
        (Retry::Limited, vec![5, 10]),
        (Retry::In(secs(3)), vec![5, 3_000]),
        (Retry::In(Duration::ZERO), vec![5, 0]),
        (Retry::Immediately, vec![5, 0]),
        (Retry::GiveUp, vec![5]),
    ] {
        // The limiter decides after the first failure.
        let options = policy(move |_, attempt| if attempt == 1 { Retry::Limited } else { retry });
        assert_eq!(
            delays(options, anyhow!("no luck")).await,
            expected,
            "{retry:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_gets_error_and_attempt_and_is_not_called_for_terminal_failures() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let options = policy({
        let calls = calls.clone();
        move |error, attempt| {
            calls.lock().push((format!("{error:#}"), attempt));
            Retry::Immediately
        }
    });
    let script = Script::new()
        .fail()
        .answer(Err(anyhow!("second")).context("trying"))
        .answer(Ok(Outcome::requeue()))
        .answer(Err(anyhow!("third")))
        .answer(Err(Failure::terminal(anyhow!("no")).into()));
    let test = TestController::run(builder().options(options), script);
    test.queue().add("a");
    advance(secs(1)).await;
    let expected = [("no luck", 1), ("trying: second", 2), ("third", 4)];
    assert_eq!(
        *calls.lock(),
        expected.map(|(text, attempt)| (text.to_owned(), attempt))
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_immediate_retry_counts_attempts_without_rate_limiting() {
    let mut script = Script::new();
    for _ in 0..20 {
        script = script.fail();
    }
    let test = TestController::run(
        builder().options(policy(|_, _| Retry::Immediately)),
        script.clone(),
    );
    test.queue().add("a");
    advance(secs(1)).await;
    assert_eq!(
        script.runs(),
        (1..=21).map(|attempt| (0, attempt)).collect::<Vec<_>>()
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn giving_up_is_counted_as_a_terminal_failure() {
    let script = Script::new().fail().fail().fail();
    let options = policy(|_, attempt| {
        if attempt >= 3 {
            Retry::GiveUp
        } else {
            Retry::Limited
        }
    });
    let test = TestController::run(builder().options(options), script.clone());
    test.queue().add("a");
    advance(secs(1)).await;
    assert_eq!(script.runs().len(), 3);
    assert_eq!((test.stats().terminal, test.stats().errors), (1, 3));
    assert!(
        test.queue().snapshot().is_empty(),
        "failed attempts are forgotten"
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_overrides_a_shorter_policy() {
    for retry in [Retry::Limited, Retry::In(ms(20)), Retry::Immediately] {
        let options = policy(move |_, _| retry);
        let delays = delays(options, Failure::retry(kube(busy(2))).after(secs(1)).into()).await;
        assert_eq!(delays.last(), Some(&2_000), "{retry:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_policy_falls_back_to_the_limiter() {
    let options = policy(|_, _| panic!("no idea"));
    let script = Script::new().fail().fail();
    let test = TestController::run(builder().options(options), script.clone());
    test.queue().add("a");
    advance(secs(1)).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3)]);
    assert_eq!(
        test.stats().panics,
        0,
        "only panics of the reconciler are counted"
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_keeps_the_priority_of_the_failure() {
    for retry in [Retry::Limited, Retry::In(ms(20)), Retry::Immediately] {
        let failure = Failure::retry(anyhow!("no luck")).priority(Priority::HIGH);
        let script = Script::new().answer(Err(failure.into()));
        let test =
            TestController::run(builder().options(policy(move |_, _| retry)), script.clone());
        test.queue().add("a");
        advance(secs(1)).await;
        assert_eq!(script.priorities(), [0, 100], "{retry:?}");
        test.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_is_found_in_transparent_errors() {
    let terminal = || Error::from(Failure::terminal(anyhow!("no")));
    for (name, error) in [
        ("bare", terminal()),
        ("as any", WrappingError::Any(terminal()).into()),
    ] {
        let test = TestController::run(builder(), Script::new().answer(Err(error)));
        test.queue().add("a");
        advance(secs(60)).await;
        assert_eq!(
            (
                test.stats().terminal,
                test.stats().errors,
                test.stats().success
            ),
            (1, 1, 0),
            "{name}"
        );
        test.end().await;
    }
}
