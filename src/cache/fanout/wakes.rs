//! Wakers to be called without a lock, because a waker may run arbitrary code.

use std::task::Waker;

/// List of wakers. The first one needs no allocation.
#[derive(Default)]
pub(super) struct WakeList {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl WakeList {
    pub(super) fn push(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.rest.push(waker);
        }
    }

    pub(super) fn call(&mut self) {
        self.first
            .take()
            .into_iter()
            .chain(self.rest.drain(..))
            .for_each(Waker::wake);
    }
}
