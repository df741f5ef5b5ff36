//! Model checks of the work queue under many thread interleavings.
//!
//! The sources of the crate are compiled against a `sync` module in which every lock is a point
//! where another thread may run. A getter that sleeps forever, a lost key or a key in two workers
//! fails as a deadlock or an assertion, with the schedule to replay.
//!
//! Every check runs two thousand schedules; `cargo xtask soak model` runs them for longer.

#[allow(dead_code, unreachable_pub, reason = "the checks do not seed")]
#[path = "../../src/jitter.rs"]
mod jitter;
#[allow(dead_code, unreachable_pub, reason = "the checks use nothing of it")]
#[path = "../../src/prometheus.rs"]
mod prometheus;
mod schedules;
mod sync;
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    reason = "the checks use a part of the queue's API"
)]
#[path = "../../src/workqueue/mod.rs"]
mod workqueue;

use shuttle::{
    future,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};
use std::{
    pin::pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use steersman_testkit::{Test, this_test};
use workqueue::{Item, Outcome, WorkQueue};

fn check(test: Test, scenario: fn()) {
    schedules::check(test, 1_000, scenario);
}

/// Starts a worker that calls `work` for every key until the queue is shut down.
fn worker<K: workqueue::Key>(
    queue: &WorkQueue<K>,
    work: impl Fn(&Item<K>) -> Outcome + Send + 'static,
) -> thread::JoinHandle<()> {
    let queue = queue.clone();
    thread::spawn(move || {
        future::block_on(async {
            let mut next = queue.get().await;
            while let Some(item) = next {
                let outcome = work(&item);
                next = item.finish_and_get(outcome).await;
            }
        });
    })
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn soak_no_getter_sleeps_while_a_key_is_ready() {
    check(this_test!(), || {
        let queue = WorkQueue::default();
        let done = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let done = done.clone();
                worker(&queue, move |_| {
                    done.fetch_add(1, SeqCst);
                    Outcome::done()
                })
            })
            .collect();
        let producers = (0..2).map(|n| {
            let queue = queue.clone();
            thread::spawn(move || (0..2).for_each(|i| queue.add((n, i))))
        });
        join(producers.collect::<Vec<_>>());
        future::block_on(queue.drain());
        assert_eq!(done.load(SeqCst), 4);
        join(workers);
    });
}

#[test]
fn soak_a_key_is_never_in_two_workers_and_its_last_add_is_seen() {
    check(this_test!(), || {
        let queue = WorkQueue::default();
        let (version, seen, inside) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (version, seen, inside) = (version.clone(), seen.clone(), inside.clone());
                worker(&queue, move |_| {
                    assert!(!inside.swap(true, SeqCst), "two workers have the key");
                    seen.store(version.load(SeqCst), SeqCst);
                    inside.store(false, SeqCst);
                    Outcome::done()
                })
            })
            .collect();
        let producers = (0..2).map(|_| {
            let (queue, version) = (queue.clone(), version.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    version.fetch_add(1, SeqCst);
                    queue.add("key");
                }
            })
        });
        join(producers.collect::<Vec<_>>());
        future::block_on(queue.drain());
        assert_eq!(
            seen.load(SeqCst),
            4,
            "the state at the last add was never observed"
        );
        join(workers);
    });
}

#[test]
fn soak_an_unpark_between_check_and_park_is_not_lost() {
    check(this_test!(), || {
        let queue = WorkQueue::default();
        let event = Arc::new(AtomicBool::new(false));
        queue.add("key");
        let parker = {
            let (queue, event) = (queue.clone(), event.clone());
            thread::spawn(move || {
                future::block_on(async {
                    loop {
                        let item = queue.get().await.expect("the queue is open");
                        if event.load(SeqCst) {
                            return item.finish(Outcome::done());
                        }
                        item.park();
                    }
                });
            })
        };
        event.store(true, SeqCst);
        queue.unpark(&"key");
        join([parker]);
        assert_eq!(queue.stats().parked, 0);
    });
}

