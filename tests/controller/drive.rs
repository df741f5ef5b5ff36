//! Any source, from being started until it is over: on paused time, with sources that do what a test says.

use super::support::{Told, until};
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

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_source_adds_is_queued_and_it_is_synced_when_it_says_so() {
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
    let watch = source.start(&queue).expect("it starts");
    assert!(matches!(watch.state(), WatchState::Starting));
    watch.await_synced().await.expect("it syncs");
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert!(matches!(watch.state(), WatchState::Synced));
    assert_eq!((watch.name(), queue.len()), ("numbers", 3));
    watch.stop().await;
    assert!(matches!(watch.state(), WatchState::Stopped));
    watch.await_synced().await.expect("it was, before it was stopped");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_returns_is_synced_and_over() {
    let watch = source::from_fn("one", async |queue, _| {
        queue.add(1);
        Ok(())
    });
    let queue = Queue::default();
    let watch = watch.start(&queue).expect("it starts");
    watch.await_synced().await.expect("it has nothing more to say");
    until(|| matches!(watch.state(), WatchState::Stopped)).await;
    assert_eq!(queue.len(), 1);
}

/// Upstream: "should return an error if a source's Start blocks", "cache-sync timeout fails Start with the source's name".
#[tokio::test(start_paused = true)]
async fn a_source_that_never_says_that_it_is_synced_is_told_how() {
    let silent = source::from_fn("silent", async |_, _| pending().await);
    let begun = Instant::now();
    let watch = silent.start(&Queue::default()).expect("it starts");
    let error = watch.await_synced().await.expect_err("it does not");
    assert_eq!(begun.elapsed(), Duration::from_mins(2));
    assert!(matches!(error, WatchError::Timeout { .. }));
    let error = error.to_string();
    assert!(
        error.starts_with("silent: not synced within 120 s: ") && error.contains("SourceContext::synced"),
        "{error}"
    );
    assert!(matches!(watch.state(), WatchState::Starting), "it goes on");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_the_state_until_it_is_not() {
    let source = source::from_fn("bus", async |_, cx: SourceContext| {
        cx.degraded(anyhow::anyhow!("no route").context("connecting"));
        tokio::time::sleep(Duration::from_mins(5)).await;
        cx.synced();
        pending().await
    });
    let watch = source.start(&Queue::default()).expect("it starts");
    let error = watch.await_synced().await.expect_err("it takes longer").to_string();
    assert!(error.ends_with("connecting: no route"), "{error}");
    assert!(matches!(watch.state(), WatchState::Degraded { error, .. } if error == "connecting: no route"));
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(matches!(watch.state(), WatchState::Synced));
    watch.await_synced().await.expect("it did in the end");
}

/// Upstream: "should return an error if there is an error starting sources".
#[tokio::test(start_paused = true)]
async fn a_source_that_fails_is_told_with_its_words() {
    let source = source::from_fn("bus", async |_, _| Err(anyhow::anyhow!("no route").context("connecting")));
    let watch = source.start(&Queue::default()).expect("it starts");
    let error = watch.await_synced().await.expect_err("it fails");
    assert_eq!(error.to_string(), "bus: connecting: no route");
    assert!(matches!(watch.state(), WatchState::Failed(error) if format!("{error:#}") == "connecting: no route"));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_has_failed() {
    let run = async |_, cx: SourceContext| {
        cx.synced();
        tokio::task::yield_now().await;
        panic!("a bad day");
    };
    let watch = source::from_fn("glass", run).start(&Queue::default()).expect("it starts");
    until(|| matches!(watch.state(), WatchState::Failed(_))).await;
    assert_eq!(watch.await_synced().await.expect_err("it failed").to_string(), "glass: panicked: a bad day");
    // Also one that panics before there is a future.
    let bad = |_, _| if true { panic!("no day") } else { pending() };
    let watch = source::from_fn("glass", bad).start(&Queue::default()).expect("it starts");
    assert_eq!(watch.await_synced().await.expect_err("it failed").to_string(), "glass: panicked: no day");
}

/// Upstream: a context that ends during the sync is not a failure.
#[tokio::test(start_paused = true)]
async fn a_source_that_is_stopped_before_it_was_synced_has_not_failed() {
    let source = source::from_fn("slow", async |_, cx: SourceContext| {
        cx.stopped().await;
        Ok(())
    });
    let watch = source.start(&Queue::default()).expect("it starts");
    let waiting = tokio::spawn({
        let watch = watch.clone();
        async move { watch.await_synced().await }
    });
    tokio::task::yield_now().await;
    watch.stop().await;
    assert!(matches!(watch.state(), WatchState::Stopped));
    let told = waiting.await.expect("it ends").expect_err("it will not sync");
    assert!(matches!(told, WatchError::Stopped { .. }), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_end_is_dropped_after_a_second() {
    let dropped = Arc::new(AtomicBool::default());
    let held = Dropped(dropped.clone());
    let source = source::from_fn("deaf", async move |_, _| {
        let _held = held;
        pending().await
    });
    let watch = source.start(&Queue::default()).expect("it starts");
    tokio::task::yield_now().await;
    let begun = Instant::now();
    watch.stop().await;
    assert!(dropped.load(Relaxed), "before anybody is told");
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_tied_to_a_scope_ends_with_it_and_another_does_not() {
    let source = |told: &Told| {
        let told = told.clone();
        source::from_fn("ticks", async move |_, cx: SourceContext| {
            cx.stopped().await;
            told.say("stopped");
            Ok(())
        })
    };
    let told = Told::default();
    drop(source(&told).start(&Queue::default()).expect("it starts"));
    let scoped = source(&told).start(&Queue::default()).expect("it starts").scoped();
    let handle = scoped.handle().clone();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(told.len(), 0, "dropping a handle changes nothing");
    drop(scoped);
    until(|| matches!(handle.state(), WatchState::Stopped)).await;
    assert_eq!(told.len(), 1);
}
