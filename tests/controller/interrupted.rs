//! Runs that do not answer: panics and timeouts.

use crate::rig::{Name, Rig, Script, builder, by_hand, ms, pass, secs, settle};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use steersman::{controller::Options, prelude::*};
use tokio::time::{sleep, timeout};

// Catalogue 12
#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_like_others() {
    let script = Script::new().fail().say(|| panic!("index out of bounds"));
    let rig = Rig::run(builder(), script.clone());
    rig.queue().add("a");
    pass(ms(6)).await;
    let error = rig.queue().snapshot()[0].last_error.clone();
    assert_eq!(error.as_deref(), Some("panic: index out of bounds [recovered]"));
    pass(secs(1)).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3)]);
    let stats = rig.stats();
    assert_eq!((stats.panics, stats.errors, stats.success), (1, 2, 1));
    rig.end().await;
}

/// Not in the future that it gives, but before it gives one.
#[tokio::test(start_paused = true)]
async fn a_panic_before_the_first_await_is_no_different() {
    let calls = Arc::new(AtomicUsize::new(0));
    let reconciler = reconcile::from_fn({
        let calls = calls.clone();
        move |_: Name, _| {
            assert!(calls.fetch_add(1, SeqCst) > 0, "not yet");
            async { Ok(Outcome::done()) }
        }
    });
    let rig = Rig::run(builder(), reconciler);
    rig.queue().add("a");
    pass(secs(1)).await;
    assert_eq!((calls.load(SeqCst), rig.stats().panics, rig.stats().success), (2, 1, 1));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_no_worker_and_no_other_request() {
    let reconciler = reconcile::from_fn(|name: Name, _| async move {
        assert_ne!(name, "bad");
        Ok(Outcome::done())
    });
    let rig = Rig::run(builder(), reconciler);
    for round in 1..=20 {
        rig.queue().add("bad");
        rig.queue().add("good");
        pass(ms(1)).await;
        assert_eq!(rig.stats().success, round);
    }
    rig.end().await;
}

// Catalogue 12
#[tokio::test(start_paused = true)]
async fn a_panic_goes_on_to_whoever_runs_the_controller_if_it_is_not_recovered() {
    let options = Options { recover_panics: Some(false), ..Options::default() };
    let rig = Rig::run(builder().options(options), Script::new().say(|| panic!("index out of bounds")));
    let controller = rig.clone();
    controller.queue().add("a");
    let panic = rig.ended().await.expect_err("it panics").into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"index out of bounds"), "the very same one");
    assert_eq!(controller.stats().panics, 1);
    controller.stop().await;
    assert!(controller.queue().is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_panic_that_is_not_recovered_ends_the_other_runs() {
    let dropped = Arc::new(());
    let options = Options { recover_panics: Some(false), max_concurrent: Some(2), ..Options::default() };
    let reconciler = reconcile::from_fn({
        let dropped = dropped.clone();
        move |name: Name, _| {
            let dropped = dropped.clone();
            async move {
                sleep(if name == "bad" { secs(1) } else { secs(1000) }).await;
                drop(dropped);
                panic!("no")
            }
        }
    });
    let rig = Rig::run(builder().options(options), reconciler);
    rig.queue().add("good");
    rig.queue().add("bad");
    assert!(rig.ended().await.is_err());
    settle().await;
    assert_eq!(Arc::strong_count(&dropped), 1, "neither a run nor the reconciler is left");
}

fn at_most(time: Duration) -> Options {
    Options { reconcile_timeout: Some(time), ..Options::default() }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_is_dropped_counted_and_retried() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().options(at_most(secs(3))), reconciler);
    rig.queue().add("a");
    let run = runs.next().await;
    pass(ms(2_999)).await;
    assert!(!run.was_dropped());
    pass(ms(2)).await;
    assert!(run.was_dropped());
    let stats = rig.stats();
    assert_eq!((stats.timeouts, stats.errors, stats.panics), (1, 1, 0));
    assert_eq!(rig.queue().snapshot()[0].last_error.as_deref(), Some("reconcile timed out after 3 s"));
    assert!((stats.time.seconds() - 3.0).abs() < 0.01, "{:?}", stats.time);
    let again = runs.next().await;
    assert_eq!(again.cx.attempt(), 2);
    again.done();
    settle().await;
    assert_eq!((rig.stats().timeouts, rig.stats().success), (1, 1));
    rig.end().await;
}

/// Upstream's attribution of timeouts: only those of the framework count.
#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_reconcilers_own_is_an_error_and_not_counted_as_one_of_the_controllers() {
    let reconciler = reconcile::from_fn(|_: Name, cx: Context| async move {
        if cx.attempt() == 1 {
            timeout(secs(1), std::future::pending::<()>()).await?;
        }
        Ok(Outcome::done())
    });
    let rig = Rig::run(builder().options(at_most(secs(3))), reconciler);
    rig.queue().add("a");
    pass(secs(10)).await;
    assert_eq!((rig.stats().timeouts, rig.stats().errors, rig.stats().success), (0, 1, 1));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_is_an_answer_and_each_run_has_its_own_time() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().options(at_most(secs(3))), reconciler);
    rig.queue().add("a");
    for _ in 0..5 {
        let run = runs.next().await;
        pass(secs(2)).await;
        run.answer(Ok(Outcome::requeue_after(Duration::ZERO)));
    }
    drop(runs.next().await);
    assert_eq!((rig.stats().timeouts, rig.stats().requeue_after), (0, 5));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_or_with_an_endless_one_a_run_may_take_for_ever() {
    for options in [Options::default(), at_most(Duration::MAX)] {
        let (reconciler, mut runs) = by_hand();
        let rig = Rig::run(builder().options(options), reconciler);
        rig.queue().add("a");
        let run = runs.next().await;
        assert_eq!(run.cx.deadline(), None);
        pass(Duration::from_hours(24 * 365)).await;
        assert!(!run.was_dropped());
        run.done();
        rig.end().await;
    }
}

/// Panics when it is dropped.
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("stepped on");
    }
}

/// A reconciler whose first run hangs, and takes a mine along.
fn with_a_mine() -> impl Reconciler<Name> {
    reconcile::from_fn(|_, cx: Context| async move {
        if cx.attempt() == 1 && cx.reasons().is_empty() {
            let _mine = Mine;
            pending::<()>().await;
        }
        Ok(Outcome::done())
    })
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_what_a_dropped_run_held_is_a_panic_of_the_run() {
    let rig = Rig::run(builder().options(at_most(secs(1))), with_a_mine());
    rig.queue().add("a");
    pass(secs(2)).await;
    let stats = rig.stats();
    assert_eq!((stats.panics, stats.errors, stats.success, stats.timeouts), (1, 1, 1, 0));
    rig.end().await;

    let options = Options { cancel_superseded: Some(true), ..Options::default() };
    let rig = Rig::run(builder().options(options), with_a_mine());
    rig.queue().add("a");
    settle().await;
    rig.queue().add_with("a", Add { reason: Some("news".into()), ..Add::default() });
    pass(secs(2)).await;
    assert_eq!((rig.stats().panics, rig.stats().success), (1, 1));
    rig.end().await;
}
