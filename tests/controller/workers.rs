//! Tests of concurrency: workers, and limits per group.

use crate::test_controller::{
    Name, RunningReconcile, Script, TestController, advance, alive_tasks, builder,
    manual_reconciler, ms, secs, settle,
};
use parking_lot::Mutex;
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};
use steersman::{controller::Options, prelude::*, reconcile::Context, workqueue::Key};
use tokio::time::{Instant, sleep};

/// Running requests and their maximum number. Clones share them.
pub(crate) struct ConcurrencyMeter<R>(Arc<Mutex<(HashSet<R>, usize)>>);

impl<R: Key> ConcurrencyMeter<R> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Adds a request, which must not be running, until the guard is dropped.
    pub(crate) fn enter(&self, request: R) -> RunningGuard<R> {
        let mut meter = self.0.lock();
        assert!(
            meter.0.insert(request.clone()),
            "{request:?} runs twice at once"
        );
        meter.1 = meter.1.max(meter.0.len());
        RunningGuard(self.clone(), request)
    }

    pub(crate) fn now(&self) -> usize {
        self.0.lock().0.len()
    }

    /// Returns the maximum since the last call.
    pub(crate) fn peak(&self) -> usize {
        let mut meter = self.0.lock();
        let now = meter.0.len();
        std::mem::replace(&mut meter.1, now)
    }
}

impl<R> Clone for ConcurrencyMeter<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

pub(crate) struct RunningGuard<R: Key>(ConcurrencyMeter<R>, R);

impl<R: Key> Drop for RunningGuard<R> {
    fn drop(&mut self) {
        self.0.0.lock().0.remove(&self.1);
    }
}