#[test]
fn soak_adds_to_a_parked_key_neither_wake_it_nor_get_lost() {
    check(this_test!(), || {
        let queue = WorkQueue::default();
        queue.add("key");
        let parked = thread::spawn({
            let queue = queue.clone();
            move || {
                future::block_on(queue.get())
                    .expect("the key is there")
                    .park();
                assert!(queue.try_get().is_none(), "an add woke a parked key");
            }
        });
        let adder = thread::spawn({
            let queue = queue.clone();
            move || queue.add("key")
        });
        join([parked, adder]);
        queue.unpark(&"key");
        // The add may happen before, during or after the run: there is one run in all three cases.
        queue.try_get().expect("unparked").finish(Outcome::done());
        assert!(queue.try_get().is_none());
    });
}

/// The key is added with or without a delay, before or after the run checks.
///
/// A missed notification is a deadlock.
#[test]
fn soak_a_run_is_notified_that_its_key_is_queued_again() {
    check(this_test!(), || {
        let queue = WorkQueue::default();
        queue.add("key");
        let item = queue.try_get().expect("the key is there");
        let (_, watch) = item.reasons_and_watch();
        let run = thread::spawn(move || {
            future::block_on(watch.queued_again());
            assert!(item.is_queued_again());
            item.finish(Outcome::done());
        });
        queue.add_after("key", Duration::from_secs(5));
        queue.add_after("key", Duration::from_secs(3));
        sync::advance(Duration::from_secs(3));
        join([run]);
        queue
            .try_get()
            .expect("the key is queued again")
            .finish(Outcome::done());

        queue.add("key");
        let item = queue.try_get().expect("the key is there");
        let (_, watch) = item.reasons_and_watch();
        let run = thread::spawn(move || {
            future::block_on(watch.queued_again());
            item.finish(Outcome::done());
        });
        queue.add("key");
        join([run]);
        assert_eq!(queue.len(), 1);
    });
}

/// Waker that shows whether a reference to it is left.
struct Kept;

impl Wake for Kept {
    fn wake(self: Arc<Self>) {}
}

/// Has no race. It needs crate-internal functions and a lock, which the queue's unit tests do not
/// have.
#[test]
fn dropped_waits_of_a_run_free_their_wakers() {
    schedules::check(this_test!(), 1, || {
        let queue = WorkQueue::default();
        queue.add("key");
        let item = queue.try_get().expect("the key is there");
        let (_, watch) = item.reasons_and_watch();
        let kept: Vec<Weak<Kept>> = (0..100)
            .map(|_| {
                let mut wait = pin!(watch.queued_again());
                let tasks = [Arc::new(Kept), Arc::new(Kept)];
                for task in &tasks {
                    assert!(
                        wait.as_mut()
                            .poll(&mut Context::from_waker(&Waker::from(task.clone())))
                            .is_pending()
                    );
                }
                assert_eq!(Arc::strong_count(&tasks[0]), 1, "another task waits now");
                Arc::downgrade(&tasks[1])
            })
            .collect();
        assert!(kept.iter().all(|task| task.strong_count() == 0));
        drop(item);
    });
}

/// Polls a `get` once, as `select!` does, and drops it.
fn poll_and_drop(queue: &WorkQueue<&'static str>) -> Option<Item<&'static str>> {
    let mut get = pin!(queue.get());
    match get.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => item,
        Poll::Pending => {
            thread::yield_now();
            None
        }
    }
}

#[test]
fn soak_a_getter_dropped_after_it_was_woken_passes_the_key_on() {
    check(this_test!(), || {
        let queue = WorkQueue::default();
        let fickle = thread::spawn({
            let queue = queue.clone();
            move || {
                for _ in 0..2 {
                    if let Some(item) = poll_and_drop(&queue) {
                        // Queue the key again for the other worker.
                        queue.add(*item.key());
                    }
                }
            }
        });
        let steady = thread::spawn({
            let queue = queue.clone();
            move || {
                future::block_on(queue.get())
                    .expect("a key comes")
                    .finish(Outcome::done());
            }
        });
        queue.add("key");
        join([fickle, steady]);
    });
}

