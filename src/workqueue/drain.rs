//! Future that waits until a queue is empty and idle.

use super::{Key, WorkQueue};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// Second half of [`WorkQueue::drain`]. Unregisters its waker when dropped.
pub(super) struct Drain<'a, K: Key> {
    queue: &'a WorkQueue<K>,
    number: u64,
}

impl<'a, K: Key> Drain<'a, K> {
    pub(super) fn new(queue: &'a WorkQueue<K>) -> Self {
        let number = queue.0.change(|state, _| {
            state.next_drainer += 1;
            state.next_drainer
        });
        Self { queue, number }
    }
}

impl<K: Key> Future for Drain<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (drained, _waker) = self
            .queue
            .0
            .change(|state, _| state.poll_drained(self.number, cx.waker()));
        if drained {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl<K: Key> Drop for Drain<'_, K> {
    fn drop(&mut self) {
        let _waker = self
            .queue
            .0
            .change(|state, _| state.drainers.remove(&self.number));
    }
}
