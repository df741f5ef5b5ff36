//! How many runs there are at once: workers, and limits per group.

use crate::rig::{Held, Name, Rig, Script, builder, by_hand, ms, pass, secs, settle, tasks};
use parking_lot::Mutex;
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};
use steersman::{controller::Options, prelude::*, workqueue::Key};
use tokio::time::{Instant, sleep};

/// Who runs now, and how many there were at most. A clone is the same.
pub(crate) struct Level<R>(Arc<Mutex<(HashSet<R>, usize)>>);

impl<R: Key> Level<R> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// One more, which must not run already, until this is dropped.
    pub(crate) fn enter(&self, request: R) -> Entered<R> {
        let mut level = self.0.lock();
        assert!(level.0.insert(request.clone()), "{request:?} runs twice at once");
        level.1 = level.1.max(level.0.len());
        Entered(self.clone(), request)
    }

    pub(crate) fn now(&self) -> usize {
        self.0.lock().0.len()
    }

    /// The most since this was last asked.
    pub(crate) fn peak(&self) -> usize {
        let mut level = self.0.lock();
        let now = level.0.len();
        std::mem::replace(&mut level.1, now)
    }
}

impl<R> Clone for Level<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

pub(crate) struct Entered<R: Key>(Level<R>, R);

impl<R: Key> Drop for Entered<R> {
    fn drop(&mut self) {
        self.0.0.lock().0.remove(&self.1);
    }
}

/// Runs take a second.
fn slow(level: &Level<u32>) -> impl Reconciler<u32> + use<> {
    let level = level.clone();
    reconcile::from_fn(move |request: u32, _| {
        let entered = level.enter(request);
        async move {
            sleep(secs(1)).await;
            drop(entered);
            Ok(Outcome::done())
        }
    })
}

