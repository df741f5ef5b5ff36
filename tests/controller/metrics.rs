//! The Prometheus page of controllers: upstream's names and labels.

use crate::rig::{Bare, Name, Rig, Script, builder, by_hand, ms, pass, quiet, secs, settle};
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

    fn builder(&self) -> Bare<Name> {
        builder().metrics(&self.metrics)
    }

    fn text(&self) -> String {
        let mut page = String::new();
        encode(&mut page, &self.registry).expect("it can be encoded");
        page
    }

    /// The value of a series, which must be there once.
    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        let text = self.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        match lines.collect::<Vec<_>>()[..] {
            [value] => value.parse().expect("a number"),
            ref values => panic!("{series}: {values:?} in\n{text}"),
        }
    }

    #[track_caller]
    fn assert(&self, expected: &[(&str, f64)]) {
        for (series, expected) in expected {
            let value = self.value(series);
            assert!((value - expected).abs() < 1e-9, "{series}: {value} instead of {expected}");
        }
    }

    /// Name and type of every metric on the page.
    fn types(&self) -> BTreeSet<String> {
        self.text().lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn all_results_are_there_before_the_first_run() {
    let page = Page::new();
    let rig = Rig::run(page.builder(), Script::new());
    settle().await;
    for result in ["success", "error", "requeue", "requeue_after"] {
        let series = format!(r#"controller_runtime_reconcile_total{{controller="test",result="{result}"}}"#);
        page.assert(&[(&series, 0.0)]);
    }
    page.assert(&[
        (r#"controller_runtime_reconcile_errors_total{controller="test"}"#, 0.0),
        (r#"controller_runtime_terminal_reconcile_errors_total{controller="test"}"#, 0.0),
        (r#"controller_runtime_reconcile_panics_total{controller="test"}"#, 0.0),
        (r#"controller_runtime_reconcile_timeouts_total{controller="test"}"#, 0.0),
        (r#"controller_runtime_reconcile_time_seconds_count{controller="test"}"#, 0.0),
        (r#"controller_runtime_max_concurrent_reconciles{controller="test"}"#, 1.0),
        (r#"controller_runtime_active_workers{controller="test"}"#, 0.0),
        (r#"workqueue_depth{name="test",controller="test",priority="0"}"#, 0.0),
    ]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn names_and_types_are_upstreams() {
    let page = Page::new();
    let rig = Rig::run(page.builder(), Script::new());
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
    let (ours, theirs): (BTreeSet<String>, BTreeSet<String>) =
        page.types().into_iter().partition(|name| name.starts_with("steersman_"));
    assert_eq!(theirs, upstream.map(str::to_owned).into());
    assert!(ours.contains("steersman_controller_conflicts counter"), "{ours:?}");
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_end_of_a_run_is_counted_as_what_it_is() {
    let page = Page::new();
    let conflict = || client_error("Conflict");
    let script = Script::new()
        .answer(Ok(Outcome::requeue_after(ms(1))))
        .answer(Ok(Outcome::requeue()))
        .fail()
        .say(|| panic!("no"))
        .say(move || Err(conflict()))
        .answer(Err(Failure::terminal(anyhow!("no")).into()));
    let rig = Rig::run(page.builder(), script);
    rig.queue().add("a");
    pass(secs(10)).await;
    rig.queue().add("a");
    settle().await;
    page.assert(&[
        (r#"controller_runtime_reconcile_total{controller="test",result="success"}"#, 1.0),
        (r#"controller_runtime_reconcile_total{controller="test",result="error"}"#, 4.0),
        (r#"controller_runtime_reconcile_total{controller="test",result="requeue"}"#, 1.0),
        (r#"controller_runtime_reconcile_total{controller="test",result="requeue_after"}"#, 1.0),
        (r#"controller_runtime_reconcile_errors_total{controller="test"}"#, 4.0),
        (r#"controller_runtime_terminal_reconcile_errors_total{controller="test"}"#, 1.0),
        (r#"controller_runtime_reconcile_panics_total{controller="test"}"#, 1.0),
        (r#"steersman_controller_conflicts_total{controller="test"}"#, 1.0),
        (r#"controller_runtime_reconcile_time_seconds_count{controller="test"}"#, 7.0),
        (r#"workqueue_work_duration_seconds_count{name="test",controller="test"}"#, 7.0),
    ]);
    rig.end().await;
}

fn client_error(reason: &str) -> anyhow::Error {
    steersman::client::Error::from(Status::failure("no", reason)).into()
}

#[tokio::test(start_paused = true)]
async fn runs_and_how_long_they_take_are_shown() {
    let page = Page::new();
    let (reconciler, mut runs) = by_hand();
    let options = Options { reconcile_timeout: Some(secs(20)), ..Options::default() };
    let rig = Rig::run(page.builder().max_concurrent(3).options(options), reconciler);
    for name in ["a", "b", "c", "d"] {
        rig.queue().add(name);
    }
    let (first, _second, _third) = (runs.next().await, runs.next().await, runs.next().await);
    page.assert(&[
        (r#"controller_runtime_max_concurrent_reconciles{controller="test"}"#, 3.0),
        (r#"controller_runtime_active_workers{controller="test"}"#, 3.0),
        (r#"workqueue_depth{name="test",controller="test",priority="0"}"#, 1.0),
    ]);
    pass(ms(1_800)).await;
    page.assert(&[(r#"workqueue_longest_running_processor_seconds{name="test",controller="test"}"#, 1.8)]);
    first.done();
    settle().await;
    page.assert(&[
        (r#"controller_runtime_reconcile_time_seconds_bucket{le="1.75",controller="test"}"#, 0.0),
        (r#"controller_runtime_reconcile_time_seconds_bucket{le="2.0",controller="test"}"#, 1.0),
        (r#"controller_runtime_reconcile_time_seconds_bucket{le="60.0",controller="test"}"#, 1.0),
        (r#"controller_runtime_reconcile_time_seconds_bucket{le="+Inf",controller="test"}"#, 1.0),
        (r#"controller_runtime_reconcile_time_seconds_sum{controller="test"}"#, 1.8),
    ]);
    rig.set_max_concurrent(7);
    page.assert(&[(r#"controller_runtime_max_concurrent_reconciles{controller="test"}"#, 7.0)]);
    pass(secs(19)).await;
    page.assert(&[(r#"controller_runtime_reconcile_timeouts_total{controller="test"}"#, 2.0)]);
    drop(runs);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_series_of_a_controller_that_has_ended_are_gone_though_its_handle_lives() {
    let page = Page::new();
    let rig = Rig::run(page.builder().watches_source(quiet("ticker")), Script::new());
    settle().await;
    assert!(page.text().contains("test"));
    let handle = rig.clone();
    rig.end().await;
    assert_eq!(page.text(), "# EOF\n", "those of its queue, too");
    assert_eq!(handle.stats().success, 0);

    let (handle, task) = page.builder().build(Script::new()).unwrap();
    assert!(page.text().contains("test"));
    drop(task);
    assert_eq!(page.text(), "# EOF\n", "it never ran");
    drop(handle);
}

#[tokio::test(start_paused = true)]
async fn of_controllers_with_one_name_the_last_is_shown() {
    let page = Page::new();
    let one = Rig::run(page.builder().max_concurrent(1), Script::new());
    let two = Rig::run(page.builder().max_concurrent(2), Script::new());
    page.assert(&[(r#"controller_runtime_max_concurrent_reconciles{controller="test"}"#, 2.0)]);
    two.end().await;
    one.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_source_has_its_numbers_and_those_with_one_name_are_added_up() {
    let page = Page::new();
    let (one, two) = (Channel::<steersman::object::AnyKind>::new(8), Channel::new(8));
    let deaf = predicate::from_fn(|_: &Event| false);
    let builder = Controller::<Request>::builder("test").metrics(&page.metrics);
    let builder = builder.watches_source(one.source(handler::object()));
    let builder = builder.watches_source(two.source(handler::object()).filter(deaf));
    let rig = Rig::run(builder, Script::new());
    settle().await;
    for channel in [&one, &two, &two] {
        channel.send(Object::named(ObjectKey::new("shop", "web")));
    }
    settle().await;
    page.assert(&[
        (r#"steersman_source_events_total{controller="test",source="channel source"}"#, 3.0),
        (r#"steersman_source_dropped_total{controller="test",source="channel source"}"#, 2.0),
        (r#"steersman_source_panics_total{controller="test",source="channel source"}"#, 0.0),
        (r#"steersman_source_failures_total{controller="test",source="channel source"}"#, 0.0),
    ]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_report_is_json() {
    let rig: Rig = Rig::run(builder().watches_source(quiet("ticker")), Script::new().fail());
    rig.queue().add("a");
    settle().await;
    let report = serde_json::to_value(rig.report()).unwrap();
    assert_eq!((&report["name"], &report["max_concurrent"]), (&"test".into(), &1.into()));
    assert_eq!((&report["stats"]["errors"], &report["queue"]["delayed"]), (&1.into(), &1.into()));
    assert_eq!((&report["watches"][0]["name"], &report["watches"][0]["state"]), (&"ticker".into(), &"synced".into()));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_numbers_of_a_source_do_not_fall_when_one_of_two_watches_of_its_name_stops() {
    let page = Page::new();
    let rig = Rig::run(page.builder(), Script::new());
    let (one, two) = (Channel::<AnyKind>::new(8), Channel::<AnyKind>::new(8));
    let told = || handler::from_fn(|_: &Event<AnyKind>, queue: &Enqueue<Name>| queue.add("a"));
    let first = rig.watch(one.source(told())).expect("it is watched");
    let second = rig.watch(two.source(told())).expect("it is watched");
    for channel in [&one, &one, &two] {
        channel.send(Object::named(ObjectKey::new("shop", "web")));
    }
    settle().await;
    let series = format!(r#"steersman_source_events_total{{controller="test",source="{}"}}"#, first.name());
    page.assert(&[(&series, 3.0)]);
    first.stop().await;
    page.assert(&[(&series, 3.0)]);
    let third = rig.watch(one.source(told())).expect("it is watched");
    second.stop().await;
    page.assert(&[(&series, 3.0)]);
    third.stop().await;
    assert!(!page.text().contains("steersman_source_events_total{"), "with the last one the series is gone");
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_stuck_when_it_runs_for_longer_than_stuck_after() {
    const STUCK: &str = r#"steersman_controller_stuck_reconciles{controller="test"}"#;
    for (options, limit) in
        [(Options::default(), 600), (Options { stuck_after: Some(secs(30)), ..Options::default() }, 30)]
    {
        let (page, (reconciler, mut runs)) = (Page::new(), by_hand());
        let rig = Rig::run(page.builder().max_concurrent(2).options(options), reconciler);
        rig.queue().add("a");
        let first = runs.next().await;
        pass(secs(10)).await;
        rig.queue().add("b");
        let second = runs.next().await;
        pass(secs(limit - 10)).await;
        page.assert(&[(STUCK, 0.0)]);
        pass(secs(10)).await;
        page.assert(&[(STUCK, 1.0)]);
        pass(secs(10)).await;
        page.assert(&[(STUCK, 2.0)]);
        let stuck: Vec<_> = rig.report().stuck.iter().map(ToString::to_string).collect();
        assert_eq!(stuck, [format!("\"a\" for {} s", limit + 20), format!("\"b\" for {} s", limit + 10)]);
        first.done();
        settle().await;
        page.assert(&[(STUCK, 1.0)]);
        second.done();
        rig.end().await;
    }
}
