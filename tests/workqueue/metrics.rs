//! Tests of the queue's statistics, with a probe and a paused clock.

use crate::support::{at, ms, rate_limited, run, secs, strict, take};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use steersman::workqueue::{
    Add, Band, Histogram, Metrics, Outcome, Probe, QueueOptions, Stats, WorkQueue,
};
use tokio::time::advance;

/// Metrics that keep the probes of their queues.
#[derive(Default)]
struct Kept(Mutex<Vec<Probe>>);

impl Metrics for Kept {
    fn watch(&self, probe: Probe) {
        self.0.lock().expect("no panic").push(probe);
    }
}

fn probed() -> (WorkQueue<&'static str>, Probe) {
    let kept = Arc::new(Kept::default());
    let queue = WorkQueue::new(QueueOptions {
        name: "site".into(),
        share: 0,
        metrics: Some(kept.clone()),
        ..QueueOptions::default()
    });
    let probe = kept
        .0
        .lock()
        .expect("no panic")
        .pop()
        .expect("a queue with a name is watched");
    assert_eq!(probe.name(), "site");
    (queue, probe)
}

fn stats(probe: &Probe) -> Stats {
    probe.stats().expect("the queue is alive")
}

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

#[track_caller]
fn assert_seconds(histogram: &Histogram, count: u64, total: Duration) {
    assert_eq!(histogram.count(), count);
    assert!(
        (histogram.seconds() - total.as_secs_f64()).abs() < 1e-9,
        "{} s",
        histogram.seconds()
    );
}

