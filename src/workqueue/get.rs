//! Future that waits for a key.

use super::{
    Item, Key, WorkQueue,
    shutdown::Phase,
    timer::Timer,
    waiters::{Registered, WaiterId},
};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::task::coop;

/// Future of [`WorkQueue::get`].
///
/// It holds no key, only a position among the waiting getters. If it was woken for a key and is
/// dropped, another getter is woken.
pub(super) struct Get<'a, K: Key> {
    queue: &'a WorkQueue<K>,
    waiter: Option<WaiterId>,
    /// Set if it registered in the current poll: only the timer remains to be set.
    registered: Option<Registered>,
    timer: Timer,
}

impl<'a, K: Key> Get<'a, K> {
    /// Creates the future. `registered` is a registration from the current poll.
    pub(super) fn new(queue: &'a WorkQueue<K>, registered: Option<Registered>) -> Self {
        Self {
            queue,
            waiter: registered.as_ref().map(|registered| registered.id),
            registered,
            timer: Timer::default(),
        }
    }

    /// Polls the timer. Returns whether to keep waiting.
    fn poll_timer(&mut self, at: Option<u64>, cx: &mut Context<'_>) -> bool {
        self.timer.poll(&self.queue.0, at, cx)
    }
}

impl<K: Key> Future for Get<'_, K> {
    type Output = Option<Item<K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(registered) = this.registered.take()
            && this.poll_timer(registered.timer, cx)
        {
            return Poll::Pending;
        }
        let progress = ready!(coop::poll_proceed(cx));
        let mut timer_fired = false;
        loop {
            let (waiter, queue) = (&mut this.waiter, &*this.queue.0);
            let found = queue.change(|state, wakers| {
                state.waiters.unregister(waiter, wakers);
                if state.phase == Phase::Closed {
                    return Ok(None);
                }
                // The timer uses tokio's clock, by which a key is due, so read that one.
                let handed_out = if timer_fired {
                    state.take(&queue.clock.exact(), queue.timing)
                } else {
                    state.take(&queue.clock, queue.timing)
                };
                match handed_out.map(|handed_out| Item::new(this.queue, handed_out)) {
                    Some(item) => Ok(Some(item)),
                    None if state.may_yield_more() => {
                        let Registered { id, timer } = state.register_getter(cx.waker());
                        *waiter = Some(id);
                        Err(timer)
                    }
                    None => Ok(None),
                }
            });
            match found {
                Ok(item) => {
                    progress.made_progress();
                    return Poll::Ready(item);
                }
                Err(timer) if this.poll_timer(timer, cx) => return Poll::Pending,
                Err(_) => timer_fired = true,
            }
        }
    }
}

impl<K: Key> Drop for Get<'_, K> {
    fn drop(&mut self) {
        if self.waiter.is_some() {
            self.queue
                .0
                .change(|state, wakers| state.waiters.unregister(&mut self.waiter, wakers));
        }
    }
}
