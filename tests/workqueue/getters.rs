//! Tests of getters.
//!
//! Wakeups, and getters that are dropped before they return a key.

use crate::support::{ByHand, Random, assert_elapsed, ms, run, secs, soon, take};
use std::{pin::pin, task::Poll, time::Duration};
use steersman::workqueue::{Add, Item, Outcome, WorkQueue};
use tokio::time::{Instant, advance, sleep};

#[test]
fn an_add_wakes_a_sleeping_getter() {
    let queue = WorkQueue::default();
    let mut getter = ByHand::waiting(queue.get());
    assert!(!getter.was_woken());
    queue.add("a");
    assert!(getter.was_woken());
    assert_eq!(*getter.ready().expect("open"), "a");
}

/// Polls the woken getters until none is woken, and returns their items.
fn poll_woken<F: Future<Output = Option<Item<u32>>>>(
    getters: &mut Vec<ByHand<F>>,
) -> Vec<Item<u32>> {
    let mut items = Vec::new();
    while let Some(woken) = getters.iter().position(ByHand::was_woken) {
        if let Poll::Ready(item) = getters[woken].poll() {
            items.push(item.expect("open"));
            getters.remove(woken);
        }
    }
    items
}

#[test]
fn as_many_getters_are_woken_as_keys_became_ready() {
    let queue = WorkQueue::default();
    let mut getters: Vec<_> = (0..5).map(|_| ByHand::waiting(queue.get())).collect();
    queue.add_all(0..3, Add::default());
    let first = poll_woken(&mut getters);
    assert_eq!((first.len(), getters.len()), (3, 2));
    queue.add_all(3..100, Add::default());
    let second = poll_woken(&mut getters);
    assert_eq!((second.len(), getters.len()), (2, 0));
}

/// A getter that is not polled may delay the key it was woken for, but no other key.
#[test]
fn woken_getters_that_are_not_polled_do_not_block_others() {
    let queue = WorkQueue::default();
    let mut getters: Vec<_> = (0..40).map(|_| ByHand::waiting(queue.get())).collect();
    queue.add_all(0..40, Add::default());
    let mut stuck = Vec::new();
    while stuck.len() < 20
        && let Some(woken) = getters.iter().position(ByHand::was_woken)
    {
        stuck.push(getters.remove(woken));
    }
    let items = poll_woken(&mut getters);
    assert_eq!(
        (stuck.len(), items.len()),
        (20, 20),
        "a getter sleeps while a key is ready"
    );
}

#[test]
fn a_duplicate_add_wakes_no_second_getter() {
    let queue = WorkQueue::default();
    let getters: Vec<_> = (0..3).map(|_| ByHand::waiting(queue.get())).collect();
    for _ in 0..3 {
        queue.add("a");
    }
    assert_eq!(
        getters.iter().filter(|getter| getter.was_woken()).count(),
        1
    );
}

#[test]
fn a_getter_dropped_before_it_is_polled_takes_no_key() {
    let queue = WorkQueue::default();
    queue.add("a");
    drop(queue.get());
    run(&queue, &"a");
}

#[test]
fn a_getter_dropped_while_it_sleeps_is_not_woken() {
    let queue = WorkQueue::default();
    let dropped = ByHand::waiting(queue.get());
    let mut other = ByHand::waiting(queue.get());
    drop(dropped);
    queue.add("a");
    assert!(other.was_woken());
    assert_eq!(*other.ready().expect("open"), "a");
}

#[test]
fn a_getter_dropped_after_it_was_woken_passes_the_key_on() {
    for dropped in 0..3 {
        let queue = WorkQueue::default();
        let mut getters: Vec<_> = (0..3).map(|_| ByHand::waiting(queue.get())).collect();
        queue.add("a");
        let woken = getters
            .iter()
            .position(ByHand::was_woken)
            .expect("one is woken");
        drop(getters.remove(woken));
        let next = getters
            .iter()
            .position(ByHand::was_woken)
            .expect("another is woken in its stead");
        if dropped > 0 {
            drop(getters.remove(next));
            assert!(getters[0].was_woken());
            if dropped > 1 {
                getters.clear();
                run(&queue, &"a");
                continue;
            }
            assert_eq!(*getters[0].ready().expect("open"), "a");
        } else {
            assert_eq!(*getters[next].ready().expect("open"), "a");
        }
    }
}

