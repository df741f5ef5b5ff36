//! A key in a worker's hands.

use super::{
    Key, Next, Outcome, Priority, Reason, WorkQueue,
    queue::Place,
    state::{End, Ended, NEVER, Taken},
};
use std::{fmt, future::poll_fn, ops::Deref, sync::Arc, task::Poll, time::Duration};
use tokio::task::coop;

/// A key in work: no other worker has it until this is finished or dropped.
///
/// Dropping it, also by a panic, ends the run and leaves the rest as it is: added meanwhile, the key runs again; failed attempts stay counted.
pub struct Item<K: Key> {
    queue: WorkQueue<K>,
    key: K,
    slot: u32,
    run: u32,
    priority: Priority,
    attempts: u32,
    waited: u64,
    error: Option<Arc<str>>,
    finished: bool,
}

impl<K: Key> Item<K> {
    #[inline]
    pub(super) fn new(queue: WorkQueue<K>, taken: Taken<K>, now: u64) -> Self {
        let Taken { key, slot, run, priority, attempts, ready_at } = taken;
        Self {
            queue,
            key,
            slot,
            run,
            priority: Priority(priority),
            attempts,
            waited: now.saturating_sub(ready_at),
            error: None,
            finished: false,
        }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority it was handed out with, and will be requeued with unless told otherwise.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// 1 on the first run since the last success.
    pub fn attempt(&self) -> u32 {
        self.attempts.saturating_add(1)
    }

    /// How long it was ready before this worker got it.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }

    /// Why it runs: the last reasons it was added with, oldest first.
    pub fn reasons(&self) -> Vec<Reason> {
        let state = self.queue.0.lock();
        state.reasons.texts(state.runs.get(self.run).reasons)
    }

    /// Added again since this run began, and ready: it runs once more when this run ends. One added with a delay that has not
    /// passed does not count.
    pub fn is_queued_again(&self) -> bool {
        let state = self.queue.0.lock();
        state.is_queued_again(self.slot)
    }

    /// Why this run failed, for [`snapshot`](WorkQueue::snapshot): shown until the key succeeds or is forgotten.
    pub fn set_error(&mut self, error: impl Into<Arc<str>>) {
        self.error = Some(error.into());
    }

    /// Requeue as told, then done, under one lock.
    pub fn finish(mut self, outcome: Outcome) {
        let end = self.end(outcome);
        self.finish_with(end, outcome.priority);
    }

    /// [`Self::finish`] and [`WorkQueue::get`] under one lock: a worker's loop. The outcome counts from the first poll on; dropping
    /// the future later loses nothing.
    pub async fn finish_and_get(mut self, outcome: Outcome) -> Option<Self> {
        let end = self.end(outcome);
        let taken = poll_fn(|cx| match coop::poll_proceed(cx) {
            Poll::Ready(progress) => {
                let taken = self.finish_and_take(end, outcome.priority);
                if taken {
                    progress.made_progress();
                }
                Poll::Ready(taken)
            }
            // Others of this runtime wait for their turn: end the run, and let `get` wait for ours.
            Poll::Pending => {
                self.finish_with(end, outcome.priority);
                Poll::Ready(false)
            }
        });
        if taken.await {
            return Some(self);
        }
        let queue = self.queue.clone();
        drop(self); // The key is done: nothing keeps it while this waits for the next.
        queue.get().await
    }

    /// [`Self::finish`] and [`WorkQueue::try_get`] under one lock.
    pub fn finish_and_try_get(mut self, outcome: Outcome) -> Option<Self> {
        let end = self.end(outcome);
        self.finish_and_take(end, outcome.priority).then_some(self)
    }

    /// Done, but not ready again before [`WorkQueue::unpark`]; adds meanwhile are merged. If it was unparked since this run began, it is
    /// ready at once: no event is lost between looking and parking.
    pub fn park(mut self) {
        self.finish_with(End::Park { until: NEVER }, None);
    }

    /// [`Self::park`], but no longer than `bound`.
    pub fn park_for(mut self, bound: Duration) {
        let bound = u64::try_from(bound.as_nanos()).unwrap_or(NEVER);
        let until = self.queue.0.now().saturating_add(bound).min(NEVER - 1);
        self.finish_with(End::Park { until }, None);
    }

    /// What an outcome means for the state. Asks the limiter, without the lock.
    fn end(&self, outcome: Outcome) -> End {
        let queue = &self.queue.0;
        match outcome.next {
            Next::Done => End::Success(None),
            Next::After(delay) => End::Success(Some(queue.when(delay, false, false))),
            Next::RateLimited => {
                let delay = queue.limit(&self.key, Place::Slot(self.slot));
                End::Retry(queue.when(delay, true, false))
            }
        }
    }

    fn ended(&mut self, end: End, priority: Option<Priority>) -> Ended {
        self.finished = true;
        Ended {
            slot: self.slot,
            run: self.run,
            end,
            priority: priority.unwrap_or(self.priority).0,
            error: self.error.take(),
        }
    }

    fn finish_with(&mut self, end: End, priority: Option<Priority>) {
        let ended = self.ended(end, priority);
        let queue = &self.queue.0;
        let now = queue.timing.then(|| queue.now());
        self.queue.0.change(|state, wakes| state.finish(ended, now, || queue.now(), wakes));
    }

    /// True if this is another key now.
    fn finish_and_take(&mut self, end: End, priority: Option<Priority>) -> bool {
        let ended = self.ended(end, priority);
        let queue = &self.queue.0;
        let now = queue.now();
        let (taken, _key) = self.queue.0.change(|state, wakes| {
            let key = state.finish(ended, queue.timing.then_some(now), || now, wakes);
            (state.take(now, queue.timing), key)
        });
        let Some(taken) = taken else { return false };
        self.key = taken.key;
        (self.slot, self.run, self.attempts) = (taken.slot, taken.run, taken.attempts);
        self.priority = Priority(taken.priority);
        self.waited = now.saturating_sub(taken.ready_at);
        self.finished = false;
        true
    }
}

impl<K: Key> Drop for Item<K> {
    fn drop(&mut self) {
        if !self.finished {
            self.finish_with(End::Drop, None);
        }
    }
}

impl<K: Key> Deref for Item<K> {
    type Target = K;
    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Key> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .field("attempt", &self.attempt())
            .field("waited", &self.waited())
            .finish_non_exhaustive()
    }
}
