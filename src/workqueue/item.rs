//! A key in a worker's hands.

use super::{
    Key, Next, Outcome, Priority, Reason, WorkQueue,
    again::RunWatch,
    clock::{Moment, Time},
    finish::{End, Ended},
    get::Get,
    queue::Place,
    runs::Held,
    state::NEVER,
    waiters::Asleep,
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

/// A key in work: no other worker has it until this is finished or dropped.
///
/// Dropping it, also by a panic, ends the run and leaves the rest as it is: added meanwhile, the key runs again; failed attempts stay counted.
pub struct Item<K: Key> {
    queue: WorkQueue<K>,
    held: Held<K>,
    error: Option<Arc<str>>,
    reason: Option<Reason>,
    finished: bool,
}

impl<K: Key> Held<K> {
    #[inline]
    fn ended<'a>(
        &self,
        end: End,
        priority: Option<Priority>,
        error: &'a mut Option<Arc<str>>,
        reason: Option<&'a Reason>,
    ) -> Ended<'a> {
        let priority = priority.map_or(self.priority, |priority| priority.0);
        Ended { slot: self.slot, run: self.run, end, priority, error, reason }
    }
}

impl<K: Key> Item<K> {
    #[inline]
    pub(super) fn new(queue: &WorkQueue<K>, held: Held<K>) -> Self {
        Self { queue: queue.clone(), held, error: None, reason: None, finished: false }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.held.key
    }

    /// The priority it was handed out with, and will be requeued with unless told otherwise.
    pub fn priority(&self) -> Priority {
        Priority(self.held.priority)
    }

    /// 1 on the first run since the last success.
    pub fn attempt(&self) -> u32 {
        self.held.attempts.saturating_add(1)
    }

