//! Watches that come and go while a controller runs.

use crate::rig::{
    Name, Rig, Script, adding, builder, by_hand, failing, ms, pass, quiet, secs, settle, silent, soon, synced_after,
    tasks,
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
    source::SourceContext,
};
use tokio::time::Instant;

fn names(controller: &Controller<Name>) -> Vec<String> {
    controller.watches().iter().map(|watch| watch.name().to_owned()).collect()
}

/// One that adds "tick" each second.
fn ticking() -> impl Source<Name> {
    source::from_fn("ticker", |queue: Enqueue<Name>, cx: SourceContext| async move {
        cx.synced();
        loop {
            tokio::select! {
                () = cx.stopped() => return Ok(()),
                () = tokio::time::sleep(secs(1)) => queue.add("tick"),
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_watch_added_before_the_start_is_waited_for_and_a_later_one_is_not() {
    let script = Script::new();
    let (controller, task) = builder().build(script.clone()).unwrap();
    let before = controller.watch(synced_after("before", secs(5))).unwrap();
    controller.queue().add("a");
    let running = tokio::spawn(task.run_until(std::future::pending()));
    pass(secs(1)).await;
    assert!(script.runs().is_empty() && matches!(before.state(), WatchState::Starting));
    soon(before.await_synced()).await.unwrap();
    settle().await;
    assert_eq!(script.runs(), [(5_000, 1)]);

    let start = Instant::now();
    let later = controller.watch(synced_after("later", secs(5))).unwrap();
    controller.queue().add("b");
    settle().await;
    assert_eq!(script.runs().len(), 2, "nobody waits for it");
    assert!(matches!(later.state(), WatchState::Starting));
    soon(later.await_synced()).await.unwrap();
    assert_eq!(start.elapsed(), secs(5), "but who asks the handle to");
    assert_eq!(names(&controller), ["before", "later"]);
    controller.stop().await;
    running.await.unwrap().unwrap();
    assert!(matches!(later.state(), WatchState::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_watch_adds_nothing_any_more_and_leaves_the_others_alone() {
    let script = Script::new();
    let rig = Rig::run(builder(), script.clone());
    let watch = rig.watch(ticking()).unwrap();
    let other = rig.watch(quiet("other")).unwrap();
    pass(ms(3_500)).await;
    assert_eq!(script.runs().len(), 3);
    soon(watch.stop()).await;
    pass(secs(10)).await;
    assert_eq!(script.runs().len(), 3);
    assert!(matches!((watch.state(), other.state()), (WatchState::Stopped, WatchState::Synced)));
    assert_eq!(names(&rig), ["other"]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn dropping_a_handle_changes_nothing_and_dropping_a_scoped_one_stops_the_watch() {
    let script = Script::new();
    let rig = Rig::run(builder(), script.clone());
    drop(rig.watch(ticking()).unwrap());
    let scoped = rig.watch(quiet("scoped")).unwrap().scoped();
    let handle = scoped.handle().clone();
    pass(ms(1_500)).await;
    assert_eq!((script.runs().len(), names(&rig).len()), (1, 2));
    drop(scoped);
    settle().await;
    assert!(matches!(handle.state(), WatchState::Stopped));
    assert_eq!(names(&rig), ["ticker"]);
    rig.end().await;
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
    soon(watch.stop()).await;
    assert!(matches!(watch.state(), WatchState::Stopped) && controller.watches().is_empty());
    soon(task.run_until(pass(secs(1)))).await.unwrap();
    assert_eq!(started.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_how_it_is() {
    let source = source::from_fn("bus", |_: Enqueue<Name>, cx: SourceContext| async move {
        pass(secs(1)).await;
        cx.synced();
        pass(secs(1)).await;
        cx.degraded(anyhow::anyhow!("the line is dead"));
        pass(secs(1)).await;
        cx.synced();
        pass(secs(1)).await;
        anyhow::bail!("derailed")
    });
    let rig: Rig = Rig::run(builder(), Script::new());
    settle().await;
    let watch = rig.watch(source).unwrap();
    pass(ms(500)).await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        let [report] = &rig.report().watches[..] else { panic!("one watch") };
        seen.push((report.state, report.error.clone().unwrap_or_default()));
        pass(secs(1)).await;
    }
    let expected =
        [("starting", ""), ("synced", ""), ("degraded", "the line is dead"), ("synced", ""), ("failed", "derailed")];
    assert_eq!(seen, expected.map(|(state, error)| (state, error.to_owned())));
    assert!(matches!(watch.state(), WatchState::Failed(error) if error.to_string() == "derailed"));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_later_watch_that_does_not_sync_or_fails_says_so_and_costs_nothing_else() {
    let options = Options { sync_timeout: Some(secs(3)), ..Options::default() };
    let script = Script::new();
    let rig = Rig::run(builder().options(options), script.clone());
    settle().await;
    let (silent, broken) =
        (rig.watch(silent("silent")).unwrap(), rig.watch(failing("broken", secs(1), "no such bus")).unwrap());
    let error = soon(broken.await_synced()).await.unwrap_err();
    assert_eq!(error.to_string(), "broken: no such bus");
    let error = soon(silent.await_synced()).await.unwrap_err();
    assert!(error.to_string().starts_with("silent: not synced within 3 s: "), "{error}");
    assert!(matches!(silent.state(), WatchState::Starting), "it goes on trying");
    rig.queue().add("a");
    settle().await;
    assert_eq!(script.runs().len(), 1);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_failed_is_shown_until_it_is_watched_anew() {
    let rig: Rig = Rig::run(builder(), Script::new());
    settle().await;
    for _ in 0..10 {
        rig.watch(failing("bus", Duration::ZERO, "no such bus")).unwrap();
        settle().await;
        assert_eq!(rig.report().watches.len(), 1);
        assert_eq!(rig.report().watches[0].state, "failed");
    }
    rig.watch(quiet("bus")).unwrap();
    settle().await;
    assert_eq!((rig.report().watches.len(), rig.report().watches[0].state), (1, "synced"));
    rig.end().await;
}

/// A handler that has begun is waited for; none begins after that.
#[tokio::test(start_paused = true)]
async fn a_reconciler_may_watch_and_stop_what_it_finds() {
    struct Found(Controller<Name>);
    impl Reconciler<Name> for Found {
        async fn reconcile(&self, name: Name, _: &Context) -> Result<Outcome> {
            if name == "found" {
                self.0.watch(adding("found", "added"))?.await_synced().await?;
            } else {
                for watch in self.0.watches() {
                    watch.stop().await;
                }
            }
            Ok(Outcome::done())
        }
    }
    let builder = builder();
    let reconciler = Found(builder.handle());
    let rig = Rig::run(builder, reconciler);
    rig.queue().add("found");
    settle().await;
    assert_eq!((rig.stats().success, rig.stats().errors), (2, 0), "found, then added");
    assert!(rig.watches().is_empty());
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_watches_come_and_go_and_leave_nothing() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder(), reconciler);
    let stays = rig.watch(quiet("stays")).unwrap();
    settle().await;
    let before = tasks();
    let alive = Arc::new(());
    for round in 0..10_000 {
        let kept = alive.clone();
        let source = source::from_fn("comes and goes", move |_: Enqueue<Name>, cx: SourceContext| async move {
            cx.synced();
            cx.stopped().await;
            drop(kept);
            Ok(())
        });
        let watch = rig.watch(source).unwrap();
        // Some before they began, some after.
        if round % 3 > 0 {
            soon(watch.await_synced()).await.unwrap();
        }
        if round % 2 > 0 {
            soon(watch.stop()).await;
        } else {
            drop(watch.scoped());
        }
    }
    settle().await;
    assert_eq!((tasks(), Arc::strong_count(&alive)), (before, 1));
    assert_eq!(names(&rig), ["stays"]);
    soon(stays.stop()).await;
    assert!(rig.watches().is_empty());
    assert!(runs.begun().is_empty());
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn watches_that_are_stopped_before_the_start_are_not_kept() {
    let (controller, task) = builder().build(Script::new()).unwrap();
    let alive = Arc::new(());
    for _ in 0..1_000 {
        let kept = alive.clone();
        let source = source::from_fn("never", move |_: Enqueue<Name>, _| async move {
            drop(kept);
            Ok(())
        });
        soon(controller.watch(source).unwrap().stop()).await;
    }
    assert!(Arc::strong_count(&alive) <= 2, "all but the last");
    drop(task);
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// Asks its controller something when it goes.
struct Asking(Controller<Name>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.watches();
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_may_ask_its_controller_when_it_is_dropped() {
    let (controller, task) = builder().build(Script::new()).expect("nothing is wrong with it");
    let asking = |name: &str| {
        let asking = Asking(controller.clone());
        source::from_fn(name, move |_: Enqueue<Name>, _: SourceContext| {
            let _asking = &asking;
            std::future::pending()
        })
    };
    controller.watch(asking("one")).expect("it is watched").stop().await;
    controller.watch(asking("two")).expect("it is watched");
    let last = asking("three");
    drop(task);
    assert!(controller.watch(last).is_err(), "it was never run");
}

#[tokio::test(start_paused = true)]
async fn there_may_be_ten_thousand_watches_at_once() {
    let rig = Rig::run(builder(), Script::new());
    settle().await;
    let watches: Vec<_> =
        (0..10_000).map(|n| rig.watch(quiet(&format!("watch {}", n % 5000))).expect("one more")).collect();
    settle().await;
    assert_eq!((rig.watches().len(), rig.report().sources.len()), (10_000, 5000));
    for watch in &watches[..5000] {
        watch.stop().await;
    }
    assert_eq!((rig.watches().len(), rig.report().sources.len()), (5000, 5000));
    rig.end().await;
}
