//! Adds requests to a queue, for handlers and sources.

use super::{
    Requests,
    retry::Retrier,
    trigger::{Subject, Trigger, is_permanent},
};
use crate::{
    cache::Cache,
    event::Event,
    object::ObjectId,
    workqueue::{Add, Key, Reason, WorkQueue},
};
use std::{fmt, sync::Arc, time::Duration};

/// Receiver of requests: a queue, or an adapter in front of one.
pub(crate) trait Target<R>: Send + Sync + 'static {
    fn add(&self, request: R, add: Add);

    /// Adds the requests that a mapping of an object's event returned.
    fn add_mapped(&self, _object: &ObjectId, requests: Vec<R>, add: Add) {
        for request in requests {
            self.add(request, add.clone());
        }
    }
}

impl<R: Key> Target<R> for WorkQueue<R> {
    fn add(&self, request: R, add: Add) {
        self.add_with(request, add);
    }
}

/// Target that records the requests of mappings, see [`pending`](super::pending).
struct Recorded<R> {
    target: Arc<dyn Target<R>>,
    retrier: Retrier,
}

impl<R: Key> Target<R> for Recorded<R> {
    fn add(&self, request: R, add: Add) {
        self.target.add(request, add);
    }

    fn add_mapped(&self, object: &ObjectId, requests: Vec<R>, add: Add) {
        // Recorded first, so that an event that arrives in between finds the record.
        self.retrier.record(object, &self.target, &requests, &add);
        self.target.add_mapped(object, requests, add);
    }
}

/// Adds requests to a queue. In a handler it sets priority and reason from the event.
///
/// Requests from an initial list, or from an update without a change, have
/// [`LOW`](crate::workqueue::Priority::LOW) priority, others
/// [`NORMAL`](crate::workqueue::Priority::NORMAL). A priority or reason that the handler sets is
/// kept.
pub struct Enqueue<R> {
    shared: Arc<Shared<R>>,
    trigger: Option<Trigger>,
}

struct Shared<R> {
    target: Arc<dyn Target<R>>,
    retrier: Retrier,
    cache: Option<Cache>,
}

impl<R: Key> Enqueue<R> {
    pub(crate) fn new(target: Arc<dyn Target<R>>, retrier: Retrier, cache: Option<Cache>) -> Self {
        let recorded = Recorded {
            target,
            retrier: retrier.clone(),
        };
        Self::with_target(Arc::new(recorded), retrier, cache)
    }

    fn with_target(target: Arc<dyn Target<R>>, retrier: Retrier, cache: Option<Cache>) -> Self {
        Self {
            shared: Arc::new(Shared {
                target,
                retrier,
                cache,
            }),
            trigger: None,
        }
    }

