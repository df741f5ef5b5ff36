//! Asynchronous mappings from events to requests, retried until they succeed.
//!
//! A handler must not wait. It passes a mapping that waits or can fail to
//! [`Enqueue::add_async`](super::Enqueue::add_async), and the [`Retrier`] of the source attempts it
//! concurrently with further events.
//!
//! Invariant: a running source drops no mapping before its first attempt. [`Retrier::capacity`]
//! bounds the mappings that wait for it. Of the mappings that fail, those of an object's oldest and
//! newest failing event are retried until they succeed, and no request is lost with the others, see
//! [`pending`](super::pending). Memory is bounded by the number of objects. Mappings that were
//! pushed outside of an event are bounded by
//! [`MAX_FAILING_WITHOUT_OBJECT`](super::pending::MAX_FAILING_WITHOUT_OBJECT).

use super::{
    enqueue::Target,
    pending::{PendingMappings, Retries},
    trigger::{Trigger, is_permanent},
};
use crate::{
    object::{ObjectId, ObjectKey},
    panic_message::panic_message,
    workqueue::{Add, Key},
};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    select,
    sync::{Semaphore, mpsc, watch},
    time::{sleep, timeout},
};
use tracing::{Instrument, Span};

/// Attempts in progress at once.
const MAX_CONCURRENT: usize = 64;

/// Mappings that wait for their first attempt before the source pauses.
const MAX_UNATTEMPTED: usize = 1024;

/// Time after which an attempt fails, so that it cannot block others.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

const FIRST_DELAY: Duration = Duration::from_millis(10);
const MAX_DELAY: Duration = Duration::from_secs(30);

pub(super) type AttemptFuture = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// Attempts the mappings of one source. Clones share them.
#[derive(Clone)]
pub(crate) struct Retrier(Arc<Shared>);

struct Shared {
    sender: mpsc::UnboundedSender<Mapping>,
    /// Taken by [`Retrier::run`], [`Retrier::attempt_all`] or [`Retrier::close`].
    receiver: Mutex<Option<mpsc::UnboundedReceiver<Mapping>>>,
    counts: watch::Sender<Counts>,
    pending: PendingMappings,
    last_event: AtomicU64,
    failed_attempts: AtomicU64,
    dropped_mappings: AtomicU64,
}

#[derive(Default)]
struct Counts {
    /// Mappings that neither succeeded nor were dropped.
    pending: usize,
    unattempted: usize,
    /// Unattempted mappings that [`Retrier::first_attempts`] waits for.
    awaited: usize,
    /// Set by [`Retrier::first_attempts`].
    sealed: bool,
}

/// Event that a mapping is for.
#[derive(Clone)]
pub(super) struct EventRef {
    pub(super) object: ObjectId,
    /// Number of the event in its source, in order.
    pub(super) number: u64,
}

pub(super) struct Mapping {
    /// `None` for a mapping outside of an event.
    trigger: Option<Trigger>,
    attempt: Box<dyn Fn() -> AttemptFuture + Send + Sync>,
    counted: CountGuard,
    span: Span,
}

/// Counts one mapping in [`Counts`] until it is dropped.
struct CountGuard {
    shared: Arc<Shared>,
    unattempted: bool,
    awaited: bool,
}

impl CountGuard {
    fn set_attempted(&mut self) {
        if std::mem::take(&mut self.unattempted) {
            self.shared.counts.send_modify(|counts| {
                counts.unattempted -= 1;
                counts.awaited -= usize::from(self.awaited);
            });
        }
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.set_attempted();
        self.shared.counts.send_modify(|counts| counts.pending -= 1);
    }
}

impl Default for Retrier {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self(Arc::new(Shared {
            sender,
            receiver: Mutex::new(Some(receiver)),
            counts: watch::Sender::default(),
            pending: PendingMappings::default(),
            last_event: AtomicU64::new(0),
            failed_attempts: AtomicU64::new(0),
            dropped_mappings: AtomicU64::new(0),
        }))
    }
}

impl Retrier {
    /// Returns the number of an event that a handler is about to be called for.
    pub(super) fn number_event(&self) -> u64 {
        self.0.last_event.fetch_add(1, Relaxed) + 1
    }

    /// Adds a mapping. Drops it if the source has stopped.
    pub(super) fn push(
        &self,
        trigger: Option<Trigger>,
        attempt: impl Fn() -> AttemptFuture + Send + Sync + 'static,
    ) {
        if let Some(trigger) = &trigger
            && !self.0.pending.push(&trigger.event)
        {
            return;
        }
        let shared = self.0.clone();
        let mut awaited = false;
        // Returns `false` because a higher count never ends a wait.
        shared.counts.send_if_modified(|counts| {
            awaited = !counts.sealed;
            counts.pending += 1;
            counts.unattempted += 1;
            counts.awaited += usize::from(awaited);
            false
        });
        let counted = CountGuard {
            shared,
            unattempted: true,
            awaited,
        };
        let mapping = Mapping {
            trigger,
            attempt: Box::new(attempt),
            counted,
            span: Span::current(),
        };
        drop(self.0.sender.send(mapping));
    }