#[test]
fn soak_dropped_getters_do_not_lose_the_timer_of_delayed_keys() {
    check(this_test!(), || {
        let queue = WorkQueue::default();
        let fickle = thread::spawn({
            let queue = queue.clone();
            move || {
                if let Some(item) = poll_and_drop(&queue) {
                    queue.add(*item.key());
                }
            }
        });
        let (done, runs) = mpsc::channel();
        let steady = worker(&queue, move |item| {
            done.send(*item.key()).unwrap();
            Outcome::done()
        });
        queue.add_after("later", Duration::from_secs(2));
        queue.add_after("sooner", Duration::from_secs(1));
        for key in ["sooner", "later"] {
            sync::advance(Duration::from_secs(1));
            assert_eq!(runs.recv().unwrap(), key);
        }
        queue.close();
        join([fickle, steady]);
    });
}

/// The getter is polled once, before or after the key is added and another getter sleeps, and then
/// never again.
#[test]
fn soak_an_unpolled_getter_does_not_hide_delayed_keys_from_another() {
    check(this_test!(), || {
        let queue: WorkQueue<&str> = WorkQueue::default();
        let (done, run) = mpsc::channel();
        let steady = worker(&queue, move |item| {
            done.send(*item.key()).unwrap();
            Outcome::done()
        });
        let adder = thread::spawn({
            let queue = queue.clone();
            move || {
                queue.add_after("later", Duration::from_secs(2));
                queue.add_after("sooner", Duration::from_secs(1));
            }
        });
        let mut stuck = pin!(queue.get());
        let polled = stuck.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "nothing is due");
        join([adder]);
        for key in ["sooner", "later"] {
            sync::advance(Duration::from_secs(1));
            sync::advance(Duration::from_millis(10)); // The second getter with a timer wakes this much later.
            assert_eq!(run.recv().unwrap(), key);
        }
        queue.close();
        join([steady]);
    });
}

#[test]
fn soak_shutting_down_ends_every_getter_and_every_drain() {
    check(this_test!(), || {
        let queue = WorkQueue::default();
        let workers: Vec<_> = (0..2)
            .map(|_| worker(&queue, |_| Outcome::requeue_after(Duration::from_secs(1))))
            .collect();
        let adder = thread::spawn({
            let queue = queue.clone();
            move || (0..3).for_each(|key| queue.add(key))
        });
        let drainer = thread::spawn({
            let queue = queue.clone();
            move || {
                future::block_on(queue.drain());
                assert!(queue.is_closed());
            }
        });
        let closer = thread::spawn({
            let queue = queue.clone();
            move || queue.close()
        });
        join(workers.into_iter().chain([adder, drainer, closer]));
        assert_eq!((queue.len(), queue.stats().running), (0, 0));
    });
}

#[test]
fn soak_a_drain_ends_when_runs_finish_without_a_getter() {
    check(this_test!(), || {
        let queue = WorkQueue::default();
        let (begin, runs) = mpsc::channel::<Item<&str>>();
        let dispatcher = thread::spawn({
            let queue = queue.clone();
            move || {
                future::block_on(async {
                    while let Some(item) = queue.get().await {
                        begin.send(item).unwrap();
                    }
                });
            }
        });
        let ender = thread::spawn(move || {
            runs.into_iter()
                .for_each(|item| item.finish(Outcome::done()));
        });
        (0..3).for_each(|_| queue.add("key"));
        future::block_on(queue.drain());
        assert_eq!((queue.len(), queue.stats().running), (0, 0));
        join([dispatcher, ender]);
    });
}

#[test]
fn soak_a_drain_ends_after_the_last_run_and_not_before() {
    check(this_test!(), || {
        let queue = WorkQueue::default();
        let running = Arc::new(AtomicUsize::new(0));
        (0..3).for_each(|key| queue.add(key));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let running = running.clone();
                worker(&queue, move |_| {
                    running.fetch_add(1, SeqCst);
                    thread::yield_now();
                    running.fetch_sub(1, SeqCst);
                    Outcome::done()
                })
            })
            .collect();
        future::block_on(queue.drain());
        assert_eq!((running.load(SeqCst), queue.len()), (0, 0));
        join(workers);
    });
}