    /// Returns an `Enqueue` for the call of a handler with this event.
    pub(crate) fn for_event<K: 'static>(&self, subject: &Arc<Subject>, event: &Event<K>) -> Self {
        let number = self.shared.retrier.number_event();
        Self {
            shared: self.shared.clone(),
            trigger: Some(Trigger::new(subject, event, number)),
        }
    }

    /// Returns an `Enqueue` for events from this cache instead of the controller's.
    pub(crate) fn with_cache(&self, cache: Option<Cache>) -> Self {
        let Shared {
            target, retrier, ..
        } = &*self.shared;
        Self::with_target(target.clone(), retrier.clone(), cache)
    }

    /// Waits until the source may handle another event.
    ///
    /// The source pauses while too many mappings wait for their first attempt, to bound memory.
    pub(crate) async fn capacity(&self) {
        self.shared.retrier.capacity().await;
    }

    /// Adds a request that is ready at once.
    pub fn add(&self, request: R) {
        self.add_with(request, Add::default());
    }

    /// Adds a request that becomes ready after a delay.
    pub fn add_after(&self, request: R, after: Duration) {
        self.add_with(
            request,
            Add {
                after: Some(after),
                ..Add::default()
            },
        );
    }

    /// Adds a request that becomes ready after the delay of the limiter, and counts an attempt.
    pub fn add_rate_limited(&self, request: R) {
        self.add_with(
            request,
            Add {
                rate_limited: true,
                ..Add::default()
            },
        );
    }

    /// Adds a request with these options. Unset priority and reason are those of the event.
    pub fn add_with(&self, request: R, add: Add) {
        let reason = self
            .trigger
            .as_ref()
            .filter(|_| add.reason.is_none())
            .map(Trigger::full_reason);
        self.add_because(request, reason, add);
    }

    /// Adds a request for the object of the event itself, whose reason omits the object.
    pub(super) fn add_itself(&self, request: R) {
        let reason = self.trigger.as_ref().map(Trigger::short_reason);
        self.add_because(request, reason, Add::default());
    }

    fn add_because(&self, request: R, reason: Option<Reason>, mut add: Add) {
        add.reason = add.reason.or(reason);
        add.priority = add
            .priority
            .or_else(|| self.trigger.as_ref().and_then(Trigger::priority));
        self.shared.target.add(request, add);
    }

    /// Adds the requests that a mapping of the event returned.
    pub(super) fn add_mapped(&self, requests: Vec<R>) {
        match &self.trigger {
            Some(trigger) if !requests.is_empty() => {
                let add = Add {
                    reason: Some(trigger.full_reason()),
                    priority: trigger.priority(),
                    ..Add::default()
                };
                let object = &trigger.event.object;
                self.shared.target.add_mapped(object, requests, add);
            }
            _ => requests.into_iter().for_each(|request| self.add(request)),
        }
    }

    /// Adds the requests that `attempt` returns. Use it for a mapping that waits or can fail.
    ///
    /// An attempt that fails, or does not return within 30 s, is repeated with growing backoff
    /// until it succeeds. Attempts run concurrently with the events that follow, in no order. The
    /// start of a controller waits for the first attempts.
    ///
    /// An attempt that fails because an object of the event does not decode is not repeated. It is
    /// logged and counted in [`dropped_mappings`](crate::source::WatchStats::dropped_mappings).
    /// Return the error of [`Object::decode`](crate::object::Object::decode), or one that has it as
    /// source.
    ///
    /// While 1,024 mappings wait for their first attempt, the source handles no further event. A
    /// custom source that calls this outside of an event must limit the calls itself.
    ///
    /// For each object, the failing attempts of its oldest event and of its newest are retried.
    /// Attempts of events between these two are dropped. Instead, the requests that earlier
    /// attempts for the object added are added again, so that a reconciler which saw a state in
    /// between is called again. Requests added by [`add`](Self::add) are not added again.
    ///
    /// Outside of an event, at most 1,024 failing attempts are retried; further ones are dropped,
    /// logged and counted in [`dropped_mappings`](crate::source::WatchStats::dropped_mappings).
    pub fn add_async<I, Fut, F>(&self, attempt: F)
    where
        I: Requests<R>,
        Fut: Future<Output = I> + Send + 'static,
        F: Fn() -> Fut + Send + Sync + 'static,
    {
        let (attempt, queue) = (Arc::new(attempt), self.clone());
        self.shared.retrier.push(self.trigger.clone(), move || {
            let (attempt, queue) = (attempt.clone(), queue.clone());
            Box::pin(async move {
                let mut requests = Vec::new();
                let mapped = attempt().await.each(&mut |request| requests.push(request));
                if mapped
                    .as_ref()
                    .map_or_else(|error| queue.is_permanent(error), |()| true)
                {
                    queue.add_mapped(requests);
                }
                mapped
            })
        });
    }

    /// Returns whether no further attempt of a mapping can succeed.
    pub(super) fn is_permanent(&self, error: &anyhow::Error) -> bool {
        is_permanent(self.trigger.as_ref(), error)
    }

    /// Returns the cache that the events come from, or else that of the controller.
    ///
    /// Use it to read other kinds of the same cluster, see
    /// [`map_with_cache`](super::map_with_cache).
    pub fn cache(&self) -> Option<&Cache> {
        self.shared.cache.as_ref()
    }
}

impl<R: Key> Enqueue<R> {
    /// Returns an `Enqueue` for handlers of another request type, which `map` converts.
    pub(super) fn mapped<Q: Key>(
        &self,
        map: Arc<impl Fn(Q) -> R + Send + Sync + 'static>,
    ) -> Enqueue<Q> {
        struct Mapped<R, F>(Arc<dyn Target<R>>, Arc<F>);
        impl<R: Key, Q, F: Fn(Q) -> R + Send + Sync + 'static> Target<Q> for Mapped<R, F> {
            fn add(&self, request: Q, add: Add) {
                self.0.add(self.1(request), add);
            }
            fn add_mapped(&self, object: &ObjectId, requests: Vec<Q>, add: Add) {
                let requests = requests.into_iter().map(|request| self.1(request));
                self.0.add_mapped(object, requests.collect(), add);
            }
        }
        let Shared {
            target,
            retrier,
            cache,
        } = &*self.shared;
        let mapped = Enqueue::with_target(
            Arc::new(Mapped(target.clone(), map)),
            retrier.clone(),
            cache.clone(),
        );
        Enqueue {
            trigger: self.trigger.clone(),
            ..mapped
        }
    }
}

impl<R> Clone for Enqueue<R> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            trigger: self.trigger.clone(),
        }
    }
}

impl<R> fmt::Debug for Enqueue<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue")
            .field("trigger", &self.trigger.as_ref().map(ToString::to_string))
            .finish_non_exhaustive()
    }
}
