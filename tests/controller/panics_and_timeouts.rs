//! Tests of reconciles that panic or time out.

use crate::test_controller::{
    Name, Script, TestController, advance, builder, manual_reconciler, ms, secs, settle,
};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use steersman::{controller::Options, prelude::*, reconcile::Context};
use tokio::time::{sleep, timeout};

#[tokio::test(start_paused = true)]
async fn a_panic_is_retried_as_an_error() {
    let script = Script::new()
        .fail()
        .answer_with(|| panic!("index out of bounds"));
    let test = TestController::run(builder(), script.clone());
    test.queue().add("a");
    advance(ms(6)).await;
    let error = test.queue().snapshot()[0].last_error.clone();
    assert_eq!(
        error.as_deref(),
        Some("panic: index out of bounds [recovered]")
    );
    advance(secs(1)).await;
    assert_eq!(script.runs(), [(0, 1), (5, 2), (15, 3)]);
    let stats = test.stats();
    assert_eq!((stats.panics, stats.errors, stats.success), (1, 2, 1));
    test.end().await;
}

/// The reconciler panics before it returns a future.
#[tokio::test(start_paused = true)]
async fn a_panic_before_the_first_await_is_an_error() {
    let calls = Arc::new(AtomicUsize::new(0));
    let reconciler = reconcile::from_fn({
        let calls = calls.clone();
        move |_: Name, _| {
            assert!(calls.fetch_add(1, SeqCst) > 0, "not yet");
            async { Ok(Outcome::done()) }
        }
    });
    let test = TestController::run(builder(), reconciler);
    test.queue().add("a");
    advance(secs(1)).await;
    assert_eq!(
        (
            calls.load(SeqCst),
            test.stats().panics,
            test.stats().success
        ),
        (2, 1, 1)
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_does_not_affect_workers_or_other_requests() {
    let reconciler = reconcile::from_fn(|name: Name, _| async move {
        assert_ne!(name, "bad");
        Ok(Outcome::done())
    });
    let test = TestController::run(builder(), reconciler);
    for round in 1..=20 {
        test.queue().add("bad");
        test.queue().add("good");
        advance(ms(1)).await;
        assert_eq!(test.stats().success, round);
    }
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_recovery_a_panic_propagates_to_run_until() {
    let options = Options {
        recover_panics: Some(false),
        ..Options::default()
    };
    let test = TestController::run(
        builder().options(options),
        Script::new().answer_with(|| panic!("index out of bounds")),
    );
    let controller = test.clone();
    controller.queue().add("a");
    let panic = test.ended().await.expect_err("panicked").into_panic();
    assert_eq!(
        panic.downcast_ref::<&str>(),
        Some(&"index out of bounds"),
        "the original panic payload"
    );
    assert_eq!(controller.stats().panics, 1);
    controller.stop().await;
    assert!(controller.queue().is_closed());
}

#[tokio::test(start_paused = true)]
async fn without_recovery_a_panic_drops_the_other_reconciles() {
    let dropped = Arc::new(());
    let options = Options {
        recover_panics: Some(false),
        max_concurrent: Some(2),
        ..Options::default()
    };
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
    let test = TestController::run(builder().options(options), reconciler);
    test.queue().add("good");
    test.queue().add("bad");
    assert!(test.ended().await.is_err());
    settle().await;
    assert_eq!(
        Arc::strong_count(&dropped),
        1,
        "reconciles and reconciler are freed"
    );
}

fn at_most(time: Duration) -> Options {
    Options {
        reconcile_timeout: Some(time),
        ..Options::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_times_out_is_dropped_counted_and_retried() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder().options(at_most(secs(3))), reconciler);
    test.queue().add("a");
    let run = runs.next().await;
    advance(ms(2_999)).await;
    assert!(!run.was_dropped());
    advance(ms(2)).await;
    assert!(run.was_dropped());
    let stats = test.stats();
    assert_eq!((stats.timeouts, stats.errors, stats.panics), (1, 1, 0));
    assert_eq!(
        test.queue().snapshot()[0].last_error.as_deref(),
        Some("reconcile timed out after 3 s")
    );
    assert!(
        (stats.time.seconds() - 3.0).abs() < 0.01,
        "{:?}",
        stats.time
    );
    let again = runs.next().await;
    assert_eq!(again.cx.attempt(), 2);
    again.done();
    settle().await;
    assert_eq!((test.stats().timeouts, test.stats().success), (1, 1));
    test.end().await;
}

/// Only timeouts of the framework are counted, as in controller-runtime.
#[tokio::test(start_paused = true)]
async fn a_timeout_inside_the_reconciler_is_an_error_and_not_a_reconcile_timeout() {
    let reconciler = reconcile::from_fn(|_: Name, cx: Context| async move {
        if cx.attempt() == 1 {
            timeout(secs(1), std::future::pending::<()>()).await?;
        }
        Ok(Outcome::done())
    });
    let test = TestController::run(builder().options(at_most(secs(3))), reconciler);
    test.queue().add("a");
    advance(secs(10)).await;
    assert_eq!(
        (
            test.stats().timeouts,
            test.stats().errors,
            test.stats().success
        ),
        (0, 1, 1)
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_timeout_applies_to_each_reconcile_separately() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(builder().options(at_most(secs(3))), reconciler);
    test.queue().add("a");
    for _ in 0..5 {
        let run = runs.next().await;
        advance(secs(2)).await;
        run.answer(Ok(Outcome::requeue_after(Duration::ZERO)));
    }
    drop(runs.next().await);
    assert_eq!((test.stats().timeouts, test.stats().requeue_after), (0, 5));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_a_reconcile_has_no_deadline() {
    for options in [Options::default(), at_most(Duration::MAX)] {
        let (reconciler, mut runs) = manual_reconciler();
        let test = TestController::run(builder().options(options), reconciler);
        test.queue().add("a");
        let run = runs.next().await;
        assert_eq!(run.cx.deadline(), None);
        advance(Duration::from_hours(24 * 365)).await;
        assert!(!run.was_dropped());
        run.done();
        test.end().await;
    }
}

/// Panics when it is dropped.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// Creates a reconciler whose first call hangs and panics when it is cancelled.
fn reconciler_that_panics_on_drop() -> impl Reconciler<Name> {
    reconcile::from_fn(|_, cx: Context| async move {
        if cx.attempt() == 1 && cx.reasons().is_empty() {
            let _mine = PanicOnDrop;
            pending::<()>().await;
        }
        Ok(Outcome::done())
    })
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_dropping_a_reconcile_is_counted_as_its_panic() {
    let test = TestController::run(
        builder().options(at_most(secs(1))),
        reconciler_that_panics_on_drop(),
    );
    test.queue().add("a");
    advance(secs(2)).await;
    let stats = test.stats();
    assert_eq!(
        (stats.panics, stats.errors, stats.success, stats.timeouts),
        (1, 1, 1, 0)
    );
    test.end().await;

    let options = Options {
        cancel_superseded: Some(true),
        ..Options::default()
    };
    let test = TestController::run(builder().options(options), reconciler_that_panics_on_drop());
    test.queue().add("a");
    settle().await;
    test.queue().add_with(
        "a",
        Add {
            reason: Some("updated".into()),
            ..Add::default()
        },
    );
    advance(secs(2)).await;
    assert_eq!((test.stats().panics, test.stats().success), (1, 1));
    test.end().await;
}
