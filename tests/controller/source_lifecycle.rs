//! Tests of the lifecycle of sources, on paused time and with scripted sources.

use super::support::{RecordedEvents, until};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    prelude::*,
    source::{SourceContext, WatchError, WatchState},
};
use tokio::time::Instant;

type Queue = WorkQueue<u32>;

/// Sets a flag when it is dropped.
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_adds_requests_and_reports_when_it_is_synced() {
    let queue = Queue::default();
    let source = source::from_fn("numbers", async |queue, cx: SourceContext| {
        for number in [3, 1, 2] {
            queue.add(number);
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        cx.synced();
        cx.stopped().await;
        Ok(())
    });
    let begun = Instant::now();
    let watch = source.start(&queue).expect("the source starts");
    assert!(matches!(watch.state(), WatchState::Starting));
    watch.await_synced().await.expect("synced");
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert!(matches!(watch.state(), WatchState::Synced));
    assert_eq!((watch.name(), queue.len()), ("numbers", 3));
    watch.stop().await;
    assert!(matches!(watch.state(), WatchState::Stopped));
    watch.await_synced().await.expect("synced before the stop");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_returns_is_synced_and_stopped() {
    let watch = source::from_fn("one", async |queue, _| {
        queue.add(1);
        Ok(())
    });
    let queue = Queue::default();
    let watch = watch.start(&queue).expect("the source starts");
    watch
        .await_synced()
        .await
        .expect("a returned source is synced");
    until(|| matches!(watch.state(), WatchState::Stopped)).await;
    assert_eq!(queue.len(), 1);
}

/// Port of controller-runtime's "should return an error if a source's Start blocks" and "cache-sync
/// timeout fails Start with the source's name".
#[tokio::test(start_paused = true)]
async fn the_sync_timeout_of_a_custom_source_names_the_missing_call() {
    let unsynced_source = source::from_fn("silent", async |_, _| pending().await);
    let begun = Instant::now();
    let watch = unsynced_source
        .start(&Queue::default())
        .expect("the source starts");
    let error = watch
        .await_synced()
        .await
        .expect_err("the source does not sync");
    assert_eq!(begun.elapsed(), Duration::from_mins(2));
    assert!(matches!(error, WatchError::Timeout { .. }));
    let error = error.to_string();
    assert!(
        error.starts_with("silent not synced after 120 s: ")
            && error.contains("SourceContext::synced"),
        "{error}"
    );
    assert!(
        matches!(watch.state(), WatchState::Starting),
        "the source continues"
    );
}

#[tokio::test(start_paused = true)]
async fn a_source_is_degraded_until_it_recovers() {
    let source = source::from_fn("bus", async |_, cx: SourceContext| {
        cx.degraded(anyhow::anyhow!("no route").context("connecting"));
        tokio::time::sleep(Duration::from_mins(5)).await;
        cx.synced();
        pending().await
    });
    let watch = source.start(&Queue::default()).expect("the source starts");
    let error = watch
        .await_synced()
        .await
        .expect_err("the sync takes longer")
        .to_string();
    assert!(error.ends_with("connecting: no route"), "{error}");
    assert!(
        matches!(watch.state(), WatchState::Degraded { error, .. } if error == "connecting: no route")
    );
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(matches!(watch.state(), WatchState::Synced));
    watch.await_synced().await.expect("synced");
}

/// Port of controller-runtime's "should return an error if there is an error starting sources".
#[tokio::test(start_paused = true)]
async fn a_failed_source_reports_its_error() {
    let source = source::from_fn("bus", async |_, _| {
        Err(anyhow::anyhow!("no route").context("connecting"))
    });
    let watch = source.start(&Queue::default()).expect("the source starts");
    let error = watch.await_synced().await.expect_err("the source fails");
    assert_eq!(error.to_string(), "bus: connecting: no route");
    assert!(
        matches!(watch.state(), WatchState::Failed(error) if format!("{error:#}") == "connecting: no route")
    );
}

#[tokio::test(start_paused = true)]
async fn a_panicking_source_fails() {
    let run = async |_, cx: SourceContext| {
        cx.synced();
        tokio::task::yield_now().await;
        panic!("source panicked");
    };
    let watch = source::from_fn("glass", run)
        .start(&Queue::default())
        .expect("the source starts");
    until(|| matches!(watch.state(), WatchState::Failed(_))).await;
    assert_eq!(
        watch
            .await_synced()
            .await
            .expect_err("the source failed")
            .to_string(),
        "glass: panicked: source panicked"
    );
    // Also a panic before the source returns a future.
    let bad = |_, _| {
        if true {
            panic!("constructor panicked")
        } else {
            pending()
        }
    };
    let watch = source::from_fn("glass", bad)
        .start(&Queue::default())
        .expect("the source starts");
    assert_eq!(
        watch
            .await_synced()
            .await
            .expect_err("the source failed")
            .to_string(),
        "glass: panicked: constructor panicked"
    );
}

/// A context that ends during the sync is not a failure, as in controller-runtime.
#[tokio::test(start_paused = true)]
async fn a_source_stopped_before_its_sync_does_not_fail() {
    let source = source::from_fn("slow", async |_, cx: SourceContext| {
        cx.stopped().await;
        Ok(())
    });
    let watch = source.start(&Queue::default()).expect("the source starts");
    let waiting = tokio::spawn({
        let watch = watch.clone();
        async move { watch.await_synced().await }
    });
    tokio::task::yield_now().await;
    watch.stop().await;
    assert!(matches!(watch.state(), WatchState::Stopped));
    let recorded = waiting
        .await
        .expect("the task ends")
        .expect_err("the source never syncs");
    assert!(matches!(recorded, WatchError::Stopped { .. }), "{recorded}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_ignores_the_stop_is_dropped_after_a_second() {
    let dropped = Arc::new(AtomicBool::default());
    let guard = SetOnDrop(dropped.clone());
    let source = source::from_fn("ignores stop", async move |_, _| {
        let _held = guard;
        pending().await
    });
    let watch = source.start(&Queue::default()).expect("the source starts");
    tokio::task::yield_now().await;
    let begun = Instant::now();
    watch.stop().await;
    assert!(
        dropped.load(Relaxed),
        "the source is dropped before `stop` returns"
    );
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_scoped_watch_stops_it_and_dropping_a_handle_does_not() {
    let source = |recorded: &RecordedEvents| {
        let recorded = recorded.clone();
        source::from_fn("ticks", async move |_, cx: SourceContext| {
            cx.stopped().await;
            recorded.record("stopped");
            Ok(())
        })
    };
    let recorded = RecordedEvents::default();
    drop(
        source(&recorded)
            .start(&Queue::default())
            .expect("the source starts"),
    );
    let scoped = source(&recorded)
        .start(&Queue::default())
        .expect("the source starts")
        .scoped();
    let handle = scoped.handle().clone();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(recorded.len(), 0, "dropping a handle changes nothing");
    drop(scoped);
    until(|| matches!(handle.state(), WatchState::Stopped)).await;
    assert_eq!(recorded.len(), 1);
}