#[test]
fn a_getter_woken_without_a_key_sleeps_again() {
    let queue = WorkQueue::default();
    let mut getter = ByHand::waiting(queue.get());
    queue.add("a");
    let taken = take(&queue);
    assert!(getter.poll().is_pending());
    queue.add("b");
    assert!(getter.was_woken());
    assert_eq!(*getter.ready().expect("open"), "b");
    assert_eq!(*taken, "a");
}

#[test]
fn a_key_cancelled_after_it_woke_a_getter_leaves_it_asleep() {
    let queue = WorkQueue::default();
    let mut getter = ByHand::waiting(queue.get());
    queue.add("a");
    assert!(queue.cancel(&"a"));
    assert!(getter.poll().is_pending());
    queue.add("b");
    assert!(getter.was_woken());
    assert_eq!(*getter.ready().expect("open"), "b");
}

#[test]
fn the_end_of_a_run_wakes_a_getter_if_the_key_was_added_again() {
    type End = fn(steersman::workqueue::Item<&'static str>);
    let ends: [End; 3] = [
        drop,
        |item| item.finish(Outcome::done()),
        |item| item.finish(Outcome::requeue()),
    ];
    for end in ends {
        let queue = WorkQueue::default();
        queue.add("a");
        let item = take(&queue);
        let mut getter = ByHand::waiting(queue.get());
        queue.add("a");
        assert!(!getter.was_woken());
        end(item);
        assert!(getter.was_woken());
        assert_eq!(*getter.ready().expect("open"), "a");
    }
}

#[test]
fn a_getter_polled_by_another_task_wakes_that_task() {
    let queue = WorkQueue::default();
    let mut get = Box::pin(queue.get());
    let first = ByHand::waiting(std::future::poll_fn(|cx| get.as_mut().poll(cx)));
    assert!(!first.was_woken());
    drop(first);
    let mut second = ByHand::waiting(std::future::poll_fn(|cx| get.as_mut().poll(cx)));
    queue.add("a");
    assert!(second.was_woken());
    assert_eq!(*second.ready().expect("open"), "a");
}

#[tokio::test(start_paused = true)]
async fn a_getter_that_slept_before_the_delay_was_added_wakes_in_time() {
    let queue = WorkQueue::default();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { soon(queue.get()).await.map(|item| *item) }
    });
    sleep(secs(1)).await;
    let start = Instant::now();
    queue.add_after("a", ms(50));
    assert_eq!(soon(worker).await.expect("no panic"), Some("a"));
    assert_elapsed(start, ms(50));
}

#[tokio::test(start_paused = true)]
async fn an_earlier_delay_added_while_a_getter_sleeps_moves_its_timer() {
    let queue = WorkQueue::default();
    queue.add_after("later", secs(100));
    let start = Instant::now();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { soon(queue.get()).await.map(|item| *item) }
    });
    sleep(secs(1)).await;
    queue.add_after("sooner", secs(1));
    assert_eq!(soon(worker).await.expect("no panic"), Some("sooner"));
    assert_elapsed(start, secs(2));
}

#[tokio::test(start_paused = true)]
async fn keys_due_together_wake_as_many_getters() {
    let queue = WorkQueue::default();
    let start = Instant::now();
    let workers: Vec<_> = (0..10)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let item = soon(queue.get()).await.expect("open");
                assert_elapsed(start, ms(50));
                sleep(secs(1)).await;
                *item
            })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.add_all(
        0..10,
        Add {
            after: Some(ms(50)),
            ..Add::default()
        },
    );
    let mut keys = Vec::new();
    for worker in workers {
        keys.push(soon(worker).await.expect("in time"));
    }
    keys.sort_unstable();
    assert_eq!(keys, (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn another_getter_takes_over_the_timer_of_a_dropped_getter() {
    for dropped in 0..3 {
        let queue = WorkQueue::default();
        queue.add_after("a", ms(50));
        let mut getters: Vec<_> = (0..3).map(|_| ByHand::waiting(queue.get())).collect();
        drop(getters.remove(dropped));
        // Poll the woken getters, as a runtime would.
        for getter in getters.iter_mut().filter(|getter| getter.was_woken()) {
            assert!(getter.poll().is_pending());
        }
        advance(ms(51)).await;
        let woken = getters
            .iter_mut()
            .find(|getter| getter.was_woken())
            .expect("one of them wakes in time");
        assert_eq!(*woken.ready().expect("open"), "a");
    }
}

#[tokio::test(start_paused = true)]
async fn another_getter_takes_over_the_timer_of_a_getter_that_got_a_key() {
    let queue = WorkQueue::default();
    queue.add_after("delayed", ms(50));
    let start = Instant::now();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let item = soon(queue.get()).await.expect("open");
                let after = start.elapsed();
                sleep(secs(1000)).await;
                (*item, after)
            })
        })
        .collect();
    sleep(ms(10)).await;
    queue.add("ready");
    let mut got = Vec::new();
    for worker in workers {
        got.push(soon(worker).await.expect("no panic"));
    }
    got.sort_by_key(|(_, after)| *after);
    assert_eq!((got[0].0, got[1].0), ("ready", "delayed"));
    assert!((ms(50)..=ms(51)).contains(&got[1].1), "{:?}", got[1].1);
}

