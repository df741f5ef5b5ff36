//! Tasks to wake, once no lock is held: a waker may run whatever its maker likes.

use std::task::Waker;

/// Mostly one, which needs no memory.
#[derive(Default)]
pub(super) struct Wakes {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakes {
    pub(super) fn push(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.rest.push(waker);
        }
    }

    pub(super) fn call(&mut self) {
        self.first.take().into_iter().chain(self.rest.drain(..)).for_each(Waker::wake);
    }
}