    /// Records requests that a mapping of the object is about to enqueue, if any are pending.
    pub(super) fn record<R: Key>(
        &self,
        object: &ObjectId,
        target: &Arc<dyn Target<R>>,
        requests: &[R],
        add: &Add,
    ) {
        self.0.pending.record(object, target, requests, add);
    }

    /// Attempts the mappings until the future is dropped.
    ///
    /// Panics: called twice.
    pub(crate) async fn run(&self, controller: Option<&str>, source: &str) -> Infallible {
        let receiver = self.0.receiver.lock().take();
        let mut receiver = receiver.expect("`run` is called once");
        let run = Run {
            shared: &self.0,
            controller,
            source,
            permits: Semaphore::new(MAX_CONCURRENT),
        };
        let mut mappings = FuturesUnordered::new();
        loop {
            select! {
                Some(mapping) = receiver.recv() => mappings.push(run.attempt_until_success(mapping)),
                Some(()) = mappings.next(), if !mappings.is_empty() => {}
            }
        }
    }

    /// Waits until every mapping pushed before the first call was attempted once.
    pub(crate) async fn first_attempts(&self) {
        self.0
            .counts
            .send_if_modified(|counts| !std::mem::replace(&mut counts.sealed, true));
        self.wait_for(|counts| counts.awaited == 0).await;
    }

    /// Waits until no mapping is pending.
    pub(crate) async fn drained(&self) {
        self.wait_for(|counts| counts.pending == 0).await;
    }

    /// Waits until the source may handle another event.
    pub(crate) async fn capacity(&self) {
        if self.0.counts.borrow().unattempted >= MAX_UNATTEMPTED {
            self.wait_for(|counts| counts.unattempted < MAX_UNATTEMPTED)
                .await;
        }
    }

    async fn wait_for(&self, condition: impl FnMut(&Counts) -> bool) {
        // Cannot fail: `self` owns the sender.
        drop(self.0.counts.subscribe().wait_for(condition).await);
    }

    /// Attempts every mapping once, including those that attempts push. For unit tests.
    pub(super) async fn attempt_all(&self) -> anyhow::Result<()> {
        let mut receiver = self.0.receiver.lock().take();
        while let Some(mapping) = receiver
            .as_mut()
            .and_then(|receiver| receiver.try_recv().ok())
        {
            mapping.attempt().await?;
        }
        Ok(())
    }

    /// Drops the mappings of a source that has stopped or was never run.
    pub(crate) fn close(&self) {
        // Breaks the cycles of `Arc`s between the mappings, the channel and the pending mappings.
        drop(self.0.receiver.lock().take());
        self.0.pending.close();
    }

    pub(crate) fn failed_attempts(&self) -> u64 {
        self.0.failed_attempts.load(Relaxed)
    }

    /// Number of mappings dropped because of
    /// [`MAX_FAILING_WITHOUT_OBJECT`](super::pending::MAX_FAILING_WITHOUT_OBJECT).
    pub(crate) fn dropped_mappings(&self) -> u64 {
        self.0.dropped_mappings.load(Relaxed)
    }
}

/// State of [`Retrier::run`].
struct Run<'a> {
    shared: &'a Shared,
    controller: Option<&'a str>,
    source: &'a str,
    permits: Semaphore,
}

