//! Tests of the start of controllers.
//!
//! Sources sync before workers start, and failing sources.

use crate::test_controller::{
    Name, Script, TestController, advance, alive_tasks, builder, failing_source, idle_source,
    manual_reconciler, ms, secs, settle, source_synced_after, source_that_adds, unsynced_source,
    watch_error, with_timeout,
};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use steersman::{
    controller::{Options, WatchError, WatchState},
    handler::Enqueue,
    prelude::*,
    source::SourceContext,
};
use tokio::time::Instant;

fn sync_within(time: Duration) -> Options {
    Options {
        sync_timeout: Some(time),
        ..Options::default()
    }
}

/// Creates a source that counts its starts.
fn counting_source(starts: &Arc<AtomicUsize>) -> impl Source<Name> + use<> {
    let starts = starts.clone();
    source::from_fn(
        "counted",
        move |_: Enqueue<Name>, cx: SourceContext| async move {
            starts.fetch_add(1, SeqCst);
            advance(secs(1)).await;
            cx.synced();
            cx.stopped().await;
            Ok(())
        },
    )
}

#[tokio::test(start_paused = true)]
async fn reconciles_start_after_the_initial_events_of_all_sources() {
    let script = Script::new();
    let builder = builder()
        .watches_source(source_that_adds("quick", "a"))
        .watches_source(source_synced_after("slow", secs(5)));
    let test = TestController::run(builder, script.clone());
    advance(ms(4_999)).await;
    assert_eq!((script.runs().len(), test.queue().len()), (0, 1));
    advance(secs(1)).await;
    assert_eq!(script.runs(), [(5_000, 1)]);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_returns_is_synced() {
    let script = Script::new();
    let source = source::from_fn("once", |queue: Enqueue<Name>, _| async move {
        queue.add("a");
        Ok(())
    });
    let test = TestController::run(builder().watches_source(source), script.clone());
    settle().await;
    assert_eq!(script.runs(), [(0, 1)]);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_without_sources_starts_at_once() {
    let script = Script::new();
    let test = TestController::run(builder(), script.clone());
    test.queue().add("a");
    settle().await;
    assert_eq!(script.runs(), [(0, 1)]);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_sync_in_time_fails_the_start_with_its_name_and_the_fix() {
    let start = Instant::now();
    let builder = builder()
        .options(sync_within(secs(3)))
        .watches_source(idle_source("bus"))
        .watches_source(unsynced_source("ticker"));
    let error = watch_error(TestController::run(builder, Script::new()).ended().await);
    assert_eq!(start.elapsed(), secs(3));
    assert_eq!(
        error.to_string(),
        "ticker not synced after 3 s: the initial events are not complete; a source reports them by \
         `SourceContext::synced` or by returning"
    );
}

#[tokio::test(start_paused = true)]
async fn the_sync_timeout_includes_the_last_error_of_the_source() {
    let source = source::from_fn("bus", |_: Enqueue<Name>, cx: SourceContext| async move {
        cx.degraded(anyhow::anyhow!("no route to host"));
        cx.stopped().await;
        Ok(())
    });
    let error = watch_error(
        TestController::run(builder().watches_source(source), Script::new())
            .ended()
            .await,
    );
    assert_eq!(
        error.to_string(),
        "bus not synced after 120 s: no route to host",
        "two minutes by default"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_start_is_not_an_error() {
    let (controller, task) = builder()
        .watches_source(unsynced_source("ticker"))
        .build(Script::new())
        .unwrap();
    with_timeout(task.run_until(advance(secs(2))))
        .await
        .expect("stopped by the future");
    assert!(matches!(
        controller.watch(idle_source("late")),
        Err(WatchError::ControllerStopped(_))
    ));

    let start = Instant::now();
    let test = TestController::run(
        builder().watches_source(unsynced_source("ticker")),
        Script::new(),
    );
    advance(secs(2)).await;
    test.end().await; // stopped by its handle
    assert_eq!(start.elapsed(), secs(2), "at once");
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_source_fails_the_start() {
    let test = TestController::run(
        builder().watches_source(failing_source("bus", secs(1), "no such bus")),
        Script::new(),
    );
    match watch_error(test.ended().await) {
        WatchError::Failed { source_name, error } => {
            assert_eq!(
                (source_name.as_str(), error.to_string().as_str()),
                ("bus", "no such bus")
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_source_does_not_wait_for_others_that_have_not_synced() {
    let start = Instant::now();
    let builder = builder()
        .watches_source(unsynced_source("ticker"))
        .watches_source(failing_source("bus", secs(1), "no such bus"));
    let error = watch_error(TestController::run(builder, Script::new()).ended().await);
    assert_eq!(
        (error.to_string().as_str(), start.elapsed()),
        ("bus: no such bus", secs(1))
    );
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_fails_the_start() {
    let source = source::from_fn("bus", |_: Enqueue<Name>, _| async { panic!("failed") });
    let error = watch_error(
        TestController::run(builder().watches_source(source), Script::new())
            .ended()
            .await,
    );
    assert_eq!(error.to_string(), "bus: panicked: failed");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_after_the_start_does_not_affect_others() {
    let source = source::from_fn("bus", |_: Enqueue<Name>, cx: SourceContext| async move {
        cx.synced();
        advance(secs(1)).await;
        anyhow::bail!("failed")
    });
    let script = Script::new();
    let test = TestController::run(
        builder()
            .watches_source(source)
            .watches_source(idle_source("ticker")),
        script.clone(),
    );
    advance(secs(2)).await;
    test.queue().add("a");
    settle().await;
    assert_eq!(script.runs(), [(2_000, 1)]);
    let states: Vec<_> = test
        .report()
        .watches
        .into_iter()
        .map(|watch| (watch.name, watch.state, watch.error))
        .collect();
    let expected = [
        ("bus", "failed", Some("failed")),
        ("ticker", "synced", None),
    ];
    assert_eq!(
        states,
        expected.map(|(name, state, error)| (name.to_owned(), state, error.map(str::to_owned)))
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_leaves_no_tasks() {
    let before = alive_tasks();
    let (controller, task) = builder()
        .watches_source(idle_source("ticker"))
        .watches_source(failing_source("bus", secs(1), "no"))
        .build(Script::new())
        .unwrap();
    let watches = controller.watches();
    with_timeout(task.run_until(pending()))
        .await
        .expect_err("the start fails");
    assert_eq!(alive_tasks(), before);
    assert!(matches!(watches[0].state(), WatchState::Stopped));
    assert!(controller.queue().is_closed());
    with_timeout(controller.stop()).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_stopped_before_its_sync_does_not_fail_the_start() {
    for before_the_start in [true, false] {
        let script = Script::new();
        let (controller, task) = builder()
            .watches_source(unsynced_source("ticker"))
            .build(script.clone())
            .unwrap();
        let watch = controller.watches().remove(0);
        if before_the_start {
            with_timeout(watch.stop()).await;
        }
        let running = tokio::spawn(task.run_until(pending()));
        settle().await;
        with_timeout(watch.stop()).await;
        controller.queue().add("a");
        settle().await;
        assert_eq!(script.runs().len(), 1);
        with_timeout(controller.stop()).await;
        running.await.unwrap().expect("no error");
    }
}

#[tokio::test(start_paused = true)]
async fn a_warmed_up_controller_reconciles_at_once() {
    let (starts, script) = (Arc::new(AtomicUsize::new(0)), Script::new());
    let builder = builder()
        .watches_source(counting_source(&starts))
        .watches_source(source_that_adds("bus", "a"));
    let (controller, task) = builder.build(script.clone()).unwrap();
    with_timeout(controller.warm_up()).await.unwrap();
    advance(secs(9)).await;
    assert_eq!(
        (controller.queue().len(), script.runs().len()),
        (1, 0),
        "queued, but not reconciled"
    );
    let running = tokio::spawn(task.run_until(pending()));
    settle().await;
    assert_eq!(
        (script.runs(), starts.load(SeqCst)),
        (vec![(10_000, 1)], 1),
        "the sources were started once"
    );
    with_timeout(controller.stop()).await;
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn concurrent_warm_ups_wait_for_the_same_sources() {
    let starts = Arc::new(AtomicUsize::new(0));
    let (controller, task) = builder()
        .watches_source(counting_source(&starts))
        .build(Script::new())
        .unwrap();
    let start = Instant::now();
    let running = tokio::spawn(task.run_until(pending()));
    let (one, two) =
        with_timeout(async { tokio::join!(controller.warm_up(), controller.warm_up()) }).await;
    assert!(one.is_ok() && two.is_ok());
    assert_eq!((start.elapsed(), starts.load(SeqCst)), (secs(1), 1));
    with_timeout(controller.stop()).await;
    running.await.unwrap().unwrap();
}

/// controller-runtime ignores the error of a failed warm-up.
#[tokio::test(start_paused = true)]
async fn a_failed_warm_up_fails_the_start() {
    for another in [false, true] {
        let builder = builder().watches_source(failing_source("bus", secs(1), "no such bus"));
        let (controller, task) = builder.build(Script::new()).unwrap();
        assert_eq!(
            with_timeout(controller.warm_up())
                .await
                .unwrap_err()
                .to_string(),
            "bus: no such bus"
        );
        if another {
            controller.watch(idle_source("ticker")).unwrap();
        }
        let error = with_timeout(task.run_until(pending()))
            .await
            .expect_err("the start fails");
        assert_eq!(error.to_string(), "bus: no such bus");
    }
}

#[tokio::test(start_paused = true)]
async fn a_warm_up_continues_if_its_future_is_dropped() {
    let starts = Arc::new(AtomicUsize::new(0));
    let (controller, task) = builder()
        .watches_source(counting_source(&starts))
        .build(Script::new())
        .unwrap();
    tokio::select! {
        biased;
        _ = controller.warm_up() => panic!("it takes a second"),
        () = advance(ms(500)) => {}
    }
    advance(ms(500)).await;
    let start = Instant::now();
    with_timeout(controller.warm_up()).await.unwrap();
    assert_eq!((start.elapsed(), starts.load(SeqCst)), (Duration::ZERO, 1));
    drop(task);
}

#[tokio::test(start_paused = true)]
async fn a_warm_up_of_a_stopped_controller_is_an_error() {
    let (controller, task) = builder()
        .watches_source(unsynced_source("ticker"))
        .build(Script::new())
        .unwrap();
    let warming = tokio::spawn({
        let controller = controller.clone();
        async move { controller.warm_up().await }
    });
    settle().await;
    with_timeout(controller.stop()).await;
    let expected = "cannot add a source to controller test: the controller has stopped";
    assert_eq!(
        with_timeout(warming)
            .await
            .unwrap()
            .unwrap_err()
            .to_string(),
        expected
    );
    assert_eq!(
        controller.warm_up().await.unwrap_err().to_string(),
        expected
    );
    drop(task);
}

#[tokio::test(start_paused = true)]
async fn stopping_a_warmed_up_controller_stops_its_sources() {
    let before = alive_tasks();
    let (controller, task) = builder()
        .watches_source(idle_source("ticker"))
        .build(Script::new())
        .unwrap();
    with_timeout(controller.warm_up()).await.unwrap();
    let watch = controller.watches().remove(0);
    with_timeout(controller.stop()).await;
    assert!(matches!(watch.state(), WatchState::Stopped));
    assert_eq!(alive_tasks(), before);
    with_timeout(task.run_until(pending()))
        .await
        .expect("a stopped controller returns at once");
}

#[tokio::test(start_paused = true)]
async fn sources_added_after_the_warm_up_start_at_once() {
    let (reconciler, mut runs) = manual_reconciler();
    let (controller, task) = builder().build(reconciler).unwrap();
    with_timeout(controller.warm_up()).await.unwrap();
    let watch = controller.watch(source_that_adds("bus", "a")).unwrap();
    with_timeout(watch.await_synced()).await.unwrap();
    assert_eq!(controller.queue().len(), 1);
    assert!(runs.started().is_empty());
    drop(task);
}
