//! Tests of watches that are added and stopped while a controller runs.

use crate::test_controller::{
    Name, Script, TestController, advance, alive_tasks, builder, failing_source, idle_source,
    manual_reconciler, ms, secs, settle, source_synced_after, source_that_adds, unsynced_source,
    with_timeout,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use steersman::{
    controller::{Options, WatchState},
    handler::Enqueue,
    prelude::*,
    reconcile::{Context, Result},
    source::SourceContext,
};
use tokio::time::Instant;

fn names(controller: &Controller<Name>) -> Vec<String> {
    controller
        .watches()
        .iter()
        .map(|watch| watch.name().to_owned())
        .collect()
}

/// Creates a source that adds "tick" each second.
fn ticking() -> impl Source<Name> {
    source::from_fn(
        "ticker",
        |queue: Enqueue<Name>, cx: SourceContext| async move {
            cx.synced();
            loop {
                tokio::select! {
                    () = cx.stopped() => return Ok(()),
                    () = tokio::time::sleep(secs(1)) => queue.add("tick"),
                }
            }
        },
    )
}

#[tokio::test(start_paused = true)]
async fn the_start_waits_for_watches_added_before_it() {
    let script = Script::new();
    let (controller, task) = builder().build(script.clone()).unwrap();
    let before = controller
        .watch(source_synced_after("before", secs(5)))
        .unwrap();
    controller.queue().add("a");
    let running = tokio::spawn(task.run_until(std::future::pending()));
    advance(secs(1)).await;
    assert!(script.runs().is_empty() && matches!(before.state(), WatchState::Starting));
    with_timeout(before.await_synced()).await.unwrap();
    settle().await;
    assert_eq!(script.runs(), [(5_000, 1)]);

    let start = Instant::now();
    let later = controller
        .watch(source_synced_after("later", secs(5)))
        .unwrap();
    controller.queue().add("b");
    settle().await;
    assert_eq!(
        script.runs().len(),
        2,
        "the controller does not wait for a later watch"
    );
    assert!(matches!(later.state(), WatchState::Starting));
    with_timeout(later.await_synced()).await.unwrap();
    assert_eq!(start.elapsed(), secs(5), "the handle waits");
    assert_eq!(names(&controller), ["before", "later"]);
    controller.stop().await;
    running.await.unwrap().unwrap();
    assert!(matches!(later.state(), WatchState::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_watch_adds_no_requests_and_does_not_affect_others() {
    let script = Script::new();
    let test = TestController::run(builder(), script.clone());
    let watch = test.watch(ticking()).unwrap();
    let other = test.watch(idle_source("other")).unwrap();
    advance(ms(3_500)).await;
    assert_eq!(script.runs().len(), 3);
    with_timeout(watch.stop()).await;
    advance(secs(10)).await;
    assert_eq!(script.runs().len(), 3);
    assert!(matches!(
        (watch.state(), other.state()),
        (WatchState::Stopped, WatchState::Synced)
    ));
    assert_eq!(names(&test), ["other"]);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn dropping_a_scoped_watch_stops_it() {
    let script = Script::new();
    let test = TestController::run(builder(), script.clone());
    drop(test.watch(ticking()).unwrap());
    let scoped = test.watch(idle_source("scoped")).unwrap().scoped();
    let handle = scoped.handle().clone();
    advance(ms(1_500)).await;
    assert_eq!((script.runs().len(), names(&test).len()), (1, 2));
    drop(scoped);
    settle().await;
    assert!(matches!(handle.state(), WatchState::Stopped));
    assert_eq!(names(&test), ["ticker"]);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_stopped_before_the_start_never_runs() {
    let started = Arc::new(AtomicUsize::new(0));
    let source = source::from_fn("counted", {
        let started = started.clone();
        move |_: Enqueue<Name>, _| async move {
            started.fetch_add(1, SeqCst);
            Ok(())
        }
    });
    let (controller, task) = builder().build(Script::new()).unwrap();
    let watch = controller.watch(source).unwrap();
    with_timeout(watch.stop()).await;
    assert!(matches!(watch.state(), WatchState::Stopped) && controller.watches().is_empty());
    with_timeout(task.run_until(advance(secs(1))))
        .await
        .unwrap();
    assert_eq!(started.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn the_report_has_the_state_of_each_watch() {
    let source = source::from_fn("bus", |_: Enqueue<Name>, cx: SourceContext| async move {
        advance(secs(1)).await;
        cx.synced();
        advance(secs(1)).await;
        cx.degraded(anyhow::anyhow!("connection lost"));
        advance(secs(1)).await;
        cx.synced();
        advance(secs(1)).await;
        anyhow::bail!("failed")
    });
    let test: TestController = TestController::run(builder(), Script::new());
    settle().await;
    let watch = test.watch(source).unwrap();
    advance(ms(500)).await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        let [report] = &test.report().watches[..] else {
            panic!("one watch")
        };
        seen.push((report.state, report.error.clone().unwrap_or_default()));
        advance(secs(1)).await;
    }
    let expected = [
        ("starting", ""),
        ("synced", ""),
        ("degraded", "connection lost"),
        ("synced", ""),
        ("failed", "failed"),
    ];
    assert_eq!(
        seen,
        expected.map(|(state, error)| (state, error.to_owned()))
    );
    assert!(matches!(watch.state(), WatchState::Failed(error) if error.to_string() == "failed"));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_later_watch_that_fails_or_does_not_sync_affects_nothing_else() {
    let options = Options {
        sync_timeout: Some(secs(3)),
        ..Options::default()
    };
    let script = Script::new();
    let test = TestController::run(builder().options(options), script.clone());
    settle().await;
    let (unsynced_source, broken) = (
        test.watch(unsynced_source("silent")).unwrap(),
        test.watch(failing_source("broken", secs(1), "no such bus"))
            .unwrap(),
    );
    let error = with_timeout(broken.await_synced()).await.unwrap_err();
    assert_eq!(error.to_string(), "broken: no such bus");
    let error = with_timeout(unsynced_source.await_synced())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("silent not synced after 3 s: "),
        "{error}"
    );
    assert!(
        matches!(unsynced_source.state(), WatchState::Starting),
        "the source continues"
    );
    test.queue().add("a");
    settle().await;
    assert_eq!(script.runs().len(), 1);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_watch_is_in_the_report_until_it_is_added_again() {
    let test: TestController = TestController::run(builder(), Script::new());
    settle().await;
    for _ in 0..10 {
        test.watch(failing_source("bus", Duration::ZERO, "no such bus"))
            .unwrap();
        settle().await;
        assert_eq!(test.report().watches.len(), 1);
        assert_eq!(test.report().watches[0].state, "failed");
    }
    test.watch(idle_source("bus")).unwrap();
    settle().await;
    assert_eq!(
        (test.report().watches.len(), test.report().watches[0].state),
        (1, "synced")
    );
    test.end().await;
}

/// `stop` waits for a handler that has started, and no handler starts afterwards.
#[tokio::test(start_paused = true)]
async fn a_reconciler_can_stop_its_own_watches() {
    struct WatchingReconciler(Controller<Name>);
    impl Reconciler<Name> for WatchingReconciler {
        async fn reconcile(&self, name: Name, _: &Context) -> Result<Outcome> {
            if name == "found" {
                self.0
                    .watch(source_that_adds("found", "added"))?
                    .await_synced()
                    .await?;
            } else {
                for watch in self.0.watches() {
                    watch.stop().await;
                }
            }
            Ok(Outcome::done())
        }
    }
    let builder = builder();
    let reconciler = WatchingReconciler(builder.handle());
    let test = TestController::run(builder, reconciler);
    test.queue().add("found");
    settle().await;
    assert_eq!(
        (test.stats().success, test.stats().errors),
        (2, 0),
        "two reconciles"
    );
    assert!(test.watches().is_empty());
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_stopped_watches_leave_no_task() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder(), reconciler);
    let stays = test.watch(idle_source("stays")).unwrap();
    settle().await;
    let before = alive_tasks();
    let alive = Arc::new(());
    for round in 0..10_000 {
        let held = alive.clone();
        let source = source::from_fn(
            "comes and goes",
            move |_: Enqueue<Name>, cx: SourceContext| async move {
                cx.synced();
                cx.stopped().await;
                drop(held);
                Ok(())
            },
        );
        let watch = test.watch(source).unwrap();
        // Some before their sync, some after.
        if round % 3 > 0 {
            with_timeout(watch.await_synced()).await.unwrap();
        }
        if round % 2 > 0 {
            with_timeout(watch.stop()).await;
        } else {
            drop(watch.scoped());
        }
    }
    settle().await;
    assert_eq!((alive_tasks(), Arc::strong_count(&alive)), (before, 1));
    assert_eq!(names(&test), ["stays"]);
    with_timeout(stays.stop()).await;
    assert!(test.watches().is_empty());
    assert!(runs.started().is_empty());
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn watches_stopped_before_the_start_are_freed() {
    let (controller, task) = builder().build(Script::new()).unwrap();
    let alive = Arc::new(());
    for _ in 0..1_000 {
        let held = alive.clone();
        let source = source::from_fn("never", move |_: Enqueue<Name>, _| async move {
            drop(held);
            Ok(())
        });
        with_timeout(controller.watch(source).unwrap().stop()).await;
    }
    assert!(
        Arc::strong_count(&alive) <= 2,
        "all but the last source are freed"
    );
    drop(task);
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// Calls its controller when it is dropped.
struct CallControllerOnDrop(Controller<Name>);

impl Drop for CallControllerOnDrop {
    fn drop(&mut self) {
        self.0.watches();
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_can_call_its_controller_when_it_is_dropped() {
    let (controller, task) = builder().build(Script::new()).expect("a valid controller");
    let calling_source = |name: &str| {
        let calling_source = CallControllerOnDrop(controller.clone());
        source::from_fn(name, move |_: Enqueue<Name>, _: SourceContext| {
            let _asking = &calling_source;
            std::future::pending()
        })
    };
    controller
        .watch(calling_source("one"))
        .expect("the watch is added")
        .stop()
        .await;
    controller
        .watch(calling_source("two"))
        .expect("the watch is added");
    let last = calling_source("three");
    drop(task);
    assert!(controller.watch(last).is_err(), "the controller is stopped");
}

#[tokio::test(start_paused = true)]
async fn a_controller_supports_ten_thousand_watches() {
    let test = TestController::run(builder(), Script::new());
    settle().await;
    let watches: Vec<_> = (0..10_000)
        .map(|n| {
            test.watch(idle_source(&format!("watch {}", n % 5000)))
                .expect("a watch")
        })
        .collect();
    settle().await;
    assert_eq!(
        (test.watches().len(), test.report().sources.len()),
        (10_000, 5000)
    );
    for watch in &watches[..5000] {
        watch.stop().await;
    }
    assert_eq!(
        (test.watches().len(), test.report().sources.len()),
        (5000, 5000)
    );
    test.end().await;
}
