//! Key that a worker processes.

use super::{
    Key, Next, Outcome, Priority, Reason, WorkQueue,
    clock::{TimeRange, TimeSource},
    finish::{FinishKind, Finished},
    get::Get,
    processing::HandedOut,
    queue::KeyLocation,
    state::NEVER,
    superseded::SupersededWatch,
    waiters::Registered,
};
use crate::sync::{Instant, Stamp};
use std::{
    fmt,
    future::poll_fn,
    ops::Deref,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};
use tokio::task::coop;

/// Key that a worker processes. No other worker gets it until this is finished or dropped.
///
/// Dropping it, also by a panic, ends the processing without an outcome: a key that was added
/// meanwhile is handed out again, and failed attempts stay counted.
pub struct Item<K: Key> {
    queue: WorkQueue<K>,
    handed_out: HandedOut<K>,
    error: Option<Arc<str>>,
    reason: Option<Reason>,
    finished: bool,
}

impl<K: Key> HandedOut<K> {
    #[inline]
    fn ended<'a>(
        &self,
        end: FinishKind,
        priority: Option<Priority>,
        error: &'a mut Option<Arc<str>>,
        reason: Option<&'a Reason>,
    ) -> Finished<'a> {
        let priority = priority.map_or(self.priority, |priority| priority.0);
        Finished {
            slot: self.slot,
            run: self.run,
            kind: end,
            priority,
            error,
            reason,
        }
    }
}

impl<K: Key> Item<K> {
    #[inline]
    pub(super) fn new(queue: &WorkQueue<K>, handed_out: HandedOut<K>) -> Self {
        Self {
            queue: queue.clone(),
            handed_out,
            error: None,
            reason: None,
            finished: false,
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.handed_out.key
    }

    /// Returns the priority, which a requeue keeps unless the outcome sets one.
    pub fn priority(&self) -> Priority {
        Priority(self.handed_out.priority)
    }

    /// Returns the number of the attempt since the last success, starting with 1.
    pub fn attempt(&self) -> u32 {
        self.handed_out.attempts.saturating_add(1)
    }

    /// Returns how long the key was ready before this worker got it.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.handed_out.waited)
    }

    /// Returns when this worker got the key, as an approximate time.
    pub(crate) fn began(&self) -> Instant {
        self.queue
            .0
            .clock
            .instant(self.handed_out.began)
            .expect("an instant of the clock")
    }

    /// Returns how long this worker has had the key.
    pub(crate) fn held_until(&self, stamp: Stamp) -> Duration {
        Duration::from_nanos(
            self.queue
                .0
                .clock
                .moment(stamp)
                .latest
                .saturating_sub(self.handed_out.began),
        )
    }

    /// Returns why the key was queued: its last reasons, oldest first.
    ///
    /// The reasons are those of adds since it was last handed out, and that of
    /// [`set_reason`](Self::set_reason) if the previous worker requeued the key.
    pub fn reasons(&self) -> Vec<Reason> {
        let state = self.queue.0.lock();
        state
            .reasons
            .texts(state.processing.get(self.handed_out.run).reasons)
    }

    /// Returns [`Self::reasons`] and a watch for later adds, under one lock.
    pub(crate) fn reasons_and_watch(&self) -> (Vec<Reason>, SupersededWatch<K>) {
        let state = self.queue.0.lock();
        (
            state
                .reasons
                .texts(state.processing.get(self.handed_out.run).reasons),
            SupersededWatch::new(self, &state),
        )
    }

    /// Returns the queue, the slot, and the index of this processing.
    pub(super) fn slot_and_run(&self) -> (&WorkQueue<K>, u32, u32) {
        (&self.queue, self.handed_out.slot, self.handed_out.run)
    }

    /// Returns whether the key was added since this worker got it, and is ready.
    ///
    /// It is then handed out once more afterwards. A key that was added with a delay does not count
    /// until the delay has passed.
    pub fn is_queued_again(&self) -> bool {
        let now = self.queue.0.clock.now();
        self.queue.0.change(|state, _| {
            state.promote_due(now);
            state.is_queued_again(self.handed_out.slot)
        })
    }

    /// Sets the error for [`snapshot`](WorkQueue::snapshot), until success or `forget`.
    pub fn set_error(&mut self, error: impl Into<Arc<str>>) {
        self.error = Some(error.into());
    }

    /// Sets the reason of a requeue by the outcome.
    ///
    /// The queue ignores it if an add has made the key ready since this worker got it.
    pub fn set_reason(&mut self, reason: impl Into<Reason>) {
        self.reason = Some(reason.into());
    }

    /// Finishes the key and requeues it according to the outcome, under one lock.
    pub fn finish(mut self, outcome: Outcome) {
        let end = self.end(outcome);
        self.finish_with(end, outcome.priority);
    }