/// Creates a reconciler that takes a second per request.
fn slow(meter: &ConcurrencyMeter<u32>) -> impl Reconciler<u32> + use<> {
    let meter = meter.clone();
    reconcile::from_fn(move |request: u32, _| {
        let entered = meter.enter(request);
        async move {
            sleep(secs(1)).await;
            drop(entered);
            Ok(Outcome::done())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn max_concurrent_limits_concurrent_reconciles() {
    for workers in [1, 3, 8] {
        let meter = ConcurrencyMeter::new();
        let test = TestController::run(builder().max_concurrent(workers), slow(&meter));
        test.queue().add_all(0..24, Add::default());
        advance(ms(1)).await;
        for _ in 0..24 / workers {
            assert_eq!(meter.now(), workers);
            advance(secs(1)).await;
        }
        assert_eq!(
            (meter.now(), meter.peak(), test.stats().success),
            (0, workers, 24)
        );
        test.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_is_reconciled_concurrently() {
    let meter = ConcurrencyMeter::new();
    let test = TestController::run(builder().max_concurrent(8), slow(&meter));
    for _ in 0..100 {
        test.queue().add(7);
        advance(ms(95)).await;
    }
    assert_eq!((meter.peak(), test.stats().panics), (1, 0));
    assert_eq!(test.stats().success, 9, "sequential reconciles");
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_limit_starts_workers_at_once_and_stops_them_after_their_reconcile() {
    let meter = ConcurrencyMeter::new();
    let test = TestController::run(builder().max_concurrent(2), slow(&meter));
    test.queue().add_all(0..100, Add::default());
    advance(ms(500)).await;
    assert_eq!((meter.now(), test.max_concurrent()), (2, 2));
    test.set_max_concurrent(5);
    settle().await;
    assert_eq!((meter.now(), test.max_concurrent()), (5, 5));
    test.set_max_concurrent(1);
    settle().await;
    assert_eq!(
        (meter.now(), test.max_concurrent()),
        (5, 1),
        "running reconciles finish"
    );
    advance(secs(2)).await;
    meter.peak();
    for _ in 0..5 {
        advance(secs(1)).await;
        assert_eq!(meter.peak(), 1);
    }
    test.set_max_concurrent(0);
    assert_eq!(test.max_concurrent(), 1, "at least one");
    test.set_max_concurrent(3);
    advance(secs(2)).await;
    assert_eq!((meter.now(), test.stats().errors), (3, 0));
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn idle_workers_above_the_limit_stop() {
    let test: TestController = TestController::run(builder().max_concurrent(8), Script::new());
    settle().await;
    let before = alive_tasks();
    test.set_max_concurrent(2);
    settle().await;
    assert_eq!(before - alive_tasks(), 6);
    test.set_max_concurrent(4);
    settle().await;
    assert_eq!(before - alive_tasks(), 4);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_during_quick_changes() {
    let meter = ConcurrencyMeter::new();
    let test = TestController::run(builder().max_concurrent(4), slow(&meter));
    test.queue().add_all(0..1000, Add::default());
    for round in 0..50 {
        test.set_max_concurrent(2);
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        test.set_max_concurrent(4);
        advance(ms(130)).await;
        assert_eq!((meter.peak(), meter.now()), (4, 4), "round {round}");
    }
    assert_eq!(test.stats().panics, 0);
    test.end().await;
}

/// A limit that is set during the start applies after it.
#[tokio::test(start_paused = true)]
async fn the_limit_can_be_changed_before_workers_start() {
    let meter = ConcurrencyMeter::new();
    let (controller, task) = builder().max_concurrent(4).build(slow(&meter)).unwrap();
    controller.set_max_concurrent(2);
    controller.queue().add_all(0..10, Add::default());
    let running = tokio::spawn(task.run_until(std::future::pending()));
    advance(secs(2)).await;
    assert_eq!(meter.peak(), 2);
    controller.stop().await;
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_reconciles_can_sleep_concurrently() {
    const MANY: u32 = 10_000;
    let (polls, meter) = (Arc::new(AtomicUsize::new(0)), ConcurrencyMeter::new());
    let reconciler = reconcile::from_fn({
        let (polls, meter) = (polls.clone(), meter.clone());
        move |request: u32, _| {
            let (polls, entered) = (polls.clone(), meter.enter(request));
            async move {
                let mut asleep = std::pin::pin!(sleep(secs(60)));
                std::future::poll_fn(|cx| {
                    polls.fetch_add(1, SeqCst);
                    asleep.as_mut().poll(cx)
                })
                .await;
                drop(entered);
                Ok(Outcome::done())
            }
        }
    });
    let test = TestController::run(builder().max_concurrent(MANY as usize), reconciler);
    let start = Instant::now();
    test.queue().add_all(0..MANY, Add::default());
    advance(secs(1)).await;
    assert_eq!(
        (meter.now(), test.queue().stats().running),
        (10_000, 10_000),
        "all are in flight"
    );
    advance(secs(58)).await;
    assert_eq!(
        (meter.now(), polls.load(SeqCst)),
        (10_000, 10_000),
        "sleeping reconciles are not polled"
    );
    advance(secs(2)).await;
    assert_eq!(
        (meter.now(), test.stats().success, start.elapsed()),
        (0, 10_000, secs(61))
    );
    test.end().await;
}

/// Returns the first letter, which is the group: "a1" and "a2" belong to `a`.
fn first_letter(name: &Name) -> char {
    name.chars().next().expect("a name")
}

#[tokio::test(start_paused = true)]
async fn max_per_group_limits_a_group_without_delaying_others() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(
        builder().max_concurrent(4).max_per_group(2, first_letter),
        reconciler,
    );
    for name in ["a1", "a2", "a3", "a4", "a5", "b1", "c1"] {
        test.queue().add(name);
    }
    settle().await;
    let mut running = runs.started();
    assert_eq!(
        running.iter().map(|run| run.request).collect::<Vec<_>>(),
        ["a1", "a2", "b1", "c1"]
    );
    assert_eq!(
        test.queue().stats().parked,
        3,
        "parked requests use no worker"
    );
    for next in ["a3", "a4", "a5"] {
        running.remove(0).done();
        settle().await;
        let [run] = <[_; 1]>::try_from(runs.started())
            .ok()
            .expect("one reconcile starts");
        assert_eq!(run.request, next, "the longest waiting request");
        running.push(run);
        running.rotate_right(1); // end the reconciles of the group first
    }
    running.into_iter().for_each(RunningReconcile::done);
    settle().await;
    assert_eq!(
        (test.stats().success, test.queue().snapshot().len()),
        (7, 0)
    );
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_highest_priority_of_a_group_is_first() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(
        builder()
            .max_concurrent(4)
            .max_per_group(1, first_letter)
            .share(0),
        reconciler,
    );
    test.queue().add("a0");
    let mut run = runs.next().await;
    for (name, priority) in [("a1", -100), ("a2", 0), ("a3", 100), ("a4", 0)] {
        test.queue().add_with(
            name,
            Add {
                priority: Some(Priority(priority)),
                ..Add::default()
            },
        );
        settle().await;
    }
    for expected in ["a3", "a2", "a4", "a1"] {
        run.done();
        run = runs.next().await;
        assert_eq!(run.request, expected);
    }
    run.done();
    test.end().await;
}

/// Counts the turns until a request of low priority runs.
///
/// Requests of higher priority recur.
async fn turns_until_low_priority(share: u32) -> Option<usize> {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(
        builder()
            .max_concurrent(4)
            .max_per_group(1, first_letter)
            .share(share),
        reconciler,
    );
    test.queue().add("a0");
    let mut run = runs.next().await;
    test.queue().add_with(
        "a-low",
        Add {
            priority: Some(Priority::LOW),
            ..Add::default()
        },
    );
    let high = Add {
        priority: Some(Priority::HIGH),
        ..Add::default()
    };
    let mut turn = 0;
    while run.request != "a-low" && turn < 100 {
        turn += 1;
        test.queue()
            .add_with(if turn % 2 == 0 { "a1" } else { "a2" }, high.clone());
        settle().await;
        run.done();
        run = runs.next().await;
    }
    let found = (run.request == "a-low").then_some(turn);
    run.done();
    drop(runs);
    test.end().await;
    found
}

#[tokio::test(start_paused = true)]
async fn a_low_priority_request_of_a_group_does_not_starve() {
    assert_eq!(
        turns_until_low_priority(4).await,
        Some(4),
        "every fourth turn goes to the oldest request"
    );
    assert_eq!(
        turns_until_low_priority(0).await,
        None,
        "strict priority order"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_group_keeps_priority_and_reasons() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(
        builder().max_concurrent(4).max_per_group(1, first_letter),
        reconciler,
    );
    test.queue().add("a0");
    let first = runs.next().await;
    let add = |reason: &str| Add {
        priority: Some(Priority(7)),
        reason: Some(reason.into()),
        ..Add::default()
    };
    test.queue().add_with("a1", add("one"));
    settle().await;
    test.queue().add_with("a1", add("two"));
    settle().await;
    first.done();
    let second = runs.next().await;
    let reasons: Vec<_> = second
        .cx
        .reasons()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        (second.cx.priority(), reasons, second.cx.attempt()),
        (Priority(7), vec!["one".into(), "two".into()], 1)
    );
    second.done();
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_cancelled_while_it_waits_for_its_group_does_not_block_others() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(
        builder().max_concurrent(4).max_per_group(1, first_letter),
        reconciler,
    );
    for name in ["a0", "a1", "a2", "a3"] {
        test.queue().add(name);
    }
    let first = runs.next().await;
    settle().await;
    assert!(test.queue().cancel(&"a1"));
    assert!(test.queue().cancel(&"a2"));
    let start = Instant::now();
    first.done();
    let next = runs.next().await;
    assert_eq!((next.request, start.elapsed()), ("a3", secs(0)));
    test.queue().add("a1");
    next.done();
    assert_eq!(
        runs.next().await.request,
        "a1",
        "a cancelled request can be added again"
    );
    test.end().await;
}

/// The request that was next is cancelled. The others must still run.
#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_passes_to_the_next_request_of_the_group() {
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(
        builder().max_concurrent(2).max_per_group(1, first_letter),
        reconciler,
    );
    for name in ["a0", "a1", "a2"] {
        test.queue().add(name);
    }
    let first = runs.next().await;
    settle().await;
    test.queue().add("b0");
    let other = runs.next().await;
    test.queue().add("c0");
    first.done();
    let third = runs.next().await;
    assert_eq!((third.request, test.queue().len()), ("c0", 1));
    assert!(
        test.queue().cancel(&"a1"),
        "the request is next, but no worker is free"
    );
    third.done();
    other.done();
    let last = runs.next().await;
    assert_eq!(last.request, "a2");
    last.done();
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_group_function_panics_has_no_group() {
    let (reconciler, mut runs) = manual_reconciler();
    let group = |name: &Name| match first_letter(name) {
        'x' => panic!("no such group"),
        first_letter => first_letter,
    };
    let test = TestController::run(
        builder().max_concurrent(8).max_per_group(1, group),
        reconciler,
    );
    for name in ["x1", "x2", "a1", "a2", "x3"] {
        test.queue().add(name);
    }
    settle().await;
    let started = runs.started();
    assert_eq!(
        started.iter().map(|run| run.request).collect::<Vec<_>>(),
        ["x1", "x2", "a1", "x3"]
    );
    started.into_iter().for_each(RunningReconcile::done);
    assert_eq!(runs.next().await.request, "a2");
    test.end().await;
}

/// A reconcile that fails, times out or panics releases its slot.
#[tokio::test(start_paused = true)]
async fn a_request_releases_its_group_even_if_the_group_function_panics_later() {
    let asked = Arc::new(AtomicUsize::new(0));
    let group = move |_: &Name| match asked.fetch_add(1, SeqCst) {
        // The second and the third request call this while the first one runs.
        0..3 => 'a',
        _ => panic!("no such group"),
    };
    let (reconciler, mut runs) = manual_reconciler();
    let test = TestController::run(
        builder().max_concurrent(4).max_per_group(1, group),
        reconciler,
    );
    for name in ["a1", "a2", "a3"] {
        test.queue().add(name);
    }
    settle().await;
    let first = runs.next().await;
    assert_eq!(runs.started().len(), 0, "the others wait");
    first.done();
    for _ in 0..2 {
        runs.next().await.done();
    }
    settle().await;
    assert_eq!(test.stats().success, 3);
    test.end().await;
}

#[tokio::test(start_paused = true)]
async fn every_result_of_a_reconcile_releases_its_group() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reconciler = reconcile::from_fn({
        let seen = seen.clone();
        move |name: Name, cx: Context| {
            let seen = seen.clone();
            async move {
                seen.lock().push(name);
                sleep(ms(100)).await;
                match name {
                    _ if cx.attempt() > 1 => Ok(Outcome::done()),
                    "a1" => anyhow::bail!("no luck"),
                    "a2" => panic!("no luck"),
                    "a3" => Ok(Outcome::requeue_after(secs(9))),
                    "a4" => Ok(Outcome::requeue()),
                    "a5" => std::future::pending().await,
                    _ => Ok(Outcome::done()),
                }
            }
        }
    });
    let options = Options {
        reconcile_timeout: Some(secs(3)),
        ..Options::default()
    };
    let test = TestController::run(
        builder()
            .max_concurrent(4)
            .max_per_group(1, first_letter)
            .options(options),
        reconciler,
    );
    for name in ["a1", "a2", "a3", "a4", "a5", "a6"] {
        test.queue().add(name);
    }
    advance(ms(550)).await;
    assert_eq!(seen.lock()[..5], ["a1", "a2", "a3", "a4", "a5"]);
    advance(secs(4)).await;
    assert!(seen.lock().contains(&"a6"));
    test.end().await;
}
