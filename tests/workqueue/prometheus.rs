//! Tests of the Prometheus metrics, with controller-runtime's names and labels.

use crate::support::{at, ms, run, secs, take};
use prometheus_client::{encoding::text::encode, registry::Registry};
use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock, mpsc},
    task::{Context, Wake, Waker},
    thread,
};
use steersman::workqueue::{Add, Limiter, Outcome, Prometheus, QueueOptions, WorkQueue};
use tokio::{runtime, time::advance};

fn queue(metrics: &Prometheus, name: &str) -> WorkQueue<&'static str> {
    WorkQueue::new(QueueOptions {
        name: name.into(),
        share: 0,
        metrics: Some(Arc::new(metrics.clone())),
        ..QueueOptions::default()
    })
}

struct Page {
    metrics: Prometheus,
    registry: Registry,
}

impl Page {
    fn new() -> Self {
        let metrics = Prometheus::default();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        Self { metrics, registry }
    }

    fn queue(&self, name: &str) -> WorkQueue<&'static str> {
        queue(&self.metrics, name)
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
        let values: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix(series))
            .filter_map(|rest| rest.strip_prefix(' '))
            .collect();
        match values.as_slice() {
            [value] => value.parse().expect("a number"),
            values => panic!("{series}: {values:?} in\n{text}"),
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
}

#[test]
fn names_types_and_labels_are_those_of_controller_runtime() {
    let page = Page::new();
    let queue = page.queue("site");
    queue.add("a");
    run(&queue, &"a");
    let text = page.text();
    for (name, kind, suffix, labels) in [
        ("workqueue_depth", "gauge", "", "controller,name,priority"),
        ("workqueue_adds", "counter", "_total", "controller,name"),
        ("workqueue_retries", "counter", "_total", "controller,name"),
        (
            "workqueue_queue_duration_seconds",
            "histogram",
            "_count",
            "controller,name",
        ),
        (
            "workqueue_work_duration_seconds",
            "histogram",
            "_count",
            "controller,name",
        ),
        (
            "workqueue_unfinished_work_seconds",
            "gauge",
            "",
            "controller,name",
        ),
        (
            "workqueue_longest_running_processor_seconds",
            "gauge",
            "",
            "controller,name",
        ),
    ] {
        assert!(
            text.contains(&format!("# TYPE {name} {kind}\n")),
            "{name} in\n{text}"
        );
        let start = format!("{name}{suffix}{{");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .expect(name);
        let (pairs, _) = line.split_once('}').expect("labels end");
        let keys: BTreeSet<&str> = pairs
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|pair| pair.0)
            .collect();
        assert_eq!(
            keys.into_iter().collect::<Vec<_>>().join(","),
            labels,
            "{name}"
        );
        assert!(
            pairs.contains(r#"name="site""#) && pairs.contains(r#"controller="site""#),
            "{pairs}"
        );
    }
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let own = names.filter(|name| !name.starts_with("workqueue_")).count();
    let prefixed = text
        .lines()
        .filter(|line| line.starts_with("# TYPE steersman_workqueue_"))
        .count();
    assert_eq!(
        own, prefixed,
        "what upstream does not have carries our name"
    );
}

// controller-runtime's buckets: 12, exponential from 10 ns with factor 10.
#[tokio::test(start_paused = true)]
async fn histograms_have_upstreams_buckets_and_are_cumulative() {
    let page = Page::new();
    let queue = page.queue("site");
    for wait in [0, 5, 50] {
        queue.add("a");
        advance(ms(wait)).await;
        run(&queue, &"a");
    }
    let text = page.text();
    let buckets: Vec<(f64, u64)> = text
        .lines()
        .filter(|line| line.starts_with("workqueue_queue_duration_seconds_bucket"))
        .map(|line| {
            let (_, rest) = line.split_once("le=\"").expect("a bound");
            let (bound, rest) = rest.split_once('"').expect("a bound ends");
            let (_, count) = rest.split_once("} ").expect("a value");
            (
                bound.parse().unwrap_or(f64::INFINITY),
                count.parse().expect("a count"),
            )
        })
        .collect();
    let bounds = std::iter::successors(Some(1e-8), |bound| Some(bound * 10.0)).take(12);
    assert_eq!(buckets.len(), 13);
    assert!(
        buckets
            .iter()
            .zip(bounds)
            .all(|((bound, _), expected)| (bound / expected - 1.0).abs() < 1e-9),
        "{buckets:?}"
    );
    assert!(buckets[12].0.is_infinite());
    let counts: Vec<u64> = buckets.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3]);
    page.assert(&[
        (
            r#"workqueue_queue_duration_seconds_sum{name="site",controller="site"}"#,
            0.055,
        ),
        (
            r#"workqueue_queue_duration_seconds_count{name="site",controller="site"}"#,
            3.0,
        ),
    ]);
}

