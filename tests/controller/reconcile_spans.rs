//! Tests of the span of each reconcile, and of its links to events.

use crate::{
    log_capture::{LogCapture, Span},
    test_controller::{
        Name, Script, TestController, advance, builder, manual_reconciler, ms, secs, settle,
    },
};
use k8s_openapi::api::core::v1::ConfigMap;
use std::collections::BTreeMap;
use steersman::{
    object::AnyKind, prelude::*, reconcile::ClusterRequest, reconcile::Context, source::Channel,
};

fn fields(span: &Span) -> BTreeMap<&str, &str> {
    span.fields
        .0
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect()
}

fn web() -> Object<AnyKind> {
    Object::named(ObjectKey::new("shop", "web"))
}

#[tokio::test(start_paused = true)]
async fn each_reconcile_has_a_span_with_its_fields() {
    let (log, _guard) = LogCapture::capture();
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(Controller::<Request>::builder("test"), reconciler);
    let add = |reason: &str| Add {
        reason: Some(reason.into()),
        ..Add::default()
    };
    test.queue()
        .add_with(Request::new("shop", "web"), add("one"));
    test.queue()
        .add_with(Request::new("shop", "web"), add("two"));
    let run = runs.next().await;
    let id = run.cx.id().to_string();
    run.fail();
    let again = runs.next().await;
    let spans = log.spans("reconcile");
    let [(_, first), (_, second)] = &spans[..] else {
        panic!("{spans:?}")
    };
    let expected = [
        ("attempt", "1"),
        ("controller", "test"),
        ("group", ""),
        ("kind", ""),
        ("name", "web"),
        ("namespace", "shop"),
        ("reasons", "one, two"),
        ("reconcile_id", id.as_str()),
    ];
    assert_eq!(fields(first), expected.into());
    assert_eq!(
        (fields(second)["attempt"], fields(second)["reconcile_id"]),
        ("2", again.cx.id().to_string().as_str())
    );
    again.done();
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_span_has_kind_and_cluster() {
    let (log, _guard) = LogCapture::capture();
    let (controller, task) = {
        let cache = {
            let config = Config::new("http://127.0.0.1:1".parse().unwrap());
            Cache::new(
                kube_client::Client::try_from(config).unwrap(),
                CacheOptions::default(),
            )
            .unwrap()
        };
        let watch = source::Watch::from(Select::<ConfigMap>::new()).optional();
        Controller::builder("maps")
            .cache(&cache)
            .for_with(watch)
            .build(Script::new())
            .unwrap()
    };
    let running = tokio::spawn(task.run_until(std::future::pending()));
    controller.queue().add(Request::new("shop", "web"));
    // The cache is not running, so its sync times out.
    advance(secs(121)).await;
    let spans = log.spans("reconcile");
    assert_eq!(
        (
            fields(&spans[0].1)["kind"],
            fields(&spans[0].1)["controller"]
        ),
        ("ConfigMap", "maps")
    );
    controller.stop().await;
    running.await.unwrap().unwrap();

    let test = TestController::run(builder(), Script::new());
    test.queue().add(ClusterRequest {
        cluster: "east".into(),
        request: Request::new("shop", "web"),
    });
    settle().await;
    let span = &log.spans("reconcile")[1].1;
    assert_eq!(
        (
            fields(span)["cluster"],
            fields(span)["namespace"],
            fields(span)["name"]
        ),
        ("east", "shop", "web")
    );
    test.end().await;

    let test: TestController = TestController::run(builder(), Script::new());
    test.queue().add("anything");
    settle().await;
    let span = &log.spans("reconcile")[2].1;
    assert_eq!(fields(span)["request"], "\"anything\"");
    assert!(!fields(span).contains_key("name"));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_reconcile_follows_from_those_of_its_events() {
    let (log, _guard) = LogCapture::capture();
    let (reconciler, mut runs) = manual_reconciler();
    let channel = Channel::new(8);
    let builder =
        Controller::<Request>::builder("test").watches_source(channel.source(handler::object()));
    let test = TestController::run(builder, reconciler);
    channel.send(web());
    let first = runs.next().await;
    channel.send(Object::named(ObjectKey::new("shop", "other")));
    channel.send(web());
    channel.send(web());
    settle().await;
    first.done();
    runs.next().await.done();
    runs.next().await.done();
    settle().await;
    let events: Vec<usize> = log
        .spans("event")
        .iter()
        .map(|(number, _)| *number)
        .collect();
    assert_eq!(fields(&log.spans("event")[0].1)["name"], "web");
    let follows: Vec<_> = log
        .spans("reconcile")
        .into_iter()
        .map(|(_, span)| (span.fields.0["name"].clone(), span.follows))
        .collect();
    assert_eq!(
        follows,
        [
            ("web".to_owned(), vec![events[0]]),
            ("other".to_owned(), vec![events[1]]),
            ("web".to_owned(), vec![events[2], events[3]]),
        ]
    );
    test.end().await;
    assert_eq!(log.open(), Vec::<&str>::new(), "all spans are closed");
}

#[tokio::test(start_paused = true)]
async fn links_to_event_spans_are_bounded_and_freed_with_the_controller() {
    let (log, _guard) = LogCapture::capture();
    let (reconciler, mut runs) = manual_reconciler();
    let channel = Channel::new(64);
    let builder =
        Controller::<Request>::builder("test").watches_source(channel.source(handler::object()));
    let test = TestController::run(builder, reconciler);
    channel.send(web());
    let first = runs.next().await;
    for _ in 0..20 {
        channel.send(web());
    }
    settle().await;
    assert_eq!(
        log.open().iter().filter(|name| **name == "event").count(),
        3,
        "the last three"
    );
    test.queue().cancel(&Request::new("shop", "web"));
    first.done();
    test.end().await;
    assert_eq!(log.open(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn logs_of_the_reconciler_and_of_its_error_are_in_the_span() {
    let (log, _guard) = LogCapture::capture();
    let reconciler = reconcile::from_fn(|_: Name, cx: Context| async move {
        tracing::info!(target: "steersman_test", "working");
        tokio::time::sleep(ms(1)).await;
        tracing::info!(target: "steersman_test", "still working");
        anyhow::ensure!(cx.attempt() > 1, "no luck");
        Ok(Outcome::done())
    });
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    advance(ms(5)).await;
    let span = log.spans("reconcile")[0].0;
    for message in ["working", "still working", "reconcile failed, retrying"] {
        let event = log
            .events()
            .into_iter()
            .find(|event| event.message() == message);
        assert_eq!(event.expect(message).span, Some(span), "{message}");
    }
    test.end().await;
}
