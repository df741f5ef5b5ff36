//! The adding side of a queue, as handlers and sources have it.

use super::{
    Requests,
    cause::{Cause, Subject},
    later::Laters,
};
use crate::{
    cache::Cache,
    event::Event,
    workqueue::{Add, Key, Reason, WorkQueue},
};
use std::{fmt, sync::Arc, time::Duration};

/// Where requests go: a queue, or what stands before one.
pub(crate) trait Target<R>: Send + Sync + 'static {
    fn add(&self, request: R, add: Add);
}

impl<R: Key> Target<R> for WorkQueue<R> {
    fn add(&self, request: R, add: Add) {
        self.add_with(request, add);
    }
}

/// The adding side of a queue. In a handler it knows the event, and so the priority and the reason of what is added.
///
/// What comes from an initial list or from an update that changed nothing is added at [`LOW`](crate::workqueue::Priority::LOW) priority, everything else at [`NORMAL`](crate::workqueue::Priority::NORMAL); a
/// priority or a reason of your own stays.
pub struct Enqueue<R> {
    shared: Arc<Shared<R>>,
    cause: Option<Cause>,
}

struct Shared<R> {
    target: Arc<dyn Target<R>>,
    laters: Laters,
    cache: Option<Cache>,
}

impl<R: Key> Enqueue<R> {
    pub(crate) fn new(target: Arc<dyn Target<R>>, laters: Laters, cache: Option<Cache>) -> Self {
        Self { shared: Arc::new(Shared { target, laters, cache }), cause: None }
    }

    /// For a handler that is called for this event.
    pub(crate) fn because<K>(&self, subject: &Arc<Subject>, event: &Event<K>) -> Self {
        Self { shared: self.shared.clone(), cause: Some(Cause::new(subject, event)) }
    }

    /// For events that come from this cache, and not from the controller's.
    pub(crate) fn of_cache(&self, cache: Option<Cache>) -> Self {
        let Shared { target, laters, .. } = &*self.shared;
        Self::new(target.clone(), laters.clone(), cache)
    }

    /// Until another event may be handled: when what handlers left for later is much, the source waits rather than the memory grows.
    pub(crate) async fn room(&self) {
        self.shared.laters.room().await;
    }

    /// Add a request, ready now.
    pub fn add(&self, request: R) {
        self.add_with(request, Add::default());
    }

    /// Add a request, ready after a delay.
    pub fn add_after(&self, request: R, after: Duration) {
        self.add_with(request, Add { after: Some(after), ..Add::default() });
    }

    /// Add a request, ready as soon as the limiter allows, and count an attempt.
    pub fn add_rate_limited(&self, request: R) {
        self.add_with(request, Add { rate_limited: true, ..Add::default() });
    }

    /// Add a request as told. Priority and reason are the event's where they are not set.
    pub fn add_with(&self, request: R, add: Add) {
        let reason = self.cause.as_ref().filter(|_| add.reason.is_none()).map(Cause::full_reason);
        self.add_because(request, reason, add);
    }

    /// [`Self::add`] for the event's own object: it need not be named.
    pub(super) fn add_itself(&self, request: R) {
        let reason = self.cause.as_ref().map(Cause::short_reason);
        self.add_because(request, reason, Add::default());
    }

    fn add_because(&self, request: R, reason: Option<Reason>, mut add: Add) {
        add.reason = add.reason.or(reason);
        add.priority = add.priority.or_else(|| self.cause.as_ref().and_then(Cause::priority));
        self.shared.target.add(request, add);
    }

    /// Add what `attempt` yields: for what waits, or may fail. It is called again with growing backoff until it succeeds, beside the events that
    /// follow and in no order with them; a controller's start waits for the first attempts. One that gives no answer within 30 s has failed.
    ///
    /// While 1,024 attempts of the source wait for their first turn, it handles no further events. A source of your own that calls this outside of an event has to limit
    /// its rate itself.
    ///
    /// Failing attempts are retried within limits: eight for each object (the oldest and the seven newest), 1,024 outside of events, and 4,096 for the whole source.
    /// An attempt beyond a limit is dropped, logged, and counted in [`WatchStats::given_up`](crate::source::WatchStats::given_up).
    pub fn later<I, Fut, F>(&self, attempt: F)
    where
        I: Requests<R>,
        Fut: Future<Output = I> + Send + 'static,
        F: Fn() -> Fut + Send + Sync + 'static,
    {
        let (attempt, queue) = (Arc::new(attempt), self.clone());
        let about = self.cause.as_ref().map(|cause| cause.key.clone());
        self.shared.laters.push(about, move || {
            let (attempt, queue) = (attempt.clone(), queue.clone());
            Box::pin(async move { attempt().await.each(&mut |request| queue.add(request)) })
        });
    }

    /// The cache that the events come from; the controller's if they come from none. Read other kinds of the same cluster from it: see
    /// [`map_with_cache`](super::map_with_cache).
    pub fn cache(&self) -> Option<&Cache> {
        self.shared.cache.as_ref()
    }
}

impl<R: Key> Enqueue<R> {
    /// One of another kind of request, for handlers of those.
    pub(super) fn mapped<Q: Key>(&self, map: Arc<impl Fn(Q) -> R + Send + Sync + 'static>) -> Enqueue<Q> {
        struct Mapped<R, F>(Arc<dyn Target<R>>, Arc<F>);
        impl<R: Key, Q, F: Fn(Q) -> R + Send + Sync + 'static> Target<Q> for Mapped<R, F> {
            fn add(&self, request: Q, add: Add) {
                self.0.add(self.1(request), add);
            }
        }
        let Shared { target, laters, cache } = &*self.shared;
        let mapped = Enqueue::new(Arc::new(Mapped(target.clone(), map)), laters.clone(), cache.clone());
        Enqueue { cause: self.cause.clone(), ..mapped }
    }
}

impl<R> Clone for Enqueue<R> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), cause: self.cause.clone() }
    }
}

impl<R> fmt::Debug for Enqueue<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue").field("cause", &self.cause.as_ref().map(ToString::to_string)).finish_non_exhaustive()
    }
}
