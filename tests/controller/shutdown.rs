//! Tests of the shutdown of controllers, which leaves nothing behind.

use crate::test_controller::{
    Name, Script, TestController, advance, alive_tasks, builder, idle_source, manual_reconciler,
    ms, secs, settle, source_synced_after, unsynced_source, with_timeout,
};
use parking_lot::Mutex;
use std::{
    future::pending,
    sync::{Arc, Weak},
    time::Duration,
};
use steersman::{
    controller::{WatchError, WatchState},
    handler::Enqueue,
    prelude::*,
    reconcile::{Context, Result},
    source::SourceContext,
};
use tokio::time::Instant;

#[test]
fn building_a_controller_requires_no_runtime() {
    let built = builder()
        .watches_source(idle_source("ticker"))
        .max_concurrent(4)
        .build(Script::new());
    let (controller, task) = built.unwrap();
    assert!(matches!(
        controller.watches()[0].state(),
        WatchState::Starting
    ));
    drop(task);
    assert!(controller.watches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn building_a_controller_spawns_no_task() {
    let before = alive_tasks();
    let (controller, task) = builder()
        .watches_source(idle_source("ticker"))
        .build(Script::new())
        .unwrap();
    controller.watch(idle_source("another")).unwrap();
    controller.queue().add("a");
    settle().await;
    assert_eq!(alive_tasks(), before);
    drop(task);
}

#[tokio::test(start_paused = true)]
async fn a_stop_signals_running_reconciles_and_waits_for_them() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let reconciler = reconcile::from_fn({
        let log = log.clone();
        move |_: Name, cx: Context| {
            let log = log.clone();
            async move {
                assert!(!cx.is_shutting_down());
                cx.shutdown().await;
                assert!(cx.is_shutting_down());
                log.lock().push("stopping");
                advance(secs(10)).await;
                log.lock().push("ended");
                Ok(Outcome::done())
            }
        }
    });
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    advance(secs(60)).await;
    assert!(log.lock().is_empty());
    let stopping = Instant::now();
    let controller = test.clone();
    test.end().await;
    assert_eq!((*log.lock()).clone(), ["stopping", "ended"]);
    assert_eq!(stopping.elapsed(), secs(10));
    assert_eq!(controller.stats().success, 1, "the reconcile is counted");
}

#[tokio::test(start_paused = true)]
async fn no_reconcile_starts_after_the_stop() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    for name in ["a", "b", "c"] {
        test.queue().add(name);
    }
    let run = runs.next().await;
    let stopping = tokio::spawn(test.end());
    settle().await;
    run.answer(Ok(Outcome::requeue_after(Duration::ZERO)));
    with_timeout(stopping).await.unwrap();
    assert!(
        runs.started().is_empty(),
        "queued requests and requeues are dropped"
    );
}

