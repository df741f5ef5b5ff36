//! How controllers end, and what is left then: nothing.

use crate::rig::{
    Name, Rig, Script, builder, by_hand, ms, pass, quiet, secs, settle, silent, soon, synced_after, tasks,
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
    source::SourceContext,
};
use tokio::time::Instant;

// Catalogue 20
#[test]
fn building_a_controller_needs_no_runtime_and_starts_nothing() {
    let built = builder().watches_source(quiet("ticker")).max_concurrent(4).build(Script::new());
    let (controller, task) = built.unwrap();
    assert!(matches!(controller.watches()[0].state(), WatchState::Starting));
    drop(task);
    assert!(controller.watches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn building_a_controller_spawns_no_task() {
    let before = tasks();
    let (controller, task) = builder().watches_source(quiet("ticker")).build(Script::new()).unwrap();
    controller.watch(quiet("another")).unwrap();
    controller.queue().add("a");
    settle().await;
    assert_eq!(tasks(), before);
    drop(task);
}

// Catalogue 19
#[tokio::test(start_paused = true)]
async fn runs_in_flight_are_told_first_and_then_waited_for() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let reconciler = reconcile::from_fn({
        let told = told.clone();
        move |_: Name, cx: Context| {
            let told = told.clone();
            async move {
                assert!(!cx.is_shutting_down());
                cx.shutdown().await;
                assert!(cx.is_shutting_down());
                told.lock().push("told");
                pass(secs(10)).await;
                told.lock().push("ended");
                Ok(Outcome::done())
            }
        }
    });
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("a");
    pass(secs(60)).await;
    assert!(told.lock().is_empty());
    let stopping = Instant::now();
    let controller = rig.clone();
    rig.end().await;
    assert_eq!((*told.lock()).clone(), ["told", "ended"]);
    assert_eq!(stopping.elapsed(), secs(10));
    assert_eq!(controller.stats().success, 1, "it is counted as any other");
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_after_the_stop() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    for name in ["a", "b", "c"] {
        rig.queue().add(name);
    }
    let run = runs.next().await;
    let stopping = tokio::spawn(rig.end());
    settle().await;
    run.answer(Ok(Outcome::requeue_after(Duration::ZERO)));
    soon(stopping).await.unwrap();
    assert!(runs.begun().is_empty(), "neither what was queued nor the requeue");
}

#[tokio::test(start_paused = true)]
async fn no_task_is_left_after_the_stop() {
    let before = tasks();
    let (reconciler, mut runs) = by_hand();
    let builder = builder().watches_source(quiet("ticker")).max_concurrent(8);
    let (controller, task) = builder.build(reconciler).unwrap();
    let (watch, stop) = (controller.watch(quiet("another")).unwrap(), controller.clone());
    let running = task.run_until(async {
        soon(controller.watch(quiet("late")).unwrap().await_synced()).await.unwrap();
        controller.queue().add("a");
        runs.next().await.done();
        assert!(tasks() >= before + 8 + 3, "workers and sources are tasks");
    });
    soon(running).await.unwrap();
    assert_eq!(tasks(), before);
    assert!(matches!(watch.state(), WatchState::Stopped));
    assert!(stop.watches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_task_is_left_after_the_future_that_runs_it_was_dropped() {
    let before = tasks();
    let (reconciler, mut runs) = by_hand();
    let (controller, task) = builder().watches_source(quiet("ticker")).max_concurrent(2).build(reconciler).unwrap();
    let watch = controller.watches().remove(0);
    let run = tokio::select! {
        biased;
        _ = task.run_until(pending()) => panic!("nobody stopped it"),
        run = async {
            controller.queue().add("a");
            runs.next().await
        } => run,
    };
    soon(controller.stop()).await;
    settle().await;
    assert!(run.was_dropped());
    assert_eq!(tasks(), before);
    assert!(matches!(watch.state(), WatchState::Stopped));
    assert!(controller.queue().is_closed());
    controller.queue().add("b");
    settle().await;
    assert!(runs.begun().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_task_is_left_after_the_future_was_dropped_while_it_started() {
    let before = tasks();
    let (controller, task) = builder().watches_source(silent("ticker")).build(Script::new()).unwrap();
    tokio::select! {
        biased;
        _ = task.run_until(pending()) => panic!("nobody stopped it"),
        () = pass(secs(1)) => {}
    }
    settle().await;
    assert_eq!(tasks(), before);
    soon(controller.stop()).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_never_run_ends_its_controller() {
    for polled in [false, true] {
        let (controller, task) = builder().watches_source(quiet("ticker")).build(Script::new()).unwrap();
        let watch = controller.watches().remove(0);
        if polled {
            drop(task.run_until(pending()));
        } else {
            drop(task);
        }
        assert!(matches!(watch.state(), WatchState::Stopped));
        assert!(controller.queue().is_closed(), "nobody will ever empty it");
        assert!(matches!(controller.watch(quiet("late")), Err(WatchError::ControllerStopped(_))));
        soon(controller.stop()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn watching_after_the_stop_is_an_error() {
    let rig = Rig::run(builder(), Script::new());
    settle().await;
    let controller = rig.clone();
    rig.end().await;
    let error = controller.watch(quiet("late")).unwrap_err();
    assert_eq!(error.to_string(), "controller test has stopped: nothing can be watched by it any more");
    assert!(controller.watches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_handle_that_a_builder_gives_is_the_controllers() {
    let builder = builder();
    let early: Controller<Name> = builder.handle();
    assert_eq!(early.name(), "test");
    let error = early.watch(quiet("early")).unwrap_err();
    assert_eq!(error.to_string(), "controller test was never built: finish its builder with `build`");
    let script = Script::new();
    let rig = Rig::run(builder, script.clone());
    early.watch(quiet("now")).unwrap();
    early.queue().add("a");
    settle().await;
    assert_eq!(script.runs().len(), 1);
    rig.end().await;
    assert!(matches!(early.watch(quiet("late")), Err(WatchError::ControllerStopped(_))));
}

#[tokio::test(start_paused = true)]
async fn a_handle_whose_builder_was_dropped_stays_unbuilt() {
    let early: Controller<Name> = builder().handle();
    assert!(matches!(early.watch(quiet("early")), Err(WatchError::NeverBuilt(_))));
    soon(early.stop()).await;
}

/// A reconciler that watches by the handle of its own controller.
struct Watching {
    handle: Controller<Name>,
    #[expect(dead_code, reason = "it tells when this is gone")]
    alive: Arc<()>,
}

impl Reconciler<Name> for Watching {
    async fn reconcile(&self, _: Name, _: &Context) -> Result<Outcome> {
        self.handle.watch(quiet("found out"))?;
        Ok(Outcome::done())
    }
}

fn watching() -> (Weak<()>, Controller<Name>, steersman::controller::ControllerTask<Name>) {
    let (builder, alive) = (builder(), Arc::new(()));
    let (handle, weak) = (builder.handle(), Arc::downgrade(&alive));
    let (controller, task) = builder.build(Watching { handle, alive }).unwrap();
    (weak, controller, task)
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_that_owns_its_controllers_handle_is_freed_at_the_end() {
    let (weak, controller, task) = watching();
    let running = tokio::spawn(task.run_until(pending()));
    controller.queue().add("a");
    settle().await;
    assert_eq!((controller.watches().len(), weak.strong_count()), (1, 1));
    soon(controller.stop()).await;
    running.await.unwrap().unwrap();
    assert_eq!(weak.strong_count(), 0, "although the handle lives");

    let (weak, _controller, task) = watching();
    drop(task);
    assert_eq!(weak.strong_count(), 0, "also if it never ran");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_owns_its_controllers_handle_is_freed_at_the_end() {
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
            soon(task.run_until(pass(secs(1)))).await.unwrap();
        } else {
            drop(task);
        }
        assert_eq!(weak.strong_count(), 0, "run: {run}");
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_twice_or_at_once_waits_for_the_same_end() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("a");
    let run = runs.next().await;
    let stops: Vec<_> = (0..3)
        .map(|_| {
            let controller = rig.clone();
            tokio::spawn(async move { controller.stop().await })
        })
        .collect();
    settle().await;
    assert!(stops.iter().all(|stop| !stop.is_finished()), "a run is going on");
    run.done();
    for stop in stops {
        soon(stop).await.unwrap();
    }
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_nobody_waits_for_stops_all_the_same() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("a");
    let run = runs.next().await;
    tokio::select! {
        biased;
        () = rig.stop() => panic!("a run is going on"),
        () = settle() => {}
    }
    run.done();
    rig.ended().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_queue_is_closed_ends() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().max_concurrent(2), reconciler);
    rig.queue().add("a");
    let run = runs.next().await;
    rig.queue().close();
    settle().await;
    run.done();
    rig.ended().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn sources_that_do_not_listen_are_dropped_a_second_after_the_stop() {
    let deaf = source::from_fn("deaf", |_: Enqueue<Name>, cx: SourceContext| async move {
        cx.synced();
        pending().await
    });
    let rig = Rig::run(builder().watches_source(deaf).watches_source(synced_after("slow", ms(1))), Script::new());
    pass(secs(1)).await;
    let stopping = Instant::now();
    rig.end().await;
    assert_eq!(stopping.elapsed(), secs(1));
}
