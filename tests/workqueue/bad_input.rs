//! Tests of unusual and invalid input: never a panic or a lost key.

use crate::support::{
    ByHand, Random, at, because, ms, run, run_all, secs, take, with_limiter, with_share,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use steersman::{
    object::ObjectKey,
    workqueue::{Add, Limiter, Outcome, Priority, Prometheus, QueueOptions, WorkQueue},
};
use tokio::time::{advance, timeout};

#[test]
fn empty_keys_are_keys() {
    let queue = WorkQueue::default();
    queue.add(String::new());
    queue.add(String::new());
    queue.add("a".to_owned());
    assert_eq!(run_all(&queue), ["", "a"]);

    let queue = WorkQueue::default();
    queue.add(ObjectKey::new("", ""));
    run(&queue, &ObjectKey::new("", ""));
    assert!(queue.is_empty());
}

#[test]
fn a_queue_of_unit_keys_holds_one_key() {
    let queue = WorkQueue::default();
    queue.add_all([(), (), ()], Add::default());
    assert_eq!(queue.len(), 1);
    let item = take(&queue);
    queue.add(());
    item.finish(Outcome::done());
    assert_eq!(run_all(&queue).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_zero_delay_makes_the_key_ready() {
    let queue = WorkQueue::default();
    queue.add_after("a", Duration::ZERO);
    queue.add_with(
        "b",
        Add {
            after: Some(Duration::ZERO),
            ..Add::default()
        },
    );
    assert_eq!(
        (queue.len(), queue.stats().delayed, queue.stats().retries),
        (2, 0, 0)
    );
    assert_eq!(run_all(&queue), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_a_nanosecond_is_a_delay() {
    let queue = WorkQueue::default();
    queue.add_after("a", Duration::from_nanos(1));
    assert!(queue.try_get().is_none());
    advance(Duration::from_nanos(1)).await;
    run(&queue, &"a");
}

#[tokio::test(start_paused = true)]
async fn huge_delays_mean_never_and_do_not_disturb_other_keys() {
    let queue = WorkQueue::default();
    for (key, delay) in [
        ("max", Duration::MAX),
        ("max seconds", secs(u64::MAX)),
        ("64 bits", Duration::from_nanos(u64::MAX)),
        ("almost 64 bits", Duration::from_nanos(u64::MAX - 1)),
        ("soon", ms(10)),
    ] {
        queue.add_after(key, delay);
    }
    assert_eq!(queue.stats().delayed, 5);
    let mut getter = ByHand::waiting(queue.get());
    advance(ms(11)).await;
    assert_eq!(*getter.ready().expect("open"), "soon");
    drop(getter);
    assert!(
        timeout(secs(100 * 365 * 86_400), queue.get())
            .await
            .is_err(),
        "not in a hundred years"
    );
    assert_eq!(queue.stats().delayed, 4);
    for entry in queue.snapshot() {
        assert!(queue.cancel(&entry.key));
    }
    assert_eq!(queue.stats().delayed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_delayed_forever_can_be_added_again_without_delay() {
    let queue = WorkQueue::default();
    queue.add_after("a", Duration::MAX);
    queue.add_after("a", ms(10));
    queue.add_after("a", Duration::MAX);
    queue.add("b");
    take(&queue).finish(Outcome::requeue_after(Duration::MAX));
    queue.add("b");
    run(&queue, &"b");
    advance(ms(10)).await;
    run(&queue, &"a");
    assert!(queue.snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_limiter_can_return_any_delay() {
    for delay in [
        Duration::MAX,
        secs(u64::MAX),
        Duration::from_nanos(u64::MAX),
    ] {
        let queue = with_limiter(Limiter::new(move |_: &&str, _, _| delay));
        queue.add_rate_limited("a");
        queue.add("b");
        take(&queue).finish(Outcome::requeue());
        assert_eq!(queue.stats().delayed, 2);
        queue.add("a");
        run(&queue, &"a");
    }
}

#[test]
fn unknown_keys_are_ignored_and_not_remembered() {
    let queue: WorkQueue<&str> = WorkQueue::default();
    queue.forget(&"unknown");
    queue.unpark(&"unknown");
    assert!(!queue.cancel(&"unknown"));
    assert_eq!(queue.num_requeues(&"unknown"), 0);
    assert!(queue.snapshot().is_empty());
    queue.close();
    queue.forget(&"unknown");
    queue.unpark(&"unknown");
    assert!(!queue.cancel(&"unknown"));
}

#[test]
fn adds_after_shutdown_are_ignored_and_counted() {
    let queue = WorkQueue::default();
    queue.add("before");
    queue.close();
    for _ in 0..3 {
        queue.add("after");
    }
    assert_eq!((queue.len(), queue.stats().rejected), (0, 3));
    assert!(ByHand::new(queue.get()).ready().is_none());
}

/// Creates a limiter that panics on every second call.
fn panicking() -> Limiter<&'static str> {
    let calls = AtomicU32::new(0);
    Limiter::new(move |_, _, _| {
        if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            std::panic::resume_unwind(Box::new("the limiter fails"));
        }
        ms(1)
    })
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_limiter_panics_waits_as_with_the_default_limiter() {
    let queue = with_limiter(panicking());
    queue.add_rate_limited("a");
    assert_eq!(
        (queue.stats().limiter_panics, queue.num_requeues(&"a")),
        (1, 1)
    );
    advance(ms(4)).await;
    assert!(queue.try_get().is_none());
    advance(ms(1)).await;
    take(&queue).finish(Outcome::requeue());
    assert_eq!(
        queue.stats().limiter_panics,
        1,
        "the limiter did not panic this time"
    );
    advance(ms(1)).await;
    let item = take(&queue);
    assert!(item.finish_and_try_get(Outcome::requeue()).is_none());
    assert_eq!(queue.stats().limiter_panics, 2);
    advance(ms(19)).await;
    assert!(queue.try_get().is_none(), "the third failure: 20 ms");
    advance(ms(1)).await;
    run(&queue, &"a");
    assert!(queue.snapshot().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_panics_in_a_batch_loses_no_key() {
    let queue = with_limiter(panicking());
    queue.add_all(
        ["a", "b", "c", "d"],
        Add {
            rate_limited: true,
            ..Add::default()
        },
    );
    assert_eq!(
        (queue.stats().limiter_panics, queue.stats().delayed),
        (2, 4)
    );
    advance(ms(5)).await;
    assert_eq!(run_all(&queue), ["b", "d", "a", "c"]);
}

#[test]
fn a_limiter_that_always_panics_leaves_queue_and_limiter_usable() {
    let queue = with_limiter(
        Limiter::new(|_: &&str, _, _| std::panic::resume_unwind(Box::new("the limiter fails")))
            .max(Limiter::bucket(secs(1), 1))
            .at_most(secs(5))
            .jitter(0.1),
    );
    for _ in 0..10 {
        queue.add_rate_limited("a");
        queue.add("a");
        take(&queue).finish(Outcome::requeue());
    }
    assert_eq!(queue.stats().limiter_panics, 20);
    queue.add("a");
    run(&queue, &"a");
}

/// The queue calls the limiter without holding its lock.
#[tokio::test(start_paused = true)]
async fn a_limiter_can_call_its_queue() {
    let cell = std::sync::Arc::new(std::sync::OnceLock::<WorkQueue<&'static str>>::new());
    let queue = with_limiter(Limiter::new({
        let cell = cell.clone();
        move |key: &&'static str, _, _| {
            let queue = cell.get().expect("set");
            queue.add("other");
            assert!(queue.num_requeues(key) > 0 && !queue.is_empty());
            ms(1)
        }
    }));
    cell.set(queue.clone()).expect("once");
    queue.add_rate_limited("a");
    run(&queue, &"other");
    advance(ms(1)).await;
    let item = take(&queue);
    let other = item
        .finish_and_try_get(Outcome::requeue())
        .expect("added by the limiter");
    assert_eq!(*other, "other");
}

#[test]
fn reasons_can_be_empty_long_and_many() {
    let queue = WorkQueue::default();
    let long = "x".repeat(1 << 20);
    queue.add_with(0, because(""));
    queue.add_with(0, because(&long));
    let item = take(&queue);
    assert_eq!(item.reasons(), ["".into(), long.as_str().into()]);
    drop(item);
    // More distinct reasons than a queue keeps. Reasons may be dropped, keys may not.
    for n in 0..70_000 {
        queue.add_with(n, because(&n.to_string()));
    }
    assert_eq!(queue.len(), 70_000);
    let item = take(&queue);
    assert_eq!(item.reasons(), ["0".into()]);
    drop(item);
    assert_eq!(run_all(&queue).len(), 69_999);
    queue.add_with(1, because("after all of them"));
    assert_eq!(take(&queue).reasons(), ["after all of them".into()]);
}

#[test]
fn extreme_shares_are_valid() {
    for share in [1, 2, u32::MAX - 1, u32::MAX] {
        let queue = with_share(share);
        queue.add_with("low", at(i32::MIN));
        queue.add_with("high", at(i32::MAX));
        let mut keys = run_all(&queue);
        keys.sort_unstable();
        assert_eq!(keys, ["high", "low"]);
    }
}

#[test]
fn extreme_priorities_are_valid() {
    let queue = WorkQueue::default();
    queue.add_with("a", at(i32::MIN));
    let item = take(&queue);
    assert_eq!(item.priority(), Priority(i32::MIN));
    item.finish(Outcome::requeue_after(ms(0)).priority(Priority(i32::MAX)));
    assert_eq!(take(&queue).priority(), Priority(i32::MAX));
}

#[test]
fn a_queue_name_can_be_any_text() {
    let (metrics, mut registry) = (Prometheus::default(), Registry::default());
    registry.register_collector(Box::new(metrics.clone()));
    for name in ["", " ", "\"\\\n", "ü", &"x".repeat(10_000)] {
        let options = QueueOptions {
            name: name.into(),
            metrics: Some(Arc::new(metrics.clone())),
            ..QueueOptions::default()
        };
        let queue = WorkQueue::new(options);
        queue.add("a");
        run(&queue, &"a");
        let mut page = String::new();
        encode(&mut page, &registry).expect("metrics can be encoded");
        let escaped = name
            .replace('\\', r"\\")
            .replace('"', r#"\""#)
            .replace('\n', r"\n");
        let shown = page.contains(&format!(
            "workqueue_adds_total{{name=\"{escaped}\",controller=\"{escaped}\"}} 1\n"
        ));
        assert_eq!(shown, !name.is_empty(), "{page}");
    }
}

#[test]
fn all_types_implement_debug() {
    let options: QueueOptions<u8> = QueueOptions {
        name: "site".into(),
        share: 7,
        ..QueueOptions::default()
    };
    let text = format!("{options:?}");
    assert!(text.contains("site") && text.contains('7'), "{text}");
    let queue = WorkQueue::new(options);
    queue.add_all([1, 2], Add::default());
    queue.add_after(3, secs(1));
    let item = take(&queue);
    let text = format!("{queue:?} {item:?} {:?}", queue.stats());
    for part in ["ready: 1", "delayed: 1", "parked: 0", "running: 1"] {
        assert!(text.contains(part), "{text}");
    }
}

/// Random calls in random order: nothing panics, and a closed queue ends empty.
#[tokio::test(start_paused = true)]
async fn random_calls_with_extreme_arguments_do_not_panic() {
    let durations = [
        Duration::ZERO,
        Duration::from_nanos(1),
        ms(1),
        secs(86_400),
        Duration::MAX,
    ];
    let priorities = [i32::MIN, -100, 0, 100, i32::MAX];
    let mut random = Random::new(99);
    for round in 0..200 {
        let queue = WorkQueue::default();
        let mut items = Vec::new();
        for _ in 0..100 {
            let key = random.below(4);
            let duration = durations[random.below(5) as usize];
            let priority = Priority(priorities[random.below(5) as usize]);
            match random.below(9) {
                0..3 => queue.add_with(
                    key,
                    Add {
                        after: Some(duration),
                        rate_limited: random.one_in(2),
                        priority: Some(priority),
                        reason: random.one_in(2).then(|| "why".into()),
                        replace_timer: random.one_in(2),
                    },
                ),
                3 => items.extend(queue.try_get()),
                4 => drop(items.pop()),
                5 => items
                    .pop()
                    .into_iter()
                    .for_each(|item| item.finish(Outcome::requeue_after(duration))),
                6 => items
                    .pop()
                    .into_iter()
                    .for_each(|item| item.park_for(duration)),
                7 => drop(queue.unpark(&key)),
                _ => {
                    queue.cancel(&key);
                    advance(durations[random.below(4) as usize]).await;
                }
            }
            assert_eq!(queue.stats().running, items.len());
        }
        if round % 2 == 0 {
            queue.close();
        }
        items.clear();
        queue.close();
        assert!(queue.snapshot().is_empty() && queue.is_empty());
    }
}

#[test]
fn a_requeue_after_any_shutdown_is_counted_as_ignored() {
    for shut_down in [WorkQueue::close, WorkQueue::close_after_ready] {
        let queue = WorkQueue::default();
        queue.add("a");
        let item = take(&queue);
        shut_down(&queue);
        item.finish(Outcome::requeue_after(secs(1)));
        assert_eq!(queue.stats().rejected, 1);
    }
}