    /// How long it was ready before this worker got it.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.held.waited)
    }

    /// When this worker got it: a stamp.
    pub(crate) fn began(&self) -> Instant {
        self.queue.0.clock.instant(self.held.began).expect("it was read from the clock")
    }

    /// How long this worker has had it.
    pub(crate) fn held_until(&self, stamp: Stamp) -> Duration {
        Duration::from_nanos(self.queue.0.clock.moment(stamp).latest.saturating_sub(self.held.began))
    }

    /// Returns why the key runs: the last reasons since its previous run, oldest first.
    ///
    /// The reasons are those of adds, and that of [`set_reason`](Self::set_reason) if the previous run
    /// requeued the key.
    pub fn reasons(&self) -> Vec<Reason> {
        let state = self.queue.0.lock();
        state.reasons.texts(state.runs.get(self.held.run).reasons)
    }

    /// The same as [`Self::reasons`], and one who watches the run: under one lock.
    pub(crate) fn reasons_and_watch(&self) -> (Vec<Reason>, RunWatch<K>) {
        let state = self.queue.0.lock();
        (state.reasons.texts(state.runs.get(self.held.run).reasons), RunWatch::new(self, &state))
    }

    /// The queue, and the numbers of slot and run.
    pub(super) fn place(&self) -> (&WorkQueue<K>, u32, u32) {
        (&self.queue, self.held.slot, self.held.run)
    }

    /// Added again since this run began, and ready: it runs once more when this run ends. One added with a delay that has not
    /// passed does not count.
    pub fn is_queued_again(&self) -> bool {
        let now = self.queue.0.clock.now();
        self.queue.0.change(|state, _| {
            state.pass(now);
            state.is_queued_again(self.held.slot)
        })
    }

    /// Why this run failed, for [`snapshot`](WorkQueue::snapshot): shown until the key succeeds or is forgotten.
    pub fn set_error(&mut self, error: impl Into<Arc<str>>) {
        self.error = Some(error.into());
    }

    /// Sets the reason of the next run, if this one ends with a requeue.
    ///
    /// The queue ignores it if an add has made the key ready since this run began.
    pub fn set_reason(&mut self, reason: impl Into<Reason>) {
        self.reason = Some(reason.into());
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
        let asleep = poll_fn(|cx| match coop::poll_proceed(cx) {
            Poll::Ready(progress) => {
                let asleep = self.finish_and_take(end, outcome.priority, self.queue.0.clock.read(), Some(cx.waker()));
                if !self.finished {
                    progress.made_progress();
                }
                Poll::Ready(asleep)
            }
            // Others of this runtime wait for their turn: end the run, and let `get` wait for ours.
            Poll::Pending => {
                self.finish_with(end, outcome.priority);
                Poll::Ready(None)
            }
        });
        let asleep = asleep.await;
        if !self.finished {
            return Some(self);
        }
        let queue = self.queue.clone();
        drop(self); // The key is done: nothing keeps it while this waits for the next.
        Get::new(&queue, asleep).await
    }

    /// [`Self::finish`] and [`WorkQueue::try_get`] under one lock.
    pub fn finish_and_try_get(self, outcome: Outcome) -> Option<Self> {
        let now = self.queue.0.clock.read();
        self.finish_and_try_take(outcome, now)
    }

    /// The same for somebody who has just taken a stamp.
    pub(crate) fn finish_and_try_get_at(self, outcome: Outcome, stamp: Stamp) -> Option<Self> {
        let now = self.queue.0.clock.moment(stamp);
        self.finish_and_try_take(outcome, now)
    }

    fn finish_and_try_take(mut self, outcome: Outcome, now: Moment) -> Option<Self> {
        let end = self.end(outcome);
        self.finish_and_take(end, outcome.priority, now, None);
        if self.finished { None } else { Some(self) }
    }

    /// Done, but not ready again before [`WorkQueue::unpark`]; adds meanwhile are merged. If it was unparked since this run began, it is
    /// ready at once: no event is lost between looking and parking.
    pub fn park(mut self) {
        self.finish_with(End::Park(NEVER), None);
    }

    /// [`Self::park`], but no longer than `bound`.
    pub fn park_for(mut self, bound: Duration) {
        let until = self.queue.0.clock.read().after(bound).min(NEVER - 1);
        self.finish_with(End::Park(until), None);
    }

    /// What an outcome means for the state. Asks the limiter, without the lock.
    #[inline(always)]
    fn end(&self, outcome: Outcome) -> End {
        let queue = &self.queue.0;
        match outcome.next {
            Next::Done => End::Success,
            Next::After(delay) => End::Again(queue.clock.read().due(delay)),
            Next::RateLimited { at_least } => {
                let now = queue.clock.read();
                let delay = queue.limit(&self.held.key, Place::Slot(self.held.slot), now);
                End::Retry(now.due(delay.max(at_least)))
            }
            Next::Retry(delay) => {
                queue.count_attempt(self.held.slot);
                End::Retry(queue.clock.read().due(delay))
            }
        }
    }

    fn finish_with(&mut self, end: End, priority: Option<Priority>) {
        let Self { queue: WorkQueue(queue), held, error, reason, finished } = self;
        *finished = true;
        let ended_at = queue.timing.then(|| queue.clock.read().latest);
        let mut done = None;
        queue.change(|state, wakes| {
            let ended = held.ended(end, priority, error, reason.as_ref());
            state.finish(ended, ended_at, &queue.clock, wakes, &mut done);
        });
    }

    /// Finish, and become the next key if there is one. If there is none and will be one, and a waker is given, fall asleep.
    fn finish_and_take(
        &mut self,
        end: End,
        priority: Option<Priority>,
        now: Moment,
        waker: Option<&Waker>,
    ) -> Option<Asleep> {
        let Self { queue: WorkQueue(queue), held, error, reason, finished } = self;
        *finished = true;
        // The item may become the next key, which this reason is not about.
        let reason = reason.take();
        let mut asleep = None;
        let (mut done, mut old) = (None, None); // Keys, to be dropped without the lock.
        queue.change(|state, wakes| {
            let ended = held.ended(end, priority, error, reason.as_ref());
            state.finish(ended, queue.timing.then_some(now.latest), &now, wakes, &mut done);
            if let Some(next) = state.take(&now, queue.timing) {
                *finished = false;
                old = Some(std::mem::replace(held, next).key);
            } else if let Some(waker) = waker.filter(|_| state.gives_more()) {
                asleep = Some(state.sleep(waker));
            }
        });
        asleep
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
        &self.held.key
    }
}

impl<K: Key> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", &self.held.key)
            .field("priority", &self.priority())
            .field("attempt", &self.attempt())
            .field("waited", &self.waited())
            .finish_non_exhaustive()
    }
}
