//! Code of the user's that runs in the middle of a call may call the queue itself; and wakers and limiters that panic cost no key and no
//! wake-up.

use crate::support::{ByHand, because, ms, run, run_all, secs, take, with_limiter};
use std::{
    hash::{Hash, Hasher},
    panic::resume_unwind,
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll, Wake, Waker},
};
use steersman::workqueue::{Add, Item, Limiter, Outcome, WorkQueue};
use tokio::time::advance;

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

/// Panics when it is called.
struct Bad;

impl Wake for Bad {
    fn wake(self: Arc<Self>) {
        resume_unwind(Box::new("the waker fails"));
    }
}

#[test]
fn wakers_that_panic_do_not_keep_others_asleep() {
    for bad in 1..=2 {
        let queue = WorkQueue::default();
        let first = ByHand::waiting(queue.get());
        let mut stuck: Vec<_> = (0..bad).map(|_| Box::pin(queue.get())).collect();
        for get in &mut stuck {
            assert!(get.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Bad)))).is_pending());
        }
        let last = ByHand::waiting(queue.get());
        queue.add_all(0..10, Add::default());
        assert!(first.was_woken() && last.was_woken(), "{bad} of the wakers panic");
        assert_eq!(queue.len(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_costs_nobody_else_the_key_he_got() {
    let queue = WorkQueue::default();
    queue.add_after("z", secs(3600));
    let mut bad = Box::pin(queue.get());
    assert!(bad.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(Bad)))).is_pending());
    queue.add_after("a", ms(10));
    queue.add_after("b", ms(10));
    advance(ms(10)).await;
    let item = take(&queue);
    assert_eq!((*item, run_all(&queue)), ("a", vec!["b"]), "the bad one was woken for b");
}

/// Panics when it is dropped, with another of its kind, as often as it says.
struct Grenade(u32);

impl Drop for Grenade {
    fn drop(&mut self) {
        if self.0 > 0 {
            resume_unwind(Box::new(Self(self.0 - 1)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_whose_panic_panics_when_it_is_dropped_loses_no_key() {
    for nested in 0..3 {
        let queue = with_limiter(Limiter::new(move |_: &&str, _, _| resume_unwind(Box::new(Grenade(nested)))));
        queue.add_rate_limited("a");
        assert_eq!((queue.stats().limiter_panics, queue.stats().delayed), (1, 1), "{nested}");
        advance(ms(5)).await;
        take(&queue).finish(Outcome::requeue());
        advance(ms(10)).await;
        run(&queue, &"a");
    }
}