#[tokio::test(start_paused = true)]
async fn metrics_follow_the_operations() {
    let page = Page::new();
    let queue = page.queue("site");
    queue.add_with("low", at(-100));
    queue.add_with("high", at(1000));
    queue.add_after("delayed", ms(70));
    advance(ms(20)).await;
    let item = take(&queue);
    for _ in 0..5 {
        queue.add("high");
    }
    advance(ms(30)).await;
    queue.add_with("low", at(0));
    page.assert(&[
        (
            r#"workqueue_depth{name="site",controller="site",priority="-100"}"#,
            0.0,
        ),
        (
            r#"workqueue_depth{name="site",controller="site",priority="0"}"#,
            2.0,
        ),
        (
            r#"workqueue_depth{name="site",controller="site",priority="100"}"#,
            0.0,
        ),
        (
            r#"workqueue_adds_total{name="site",controller="site"}"#,
            3.0,
        ),
        (
            r#"workqueue_retries_total{name="site",controller="site"}"#,
            1.0,
        ),
        (
            r#"workqueue_queue_duration_seconds_sum{name="site",controller="site"}"#,
            0.02,
        ),
        (
            r#"workqueue_work_duration_seconds_count{name="site",controller="site"}"#,
            0.0,
        ),
        (
            r#"workqueue_unfinished_work_seconds{name="site",controller="site"}"#,
            0.03,
        ),
        (
            r#"workqueue_longest_running_processor_seconds{name="site",controller="site"}"#,
            0.03,
        ),
        (
            r#"steersman_workqueue_oldest_seconds{name="site",controller="site",priority="0"}"#,
            0.05,
        ),
        (
            r#"steersman_workqueue_rejected_total{name="site",controller="site"}"#,
            0.0,
        ),
    ]);
    item.finish(Outcome::done());
    queue.close();
    queue.add("late");
    page.assert(&[
        (
            r#"workqueue_depth{name="site",controller="site",priority="0"}"#,
            0.0,
        ),
        (
            r#"workqueue_work_duration_seconds_sum{name="site",controller="site"}"#,
            0.03,
        ),
        (
            r#"workqueue_unfinished_work_seconds{name="site",controller="site"}"#,
            0.0,
        ),
        (
            r#"steersman_workqueue_rejected_total{name="site",controller="site"}"#,
            1.0,
        ),
    ]);
}

/// controller-runtime drops the label beyond 25 priorities.
#[test]
fn all_priorities_share_three_series_per_queue() {
    let page = Page::new();
    let queue: WorkQueue<i32> = WorkQueue::new(QueueOptions {
        name: "site".into(),
        metrics: Some(Arc::new(page.metrics.clone())),
        ..QueueOptions::default()
    });
    for priority in -200..=200 {
        queue.add_with(priority, at(priority));
    }
    queue.add_with(1000, at(i32::MAX));
    queue.add_with(1001, at(i32::MIN));
    assert_eq!(
        page.text()
            .lines()
            .filter(|line| line.starts_with("workqueue_depth{"))
            .count(),
        3
    );
    page.assert(&[
        (
            r#"workqueue_depth{name="site",controller="site",priority="-100"}"#,
            151.0,
        ),
        (
            r#"workqueue_depth{name="site",controller="site",priority="0"}"#,
            100.0,
        ),
        (
            r#"workqueue_depth{name="site",controller="site",priority="100"}"#,
            152.0,
        ),
    ]);
}

#[test]
fn the_series_of_a_queue_vanish_with_it() {
    let page = Page::new();
    let (first, second) = (page.queue("first"), page.queue("second"));
    assert!(page.text().contains("first") && page.text().contains("second"));
    drop(first);
    assert!(!page.text().contains("first") && page.text().contains("second"));
    drop(second);
    assert!(!page.text().contains("workqueue"), "{}", page.text());
}