    /// Finishes the key and waits for the next one, under one lock.
    ///
    /// Equal to [`Self::finish`] and [`WorkQueue::get`].
    ///
    /// Cancel safety: the outcome takes effect at the first poll. Dropping the future later loses
    /// no key.
    pub async fn finish_and_get(mut self, outcome: Outcome) -> Option<Self> {
        let end = self.end(outcome);
        let registered = poll_fn(|cx| match coop::poll_proceed(cx) {
            Poll::Ready(progress) => {
                let registered = self.finish_and_take(
                    end,
                    outcome.priority,
                    self.queue.0.clock.read(),
                    Some(cx.waker()),
                );
                if !self.finished {
                    progress.made_progress();
                }
                Poll::Ready(registered)
            }
            // The task has used up its tokio budget: finish now, and let `get` yield.
            Poll::Pending => {
                self.finish_with(end, outcome.priority);
                Poll::Ready(None)
            }
        });
        let registered = registered.await;
        if !self.finished {
            return Some(self);
        }
        let queue = self.queue.clone();
        drop(self); // Do not keep the finished key while waiting.
        Get::new(&queue, registered).await
    }

    /// Finishes the key and returns the next one if one is ready, under one lock.
    ///
    /// Equal to [`Self::finish`] and [`WorkQueue::try_get`].
    pub fn finish_and_try_get(self, outcome: Outcome) -> Option<Self> {
        let now = self.queue.0.clock.read();
        self.finish_and_try_take(outcome, now)
    }

    /// Acts as [`Self::finish_and_try_get`] at a time that the caller has read.
    pub(crate) fn finish_and_try_get_at(self, outcome: Outcome, stamp: Stamp) -> Option<Self> {
        let now = self.queue.0.clock.moment(stamp);
        self.finish_and_try_take(outcome, now)
    }

    fn finish_and_try_take(mut self, outcome: Outcome, now: TimeRange) -> Option<Self> {
        let end = self.end(outcome);
        self.finish_and_take(end, outcome.priority, now, None);
        if self.finished { None } else { Some(self) }
    }

    /// Finishes the key and holds it back until [`WorkQueue::unpark`].
    ///
    /// Adds of a parked key are merged. If the key was unparked since this worker got it, it
    /// becomes ready at once, so no event is lost between a check and the call of `park`.
    pub fn park(mut self) {
        self.finish_with(FinishKind::Park(NEVER), None);
    }

    /// Parks the key for at most `bound`, see [`Self::park`].
    pub fn park_for(mut self, bound: Duration) {
        let until = self.queue.0.clock.read().after(bound).min(NEVER - 1);
        self.finish_with(FinishKind::Park(until), None);
    }

    /// Converts an outcome. Calls the limiter without the lock.
    #[inline(always)]
    fn end(&self, outcome: Outcome) -> FinishKind {
        let queue = &self.queue.0;
        match outcome.next {
            Next::Done => FinishKind::Success,
            Next::After(delay) => FinishKind::Requeue(queue.clock.read().due(delay)),
            Next::RateLimited { at_least } => {
                let now = queue.clock.read();
                let delay = queue.limit(
                    &self.handed_out.key,
                    KeyLocation::Slot(self.handed_out.slot),
                    now,
                );
                FinishKind::Retry(now.due(delay.max(at_least)))
            }
            Next::Retry(delay) => {
                queue.count_attempt(self.handed_out.slot);
                FinishKind::Retry(queue.clock.read().due(delay))
            }
        }
    }

    fn finish_with(&mut self, end: FinishKind, priority: Option<Priority>) {
        let Self {
            queue: WorkQueue(queue),
            handed_out,
            error,
            reason,
            finished,
        } = self;
        *finished = true;
        let ended_at = queue.timing.then(|| queue.clock.read().latest);
        let mut done = None;
        queue.change(|state, wakers| {
            let ended = handed_out.ended(end, priority, error, reason.as_ref());
            state.finish(ended, ended_at, &queue.clock, wakers, &mut done);
        });
    }

    /// Finishes the key and takes the next one if one is ready.
    ///
    /// Registers the waker if none is ready and the queue is open or has keys left.
    fn finish_and_take(
        &mut self,
        end: FinishKind,
        priority: Option<Priority>,
        now: TimeRange,
        waker: Option<&Waker>,
    ) -> Option<Registered> {
        let Self {
            queue: WorkQueue(queue),
            handed_out,
            error,
            reason,
            finished,
        } = self;
        *finished = true;
        // The item may become the next key, which this reason does not apply to.
        let reason = reason.take();
        let mut registered = None;
        let (mut done, mut old) = (None, None); // Keys to drop after unlocking.
        queue.change(|state, wakers| {
            let ended = handed_out.ended(end, priority, error, reason.as_ref());
            state.finish(
                ended,
                queue.timing.then_some(now.latest),
                &now,
                wakers,
                &mut done,
            );
            if let Some(next) = state.take(&now, queue.timing) {
                *finished = false;
                old = Some(std::mem::replace(handed_out, next).key);
            } else if let Some(waker) = waker.filter(|_| state.may_yield_more()) {
                registered = Some(state.register_getter(waker));
            }
        });
        registered
    }
}

impl<K: Key> Drop for Item<K> {
    fn drop(&mut self) {
        if !self.finished {
            self.finish_with(FinishKind::Drop, None);
        }
    }
}

impl<K: Key> Deref for Item<K> {
    type Target = K;
    fn deref(&self) -> &K {
        &self.handed_out.key
    }
}

impl<K: Key> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", &self.handed_out.key)
            .field("priority", &self.priority())
            .field("attempt", &self.attempt())
            .field("waited", &self.waited())
            .finish_non_exhaustive()
    }
}
