//! Waiting for a key.

use super::{
    Item, Key, WorkQueue,
    alarm::Alarm,
    shutdown::Phase,
    waiters::{Asleep, WaiterId},
};
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
    /// It fell asleep in this very poll: there is nothing to look for yet, only an alarm to set.
    fresh: Option<Asleep>,
    alarm: Alarm,
}

impl<'a, K: Key> Get<'a, K> {
    /// `asleep`: a place among the sleeping getters taken in this very poll.
    pub(super) fn new(queue: &'a WorkQueue<K>, asleep: Option<Asleep>) -> Self {
        Self { queue, waiter: asleep.as_ref().map(|asleep| asleep.id), fresh: asleep, alarm: Alarm::default() }
    }

    /// True if it may sleep on.
    fn poll_alarm(&mut self, at: Option<u64>, cx: &mut Context<'_>) -> bool {
        self.alarm.poll(&self.queue.0, at, cx)
    }
}

impl<K: Key> Future for Get<'_, K> {
    type Output = Option<Item<K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(asleep) = this.fresh.take()
            && this.poll_alarm(asleep.alarm, cx)
        {
            return Poll::Pending;
        }
        let progress = ready!(coop::poll_proceed(cx));
        let mut rung = false;
        loop {
            let (waiter, queue) = (&mut this.waiter, &*this.queue.0);
            let found = queue.change(|state, wakes| {
                state.waiters.leave(waiter, wakes);
                if state.phase == Phase::Closed {
                    return Ok(None);
                }
                // By the clock that the alarm goes by something is due, if not by ours.
                let held = if rung {
                    state.take(&queue.clock.exact(), queue.timing)
                } else {
                    state.take(&queue.clock, queue.timing)
                };
                match held.map(|held| Item::new(this.queue, held)) {
                    Some(item) => Ok(Some(item)),
                    None if state.gives_more() => {
                        let Asleep { id, alarm } = state.sleep(cx.waker());
                        *waiter = Some(id);
                        Err(alarm)
                    }
                    None => Ok(None),
                }
            });
            match found {
                Ok(item) => {
                    progress.made_progress();
                    return Poll::Ready(item);
                }
                Err(alarm) if this.poll_alarm(alarm, cx) => return Poll::Pending,
                Err(_) => rung = true,
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
