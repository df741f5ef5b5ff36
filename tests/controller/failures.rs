//! Errors that say how long to wait, conflicts, and a policy of the controller's own.

use crate::{
    log::Log,
    rig::{Rig, Script, builder, ms, pass, secs},
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

/// As a server that is busy says it.
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

/// What a program may have of its own.
#[derive(Debug, thiserror::Error)]
enum Own {
    #[error(transparent)]
    Kube(#[from] kube_client::Error),
    #[error("reading the website")]
    Reading(#[source] client::Error),
    #[error(transparent)]
    Ours(client::Error),
    #[error(transparent)]
    Any(Error),
}

/// What the server says, as it may come to a reconciler's caller.
fn said(status: &Status) -> Vec<(&'static str, Error)> {
    let (ours, theirs) = (|| client::Error::from(status.clone()), || kube(status.clone()));
    vec![
        ("ours", ours().into()),
        ("kube's", theirs().into()),
        ("ours in context", Error::from(ours()).context("reading").context("reconciling")),
        ("kube's in context", Error::from(theirs()).context("reading")),
        ("ours in another", Own::Reading(ours()).into()),
        ("kube's as another", Own::from(theirs()).into()),
        ("ours as another", Own::Ours(ours()).into()),
        ("ours as any", Own::Any(ours().into()).into()),
        ("ours from a closure", client::Error::Mutate(Box::new(ours())).into()),
        ("ours to be retried, as any", Own::Any(Failure::retry(ours()).into()).into()),
        ("ours to be retried", Failure::retry(ours()).into()),
        ("kube's to be retried, in context", Error::from(Failure::retry(theirs())).context("reading")),
    ]
}

/// How long after a first failure, and then after this one, the next run begins.
async fn delays(options: Options, answer: Error) -> Vec<u128> {
    let script = Script::new().fail().answer(Err(answer));
    let rig = Rig::run(builder().options(options), script.clone());
    rig.queue().add("a");
    pass(secs(3600)).await;
    rig.end().await;
    script.runs().windows(2).map(|runs| runs[1].0 - runs[0].0).collect()
}

#[tokio::test(start_paused = true)]
async fn an_error_with_retry_after_waits_at_least_that_long_whoever_it_comes_through() {
    for (name, error) in said(&busy(2)) {
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
    let rig = Rig::run(builder(), script.clone());
    rig.queue().add("a");
    pass(secs(60)).await;
    let runs = script.runs();
    assert_eq!(runs[11].0 - runs[10].0, 5 << 10, "the eleventh failure's");
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_waits_at_least_as_long_as_it_says_and_longer_if_the_server_says_so() {
    let cases: [(Error, u128); 5] = [
        (Failure::retry(anyhow!("no disk")).after(secs(7)).into(), 7_000),
        (Failure::retry(anyhow!("no disk")).after(ms(1)).into(), 10),
        (Error::from(Failure::retry(anyhow!("no disk")).after(secs(7))).context("mounting"), 7_000),
        (Failure::retry(kube(busy(2))).after(secs(7)).into(), 7_000),
        (Failure::retry(kube(busy(9))).after(secs(7)).into(), 9_000),
    ];
    for (error, expected) in cases {
        let text = format!("{error:?}");
        assert_eq!(delays(Options::default(), error).await, [5, expected], "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_capped_at_five_minutes_or_as_configured() {
    let capped = |cap| Options { max_retry_after: cap, ..Options::default() };
    for (cap, expected) in [(None, 300_000), (Some(secs(20)), 20_000), (Some(Duration::ZERO), 10)] {
        for (name, error) in said(&busy(u32::MAX)) {
            assert_eq!(delays(capped(cap), error).await, [5, expected], "{name}, {cap:?}");
        }
    }
    let own = Failure::retry(kube(busy(u32::MAX))).after(secs(1000));
    assert_eq!(delays(Options::default(), own.into()).await, [5, 1_000_000], "the reconciler's delay is not capped");
}

#[tokio::test(start_paused = true)]
async fn an_event_is_not_kept_waiting_by_retry_after() {
    let script = Script::new().answer(Err(kube(busy(60)).into()));
    let rig = Rig::run(builder(), script.clone());
    rig.queue().add("a");
    pass(secs(1)).await;
    rig.queue().add("a");
    pass(secs(100)).await;
    assert_eq!(script.runs(), [(0, 1), (1000, 2)]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_counted_apart_retried_by_the_limiter_and_logged_for_debugging_only() {
    for (name, error) in said(&conflict()) {
        let (log, _guard) = Log::here();
        let script = Script::new().answer(Err(error));
        let rig = Rig::run(builder(), script.clone());
        rig.queue().add("a");
        pass(secs(1)).await;
        assert_eq!(script.runs(), [(0, 1), (5, 2)], "{name}");
        let stats = rig.stats();
        assert_eq!((stats.conflicts, stats.errors, stats.terminal), (1, 1, 0), "{name}");
        let loud: Vec<_> = log.events().into_iter().filter(|event| event.level < Level::INFO).collect();
        assert!(loud.is_empty(), "{name}: {loud:?}");
        let quiet = log.events().into_iter().find(|event| event.message() == "conflict, to be retried");
        let quiet = quiet.unwrap_or_else(|| panic!("{name}: it is logged"));
        let span = &log.spans("reconcile")[0].1.fields.0;
        assert_eq!((quiet.level, span["controller"].as_str()), (Level::DEBUG, "test"));
        assert!(quiet.fields.0["error"].contains("the object has been modified"), "{name}: {quiet:?}");
        rig.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_exists_already_is_no_conflict() {
    let exists = || Status::failure("it exists", "AlreadyExists").with_code(409);
    let script = Script::new().answer(Err(kube(exists()).into())).answer(Err(client::Error::from(exists()).into()));
    let rig = Rig::run(builder(), script);
    rig.queue().add("a");
    pass(secs(1)).await;
    assert_eq!((rig.stats().conflicts, rig.stats().errors), (0, 2));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn errors_are_logged_as_errors_with_the_request_and_the_attempt() {
    let (log, _guard) = Log::here();
    let terminal = Failure::terminal(anyhow!("negative")).into();
    let rig = Rig::run(builder(), Script::new().fail().answer(Err(terminal)));
    rig.queue().add("a");
    pass(secs(1)).await;
    let errors: Vec<_> = log.events().into_iter().filter(|event| event.level == Level::ERROR).collect();
    let spans = log.spans("reconcile");
    assert_eq!(spans[0].1.level(), Level::ERROR, "no filter that lets the error pass hides whose it is");
    let text: Vec<_> = errors
        .iter()
        .map(|event| {
            let span = &spans[event.span.expect("it is within the run's")].1.fields.0;
            [event.message(), &span["controller"], &span["request"], &span["attempt"], &event.fields.0["error"]]
                .join("|")
        })
        .collect();
    assert_eq!(
        text,
        [
            "reconciler error|test|\"a\"|1|no luck",
            "reconciler error, not to be retried|test|\"a\"|2|terminal: not before something changes: negative"
        ]
    );
    rig.end().await;
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
        // The first failure is left to the limiter.
        let options = policy(move |_, attempt| if attempt == 1 { Retry::Limited } else { retry });
        assert_eq!(delays(options, anyhow!("no luck")).await, expected, "{retry:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_given_the_error_and_the_attempt_and_is_not_asked_about_terminal_failures() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let options = policy({
        let asked = asked.clone();
        move |error, attempt| {
            asked.lock().push((format!("{error:#}"), attempt));
            Retry::Immediately
        }
    });
    let script = Script::new()
        .fail()
        .answer(Err(anyhow!("second")).context("trying"))
        .answer(Ok(Outcome::requeue()))
        .answer(Err(anyhow!("third")))
        .answer(Err(Failure::terminal(anyhow!("no")).into()));
    let rig = Rig::run(builder().options(options), script);
    rig.queue().add("a");
    pass(secs(1)).await;
    let expected = [("no luck", 1), ("trying: second", 2), ("third", 4)];
    assert_eq!(*asked.lock(), expected.map(|(text, attempt)| (text.to_owned(), attempt)));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_retries_at_once_still_counts_attempts_and_is_not_rate_limited() {
    let mut script = Script::new();
    for _ in 0..20 {
        script = script.fail();
    }
    let rig = Rig::run(builder().options(policy(|_, _| Retry::Immediately)), script.clone());
    rig.queue().add("a");
    pass(secs(1)).await;
    assert_eq!(script.runs(), (1..=21).map(|attempt| (0, attempt)).collect::<Vec<_>>());
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_gives_up_is_as_a_terminal_failure() {
    let script = Script::new().fail().fail().fail();
    let options = policy(|_, attempt| if attempt >= 3 { Retry::GiveUp } else { Retry::Limited });
    let rig = Rig::run(builder().options(options), script.clone());
    rig.queue().add("a");
    pass(secs(1)).await;
    assert_eq!(script.runs().len(), 3);
    assert_eq!((rig.stats().terminal, rig.stats().errors), (1, 3));
    assert!(rig.queue().snapshot().is_empty(), "failed attempts are forgotten");
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_policy_is_faster_than_the_server_allows() {
    for retry in [Retry::Limited, Retry::In(ms(20)), Retry::Immediately] {
        let options = policy(move |_, _| retry);
        let delays = delays(options, Failure::retry(kube(busy(2))).after(secs(1)).into()).await;
        assert_eq!(delays.last(), Some(&2_000), "{retry:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_panics_has_no_opinion() {
    let options = policy(|_, _| panic!("no idea"));
    let script = Script::new().fail().fail();
    let rig = Rig::run(builder().options(options), script.clone());
    rig.queue().add("a");
    pass(secs(1)).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3)]);
    assert_eq!(rig.stats().panics, 0, "the reconciler's are counted");
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_keeps_the_priority_that_the_failure_wants() {
    for retry in [Retry::Limited, Retry::In(ms(20)), Retry::Immediately] {
        let failure = Failure::retry(anyhow!("no luck")).priority(Priority::HIGH);
        let script = Script::new().answer(Err(failure.into()));
        let rig = Rig::run(builder().options(policy(move |_, _| retry)), script.clone());
        rig.queue().add("a");
        pass(secs(1)).await;
        assert_eq!(script.priorities(), [0, 100], "{retry:?}");
        rig.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_is_one_whoever_is_transparent_for_it() {
    let terminal = || Error::from(Failure::terminal(anyhow!("no")));
    for (name, error) in [("bare", terminal()), ("as any", Own::Any(terminal()).into())] {
        let rig = Rig::run(builder(), Script::new().answer(Err(error)));
        rig.queue().add("a");
        pass(secs(60)).await;
        assert_eq!((rig.stats().terminal, rig.stats().errors, rig.stats().success), (1, 1, 0), "{name}");
        rig.end().await;
    }
}