impl Run<'_> {
    /// Attempts one mapping; after a failure, all failing mappings of its object until they
    /// succeed.
    async fn attempt_until_success(&self, mut mapping: Mapping) {
        let attempted = self.attempt(&mapping).await;
        mapping.counted.set_attempted();
        let pending = &self.shared.pending;
        let error = match attempted {
            Err(error) if !mapping.is_permanent(&error) => error,
            finished => {
                if let Err(error) = finished {
                    self.drop_permanent_failure(&mapping, &error);
                }
                if let Some(event) = mapping.event() {
                    pending.finish_first_attempt(event);
                }
                return;
            }
        };
        let mapping = Arc::new(mapping);
        let retries = match mapping.event() {
            Some(event) => pending.insert_failing(event, &mapping),
            None => pending.insert_without_object(),
        };
        self.log_first_failure(&mapping, &error, &retries);
        let object = mapping.event().map(|event| event.object.clone());
        match (retries, object) {
            (Retries::Started, Some(object)) => {
                // From here on only `pending` owns the mapping, so that it can drop it.
                drop(mapping);
                self.retry_object(&object).await;
            }
            (Retries::Started, None) => self.retry_without_object(&mapping).await,
            (Retries::Running, _) => {}
            (Retries::Dropped, _) => drop(self.shared.dropped_mappings.fetch_add(1, Relaxed)),
        }
    }

    /// Counts and logs a mapping that no further attempt can complete.
    fn drop_permanent_failure(&self, mapping: &Mapping, error: &anyhow::Error) {
        self.shared.dropped_mappings.fetch_add(1, Relaxed);
        if let Some(event) = mapping.event() {
            self.shared.pending.enqueue_again(event);
        }
        let Self {
            controller, source, ..
        } = *self;
        let (namespace, name) = mapping.namespace_and_name();
        let error = format!("{error:#}");
        mapping.span.in_scope(|| {
            tracing::warn!(
                controller,
                source,
                namespace,
                name,
                error,
                "mapping event to requests failed, not retrying"
            );
        });
    }

    fn log_first_failure(&self, mapping: &Mapping, error: &anyhow::Error, retries: &Retries) {
        let Self {
            controller, source, ..
        } = *self;
        let error = format!("{error:#}");
        let (namespace, name) = mapping.namespace_and_name();
        mapping.span.in_scope(|| match retries {
            Retries::Dropped => {
                tracing::warn!(
                    controller,
                    source,
                    error,
                    "too many failing mappings, mapping dropped"
                );
            }
            Retries::Started | Retries::Running => {
                tracing::warn!(
                    controller,
                    source,
                    namespace,
                    name,
                    error,
                    "mapping event to requests failed, retrying"
                );
            }
        });
    }

    /// Retries the failing mappings of an object until none is left.
    async fn retry_object(&self, object: &ObjectId) {
        let pending = &self.shared.pending;
        let mut delay = FIRST_DELAY;
        loop {
            sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
            for mapping in pending.failing(object) {
                if self.retry(&mapping).await {
                    pending.finish_failing(object, &mapping);
                    delay = FIRST_DELAY;
                }
            }
            if pending.stop_retrying(object) {
                return;
            }
        }
    }

    async fn retry_without_object(&self, mapping: &Mapping) {
        let mut delay = FIRST_DELAY;
        loop {
            sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
            if self.retry(mapping).await {
                return self.shared.pending.remove_without_object();
            }
        }
    }

    /// Attempts a mapping that has failed before. Returns `true` if it needs no further attempt.
    async fn retry(&self, mapping: &Mapping) -> bool {
        let Err(error) = self.attempt(mapping).await else {
            return true;
        };
        if mapping.is_permanent(&error) {
            self.drop_permanent_failure(mapping, &error);
            return true;
        }
        let error = format!("{error:#}");
        let Self {
            controller, source, ..
        } = *self;
        let (namespace, name) = mapping.namespace_and_name();
        mapping.span.in_scope(|| {
            tracing::debug!(
                controller,
                source,
                namespace,
                name,
                error,
                "mapping event to requests failed again, retrying"
            );
        });
        false
    }

    async fn attempt(&self, mapping: &Mapping) -> anyhow::Result<()> {
        let _permit = self.permits.acquire().await;
        let attempted = mapping.attempt().instrument(mapping.span.clone()).await;
        if attempted.is_err() {
            self.shared.failed_attempts.fetch_add(1, Relaxed);
        }
        attempted
    }
}

impl Mapping {
    fn event(&self) -> Option<&EventRef> {
        self.trigger.as_ref().map(|trigger| &trigger.event)
    }

    /// Returns whether no further attempt can succeed.
    fn is_permanent(&self, error: &anyhow::Error) -> bool {
        is_permanent(self.trigger.as_ref(), error)
    }

    async fn attempt(&self) -> anyhow::Result<()> {
        // Calls the closure inside the future, to catch its panics as well.
        let attempt = AssertUnwindSafe(async { (self.attempt)().await });
        match timeout(ATTEMPT_TIMEOUT, attempt.catch_unwind()).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(anyhow::anyhow!(
                "mapping panicked: {}",
                panic_message(&*panic)
            )),
            Err(_) => Err(anyhow::anyhow!(
                "mapping timed out after {} s",
                ATTEMPT_TIMEOUT.as_secs()
            )),
        }
    }

    fn namespace_and_name(&self) -> (Option<&str>, Option<&str>) {
        let object = self.event().map(|event| &event.object.key);
        (
            object.and_then(ObjectKey::namespace),
            object.map(ObjectKey::name),
        )
    }
}
