//! Tests of asynchronous mappings, on paused time.

use super::support::{RecordedEvents, map, ready, until};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use serde_json::{Value, json};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    event::Event,
    handler::Enqueue,
    object::KubeObject,
    prelude::*,
    source::{Channel, SourceContext, WatchState},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// Creates a source that calls `begin`, is synced, and keeps running.
fn once(
    begin: impl FnOnce(&Enqueue<u32>) + Send + 'static,
) -> impl Source<u32> + source::SelfContained {
    source::from_fn("once", async move |queue, cx: SourceContext| {
        begin(&queue);
        cx.synced();
        pending().await
    })
}

#[tokio::test(start_paused = true)]
async fn a_failing_mapping_is_retried_with_backoff_until_it_succeeds() {
    let (queue, begun, attempts) = (
        WorkQueue::default(),
        Instant::now(),
        Arc::new(parking_lot::Mutex::new(Vec::new())),
    );
    let attempt_times = attempts.clone();
    let source = once(move |queue| {
        queue.add_async(move || {
            let mut attempt_times = attempt_times.lock();
            attempt_times.push(begun.elapsed());
            let result = if attempt_times.len() < 16 {
                Err(anyhow::anyhow!("not yet"))
            } else {
                Ok([7])
            };
            async { result }
        });
    });
    let watch = source.start(&queue).expect("the source starts");
    let item = queue.get().await.expect("the queue is open");
    assert_eq!(*item, 7);
    let attempts = attempts.lock().clone();
    let waits: Vec<_> = attempts
        .windows(2)
        .map(|two| two[1].saturating_sub(two[0]).as_millis())
        .collect();
    assert_eq!(attempts[0], Duration::ZERO);
    assert_eq!(waits[..6], [10, 20, 40, 80, 160, 320]);
    assert_eq!(waits[12..], [30_000; 3]);
    assert_eq!(watch.stats().failures, 15);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_synced_after_the_first_attempt_of_each_mapping() {
    let slow = once(|queue| {
        queue.add_async(async || Err::<[u32; 1], _>(anyhow::anyhow!("never")));
        queue.add_async(async || {
            sleep(Duration::from_secs(3)).await;
            [1]
        });
    });
    let (queue, begun) = (WorkQueue::default(), Instant::now());
    let watch = slow.start(&queue).expect("the source starts");
    watch.await_synced().await.expect("synced");
    assert_eq!(
        (begun.elapsed(), ready(&queue)),
        (Duration::from_secs(3), vec![1])
    );

    let hangs = once(|queue| queue.add_async(pending::<[u32; 1]>));
    let (watch, begun) = (
        hangs.start(&queue).expect("the source starts"),
        Instant::now(),
    );
    watch
        .await_synced()
        .await
        .expect("a timed-out attempt counts");
    assert_eq!(
        (begun.elapsed(), watch.stats().failures),
        (Duration::from_secs(30), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_returned_source_stops_after_its_last_mapping() {
    let source = source::from_fn("brief", async |queue: Enqueue<u32>, _| {
        queue.add_async(async || {
            sleep(Duration::from_secs(3)).await;
            [1]
        });
        Ok(())
    });
    let queue = WorkQueue::default();
    let watch = source.start(&queue).expect("the source starts");
    sleep(Duration::from_secs(2)).await;
    assert!(matches!(watch.state(), WatchState::Starting));
    until(|| matches!(watch.state(), WatchState::Stopped)).await;
    assert_eq!(ready(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn concurrent_mappings_are_limited_and_failing_ones_do_not_block_others() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (now.clone(), most.clone());
    let source = once(move |queue| {
        for number in 0..1000 {
            let (now, most) = counts.clone();
            queue.add_async(move || {
                let (now, most) = (now.clone(), most.clone());
                async move {
                    most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
                    sleep(Duration::from_millis(1)).await;
                    now.fetch_sub(1, Relaxed);
                    anyhow::ensure!(number >= 500, "not yet");
                    Ok([number])
                }
            });
        }
    });
    let queue = WorkQueue::default();
    let watch = source.start(&queue).expect("the source starts");
    watch.await_synced().await.expect("synced");
    until(|| queue.len() == 500).await;
    assert_eq!(
        (ready(&queue), most.load(Relaxed)),
        ((500..1000).collect::<Vec<_>>(), 64)
    );
    assert!(watch.stats().failures >= 500);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_mapping_is_retried() {
    let is_healthy = Arc::new(AtomicBool::default());
    let is_healthy_clone = is_healthy.clone();
    let source = once(move |queue| {
        let during = is_healthy_clone.clone();
        queue.add_async(move || {
            let is_healthy = during.load(Relaxed);
            async move {
                assert!(is_healthy, "mapping panicked");
                [1]
            }
        });
        // Also a panic before there is a future.
        queue.add_async(move || {
            assert!(is_healthy_clone.load(Relaxed), "mapping panicked");
            async { [2] }
        });
    });
    let queue = WorkQueue::default();
    let watch = source.start(&queue).expect("the source starts");
    watch.await_synced().await.expect("synced");
    assert_eq!(watch.stats().failures, 2);
    is_healthy.store(true, Relaxed);
    until(|| queue.len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_pending_mappings() {
    let recorded = RecordedEvents::default();
    let recorder = recorded.clone();
    let source = once(move |queue| {
        queue.add_async(move || {
            recorder.record("attempt");
            async { Err::<[u32; 1], _>(anyhow::anyhow!("never")) }
        });
    });
    let watch = source
        .start(&WorkQueue::default())
        .expect("the source starts");
    sleep(Duration::from_mins(5)).await;
    watch.stop().await;
    let attempts = recorded.len();
    assert!(attempts > 10);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(recorded.len(), attempts);
}

/// The first event knows for which state requests were last added, the last event for which they
/// are missing.
#[tokio::test(start_paused = true)]
async fn failing_mappings_of_an_object_are_retried_for_its_first_and_its_last_event() {
    let (channel, queue, is_healthy) = (
        Channel::<ConfigMap>::new(100),
        WorkQueue::default(),
        Arc::new(AtomicBool::default()),
    );
    let handler = {
        let is_healthy = is_healthy.clone();
        handler::map_async(move |map: Object<ConfigMap>| {
            let is_healthy = is_healthy.load(Relaxed);
            async move {
                anyhow::ensure!(is_healthy, "server unavailable");
                Ok(map.meta().labels().get("color").map(str::to_owned))
            }
        })
    };
    let watch = channel
        .source(handler)
        .start(&queue)
        .expect("the source starts");
    for number in 10..30 {
        channel.send(map("shop", "front", &number.to_string()));
        channel.send(map("shop", &format!("other-{number}"), "other"));
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_mins(5)).await;
    is_healthy.store(true, Relaxed);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(ready(&queue), ["10", "29", "other"]);
    assert_eq!(watch.stats().dropped_mappings, 0);
}

#[tokio::test(start_paused = true)]
async fn failing_mappings_of_objects_with_one_name_and_different_kinds_are_all_retried() {
    let metadata = json!({"namespace": "shop", "name": "front"});
    let object = json!({ "metadata": metadata });
    let objects = [
        any::<Deployment>(&object),
        any::<ConfigMap>(&object),
        any::<Service>(&object),
    ];
    let (queue, fine) = (WorkQueue::default(), Arc::new(AtomicBool::default()));
    let handler = {
        let fine = fine.clone();
        handler::map_async(move |object: Object| {
            let fine = fine.load(Relaxed);
            async move {
                anyhow::ensure!(fine, "the server is away");
                Ok(object.gvk().map(|gvk| gvk.kind))
            }
        })
    };
    let channel = Channel::new(8);
    let watch = channel
        .source(handler)
        .start(&queue)
        .expect("the source starts");
    for object in objects {
        channel.send(object);
        sleep(Duration::from_millis(1)).await;
    }
    until(|| watch.stats().failures > 6).await;
    fine.store(true, Relaxed);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(ready(&queue), ["ConfigMap", "Deployment", "Service"]);
    assert_eq!(watch.stats().dropped_mappings, 0);
}

/// Returns an object without its static kind.
fn any<K: KubeObject>(object: &Value) -> Object {
    let object: K = serde_json::from_value(object.clone()).expect("an object");
    Object::from(object).erase()
}

/// An update may fail for the old object and for the new one.
#[tokio::test(start_paused = true)]
async fn all_failing_mappings_of_one_event_are_retried() {
    let (queue, is_healthy) = (WorkQueue::default(), Arc::new(AtomicBool::default()));
    let channel = Channel::<ConfigMap>::new(8);
    let handler = {
        let is_healthy = is_healthy.clone();
        handler::from_fn(move |_: &Event<ConfigMap>, queue: &Enqueue<u32>| {
            for number in 0..3 {
                let is_healthy = is_healthy.clone();
                queue.add_async(move || {
                    let is_healthy = is_healthy.load(Relaxed);
                    async move {
                        anyhow::ensure!(is_healthy, "server unavailable");
                        Ok([number])
                    }
                });
            }
        })
    };
    let watch = channel
        .source(handler)
        .start(&queue)
        .expect("the source starts");
    channel.send(map("shop", "front", "blue"));
    until(|| watch.stats().failures > 5).await;
    is_healthy.store(true, Relaxed);
    until(|| queue.len() == 3).await;
    assert_eq!(ready(&queue), [0, 1, 2]);
}

/// Slow mappings lose no event: events wait where they are coalesced.
#[tokio::test(start_paused = true)]
async fn a_source_pauses_while_too_many_mappings_wait_for_their_first_attempt() {
    let (channel, queue, recorded, gate) = (
        Channel::new(10_000),
        WorkQueue::default(),
        RecordedEvents::default(),
        watch::Sender::new(false),
    );
    let handler = {
        let (recorded, gate) = (recorded.clone(), gate.clone());
        handler::from_fn(move |event: &Event<ConfigMap>, queue: &Enqueue<String>| {
            recorded.record("handled");
            let (name, gate) = (event.object().name().to_owned(), gate.clone());
            queue.add_async(move || {
                let (name, gate) = (name.clone(), gate.clone());
                async move {
                    let _ = gate.subscribe().wait_for(|open| *open).await;
                    [name]
                }
            });
        })
    };
    for number in 0..5000 {
        channel.send(map("shop", &number.to_string(), "blue"));
    }
    let watch = channel
        .source(handler)
        .start(&queue)
        .expect("the source starts");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(recorded.len(), 1024);
    gate.send_replace(true);
    until(|| queue.len() == 5000).await;
    assert_eq!(watch.stats().dropped_mappings, 0);
}

#[tokio::test(start_paused = true)]
async fn a_synchronous_mapping_that_fails_is_retried() {
    let (channel, queue, is_healthy) = (
        Channel::<ConfigMap>::new(8),
        WorkQueue::default(),
        Arc::new(AtomicBool::default()),
    );
    let handler = {
        let is_healthy = is_healthy.clone();
        handler::map(move |map: &Object<ConfigMap>| {
            anyhow::ensure!(is_healthy.load(Relaxed), "no index");
            Ok(vec![map.name().to_owned()])
        })
    };
    let watch = channel
        .source(handler)
        .start(&queue)
        .expect("the source starts");
    channel.send(map("shop", "front", "blue"));
    until(|| watch.stats().failures > 2).await;
    is_healthy.store(true, Relaxed);
    until(|| queue.len() == 1).await;
    assert_eq!(ready(&queue), ["front"]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_times_out_after_thirty_seconds() {
    let (queue, begun) = (WorkQueue::default(), Instant::now());
    let source = once(|queue| {
        for _ in 0..64 {
            queue.add_async(pending::<[u32; 1]>);
        }
        queue.add_async(async || [7]);
    });
    let watch = source.start(&queue).expect("the source starts");
    assert_eq!(*queue.get().await.expect("the queue is open"), 7);
    assert_eq!(
        (begun.elapsed(), watch.stats().failures),
        (Duration::from_secs(30), 64)
    );
}

#[tokio::test(start_paused = true)]
async fn at_most_1024_failing_mappings_without_an_object_are_retried() {
    let queue = WorkQueue::default();
    let source = once(|queue| {
        for _ in 0..1100 {
            queue.add_async(async || Err::<[u32; 1], _>(anyhow::anyhow!("never")));
        }
    });
    let watch = source.start(&queue).expect("the source starts");
    watch
        .await_synced()
        .await
        .expect("every mapping was attempted");
    assert_eq!(watch.stats().dropped_mappings, 1100 - 1024);
}

#[tokio::test(start_paused = true)]
async fn failing_mappings_are_retried_for_any_number_of_objects() {
    let (channel, queue, is_healthy) = (
        Channel::<ConfigMap>::new(20_000),
        WorkQueue::default(),
        Arc::new(AtomicBool::default()),
    );
    let handler = {
        let is_healthy = is_healthy.clone();
        handler::map(move |map: &Object<ConfigMap>| {
            anyhow::ensure!(is_healthy.load(Relaxed), "no index");
            Ok([map.name().to_owned()])
        })
    };
    let watch = channel
        .source(handler)
        .start(&queue)
        .expect("the source starts");
    for number in 0..10_000 {
        channel.send(map("shop", &number.to_string(), "blue"));
    }
    until(|| watch.stats().events == 10_000).await;
    sleep(Duration::from_mins(1)).await;
    is_healthy.store(true, Relaxed);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((queue.len(), watch.stats().dropped_mappings), (10_000, 0));
}
