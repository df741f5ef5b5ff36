//! What handlers leave for later: on paused time.

use super::support::{Told, map, ready, until};
use k8s_openapi::api::core::v1::ConfigMap;
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
    prelude::*,
    source::{Channel, SourceContext, WatchState},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// A source that does this, is synced then, and goes on.
fn once(begin: impl FnOnce(&Enqueue<u32>) + Send + 'static) -> impl Source<u32> + source::SelfContained {
    source::from_fn("once", async move |queue, cx: SourceContext| {
        begin(&queue);
        cx.synced();
        pending().await
    })
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_with_growing_delays_until_it_succeeds() {
    let (queue, begun, attempts) =
        (WorkQueue::default(), Instant::now(), Arc::new(parking_lot::Mutex::new(Vec::new())));
    let made = attempts.clone();
    let source = once(move |queue| {
        queue.later(move || {
            let mut made = made.lock();
            made.push(begun.elapsed());
            let result = if made.len() < 16 { Err(anyhow::anyhow!("not yet")) } else { Ok([7]) };
            async { result }
        });
    });
    let watch = source.start(&queue).expect("it starts");
    let item = queue.get().await.expect("it comes");
    assert_eq!(*item, 7);
    let attempts = attempts.lock().clone();
    let waits: Vec<_> = attempts.windows(2).map(|two| two[1].saturating_sub(two[0]).as_millis()).collect();
    assert_eq!(attempts[0], Duration::ZERO);
    assert_eq!(waits[..6], [10, 20, 40, 80, 160, 320]);
    assert_eq!(waits[12..], [30_000; 3]);
    assert_eq!(watch.stats().failures, 15);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_synced_when_each_was_attempted_once_whether_it_succeeded_or_not() {
    let slow = once(|queue| {
        queue.later(async || Err::<[u32; 1], _>(anyhow::anyhow!("never")));
        queue.later(async || {
            sleep(Duration::from_secs(3)).await;
            [1]
        });
    });
    let (queue, begun) = (WorkQueue::default(), Instant::now());
    let watch = slow.start(&queue).expect("it starts");
    watch.await_synced().await.expect("it syncs");
    assert_eq!((begun.elapsed(), ready(&queue)), (Duration::from_secs(3), vec![1]));

    let hangs = once(|queue| queue.later(pending::<[u32; 1]>));
    let (watch, begun) = (hangs.start(&queue).expect("it starts"), Instant::now());
    watch.await_synced().await.expect("what hangs has failed");
    assert_eq!((begun.elapsed(), watch.stats().failures), (Duration::from_secs(30), 1));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_has_returned_is_over_when_nothing_is_left() {
    let source = source::from_fn("brief", async |queue: Enqueue<u32>, _| {
        queue.later(async || {
            sleep(Duration::from_secs(3)).await;
            [1]
        });
        Ok(())
    });
    let queue = WorkQueue::default();
    let watch = source.start(&queue).expect("it starts");
    sleep(Duration::from_secs(2)).await;
    assert!(matches!(watch.state(), WatchState::Starting));
    until(|| matches!(watch.state(), WatchState::Stopped)).await;
    assert_eq!(ready(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn few_are_attempted_at_once_and_failing_ones_take_no_turns() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (now.clone(), most.clone());
    let source = once(move |queue| {
        for number in 0..1000 {
            let (now, most) = counts.clone();
            queue.later(move || {
                let (now, most) = (now.clone(), most.clone());
                async move {
                    most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
                    sleep(Duration::from_millis(1)).await;
                    now.fetch_sub(1, Relaxed);
                    anyhow::ensure!(number >= 500, "it never succeeds");
                    Ok([number])
                }
            });
        }
    });
    let queue = WorkQueue::default();
    let watch = source.start(&queue).expect("it starts");
    watch.await_synced().await.expect("it syncs");
    until(|| queue.len() == 500).await;
    assert_eq!((ready(&queue), most.load(Relaxed)), ((500..1000).collect::<Vec<_>>(), 64));
    assert!(watch.stats().failures >= 500);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_that_is_tried_again() {
    let fine = Arc::new(AtomicBool::default());
    let is_fine = fine.clone();
    let source = once(move |queue| {
        let during = is_fine.clone();
        queue.later(move || {
            let fine = during.load(Relaxed);
            async move {
                assert!(fine, "a bad day");
                [1]
            }
        });
        // Also before there is a future.
        queue.later(move || {
            assert!(is_fine.load(Relaxed), "a bad day");
            async { [2] }
        });
    });
    let queue = WorkQueue::default();
    let watch = source.start(&queue).expect("it starts");
    watch.await_synced().await.expect("it syncs");
    assert_eq!(watch.stats().failures, 2);
    fine.store(true, Relaxed);
    until(|| queue.len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_what_is_left() {
    let told = Told::default();
    let says = told.clone();
    let source = once(move |queue| {
        queue.later(move || {
            says.say("attempt");
            async { Err::<[u32; 1], _>(anyhow::anyhow!("never")) }
        });
    });
    let watch = source.start(&WorkQueue::default()).expect("it starts");
    sleep(Duration::from_mins(5)).await;
    watch.stop().await;
    let attempts = told.len();
    assert!(attempts > 10);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(told.len(), attempts);
}

/// The first event knows for which state requests were added last, the last one for which they are missing.
#[tokio::test(start_paused = true)]
async fn failing_mappings_of_an_object_are_retried_for_its_first_and_its_last_event() {
    let (channel, queue, fine) =
        (Channel::<ConfigMap>::new(100), WorkQueue::default(), Arc::new(AtomicBool::default()));
    let handler = {
        let fine = fine.clone();
        handler::map_async(move |map: Object<ConfigMap>| {
            let fine = fine.load(Relaxed);
            async move {
                anyhow::ensure!(fine, "the server is away");
                Ok(map.meta().labels().get("door").map(str::to_owned))
            }
        })
    };
    let watch = channel.source(handler).start(&queue).expect("it starts");
    for number in 10..30 {
        channel.send(map("shop", "front", &number.to_string()));
        channel.send(map("shop", &format!("other-{number}"), "other"));
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_mins(5)).await;
    fine.store(true, Relaxed);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(ready(&queue), ["10", "29", "other"]);
    assert_eq!(watch.stats().given_up, 0);
}

/// An update may fail for the old object and for the new one.
#[tokio::test(start_paused = true)]
async fn all_failing_mappings_of_one_event_are_retried() {
    let (queue, fine) = (WorkQueue::default(), Arc::new(AtomicBool::default()));
    let channel = Channel::<ConfigMap>::new(8);
    let handler = {
        let fine = fine.clone();
        handler::from_fn(move |_: &Event<ConfigMap>, queue: &Enqueue<u32>| {
            for number in 0..3 {
                let fine = fine.clone();
                queue.later(move || {
                    let fine = fine.load(Relaxed);
                    async move {
                        anyhow::ensure!(fine, "the server is away");
                        Ok([number])
                    }
                });
            }
        })
    };
    let watch = channel.source(handler).start(&queue).expect("it starts");
    channel.send(map("shop", "front", "blue"));
    until(|| watch.stats().failures > 5).await;
    fine.store(true, Relaxed);
    until(|| queue.len() == 3).await;
    assert_eq!(ready(&queue), [0, 1, 2]);
}

/// What is asked for slower than it happens is not lost: the events wait where they are coalesced.
#[tokio::test(start_paused = true)]
async fn when_too_many_wait_for_their_first_attempt_events_are_not_handled_before() {
    let (channel, queue, told, gate) =
        (Channel::new(10_000), WorkQueue::default(), Told::default(), watch::Sender::new(false));
    let handler = {
        let (told, gate) = (told.clone(), gate.clone());
        handler::from_fn(move |event: &Event<ConfigMap>, queue: &Enqueue<String>| {
            told.say("handled");
            let (name, gate) = (event.object().name().to_owned(), gate.clone());
            queue.later(move || {
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
    let watch = channel.source(handler).start(&queue).expect("it starts");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(told.len(), 1024);
    gate.send_replace(true);
    until(|| queue.len() == 5000).await;
    assert_eq!(watch.stats().given_up, 0);
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_fails_is_made_again() {
    let (channel, queue, fine) = (Channel::<ConfigMap>::new(8), WorkQueue::default(), Arc::new(AtomicBool::default()));
    let handler = {
        let fine = fine.clone();
        handler::map(move |map: &Object<ConfigMap>| {
            anyhow::ensure!(fine.load(Relaxed), "the index is not there");
            Ok(vec![map.name().to_owned()])
        })
    };
    let watch = channel.source(handler).start(&queue).expect("it starts");
    channel.send(map("shop", "front", "blue"));
    until(|| watch.stats().failures > 2).await;
    fine.store(true, Relaxed);
    until(|| queue.len() == 1).await;
    assert_eq!(ready(&queue), ["front"]);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_hang_have_failed_after_a_while_and_others_get_their_turn() {
    let (queue, begun) = (WorkQueue::default(), Instant::now());
    let source = once(|queue| {
        for _ in 0..64 {
            queue.later(pending::<[u32; 1]>);
        }
        queue.later(async || [7]);
    });
    let watch = source.start(&queue).expect("it starts");
    assert_eq!(*queue.get().await.expect("it comes"), 7);
    assert_eq!((begun.elapsed(), watch.stats().failures), (Duration::from_secs(30), 64));
}

#[tokio::test(start_paused = true)]
async fn of_those_that_are_about_no_object_and_fail_a_thousand_are_tried_again() {
    let queue = WorkQueue::default();
    let source = once(|queue| {
        for _ in 0..1100 {
            queue.later(async || Err::<[u32; 1], _>(anyhow::anyhow!("never")));
        }
    });
    let watch = source.start(&queue).expect("it starts");
    watch.await_synced().await.expect("each was attempted");
    assert_eq!(watch.stats().given_up, 1100 - 1024);
}

#[tokio::test(start_paused = true)]
async fn failing_mappings_are_retried_for_any_number_of_objects() {
    let (channel, queue, fine) =
        (Channel::<ConfigMap>::new(20_000), WorkQueue::default(), Arc::new(AtomicBool::default()));
    let handler = {
        let fine = fine.clone();
        handler::map(move |map: &Object<ConfigMap>| {
            anyhow::ensure!(fine.load(Relaxed), "the index is not there");
            Ok([map.name().to_owned()])
        })
    };
    let watch = channel.source(handler).start(&queue).expect("it starts");
    for number in 0..10_000 {
        channel.send(map("shop", &number.to_string(), "blue"));
    }
    until(|| watch.stats().events == 10_000).await;
    sleep(Duration::from_mins(1)).await;
    fine.store(true, Relaxed);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((queue.len(), watch.stats().given_up), (10_000, 0));
}
