//! Waiting for a key.

use super::{Item, Key, WorkQueue, shutdown::Phase, waiters::WaiterId};
use crate::sync::{Instant, Sleep, sleep_until};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::task::coop;

/// The future of [`WorkQueue::get`].
///
/// It holds no key, only a place among the sleeping getters, and gives that up when dropped: if it had been woken for a key,
/// another getter is woken in its stead.
pub(super) struct Get<'a, K: Key> {
    queue: &'a WorkQueue<K>,
    waiter: Option<WaiterId>,
    alarm: Option<Alarm>,
}

struct Alarm {
    at: u64,
    sleep: Pin<Box<Sleep>>,
}

impl<'a, K: Key> Get<'a, K> {
    pub(super) fn new(queue: &'a WorkQueue<K>) -> Self {
        Self { queue, waiter: None, alarm: None }
    }

    /// True once it is time.
    fn poll_alarm(&mut self, at: u64, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.queue.0.instant(at) else { return false };
        if self.alarm.as_ref().is_none_or(|alarm| alarm.at != at) {
            self.alarm = Some(Alarm { at, sleep: Box::pin(sleep_until(deadline)) });
        }
        self.alarm.as_mut().is_some_and(|alarm| alarm.sleep.as_mut().poll(cx).is_ready() || Instant::now() >= deadline)
    }
}

impl<K: Key> Future for Get<'_, K> {
    type Output = Option<Item<K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let progress = ready!(coop::poll_proceed(cx));
        let this = &mut *self;
        loop {
            let now = this.queue.0.now();
            let waiter = &mut this.waiter;
            let (found, wake_at) = this.queue.0.change(|state, wakes| {
                if state.phase == Phase::Closed {
                    state.waiters.leave(waiter, wakes);
                    return (Poll::Ready(None), None);
                }
                let taken = state.take(now, this.queue.0.timing);
                if taken.is_none() && state.phase == Phase::Open {
                    return (Poll::Pending, state.sleep(waiter, cx.waker(), wakes));
                }
                state.waiters.leave(waiter, wakes);
                (Poll::Ready(taken), None)
            });
            match (found, wake_at) {
                (Poll::Ready(taken), _) => {
                    progress.made_progress();
                    return Poll::Ready(taken.map(|taken| this.queue.item(taken, now)));
                }
                (Poll::Pending, Some(at)) if this.poll_alarm(at, cx) => {}
                (Poll::Pending, Some(_)) => return Poll::Pending,
                (Poll::Pending, None) => {
                    this.alarm = None;
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<K: Key> Drop for Get<'_, K> {
    fn drop(&mut self) {
        if self.waiter.is_some() {
            self.queue.0.change(|state, wakes| state.waiters.leave(&mut self.waiter, wakes));
        }
    }
}
