//! Code of the user's that runs in the middle of a call may call the queue itself.

use crate::support::{because, run, take};
use std::{
    hash::{Hash, Hasher},
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll, Wake, Waker},
};
use steersman::workqueue::{Add, Item, Outcome, WorkQueue};

/// Looks at the queue when it is dropped.
#[derive(Clone, Debug)]
struct Nosy(Arc<OnceLock<WorkQueue<Nosy>>>);

impl Drop for Nosy {
    fn drop(&mut self) {
        if let Some(queue) = self.0.get() {
            queue.len();
        }
    }
}
impl PartialEq for Nosy {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Nosy {}
impl Hash for Nosy {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn a_key_may_call_the_queue_when_it_is_dropped() {
    let queue = WorkQueue::default();
    let key = Nosy(Arc::new(OnceLock::from(queue.clone())));
    queue.add_rate_limited(key.clone());
    queue.add_rate_limited(key.clone());
    queue.add_all([key.clone(), key.clone()], Add { rate_limited: true, ..Add::default() });
    queue.add(key.clone());
    queue.add(key.clone());
    take(&queue).finish(Outcome::done());
    queue.add(key.clone());
    assert!(queue.cancel(&key));
    queue.add_rate_limited(key.clone());
    queue.forget(&key);
    queue.close();
}

/// A task that owns an item, as one of a hand-made executor does.
struct Task(#[expect(dead_code, reason = "it is dropped with the task")] Item<&'static str>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn the_last_handle_of_a_sleeping_getters_task_may_own_an_item() {
    let queue = WorkQueue::default();
    queue.add("a");
    let waker = Waker::from(Arc::new(Task(take(&queue))));
    let mut get = Box::pin(queue.get());
    assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert!(matches!(get.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    assert_eq!(queue.stats().running, 0, "its task is gone, and the run with it");
}

/// A waker that shows whether somebody keeps it.
struct Kept;

impl Wake for Kept {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_dropped_drain_leaves_nothing_behind() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    let kept: Vec<Weak<Kept>> = (0..100)
        .map(|_| {
            let task = Arc::new(Kept);
            let weak = Arc::downgrade(&task);
            let mut drain = Box::pin(queue.drain());
            assert!(drain.as_mut().poll(&mut Context::from_waker(&Waker::from(task))).is_pending());
            weak
        })
        .collect();
    assert!(kept.iter().all(|task| task.strong_count() == 0));
    drop(item);
}

#[test]
fn the_reasons_of_a_run_outlive_a_close() {
    let queue = WorkQueue::default();
    queue.add_with("waits", because("one"));
    queue.add_with("waits", because("two"));
    let item = take(&queue);
    queue.add_with("waits", because("three"));
    queue.close();
    assert_eq!(item.reasons(), ["one".into(), "two".into()]);
    drop(item);
    assert_eq!(queue.stats().running, 0);
}

#[test]
fn a_limiter_may_use_the_queue() {
    let slot: Arc<OnceLock<WorkQueue<&'static str>>> = Arc::default();
    let limiter = {
        let slot = slot.clone();
        steersman::workqueue::Limiter::new(move |_, _, _| {
            if let Some(queue) = slot.get() {
                queue.add("other");
                queue.forget(&"other");
            }
            std::time::Duration::ZERO
        })
    };
    let queue = WorkQueue::new(steersman::workqueue::QueueOptions { limiter, ..Default::default() });
    slot.set(queue.clone()).expect("set once");
    queue.add_rate_limited("a");
    run(&queue, &"other");
    run(&queue, &"a");
}
