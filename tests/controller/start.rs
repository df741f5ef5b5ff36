//! How controllers start: sources first, then workers, and what becomes of sources that do not come about.

use crate::rig::{
    Name, Rig, Script, adding, builder, by_hand, failing, ms, pass, quiet, secs, settle, silent, soon, synced_after,
    tasks, watch_error,
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
    Options { sync_timeout: Some(time), ..Options::default() }
}

/// Counts how often it was started.
fn counted(starts: &Arc<AtomicUsize>) -> impl Source<Name> + use<> {
    let starts = starts.clone();
    source::from_fn("counted", move |_: Enqueue<Name>, cx: SourceContext| async move {
        starts.fetch_add(1, SeqCst);
        pass(secs(1)).await;
        cx.synced();
        cx.stopped().await;
        Ok(())
    })
}

// Catalogue 7
#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_the_initial_events_of_all_sources_are_through() {
    let script = Script::new();
    let builder = builder().watches_source(adding("quick", "a")).watches_source(synced_after("slow", secs(5)));
    let rig = Rig::run(builder, script.clone());
    pass(ms(4_999)).await;
    assert_eq!((script.runs().len(), rig.queue().len()), (0, 1));
    pass(secs(1)).await;
    assert_eq!(script.runs(), [(5_000, 1)]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_returns_has_told_all_it_had_to() {
    let script = Script::new();
    let source = source::from_fn("once", |queue: Enqueue<Name>, _| async move {
        queue.add("a");
        Ok(())
    });
    let rig = Rig::run(builder().watches_source(source), script.clone());
    settle().await;
    assert_eq!(script.runs(), [(0, 1)]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_without_sources_starts_at_once() {
    let script = Script::new();
    let rig = Rig::run(builder(), script.clone());
    rig.queue().add("a");
    settle().await;
    assert_eq!(script.runs(), [(0, 1)]);
    rig.end().await;
}

// Catalogue 13 and 15
#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_sync_in_time_fails_the_start_with_its_name_and_what_to_do() {
    let start = Instant::now();
    let builder = builder().options(sync_within(secs(3))).watches_source(quiet("bus")).watches_source(silent("ticker"));
    let error = watch_error(Rig::run(builder, Script::new()).ended().await);
    assert_eq!(start.elapsed(), secs(3));
    assert_eq!(
        error.to_string(),
        "ticker: not synced within 3 s: the first events are not through yet: a source says so by \
         `SourceContext::synced`, or by returning"
    );
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_sync_in_time_is_quoted_if_it_said_why() {
    let source = source::from_fn("bus", |_: Enqueue<Name>, cx: SourceContext| async move {
        cx.degraded(anyhow::anyhow!("no route to host"));
        cx.stopped().await;
        Ok(())
    });
    let error = watch_error(Rig::run(builder().watches_source(source), Script::new()).ended().await);
    assert_eq!(error.to_string(), "bus: not synced within 120 s: no route to host", "two minutes by default");
}

// Catalogue 14
#[tokio::test(start_paused = true)]
async fn being_told_to_stop_while_it_starts_is_no_error() {
    let (controller, task) = builder().watches_source(silent("ticker")).build(Script::new()).unwrap();
    soon(task.run_until(pass(secs(2)))).await.expect("told by who runs it");
    assert!(matches!(controller.watch(quiet("late")), Err(WatchError::ControllerStopped(_))));

    let start = Instant::now();
    let rig = Rig::run(builder().watches_source(silent("ticker")), Script::new());
    pass(secs(2)).await;
    rig.end().await; // told by its handle
    assert_eq!(start.elapsed(), secs(2), "at once");
}

// Catalogue 16
#[tokio::test(start_paused = true)]
async fn the_error_of_a_source_is_that_of_the_start() {
    let rig = Rig::run(builder().watches_source(failing("bus", secs(1), "no such bus")), Script::new());
    match watch_error(rig.ended().await) {
        WatchError::Failed { source_name, error } => {
            assert_eq!((source_name.as_str(), error.to_string().as_str()), ("bus", "no such bus"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_source_does_not_wait_for_others_that_have_not_synced() {
    let start = Instant::now();
    let builder = builder().watches_source(silent("ticker")).watches_source(failing("bus", secs(1), "no such bus"));
    let error = watch_error(Rig::run(builder, Script::new()).ended().await);
    assert_eq!((error.to_string().as_str(), start.elapsed()), ("bus: no such bus", secs(1)));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_fails_the_start() {
    let source = source::from_fn("bus", |_: Enqueue<Name>, _| async { panic!("derailed") });
    let error = watch_error(Rig::run(builder().watches_source(source), Script::new()).ended().await);
    assert_eq!(error.to_string(), "bus: panicked: derailed");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_later_costs_nothing_but_itself() {
    let source = source::from_fn("bus", |_: Enqueue<Name>, cx: SourceContext| async move {
        cx.synced();
        pass(secs(1)).await;
        anyhow::bail!("derailed")
    });
    let script = Script::new();
    let rig = Rig::run(builder().watches_source(source).watches_source(quiet("ticker")), script.clone());
    pass(secs(2)).await;
    rig.queue().add("a");
    settle().await;
    assert_eq!(script.runs(), [(2_000, 1)]);
    let states: Vec<_> = rig.report().watches.into_iter().map(|watch| (watch.name, watch.state, watch.error)).collect();
    let expected = [("bus", "failed", Some("derailed")), ("ticker", "synced", None)];
    assert_eq!(states, expected.map(|(name, state, error)| (name.to_owned(), state, error.map(str::to_owned))));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_start_that_failed_nothing_is_left() {
    let before = tasks();
    let (controller, task) = builder()
        .watches_source(quiet("ticker"))
        .watches_source(failing("bus", secs(1), "no"))
        .build(Script::new())
        .unwrap();
    let watches = controller.watches();
    soon(task.run_until(pending())).await.expect_err("it does not start");
    assert_eq!(tasks(), before);
    assert!(matches!(watches[0].state(), WatchState::Stopped));
    assert!(controller.queue().is_closed());
    soon(controller.stop()).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_stopped_before_it_synced_does_not_fail_the_start() {
    for before_the_start in [true, false] {
        let script = Script::new();
        let (controller, task) = builder().watches_source(silent("ticker")).build(script.clone()).unwrap();
        let watch = controller.watches().remove(0);
        if before_the_start {
            soon(watch.stop()).await;
        }
        let running = tokio::spawn(task.run_until(pending()));
        settle().await;
        soon(watch.stop()).await;
        controller.queue().add("a");
        settle().await;
        assert_eq!(script.runs().len(), 1);
        soon(controller.stop()).await;
        running.await.unwrap().expect("no error");
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_was_warmed_up_acts_at_once() {
    let (starts, script) = (Arc::new(AtomicUsize::new(0)), Script::new());
    let builder = builder().watches_source(counted(&starts)).watches_source(adding("bus", "a"));
    let (controller, task) = builder.build(script.clone()).unwrap();
    soon(controller.warm_up()).await.unwrap();
    pass(secs(9)).await;
    assert_eq!((controller.queue().len(), script.runs().len()), (1, 0), "it is queued, and nobody works");
    let running = tokio::spawn(task.run_until(pending()));
    settle().await;
    assert_eq!((script.runs(), starts.load(SeqCst)), (vec![(10_000, 1)], 1), "the sources were started once");
    soon(controller.stop()).await;
    running.await.unwrap().unwrap();
}

// Catalogue 17
#[tokio::test(start_paused = true)]
async fn whoever_warms_up_at_the_same_time_waits_for_the_same_sources() {
    let starts = Arc::new(AtomicUsize::new(0));
    let (controller, task) = builder().watches_source(counted(&starts)).build(Script::new()).unwrap();
    let start = Instant::now();
    let running = tokio::spawn(task.run_until(pending()));
    let (one, two) = soon(async { tokio::join!(controller.warm_up(), controller.warm_up()) }).await;
    assert!(one.is_ok() && two.is_ok());
    assert_eq!((start.elapsed(), starts.load(SeqCst)), (secs(1), 1));
    soon(controller.stop()).await;
    running.await.unwrap().unwrap();
}

/// Upstream forgets it: 4.5, 10.
#[tokio::test(start_paused = true)]
async fn a_warm_up_that_failed_fails_the_start_as_well() {
    for another in [false, true] {
        let builder = builder().watches_source(failing("bus", secs(1), "no such bus"));
        let (controller, task) = builder.build(Script::new()).unwrap();
        assert_eq!(soon(controller.warm_up()).await.unwrap_err().to_string(), "bus: no such bus");
        if another {
            controller.watch(quiet("ticker")).unwrap();
        }
        let error = soon(task.run_until(pending())).await.expect_err("it does not start");
        assert_eq!(error.to_string(), "bus: no such bus");
    }
}

#[tokio::test(start_paused = true)]
async fn a_warm_up_that_nobody_waits_for_goes_on() {
    let starts = Arc::new(AtomicUsize::new(0));
    let (controller, task) = builder().watches_source(counted(&starts)).build(Script::new()).unwrap();
    tokio::select! {
        biased;
        _ = controller.warm_up() => panic!("it takes a second"),
        () = pass(ms(500)) => {}
    }
    pass(ms(500)).await;
    let start = Instant::now();
    soon(controller.warm_up()).await.unwrap();
    assert_eq!((start.elapsed(), starts.load(SeqCst)), (Duration::ZERO, 1));
    drop(task);
}

#[tokio::test(start_paused = true)]
async fn a_warm_up_of_a_controller_that_is_stopped_says_so() {
    let (controller, task) = builder().watches_source(silent("ticker")).build(Script::new()).unwrap();
    let warming = tokio::spawn({
        let controller = controller.clone();
        async move { controller.warm_up().await }
    });
    settle().await;
    soon(controller.stop()).await;
    let expected = "controller test has stopped: nothing can be watched by it any more";
    assert_eq!(soon(warming).await.unwrap().unwrap_err().to_string(), expected);
    assert_eq!(controller.warm_up().await.unwrap_err().to_string(), expected);
    drop(task);
}

#[tokio::test(start_paused = true)]
async fn a_warm_controller_that_is_stopped_without_having_run_has_no_source_left() {
    let before = tasks();
    let (controller, task) = builder().watches_source(quiet("ticker")).build(Script::new()).unwrap();
    soon(controller.warm_up()).await.unwrap();
    let watch = controller.watches().remove(0);
    soon(controller.stop()).await;
    assert!(matches!(watch.state(), WatchState::Stopped));
    assert_eq!(tasks(), before);
    soon(task.run_until(pending())).await.expect("to run it then is to end at once");
}

#[tokio::test(start_paused = true)]
async fn sources_added_after_the_warm_up_begin_at_once() {
    let (reconciler, mut runs) = by_hand();
    let (controller, task) = builder().build(reconciler).unwrap();
    soon(controller.warm_up()).await.unwrap();
    let watch = controller.watch(adding("bus", "a")).unwrap();
    soon(watch.await_synced()).await.unwrap();
    assert_eq!(controller.queue().len(), 1);
    assert!(runs.begun().is_empty());
    drop(task);
}