// 3.2: one of upstream's tests that were never written.
#[tokio::test(start_paused = true)]
async fn as_many_requests_are_reconciled_at_once_as_allowed() {
    for workers in [1, 3, 8] {
        let level = Level::new();
        let rig = Rig::run(builder().max_concurrent(workers), slow(&level));
        rig.queue().add_all(0..24, Add::default());
        pass(ms(1)).await;
        for _ in 0..24 / workers {
            assert_eq!(level.now(), workers);
            pass(secs(1)).await;
        }
        assert_eq!((level.now(), level.peak(), rig.stats().success), (0, workers, 24));
        rig.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_is_in_two_workers() {
    let level = Level::new();
    let rig = Rig::run(builder().max_concurrent(8), slow(&level));
    for _ in 0..100 {
        rig.queue().add(7);
        pass(ms(95)).await;
    }
    assert_eq!((level.peak(), rig.stats().panics), (1, 0));
    assert_eq!(rig.stats().success, 9, "one after the other");
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn more_workers_begin_at_once_and_surplus_ones_finish_what_they_have() {
    let level = Level::new();
    let rig = Rig::run(builder().max_concurrent(2), slow(&level));
    rig.queue().add_all(0..100, Add::default());
    pass(ms(500)).await;
    assert_eq!((level.now(), rig.max_concurrent()), (2, 2));
    rig.set_max_concurrent(5);
    settle().await;
    assert_eq!((level.now(), rig.max_concurrent()), (5, 5));
    rig.set_max_concurrent(1);
    settle().await;
    assert_eq!((level.now(), rig.max_concurrent()), (5, 1), "what runs is finished");
    pass(secs(2)).await;
    level.peak();
    for _ in 0..5 {
        pass(secs(1)).await;
        assert_eq!(level.peak(), 1);
    }
    rig.set_max_concurrent(0);
    assert_eq!(rig.max_concurrent(), 1, "at least one");
    rig.set_max_concurrent(3);
    pass(secs(2)).await;
    assert_eq!((level.now(), rig.stats().errors), (3, 0));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn idle_workers_above_the_limit_end() {
    let rig: Rig = Rig::run(builder().max_concurrent(8), Script::new());
    settle().await;
    let before = tasks();
    rig.set_max_concurrent(2);
    settle().await;
    assert_eq!(before - tasks(), 6);
    rig.set_max_concurrent(4);
    settle().await;
    assert_eq!(before - tasks(), 4);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_however_quickly_it_is_changed() {
    let level = Level::new();
    let rig = Rig::run(builder().max_concurrent(4), slow(&level));
    rig.queue().add_all(0..1000, Add::default());
    for round in 0..50 {
        rig.set_max_concurrent(2);
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        rig.set_max_concurrent(4);
        pass(ms(130)).await;
        assert_eq!((level.peak(), level.now()), (4, 4), "round {round}");
    }
    assert_eq!(rig.stats().panics, 0);
    rig.end().await;
}

/// Set while it starts, it counts when it has started.
#[tokio::test(start_paused = true)]
async fn the_limit_may_be_changed_before_there_are_workers() {
    let level = Level::new();
    let (controller, task) = builder().max_concurrent(4).build(slow(&level)).unwrap();
    controller.set_max_concurrent(2);
    controller.queue().add_all(0..10, Add::default());
    let running = tokio::spawn(task.run_until(std::future::pending()));
    pass(secs(2)).await;
    assert_eq!(level.peak(), 2);
    controller.stop().await;
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_runs_may_sleep_at_once() {
    const MANY: u32 = 10_000;
    let (polls, level) = (Arc::new(AtomicUsize::new(0)), Level::new());
    let reconciler = reconcile::from_fn({
        let (polls, level) = (polls.clone(), level.clone());
        move |request: u32, _| {
            let (polls, entered) = (polls.clone(), level.enter(request));
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
    let rig = Rig::run(builder().max_concurrent(MANY as usize), reconciler);
    let start = Instant::now();
    rig.queue().add_all(0..MANY, Add::default());
    pass(secs(1)).await;
    assert_eq!((level.now(), rig.queue().stats().running), (10_000, 10_000), "all are in flight");
    pass(secs(58)).await;
    assert_eq!((level.now(), polls.load(SeqCst)), (10_000, 10_000), "nobody looks at them while they sleep");
    pass(secs(2)).await;
    assert_eq!((level.now(), rig.stats().success, start.elapsed()), (0, 10_000, secs(61)));
    rig.end().await;
}

/// Of groups "a1", "a2", "b1" the first letter.
fn letter(name: &Name) -> char {
    name.chars().next().expect("a name")
}

#[tokio::test(start_paused = true)]
async fn no_more_of_a_group_run_than_allowed_and_others_do_not_wait_for_them() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().max_concurrent(4).max_per_group(2, letter), reconciler);
    for name in ["a1", "a2", "a3", "a4", "a5", "b1", "c1"] {
        rig.queue().add(name);
    }
    settle().await;
    let mut going_on = runs.begun();
    assert_eq!(going_on.iter().map(|run| run.request).collect::<Vec<_>>(), ["a1", "a2", "b1", "c1"]);
    assert_eq!(rig.queue().stats().parked, 3, "without taking a worker");
    for next in ["a3", "a4", "a5"] {
        going_on.remove(0).done();
        settle().await;
        let [run] = <[_; 1]>::try_from(runs.begun()).ok().expect("one, as soon as there is room");
        assert_eq!(run.request, next, "who waits longest");
        going_on.push(run);
        going_on.rotate_right(1); // the group's are ended first
    }
    going_on.into_iter().for_each(Held::done);
    settle().await;
    assert_eq!((rig.stats().success, rig.queue().snapshot().len()), (7, 0));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn of_those_that_wait_for_their_group_the_highest_priority_is_first() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().max_concurrent(4).max_per_group(1, letter).share(0), reconciler);
    rig.queue().add("a0");
    let mut run = runs.next().await;
    for (name, priority) in [("a1", -100), ("a2", 0), ("a3", 100), ("a4", 0)] {
        rig.queue().add_with(name, Add { priority: Some(Priority(priority)), ..Add::default() });
        settle().await;
    }
    for expected in ["a3", "a2", "a4", "a1"] {
        run.done();
        run = runs.next().await;
        assert_eq!(run.request, expected);
    }
    run.done();
    rig.end().await;
}

/// Others that matter more come again and again.
async fn turns_until_the_humble_one(share: u32) -> Option<usize> {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().max_concurrent(4).max_per_group(1, letter).share(share), reconciler);
    rig.queue().add("a0");
    let mut run = runs.next().await;
    rig.queue().add_with("a-humble", Add { priority: Some(Priority::LOW), ..Add::default() });
    let high = Add { priority: Some(Priority::HIGH), ..Add::default() };
    let mut turn = 0;
    while run.request != "a-humble" && turn < 100 {
        turn += 1;
        rig.queue().add_with(if turn % 2 == 0 { "a1" } else { "a2" }, high.clone());
        settle().await;
        run.done();
        run = runs.next().await;
    }
    let found = (run.request == "a-humble").then_some(turn);
    run.done();
    drop(runs);
    rig.end().await;
    found
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_its_group_is_not_passed_over_for_ever() {
    assert_eq!(turns_until_the_humble_one(4).await, Some(4), "one turn in four is of who waits longest");
    assert_eq!(turns_until_the_humble_one(0).await, None, "unless the order is strict");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_its_group_keeps_its_priority_and_its_reasons() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().max_concurrent(4).max_per_group(1, letter), reconciler);
    rig.queue().add("a0");
    let first = runs.next().await;
    let add = |reason: &str| Add { priority: Some(Priority(7)), reason: Some(reason.into()), ..Add::default() };
    rig.queue().add_with("a1", add("one"));
    settle().await;
    rig.queue().add_with("a1", add("two"));
    settle().await;
    first.done();
    let second = runs.next().await;
    let reasons: Vec<_> = second.cx.reasons().iter().map(ToString::to_string).collect();
    assert_eq!(
        (second.cx.priority(), reasons, second.cx.attempt()),
        (Priority(7), vec!["one".into(), "two".into()], 1)
    );
    second.done();
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cancelled_while_it_waits_does_not_take_the_turn_of_another() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().max_concurrent(4).max_per_group(1, letter), reconciler);
    for name in ["a0", "a1", "a2", "a3"] {
        rig.queue().add(name);
    }
    let first = runs.next().await;
    settle().await;
    assert!(rig.queue().cancel(&"a1"));
    assert!(rig.queue().cancel(&"a2"));
    let start = Instant::now();
    first.done();
    let next = runs.next().await;
    assert_eq!((next.request, start.elapsed()), ("a3", secs(0)));
    rig.queue().add("a1");
    next.done();
    assert_eq!(runs.next().await.request, "a1", "one that was cancelled may come again");
    rig.end().await;
}

/// It was the turn of one that was cancelled then: the others do not wait for ever.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_not_taken_is_not_lost_for_good() {
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().max_concurrent(2).max_per_group(1, letter), reconciler);
    for name in ["a0", "a1", "a2"] {
        rig.queue().add(name);
    }
    let first = runs.next().await;
    settle().await;
    rig.queue().add("b0");
    let other = runs.next().await;
    rig.queue().add("c0");
    first.done();
    let third = runs.next().await;
    assert_eq!((third.request, rig.queue().len()), ("c0", 1));
    assert!(rig.queue().cancel(&"a1"), "it has its turn, and no worker yet");
    third.done();
    other.done();
    let last = runs.next().await;
    assert_eq!(last.request, "a2");
    last.done();
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_group_cannot_be_told_is_of_none() {
    let (reconciler, mut runs) = by_hand();
    let group = |name: &Name| match letter(name) {
        'x' => panic!("no such group"),
        letter => letter,
    };
    let rig = Rig::run(builder().max_concurrent(8).max_per_group(1, group), reconciler);
    for name in ["x1", "x2", "a1", "a2", "x3"] {
        rig.queue().add(name);
    }
    settle().await;
    let begun = runs.begun();
    assert_eq!(begun.iter().map(|run| run.request).collect::<Vec<_>>(), ["x1", "x2", "a1", "x3"]);
    begun.into_iter().for_each(Held::done);
    assert_eq!(runs.next().await.request, "a2");
    rig.end().await;
}

/// Failing, timed out or panicking: each gives its place back.
#[tokio::test(start_paused = true)]
async fn what_a_request_has_entered_it_leaves_though_its_group_cannot_be_told_any_more() {
    let asked = Arc::new(AtomicUsize::new(0));
    let group = move |_: &Name| match asked.fetch_add(1, SeqCst) {
        // When the second and the third ask, the first one runs.
        0..3 => 'a',
        _ => panic!("no such group"),
    };
    let (reconciler, mut runs) = by_hand();
    let rig = Rig::run(builder().max_concurrent(4).max_per_group(1, group), reconciler);
    for name in ["a1", "a2", "a3"] {
        rig.queue().add(name);
    }
    settle().await;
    let first = runs.next().await;
    assert_eq!(runs.begun().len(), 0, "the others wait");
    first.done();
    for _ in 0..2 {
        runs.next().await.done();
    }
    settle().await;
    assert_eq!(rig.stats().success, 3);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn however_a_run_ends_the_next_of_its_group_follows() {
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
                    "a2" => panic!("worse"),
                    "a3" => Ok(Outcome::requeue_after(secs(9))),
                    "a4" => Ok(Outcome::requeue()),
                    "a5" => std::future::pending().await,
                    _ => Ok(Outcome::done()),
                }
            }
        }
    });
    let options = Options { reconcile_timeout: Some(secs(3)), ..Options::default() };
    let rig = Rig::run(builder().max_concurrent(4).max_per_group(1, letter).options(options), reconciler);
    for name in ["a1", "a2", "a3", "a4", "a5", "a6"] {
        rig.queue().add(name);
    }
    pass(ms(550)).await;
    assert_eq!(seen.lock()[..5], ["a1", "a2", "a3", "a4", "a5"]);
    pass(secs(4)).await;
    assert!(seen.lock().contains(&"a6"));
    rig.end().await;
}