#[test]
fn a_new_queue_of_the_same_name_replaces_the_old_one() {
    let page = Page::new();
    let queue = page.queue("site");
    queue.add("a");
    drop(queue);
    let queue = page.queue("site");
    page.assert(&[(
        r#"workqueue_adds_total{name="site",controller="site"}"#,
        0.0,
    )]);
    drop(queue);
}

#[test]
fn a_queue_without_a_name_has_no_series() {
    let page = Page::new();
    let queue = page.queue("");
    queue.add("a");
    assert!(!page.text().contains("workqueue"), "{}", page.text());
}

#[test]
fn queues_of_one_registry_have_separate_series() {
    let page = Page::new();
    let (first, second) = (page.queue("first"), page.queue("second"));
    first.add("a");
    second.add("a");
    second.add("b");
    page.assert(&[
        (
            r#"workqueue_adds_total{name="first",controller="first"}"#,
            1.0,
        ),
        (
            r#"workqueue_adds_total{name="second",controller="second"}"#,
            2.0,
        ),
    ]);
    assert_eq!(
        page.text().matches("# TYPE workqueue_adds counter").count(),
        1
    );
}

#[test]
fn a_panicking_limiter_is_counted() {
    let page = Page::new();
    let queue = WorkQueue::new(QueueOptions {
        name: "site".into(),
        limiter: Limiter::new(|_: &&str, _, _| std::panic::resume_unwind(Box::new("fails"))),
        metrics: Some(Arc::new(page.metrics.clone())),
        ..QueueOptions::default()
    });
    queue.add_with(
        "a",
        Add {
            rate_limited: true,
            ..Add::default()
        },
    );
    page.assert(&[(
        r#"steersman_workqueue_limiter_panics_total{name="site",controller="site"}"#,
        1.0,
    )]);
}

#[test]
fn special_characters_in_names_are_escaped() {
    let page = Page::new();
    let queue = page.queue("a\"b\\c\nd");
    queue.add("a");
    let text = page.text();
    assert!(text.contains(r#"name="a\"b\\c\nd""#), "{text}");
    assert!(
        text.lines()
            .all(|line| line.starts_with('#') || line.contains('}')),
        "no line is torn:\n{text}"
    );
}

#[test]
fn the_last_queue_of_a_name_is_in_the_metrics() {
    let page = Page::new();
    let (first, second) = (page.queue("same"), page.queue("same"));
    first.add("a");
    second.add("a");
    second.add("b");
    let adds = (
        r#"workqueue_adds_total{name="same",controller="same"}"#,
        2.0,
    );
    page.assert(&[adds]);
    let third = page.queue("same");
    page.assert(&[(adds.0, 0.0)]);
    drop(third);
    page.assert(&[adds]);
    drop(second);
    page.assert(&[(adds.0, 1.0)]);
    drop(first);
    assert!(!page.text().contains("workqueue"), "{}", page.text());
}

/// Waker that creates a queue when it is woken, once `metrics` is set.
struct Maker {
    metrics: OnceLock<Prometheus>,
    made: OnceLock<WorkQueue<&'static str>>,
}

impl Wake for Maker {
    fn wake(self: Arc<Self>) {
        if let Some(metrics) = self.metrics.get() {
            self.made.get_or_init(|| queue(metrics, "made"));
        }
    }
}

#[test]
fn a_getter_woken_by_collecting_metrics_can_create_a_queue() {
    let (done, made) = mpsc::channel();
    let read = async move {
        let page = Page::new();
        let queue = page.queue("site");
        queue.add_after("a", ms(10));
        let maker = Arc::new(Maker {
            metrics: OnceLock::new(),
            made: OnceLock::new(),
        });
        let waker = Waker::from(maker.clone());
        let mut get = Box::pin(queue.get());
        assert!(
            get.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        advance(ms(10)).await;
        // Rendering the metrics makes the key ready, not the timer.
        maker.metrics.set(page.metrics.clone()).expect("set once");
        page.text();
        done.send(maker.made.get().is_some() && page.text().contains("made"))
            .expect("a waiter");
    };
    // A deadlock blocks only this thread.
    thread::spawn(|| {
        let runtime = runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.expect("a runtime").block_on(read);
    });
    assert_eq!(
        made.recv_timeout(secs(60)),
        Ok(true),
        "the page is read, and the queue was made meanwhile"
    );
}