#[tokio::test(start_paused = true)]
async fn no_task_is_left_after_the_stop() {
    let before = alive_tasks();
    let (reconciler, mut runs) = manual_reconciler();
    let builder = builder()
        .watches_source(idle_source("ticker"))
        .max_concurrent(8);
    let (controller, task) = builder.build(reconciler).unwrap();
    let (watch, stop) = (
        controller.watch(idle_source("another")).unwrap(),
        controller.clone(),
    );
    let running = task.run_until(async {
        with_timeout(
            controller
                .watch(idle_source("late"))
                .unwrap()
                .await_synced(),
        )
        .await
        .unwrap();
        controller.queue().add("a");
        runs.next().await.done();
        assert!(
            alive_tasks() >= before + 8 + 3,
            "workers and sources are tasks"
        );
    });
    with_timeout(running).await.unwrap();
    assert_eq!(alive_tasks(), before);
    assert!(matches!(watch.state(), WatchState::Stopped));
    assert!(stop.watches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_task_is_left_after_run_until_was_dropped() {
    let before = alive_tasks();
    let (reconciler, mut runs) = manual_reconciler();
    let (controller, task) = builder()
        .watches_source(idle_source("ticker"))
        .max_concurrent(2)
        .build(reconciler)
        .unwrap();
    let watch = controller.watches().remove(0);
    let run = tokio::select! {
        biased;
        _ = task.run_until(pending()) => panic!("not stopped"),
        run = async {
            controller.queue().add("a");
            runs.next().await
        } => run,
    };
    with_timeout(controller.stop()).await;
    settle().await;
    assert!(run.was_dropped());
    assert_eq!(alive_tasks(), before);
    assert!(matches!(watch.state(), WatchState::Stopped));
    assert!(controller.queue().is_closed());
    controller.queue().add("b");
    settle().await;
    assert!(runs.started().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_task_is_left_after_run_until_was_dropped_during_the_start() {
    let before = alive_tasks();
    let (controller, task) = builder()
        .watches_source(unsynced_source("ticker"))
        .build(Script::new())
        .unwrap();
    tokio::select! {
        biased;
        _ = task.run_until(pending()) => panic!("not stopped"),
        () = advance(secs(1)) => {}
    }
    settle().await;
    assert_eq!(alive_tasks(), before);
    with_timeout(controller.stop()).await;
}

#[tokio::test(start_paused = true)]
async fn dropping_a_task_that_never_ran_stops_its_controller() {
    for polled in [false, true] {
        let (controller, task) = builder()
            .watches_source(idle_source("ticker"))
            .build(Script::new())
            .unwrap();
        let watch = controller.watches().remove(0);
        if polled {
            drop(task.run_until(pending()));
        } else {
            drop(task);
        }
        assert!(matches!(watch.state(), WatchState::Stopped));
        assert!(controller.queue().is_closed(), "the queue is closed");
        assert!(matches!(
            controller.watch(idle_source("late")),
            Err(WatchError::ControllerStopped(_))
        ));
        with_timeout(controller.stop()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn watching_after_the_stop_is_an_error() {
    let test = TestController::run(builder(), Script::new());
    settle().await;
    let controller = test.clone();
    test.end().await;
    let error = controller.watch(idle_source("late")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot add a source to controller test: the controller has stopped"
    );
    assert!(controller.watches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_handle_of_a_builder_belongs_to_the_built_controller() {
    let builder = builder();
    let early: Controller<Name> = builder.handle();
    assert_eq!(early.name(), "test");
    let error = early.watch(idle_source("early")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot add a source to controller test: it was never built; finish its builder with `build`"
    );
    let script = Script::new();
    let test = TestController::run(builder, script.clone());
    early.watch(idle_source("now")).unwrap();
    early.queue().add("a");
    settle().await;
    assert_eq!(script.runs().len(), 1);
    test.end().await;
    assert!(matches!(
        early.watch(idle_source("late")),
        Err(WatchError::ControllerStopped(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_handle_whose_builder_was_dropped_stays_unbuilt() {
    let early: Controller<Name> = builder().handle();
    assert!(matches!(
        early.watch(idle_source("early")),
        Err(WatchError::NeverBuilt(_))
    ));
    with_timeout(early.stop()).await;
}

/// Reconciler that adds watches with the handle of its own controller.
struct Watching {
    handle: Controller<Name>,
    #[expect(dead_code, reason = "freed with the reconciler")]
    alive: Arc<()>,
}

impl Reconciler<Name> for Watching {
    async fn reconcile(&self, _: Name, _: &Context) -> Result<Outcome> {
        self.handle.watch(idle_source("found out"))?;
        Ok(Outcome::done())
    }
}

fn watching() -> (
    Weak<()>,
    Controller<Name>,
    steersman::controller::ControllerTask<Name>,
) {
    let (builder, alive) = (builder(), Arc::new(()));
    let (handle, weak) = (builder.handle(), Arc::downgrade(&alive));
    let (controller, task) = builder.build(Watching { handle, alive }).unwrap();
    (weak, controller, task)
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_that_owns_the_controllers_handle_is_freed_on_stop() {
    let (weak, controller, task) = watching();
    let running = tokio::spawn(task.run_until(pending()));
    controller.queue().add("a");
    settle().await;
    assert_eq!((controller.watches().len(), weak.strong_count()), (1, 1));
    with_timeout(controller.stop()).await;
    running.await.unwrap().unwrap();
    assert_eq!(
        weak.strong_count(),
        0,
        "the handle does not keep the reconciler"
    );

    let (weak, _controller, task) = watching();
    drop(task);
    assert_eq!(weak.strong_count(), 0, "the same without a run");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_owns_the_controllers_handle_is_freed_on_stop() {
    for run in [true, false] {
        let alive = Arc::new(());
        let weak = Arc::downgrade(&alive);
        let (controller, task) = builder().build(Script::new()).unwrap();
        let own = (controller.clone(), alive);
        let source = source::from_fn("ticker", |_: Enqueue<Name>, cx: SourceContext| async move {
            let _own = own;
            cx.synced();
            cx.stopped().await;
            Ok(())
        });
        controller.watch(source).unwrap();
        if run {
            with_timeout(task.run_until(advance(secs(1))))
                .await
                .unwrap();
        } else {
            drop(task);
        }
        assert_eq!(weak.strong_count(), 0, "run: {run}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_stops_wait_for_the_same_shutdown() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    let run = runs.next().await;
    let stops: Vec<_> = (0..3)
        .map(|_| {
            let controller = test.clone();
            tokio::spawn(async move { controller.stop().await })
        })
        .collect();
    settle().await;
    assert!(
        stops.iter().all(|stop| !stop.is_finished()),
        "a reconcile is running"
    );
    run.done();
    for stop in stops {
        with_timeout(stop).await.unwrap();
    }
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_continues_if_its_future_is_dropped() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    let run = runs.next().await;
    tokio::select! {
        biased;
        () = test.stop() => panic!("a reconcile is running"),
        () = settle() => {}
    }
    run.done();
    test.ended().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_the_queue_stops_the_controller() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder().max_concurrent(2), reconciler);
    test.queue().add("a");
    let run = runs.next().await;
    test.queue().close();
    settle().await;
    run.done();
    test.ended().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn sources_that_ignore_the_stop_are_dropped_after_a_second() {
    let ignoring_stop = source::from_fn(
        "ignores stop",
        |_: Enqueue<Name>, cx: SourceContext| async move {
            cx.synced();
            pending().await
        },
    );
    let test = TestController::run(
        builder()
            .watches_source(ignoring_stop)
            .watches_source(source_synced_after("slow", ms(1))),
        Script::new(),
    );
    advance(secs(1)).await;
    let stopping = Instant::now();
    test.end().await;
    assert_eq!(stopping.elapsed(), secs(1));
}
