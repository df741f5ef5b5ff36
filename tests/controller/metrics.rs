//! Tests of the Prometheus metrics of controllers.
//!
//! They have controller-runtime's names and labels.

use crate::test_controller::{
    BareBuilder, Name, Script, TestController, advance, builder, idle_source, manual_reconciler,
    ms, secs, settle,
};
use anyhow::anyhow;
use kube_core::Status;
use prometheus_client::{encoding::text::encode, registry::Registry};
use std::collections::BTreeSet;
use steersman::{
    controller::{ControllerMetrics, Options},
    event::Event,
    handler::Enqueue,
    object::{AnyKind, Object},
    prelude::*,
    source::Channel,
};

struct Page {
    metrics: ControllerMetrics,
    registry: Registry,
}

impl Page {
    fn new() -> Self {
        let metrics = ControllerMetrics::default();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        Self { metrics, registry }
    }

    fn builder(&self) -> BareBuilder<Name> {
        builder().metrics(&self.metrics)
    }

    fn text(&self) -> String {
        let mut page = String::new();
        encode(&mut page, &self.registry).expect("metrics can be encoded");
        page
    }

    /// Returns the value of a series, which must occur exactly once.
    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        let text = self.text();
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        match lines.collect::<Vec<_>>()[..] {
            [value] => value.parse().expect("a number"),
            ref values => panic!("{series}: {values:?} in\n{text}"),
        }
    }

    #[track_caller]
    fn assert(&self, expected: &[(&str, f64)]) {
        for (series, expected) in expected {
            let value = self.value(series);
            assert!(
                (value - expected).abs() < 1e-9,
                "{series}: {value} instead of {expected}"
            );
        }
    }

    /// Returns name and type of every metric.
    fn types(&self) -> BTreeSet<String> {
        self.text()
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .map(str::to_owned)
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn all_series_exist_before_the_first_reconcile() {
    let page = Page::new();
    let test = TestController::run(page.builder(), Script::new());
    settle().await;
    for result in ["success", "error", "requeue", "requeue_after"] {
        let series =
            format!(r#"controller_runtime_reconcile_total{{controller="test",result="{result}"}}"#);
        page.assert(&[(&series, 0.0)]);
    }
    page.assert(&[
        (
            r#"controller_runtime_reconcile_errors_total{controller="test"}"#,
            0.0,
        ),
        (
            r#"controller_runtime_terminal_reconcile_errors_total{controller="test"}"#,
            0.0,
        ),
        (
            r#"controller_runtime_reconcile_panics_total{controller="test"}"#,
            0.0,
        ),
        (
            r#"controller_runtime_reconcile_timeouts_total{controller="test"}"#,
            0.0,
        ),
        (
            r#"controller_runtime_reconcile_time_seconds_count{controller="test"}"#,
            0.0,
        ),
        (
            r#"controller_runtime_max_concurrent_reconciles{controller="test"}"#,
            1.0,
        ),
        (
            r#"controller_runtime_active_workers{controller="test"}"#,
            0.0,
        ),
        (
            r#"workqueue_depth{name="test",controller="test",priority="0"}"#,
            0.0,
        ),
    ]);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn names_and_types_are_those_of_controller_runtime() {
    let page = Page::new();
    let test = TestController::run(page.builder(), Script::new());
    settle().await;
    let upstream = [
        "controller_runtime_reconcile counter",
        "controller_runtime_reconcile_errors counter",
        "controller_runtime_terminal_reconcile_errors counter",
        "controller_runtime_reconcile_panics counter",
        "controller_runtime_reconcile_timeouts counter",
        "controller_runtime_reconcile_time_seconds histogram",
        "controller_runtime_max_concurrent_reconciles gauge",
        "controller_runtime_active_workers gauge",
        "workqueue_depth gauge",
        "workqueue_adds counter",
        "workqueue_retries counter",
        "workqueue_queue_duration_seconds histogram",
        "workqueue_work_duration_seconds histogram",
        "workqueue_unfinished_work_seconds gauge",
        "workqueue_longest_running_processor_seconds gauge",
    ];
    let (ours, theirs): (BTreeSet<String>, BTreeSet<String>) = page
        .types()
        .into_iter()
        .partition(|name| name.starts_with("steersman_"));
    assert_eq!(theirs, upstream.map(str::to_owned).into());
    assert!(
        ours.contains("steersman_controller_conflicts counter"),
        "{ours:?}"
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_result_of_a_reconcile_is_counted() {
    let page = Page::new();
    let conflict = || client_error("Conflict");
    let script = Script::new()
        .answer(Ok(Outcome::requeue_after(ms(1))))
        .answer(Ok(Outcome::requeue()))
        .fail()
        .answer_with(|| panic!("no"))
        .answer_with(move || Err(conflict()))
        .answer(Err(Failure::terminal(anyhow!("no")).into()));
    let test = TestController::run(page.builder(), script);
    test.queue().add("a");
    advance(secs(10)).await;
    test.queue().add("a");
    settle().await;
    page.assert(&[
        (
            r#"controller_runtime_reconcile_total{controller="test",result="success"}"#,
            1.0,
        ),
        (
            r#"controller_runtime_reconcile_total{controller="test",result="error"}"#,
            4.0,
        ),
        (
            r#"controller_runtime_reconcile_total{controller="test",result="requeue"}"#,
            1.0,
        ),
        (
            r#"controller_runtime_reconcile_total{controller="test",result="requeue_after"}"#,
            1.0,
        ),
        (
            r#"controller_runtime_reconcile_errors_total{controller="test"}"#,
            4.0,
        ),
        (
            r#"controller_runtime_terminal_reconcile_errors_total{controller="test"}"#,
            1.0,
        ),
        (
            r#"controller_runtime_reconcile_panics_total{controller="test"}"#,
            1.0,
        ),
        (
            r#"steersman_controller_conflicts_total{controller="test"}"#,
            1.0,
        ),
        (
            r#"controller_runtime_reconcile_time_seconds_count{controller="test"}"#,
            7.0,
        ),
        (
            r#"workqueue_work_duration_seconds_count{name="test",controller="test"}"#,
            7.0,
        ),
    ]);
    test.end().await;
}

fn client_error(reason: &str) -> anyhow::Error {
    steersman::client::Error::from(Status::failure("no", reason)).into()
}

#[tokio::test(start_paused = true)]
async fn metrics_include_active_workers_and_reconcile_times() {
    let page = Page::new();
    let (reconciler, mut runs) = manual_reconciler();
    let options = Options {
        reconcile_timeout: Some(secs(20)),
        ..Options::default()
    };
    let test = TestController::run(
        page.builder().max_concurrent(3).options(options),
        reconciler,
    );
    for name in ["a", "b", "c", "d"] {
        test.queue().add(name);
    }
    let (first, _second, _third) = (runs.next().await, runs.next().await, runs.next().await);
    page.assert(&[
        (
            r#"controller_runtime_max_concurrent_reconciles{controller="test"}"#,
            3.0,
        ),
        (
            r#"controller_runtime_active_workers{controller="test"}"#,
            3.0,
        ),
        (
            r#"workqueue_depth{name="test",controller="test",priority="0"}"#,
            1.0,
        ),
    ]);
    advance(ms(1_800)).await;
    page.assert(&[(
        r#"workqueue_longest_running_processor_seconds{name="test",controller="test"}"#,
        1.8,
    )]);
    first.done();
    settle().await;
    page.assert(&[
        (
            r#"controller_runtime_reconcile_time_seconds_bucket{le="1.75",controller="test"}"#,
            0.0,
        ),
        (
            r#"controller_runtime_reconcile_time_seconds_bucket{le="2.0",controller="test"}"#,
            1.0,
        ),
        (
            r#"controller_runtime_reconcile_time_seconds_bucket{le="60.0",controller="test"}"#,
            1.0,
        ),
        (
            r#"controller_runtime_reconcile_time_seconds_bucket{le="+Inf",controller="test"}"#,
            1.0,
        ),
        (
            r#"controller_runtime_reconcile_time_seconds_sum{controller="test"}"#,
            1.8,
        ),
    ]);
    test.set_max_concurrent(7);
    page.assert(&[(
        r#"controller_runtime_max_concurrent_reconciles{controller="test"}"#,
        7.0,
    )]);
    advance(secs(19)).await;
    page.assert(&[(
        r#"controller_runtime_reconcile_timeouts_total{controller="test"}"#,
        2.0,
    )]);
    drop(runs);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_series_of_a_stopped_controller_disappear() {
    let page = Page::new();
    let test = TestController::run(
        page.builder().watches_source(idle_source("ticker")),
        Script::new(),
    );
    settle().await;
    assert!(page.text().contains("test"));
    let handle = test.clone();
    test.end().await;
    assert_eq!(
        page.text(),
        "# EOF\n",
        "the series of the queue disappear, too"
    );
    assert_eq!(handle.stats().success, 0);

    let (handle, task) = page.builder().build(Script::new()).unwrap();
    assert!(page.text().contains("test"));
    drop(task);
    assert_eq!(page.text(), "# EOF\n", "a controller that never ran");
    drop(handle);
}

#[tokio::test(start_paused = true)]
async fn the_last_controller_of_a_name_is_in_the_metrics() {
    let page = Page::new();
    let one = TestController::run(page.builder().max_concurrent(1), Script::new());
    let two = TestController::run(page.builder().max_concurrent(2), Script::new());
    page.assert(&[(
        r#"controller_runtime_max_concurrent_reconciles{controller="test"}"#,
        2.0,
    )]);
    two.end().await;
    one.end().await;
}

#[tokio::test(start_paused = true)]
async fn metrics_of_sources_with_the_same_name_are_summed() {
    let page = Page::new();
    let (one, two) = (
        Channel::<steersman::object::AnyKind>::new(8),
        Channel::new(8),
    );
    let rejecting = predicate::from_fn(|_: &Event| false);
    let builder = Controller::<Request>::builder("test").metrics(&page.metrics);
    let builder = builder.watches_source(one.source(handler::object()));
    let builder = builder.watches_source(two.source(handler::object()).filter(rejecting));
    let test = TestController::run(builder, Script::new());
    settle().await;
    for channel in [&one, &two, &two] {
        channel.send(Object::named(ObjectKey::new("shop", "web")));
    }
    settle().await;
    page.assert(&[
        (
            r#"steersman_source_events_total{controller="test",source="channel source"}"#,
            3.0,
        ),
        (
            r#"steersman_source_dropped_total{controller="test",source="channel source"}"#,
            2.0,
        ),
        (
            r#"steersman_source_panics_total{controller="test",source="channel source"}"#,
            0.0,
        ),
        (
            r#"steersman_source_failures_total{controller="test",source="channel source"}"#,
            0.0,
        ),
    ]);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_report_can_be_serialized() {
    let test: TestController = TestController::run(
        builder().watches_source(idle_source("ticker")),
        Script::new().fail(),
    );
    test.queue().add("a");
    settle().await;
    let report = serde_json::to_value(test.report()).unwrap();
    assert_eq!(
        (&report["name"], &report["max_concurrent"]),
        (&"test".into(), &1.into())
    );
    assert_eq!(
        (&report["stats"]["errors"], &report["queue"]["delayed"]),
        (&1.into(), &1.into())
    );
    assert_eq!(
        (
            &report["watches"][0]["name"],
            &report["watches"][0]["state"]
        ),
        (&"ticker".into(), &"synced".into())
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn counters_of_a_source_name_do_not_decrease_when_one_of_its_watches_stops() {
    let page = Page::new();
    let test = TestController::run(page.builder(), Script::new());
    let (one, two) = (Channel::<AnyKind>::new(8), Channel::<AnyKind>::new(8));
    let handler = || handler::from_fn(|_: &Event<AnyKind>, queue: &Enqueue<Name>| queue.add("a"));
    let first = test
        .watch(one.source(handler()))
        .expect("the watch is added");
    let second = test
        .watch(two.source(handler()))
        .expect("the watch is added");
    for channel in [&one, &one, &two] {
        channel.send(Object::named(ObjectKey::new("shop", "web")));
    }
    settle().await;
    let series = format!(
        r#"steersman_source_events_total{{controller="test",source="{}"}}"#,
        first.name()
    );
    page.assert(&[(&series, 3.0)]);
    first.stop().await;
    page.assert(&[(&series, 3.0)]);
    let third = test
        .watch(one.source(handler()))
        .expect("the watch is added");
    second.stop().await;
    page.assert(&[(&series, 3.0)]);
    third.stop().await;
    assert!(
        !page.text().contains("steersman_source_events_total{"),
        "the series disappears with the last watch"
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_stuck_when_it_runs_for_longer_than_stuck_after() {
    const STUCK: &str = r#"steersman_controller_stuck_reconciles{controller="test"}"#;
    for (options, limit) in [
        (Options::default(), 600),
        (
            Options {
                stuck_after: Some(secs(30)),
                ..Options::default()
            },
            30,
        ),
    ] {
        let (page, (reconciler, mut runs)) = (Page::new(), manual_reconciler());
        let test = TestController::run(
            page.builder().max_concurrent(2).options(options),
            reconciler,
        );
        test.queue().add("a");
        let first = runs.next().await;
        advance(secs(10)).await;
        test.queue().add("b");
        let second = runs.next().await;
        advance(secs(limit - 10)).await;
        page.assert(&[(STUCK, 0.0)]);
        advance(secs(10)).await;
        page.assert(&[(STUCK, 1.0)]);
        advance(secs(10)).await;
        page.assert(&[(STUCK, 2.0)]);
        let stuck: Vec<_> = test
            .report()
            .stuck
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            stuck,
            [
                format!("\"a\" for {} s", limit + 20),
                format!("\"b\" for {} s", limit + 10)
            ]
        );
        first.done();
        settle().await;
        page.assert(&[(STUCK, 1.0)]);
        second.done();
        test.end().await;
    }
}