#[tokio::test(start_paused = true)]
async fn adds_depth_wait_and_work_are_measured() {
    let (queue, probe) = probed();
    queue.add("a");
    let seen = stats(&probe);
    assert_eq!((seen.adds, seen.depth(), seen.waited.count()), (1, 1, 0));

    advance(us(50)).await;
    let item = take(&queue);
    let seen = stats(&probe);
    assert_eq!((seen.depth(), seen.running, seen.worked.count()), (0, 1, 0));
    assert_seconds(&seen.waited, 1, us(50));
    assert_eq!(seen.waited.counts()[4], 1, "above 10 µs, up to 100 µs");

    // Adds during a run count once.
    for _ in 0..5 {
        queue.add("a");
    }
    let seen = stats(&probe);
    assert_eq!((seen.adds, seen.depth()), (2, 1));

    advance(us(25)).await;
    item.finish(Outcome::done());
    let seen = stats(&probe);
    assert_eq!((seen.adds, seen.depth(), seen.running), (2, 1, 0));
    assert_seconds(&seen.worked, 1, us(25));

    // The wait is measured from the first add since the last get and includes the run in between.
    advance(us(10)).await;
    take(&queue).finish(Outcome::done());
    let seen = stats(&probe);
    assert_seconds(&seen.waited, 2, us(50) + us(35));
    assert_seconds(&seen.worked, 2, us(25));
    assert_eq!((seen.adds, seen.depth()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn unfinished_work_is_the_sum_and_the_longest_run_the_maximum_of_all_ages() {
    let (queue, probe) = probed();
    queue.add("a");
    queue.add("b");
    let a = take(&queue);
    advance(ms(30)).await;
    let b = take(&queue);
    advance(ms(12)).await;
    let seen = stats(&probe);
    assert_eq!(
        (seen.unfinished, seen.longest_running),
        (ms(42 + 12), ms(42))
    );
    a.finish(Outcome::done());
    let seen = stats(&probe);
    assert_eq!((seen.unfinished, seen.longest_running), (ms(12), ms(12)));
    drop(b);
    let seen = stats(&probe);
    assert_eq!(
        (seen.unfinished, seen.longest_running),
        (Duration::ZERO, Duration::ZERO)
    );
    assert_seconds(&seen.worked, 2, ms(42 + 12));
}

// Also with a getter that receives the next key directly.
#[tokio::test(start_paused = true)]
async fn finish_and_get_measures_the_same_as_finish() {
    let (queue, probe) = probed();
    queue.add("a");
    queue.add("b");
    queue.add("c");
    let item = take(&queue);
    advance(ms(1)).await;
    let item = item.finish_and_try_get(Outcome::done()).expect("b");
    advance(ms(2)).await;
    let item = item.finish_and_get(Outcome::done()).await.expect("c");
    advance(ms(3)).await;
    item.park();
    let seen = stats(&probe);
    assert_seconds(&seen.waited, 3, ms(1 + 3));
    assert_seconds(&seen.worked, 3, ms(1 + 2 + 3));
}

#[tokio::test(start_paused = true)]
async fn retries_count_adds_with_a_delay_and_only_those() {
    let (queue, probe) = probed();
    queue.add("a");
    queue.add_after("a", ms(0));
    assert_eq!(stats(&probe).retries, 0);
    queue.add_after("a", ms(1));
    assert_eq!(stats(&probe).retries, 1, "also if the add changes nothing");
    queue.add_rate_limited("b");
    queue.add_with(
        "c",
        Add {
            after: Some(ms(3)),
            ..rate_limited()
        },
    );
    assert_eq!(stats(&probe).retries, 3);
    take(&queue).finish(Outcome::requeue());
    assert_eq!(stats(&probe).retries, 4);
    advance(ms(3)).await;
    take(&queue).finish(Outcome::requeue_after(ms(1)));
    assert_eq!(stats(&probe).retries, 5);
    advance(ms(10)).await;
    assert_eq!(
        stats(&probe).adds,
        2 + 3,
        "each delay ended as a key that became ready"
    );
}

#[tokio::test(start_paused = true)]
async fn depth_is_right_when_a_delayed_key_is_added_again_ready() {
    let (queue, probe) = probed();
    queue.add_with(
        "a",
        Add {
            after: Some(secs(60)),
            ..at(0)
        },
    );
    assert_eq!((stats(&probe).depth(), stats(&probe).adds), (0, 0));
    queue.add("a");
    assert_eq!((stats(&probe).depth(), stats(&probe).adds), (1, 1));
    run(&queue, &"a");
    assert_eq!((stats(&probe).depth(), stats(&probe).adds), (0, 1));
}

fn depths(probe: &Probe) -> [usize; 3] {
    Band::ALL.map(|band| stats(probe).band(band).depth)
}

#[tokio::test(start_paused = true)]
async fn depth_is_right_when_a_delayed_key_is_added_again_at_a_higher_priority() {
    let (queue, probe) = probed();
    queue.add_with(
        "a",
        Add {
            after: Some(secs(60)),
            ..at(-100)
        },
    );
    queue.add_with(
        "a",
        Add {
            after: Some(secs(60)),
            ..at(100)
        },
    );
    assert_eq!(depths(&probe), [0, 0, 0]);
    queue.add_with("a", at(0));
    assert_eq!(depths(&probe), [0, 0, 1]);
    run(&queue, &"a");
    assert_eq!(depths(&probe), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn depth_is_right_after_a_delay_has_passed() {
    let (queue, probe) = probed();
    queue.add_with(
        "a",
        Add {
            after: Some(secs(60)),
            ..at(-100)
        },
    );
    queue.add_with(
        "b",
        Add {
            after: Some(secs(60)),
            ..at(100)
        },
    );
    advance(secs(60)).await;
    assert_eq!(
        depths(&probe),
        [1, 0, 1],
        "reading is enough to find what is due"
    );
    assert_eq!((stats(&probe).adds, stats(&probe).delayed), (2, 0));
    queue.add_with("a", at(0));
    assert_eq!(depths(&probe), [0, 1, 1]);
}

#[test]
fn depth_moves_with_a_ready_key_that_is_raised() {
    let (queue, probe) = probed();
    queue.add_with("a", at(-100));
    assert_eq!(depths(&probe), [1, 0, 0]);
    queue.add_with("a", at(0));
    assert_eq!(depths(&probe), [0, 1, 0]);
    queue.add_with("a", at(100));
    assert_eq!((depths(&probe), stats(&probe).adds), ([0, 0, 1], 1));
    let item = take(&queue);
    assert_eq!(depths(&probe), [0, 0, 0]);
    queue.add_with("a", at(-100));
    assert_eq!(depths(&probe), [1, 0, 0], "also while the key runs");
    queue.add_with("a", at(0));
    assert_eq!(depths(&probe), [0, 1, 0]);
    queue.cancel(&"a");
    assert_eq!(depths(&probe), [0, 0, 0]);
    drop(item);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_ready_key_of_each_band_is_known() {
    let queue = strict();
    queue.add_with("low", at(-100));
    advance(ms(10)).await;
    queue.add_with("normal", at(0));
    queue.add_with("nearly normal", at(3));
    advance(ms(5)).await;
    queue.add_with("later", at(3));
    let seen = queue.stats();
    assert_eq!(
        Band::ALL.map(|band| seen.band(band).oldest),
        [ms(15), ms(5), ms(0)]
    );
    take(&queue).finish(Outcome::done());
    take(&queue).finish(Outcome::done());
    assert_eq!(
        queue.stats().band(Band::Normal).oldest,
        ms(5),
        "that of the priority 0"
    );
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_band_is_that_of_the_key_next_in_line_and_raising_does_not_make_it_younger() {
    let queue = strict();
    queue.add_with("old", at(0));
    advance(ms(10)).await;
    queue.add_with("young", at(100));
    queue.add_with("old", at(100));
    advance(ms(1)).await;
    assert_eq!(
        queue.stats().band(Band::High).oldest,
        ms(1),
        "the raised key is behind"
    );
    take(&queue).finish(Outcome::done());
    assert_eq!(queue.stats().band(Band::High).oldest, ms(11));
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_it_ran_has_waited_since_the_add() {
    let queue = strict();
    queue.add("old");
    let item = take(&queue);
    queue.add("old");
    advance(ms(10)).await;
    item.finish(Outcome::done());
    advance(ms(1)).await;
    assert_eq!(
        queue.stats().band(Band::Normal).oldest,
        ms(11),
        "the key has been ready since the add"
    );
}

#[test]
fn a_probe_does_not_keep_its_queue_alive() {
    let (queue, probe) = probed();
    let clone = queue.clone();
    drop(queue);
    assert!(probe.stats().is_some());
    drop(clone);
    assert!(probe.stats().is_none());
}

#[test]
fn an_item_keeps_the_metrics_of_its_queue() {
    let (queue, probe) = probed();
    queue.add("a");
    let item = take(&queue);
    drop(queue);
    assert_eq!(stats(&probe).running, 1);
    drop(item);
    assert!(probe.stats().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_name_or_metrics_does_not_measure() {
    let kept = Arc::new(Kept::default());
    let nameless = WorkQueue::new(QueueOptions {
        metrics: Some(kept.clone()),
        ..QueueOptions::default()
    });
    assert!(kept.0.lock().expect("no panic").is_empty());
    let bare = WorkQueue::new(QueueOptions {
        name: "bare".into(),
        ..QueueOptions::default()
    });
    for queue in [nameless, bare] {
        queue.add("a");
        advance(ms(5)).await;
        run(&queue, &"a");
        let seen = queue.stats();
        assert_eq!(
            (seen.waited.count(), seen.worked.count(), seen.adds),
            (0, 0, 1),
            "only the counters that need no clock"
        );
    }
}

#[test]
fn the_default_metrics_do_nothing() {
    struct Nothing;
    impl Metrics for Nothing {}
    let options = QueueOptions {
        name: "quiet".into(),
        metrics: Some(Arc::new(Nothing)),
        ..QueueOptions::default()
    };
    let queue = WorkQueue::new(options);
    queue.add("a");
    run(&queue, &"a");
    assert_eq!(queue.stats().waited.count(), 1);
}

#[test]
fn gauges_fall_to_zero_and_counters_stay_when_a_queue_is_closed() {
    let (queue, probe) = probed();
    queue.add_with("a", at(100));
    queue.add_after("b", secs(1));
    queue.add("c");
    let item = take(&queue);
    queue.add("a");
    queue.close();
    let seen = stats(&probe);
    assert_eq!(
        (depths(&probe), seen.delayed, seen.parked),
        ([0, 0, 0], 0, 0)
    );
    assert_eq!((seen.adds, seen.retries, seen.running), (3, 1, 1));
    drop(item);
    assert_eq!(
        (stats(&probe).running, stats(&probe).worked.count()),
        (0, 1)
    );
}

#[test]
fn stats_serialize_to_labelled_fields() {
    let queue = strict();
    queue.add("a");
    let json = serde_json::to_value(queue.stats()).expect("valid JSON");
    assert_eq!(
        (
            &json["adds"],
            &json["bands"]["normal"]["depth"],
            &json["rejected"]
        ),
        (&1.into(), &1.into(), &0.into())
    );
    assert!(
        json["unfinished"].is_f64() && json["waited"]["buckets"].is_array(),
        "{json}"
    );
}