/// Inspecting the queue makes due keys ready; the sleeping getter must still be woken.
#[tokio::test(start_paused = true)]
async fn reading_the_state_of_a_queue_does_not_hide_due_keys_from_getters() {
    let looks: [fn(&WorkQueue<u32>); 4] = [
        |queue| assert_eq!(queue.stats().depth(), 3),
        |queue| assert_eq!(queue.len(), 3),
        |queue| drop(queue.snapshot()),
        |queue| drop(format!("{queue:?}")),
    ];
    for look in looks {
        let queue = WorkQueue::default();
        queue.add_all(
            0..3,
            Add {
                after: Some(ms(50)),
                ..Add::default()
            },
        );
        let mut getters: Vec<_> = (0..3).map(|_| ByHand::waiting(queue.get())).collect();
        advance(ms(50)).await;
        look(&queue);
        advance(ms(1)).await;
        assert_eq!(poll_woken(&mut getters).len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn try_get_leaves_other_keys_to_waiting_getters() {
    let queue = WorkQueue::default();
    queue.add_all(
        0..3,
        Add {
            after: Some(ms(50)),
            ..Add::default()
        },
    );
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { soon(queue.get()).await.map(|item| *item) })
        })
        .collect();
    tokio::task::yield_now().await;
    advance(ms(50)).await;
    let first = queue.try_get().map(|item| *item);
    let mut keys = vec![first];
    for worker in workers {
        keys.push(soon(worker).await.expect("no panic"));
    }
    assert!(keys.iter().all(Option::is_some), "{keys:?}");
}

#[tokio::test(start_paused = true)]
async fn getters_dropped_at_random_lose_no_key() {
    let queue = WorkQueue::default();
    let mut random = Random::new(11);
    let mut handed_out = 0;
    for key in 0..500u64 {
        queue.add_after(key, ms(random.below(20)));
        for _ in 0..random.below(3) {
            let mut impatient = pin!(queue.get());
            let patience = sleep(Duration::from_micros(random.below(10_000)));
            tokio::select! {
                biased;
                () = patience => {}
                item = &mut impatient => {
                    drop(item.expect("open"));
                    handed_out += 1;
                }
            }
        }
    }
    while handed_out < 500 {
        drop(soon(queue.get()).await.expect("open"));
        handed_out += 1;
    }
    assert!(queue.snapshot().is_empty(), "no key was handed out twice");
}

/// A queue without delayed keys needs no runtime.
#[test]
fn a_queue_works_outside_of_a_runtime() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = ByHand::new(queue.get()).ready().expect("open");
    let mut next = ByHand::waiting(item.finish_and_get(Outcome::done()));
    let mut drained = ByHand::new(queue.drain());
    assert!(drained.poll().is_ready());
    assert!(next.ready().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_queue_spawns_no_task() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(10));
    queue.add_rate_limited("b");
    drop(soon(queue.get()).await);
    queue.close();
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        0
    );
}

/// Finishing a run and getting the next key is one step, so no other getter is woken for that key.
#[test]
fn finish_and_get_of_the_only_key_wakes_no_getter() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    queue.add("a");
    let getter = ByHand::waiting(queue.get());
    let item = ByHand::new(item.finish_and_get(Outcome::done()))
        .ready()
        .expect("the key was added again");
    assert!(*item == "a" && !getter.was_woken());
    queue.add("a");
    let item = item.finish_and_try_get(Outcome::done()).expect("and again");
    assert!(*item == "a" && !getter.was_woken());
    queue.add("a");
    item.finish(Outcome::done());
    assert!(getter.was_woken(), "this getter takes no key");
}
