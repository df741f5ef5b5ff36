//! Tests of memory: finished, cancelled, forgotten and dropped keys are freed.

use crate::support::{ByHand, ms, run, secs, take};
use std::{
    hash::{Hash, Hasher},
    sync::{Arc, Weak},
};
use steersman::workqueue::{Add, Outcome, WorkQueue};
use tokio::time::advance;

/// Key that shows whether any reference to it is left.
#[derive(Clone, Debug)]
struct Tracked(Arc<u32>);

impl PartialEq for Tracked {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl Eq for Tracked {}

impl Hash for Tracked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

fn tracked(n: u32) -> (Tracked, Weak<u32>) {
    let key = Arc::new(n);
    let weak = Arc::downgrade(&key);
    (Tracked(key), weak)
}

/// Creates a key that equals the tracked one.
fn same(n: u32) -> Tracked {
    tracked(n).0
}

#[track_caller]
fn assert_freed(queue: &WorkQueue<Tracked>, key: &Weak<u32>) {
    assert!(
        key.upgrade().is_none(),
        "{} copies are left",
        key.strong_count()
    );
    assert!(queue.snapshot().is_empty());
}

// Port of client-go's `TestGarbageCollection`.
#[test]
fn a_finished_key_is_freed() {
    let queue = WorkQueue::default();
    let (key, weak) = tracked(1);
    queue.add(key);
    assert!(weak.upgrade().is_some());
    run(&queue, &same(1));
    assert_freed(&queue, &weak);
}

#[test]
fn a_finished_key_is_freed_when_its_worker_gets_another() {
    let queue = WorkQueue::default();
    let (key, weak) = tracked(1);
    queue.add(key);
    queue.add(same(2));
    let item = take(&queue)
        .finish_and_try_get(Outcome::done())
        .expect("2 is ready");
    assert!(weak.upgrade().is_none());
    let waiting = ByHand::waiting(item.finish_and_get(Outcome::done()));
    drop(waiting);
    assert!(queue.snapshot().is_empty());
}

#[test]
fn a_finished_key_is_freed_while_its_worker_waits_for_the_next() {
    let queue = WorkQueue::default();
    let (key, weak) = tracked(1);
    queue.add(key);
    let waiting = ByHand::waiting(take(&queue).finish_and_get(Outcome::done()));
    assert!(weak.upgrade().is_none());
    drop(waiting);
}

#[test]
fn a_dropped_item_is_freed() {
    let queue = WorkQueue::default();
    let (key, weak) = tracked(1);
    queue.add(key);
    drop(take(&queue));
    assert_freed(&queue, &weak);
}

#[test]
fn one_of_equal_keys_is_stored() {
    let queue = WorkQueue::default();
    let (first, _) = tracked(1);
    queue.add(first);
    let (second, weak) = tracked(1);
    queue.add(second);
    assert!(weak.upgrade().is_none());
    let (third, weak) = tracked(1);
    queue.add_all(
        [third.clone(), third],
        Add {
            rate_limited: true,
            ..Add::default()
        },
    );
    assert!(weak.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_failed_key_is_freed_after_success_or_a_terminal_outcome() {
    let queue = WorkQueue::default();
    let (key, weak) = tracked(1);
    queue.add(key);
    let mut item = take(&queue);
    item.set_error("not yet");
    item.finish(Outcome::requeue());
    advance(ms(5)).await;
    assert!(weak.upgrade().is_some(), "it waits");
    take(&queue).finish(Outcome::done());
    assert_freed(&queue, &weak);
}

#[tokio::test(start_paused = true)]
async fn a_key_remembered_for_its_attempts_is_freed_by_forget() {
    let queue = WorkQueue::default();
    let (key, weak) = tracked(1);
    queue.add(key);
    take(&queue).finish(Outcome::requeue());
    advance(ms(5)).await;
    drop(take(&queue));
    assert!(weak.upgrade().is_some());
    queue.forget(&same(1));
    assert_freed(&queue, &weak);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_key_is_freed_in_every_state() {
    let queue = WorkQueue::default();
    let (ready, ready_weak) = tracked(1);
    let (delayed, delayed_weak) = tracked(2);
    let (parked, parked_weak) = tracked(3);
    queue.add(parked);
    take(&queue).park_for(secs(10));
    queue.add(ready);
    queue.add_after(delayed, secs(1));
    for n in 1..=3 {
        assert!(queue.cancel(&same(n)));
    }
    for weak in [ready_weak, delayed_weak, parked_weak] {
        assert_freed(&queue, &weak);
    }
}

#[test]
fn a_key_forgotten_while_it_runs_is_freed_when_the_run_ends() {
    let queue = WorkQueue::default();
    let (key, weak) = tracked(1);
    queue.add_rate_limited(key);
    queue.add(same(1));
    let item = take(&queue);
    queue.forget(&same(1));
    assert!(weak.upgrade().is_some());
    drop(item);
    assert_freed(&queue, &weak);
}

#[test]
fn close_frees_everything_that_is_not_in_a_worker() {
    let queue = WorkQueue::default();
    let mut weaks = Vec::new();
    let mut key = |n| {
        let (key, weak) = tracked(n);
        weaks.push(weak);
        key
    };
    queue.add(key(1));
    take(&queue).park();
    queue.add_rate_limited(key(2));
    queue.cancel(&same(2));
    queue.add_after(key(3), secs(1));
    queue.add(key(4));
    queue.close();
    for weak in &weaks {
        assert_freed(&queue, weak);
    }
}

#[test]
fn close_after_ready_frees_what_it_does_not_hand_out() {
    let queue = WorkQueue::default();
    let mut weaks = Vec::new();
    let mut key = |n| {
        let (key, weak) = tracked(n);
        weaks.push(weak);
        key
    };
    queue.add(key(1));
    take(&queue).park();
    queue.add_rate_limited(key(2));
    queue.cancel(&same(2));
    queue.add_after(key(3), secs(1));
    queue.add(key(4));
    queue.close_after_ready();
    assert_eq!(
        weaks.iter().map(Weak::strong_count).collect::<Vec<_>>(),
        [0, 0, 0, 1]
    );
    take(&queue).finish(Outcome::requeue());
    assert_freed(&queue, &weaks[3]);
}

#[test]
fn a_run_that_ends_after_close_frees_its_key() {
    let queue = WorkQueue::default();
    let (key, weak) = tracked(1);
    queue.add(key);
    let item = take(&queue);
    queue.close();
    assert!(weak.upgrade().is_some());
    item.finish(Outcome::requeue());
    assert_freed(&queue, &weak);
}

#[test]
fn an_add_after_shutdown_keeps_nothing() {
    let queue = WorkQueue::default();
    queue.close_after_ready();
    let (key, weak) = tracked(1);
    queue.add_rate_limited(key.clone());
    queue.add_all([key.clone(), key], Add::default());
    assert_freed(&queue, &weak);
}

#[test]
fn dropping_the_last_handle_frees_the_queue_with_all_its_keys() {
    let queue = WorkQueue::default();
    let (key, weak) = tracked(1);
    queue.add(key);
    drop(queue.clone());
    assert!(weak.upgrade().is_some());
    drop(queue);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_dropped_getter_frees_its_waker() {
    struct Held(#[expect(dead_code, reason = "only its being alive matters")] Arc<()>);
    impl std::task::Wake for Held {
        fn wake(self: Arc<Self>) {}
    }
    let queue: WorkQueue<u8> = WorkQueue::default();
    let held = Arc::new(());
    let waker = std::task::Waker::from(Arc::new(Held(held.clone())));
    let mut get = Box::pin(queue.get());
    assert!(
        get.as_mut()
            .poll(&mut std::task::Context::from_waker(&waker))
            .is_pending()
    );
    drop(waker);
    assert_eq!(Arc::strong_count(&held), 2);
    drop(get);
    assert_eq!(Arc::strong_count(&held), 1);
}
