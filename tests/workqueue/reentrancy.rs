//! Tests of reentrancy: user code that is called by the queue may call the queue.
//!
//! Panicking wakers and limiters lose neither keys nor wakeups.

use crate::support::{ByHand, because, ms, run, run_all, secs, take, with_limiter};
use std::{
    hash::{Hash, Hasher},
    panic::resume_unwind,
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll, Wake, Waker},
};
use steersman::workqueue::{Add, Item, Limiter, Outcome, WorkQueue};
use tokio::time::advance;

/// Key that inspects the queue when it is dropped.
#[derive(Clone, Debug)]
struct CallQueueOnDrop(Arc<OnceLock<WorkQueue<CallQueueOnDrop>>>);

impl Drop for CallQueueOnDrop {
    fn drop(&mut self) {
        if let Some(queue) = self.0.get() {
            queue.len();
        }
    }
}
impl PartialEq for CallQueueOnDrop {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for CallQueueOnDrop {}
impl Hash for CallQueueOnDrop {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn a_key_can_call_the_queue_when_it_is_dropped() {
    let queue = WorkQueue::default();
    let key = CallQueueOnDrop(Arc::new(OnceLock::from(queue.clone())));
    queue.add_rate_limited(key.clone());
    queue.add_rate_limited(key.clone());
    queue.add_all(
        [key.clone(), key.clone()],
        Add {
            rate_limited: true,
            ..Add::default()
        },
    );
    queue.add(key.clone());
    queue.add(key.clone());
    take(&queue).finish(Outcome::done());
    queue.add(key.clone());
    assert!(queue.cancel(&key));
    queue.add_rate_limited(key.clone());
    queue.forget(&key);
    queue.close();
}

/// Task that owns an item, as in a custom executor.
struct Task(#[expect(dead_code, reason = "it is dropped with the task")] Item<&'static str>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_can_own_an_item_of_its_queue() {
    let queue = WorkQueue::default();
    queue.add("a");
    let waker = Waker::from(Arc::new(Task(take(&queue))));
    let mut get = Box::pin(queue.get());
    assert!(
        get.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(waker);
    assert!(matches!(
        get.as_mut().poll(&mut Context::from_waker(Waker::noop())),
        Poll::Pending
    ));
    assert_eq!(
        queue.stats().running,
        0,
        "dropping the waker drops the item"
    );
}

/// Waker that shows whether a reference to it is left.
struct WeakWaker;

impl Wake for WeakWaker {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_dropped_drain_frees_its_waker() {
    let queue = WorkQueue::default();
    queue.add("a");
    let item = take(&queue);
    let kept: Vec<Weak<WeakWaker>> = (0..100)
        .map(|_| {
            let task = Arc::new(WeakWaker);
            let weak = Arc::downgrade(&task);
            let mut drain = Box::pin(queue.drain());
            assert!(
                drain
                    .as_mut()
                    .poll(&mut Context::from_waker(&Waker::from(task)))
                    .is_pending()
            );
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
fn a_limiter_can_call_the_queue() {
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
    let queue = WorkQueue::new(steersman::workqueue::QueueOptions {
        limiter,
        ..Default::default()
    });
    slot.set(queue.clone()).expect("set once");
    queue.add_rate_limited("a");
    run(&queue, &"other");
    run(&queue, &"a");
}

/// Waker that panics when it is called.
struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        resume_unwind(Box::new("the waker fails"));
    }
}

#[test]
fn a_panicking_waker_does_not_block_others() {
    for bad in 1..=2 {
        let queue = WorkQueue::default();
        let first = ByHand::waiting(queue.get());
        let mut stuck: Vec<_> = (0..bad).map(|_| Box::pin(queue.get())).collect();
        for get in &mut stuck {
            assert!(
                get.as_mut()
                    .poll(&mut Context::from_waker(&Waker::from(Arc::new(
                        PanickingWaker
                    ))))
                    .is_pending()
            );
        }
        let last = ByHand::waiting(queue.get());
        queue.add_all(0..10, Add::default());
        assert!(
            first.was_woken() && last.was_woken(),
            "{bad} of the wakers panic"
        );
        assert_eq!(queue.len(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_waker_loses_no_key() {
    let queue = WorkQueue::default();
    queue.add_after("z", secs(3600));
    let mut bad = Box::pin(queue.get());
    assert!(
        bad.as_mut()
            .poll(&mut Context::from_waker(&Waker::from(Arc::new(
                PanickingWaker
            ))))
            .is_pending()
    );
    queue.add_after("a", ms(10));
    queue.add_after("b", ms(10));
    advance(ms(10)).await;
    let item = take(&queue);
    assert_eq!(
        (*item, run_all(&queue)),
        ("a", vec!["b"]),
        "the bad one was woken for b"
    );
}

/// Panic payload that panics when it is dropped, up to the given depth.
struct PanicOnDrop(u32);

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        if self.0 > 0 {
            resume_unwind(Box::new(Self(self.0 - 1)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_payload_that_panics_on_drop_loses_no_key() {
    for nested in 0..3 {
        let queue = with_limiter(Limiter::new(move |_: &&str, _, _| {
            resume_unwind(Box::new(PanicOnDrop(nested)))
        }));
        queue.add_rate_limited("a");
        assert_eq!(
            (queue.stats().limiter_panics, queue.stats().delayed),
            (1, 1),
            "{nested}"
        );
        advance(ms(5)).await;
        take(&queue).finish(Outcome::requeue());
        advance(ms(10)).await;
        run(&queue, &"a");
    }
}
