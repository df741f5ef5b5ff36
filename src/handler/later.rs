//! Asynchronous mappings from events to requests, retried until they succeed.
//!
//! A handler must not wait. It passes a mapping that waits or can fail to
//! [`Enqueue::later`](super::Enqueue::later), and the [`Laters`] of the source attempt it
//! concurrently with further events.
//!
//! Invariant: a running source drops no mapping before its first attempt. [`Laters::room`] bounds the
//! mappings that wait for it. Of the mappings that fail, those of an object's first and last event
//! are retried until they succeed, see [`FailingMappings`]; memory is bounded by the number of
//! objects. Mappings that were pushed outside of an event are bounded by
//! [`MAX_FAILING_WITHOUT_OBJECT`](super::failing::MAX_FAILING_WITHOUT_OBJECT).

use super::failing::{FailingMappings, Retries};
use crate::{
    caught::caught,
    object::{DecodeError, ObjectKey},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use std::{
    convert::Infallible,
    pin::{Pin, pin},
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
pub(crate) struct Laters(Arc<Shared>);

struct Shared {
    sender: mpsc::UnboundedSender<Mapping>,
    /// Taken by [`Laters::run`], [`Laters::attempt_all`] or [`Laters::close`].
    receiver: Mutex<Option<mpsc::UnboundedReceiver<Mapping>>>,
    counts: watch::Sender<Counts>,
    last_event: AtomicU64,
    failed_attempts: AtomicU64,
    dropped_mappings: AtomicU64,
}

#[derive(Default)]
struct Counts {
    /// Mappings that neither succeeded nor were dropped.
    pending: usize,
    unattempted: usize,
    /// Unattempted mappings that [`Laters::attempted`] waits for.
    awaited: usize,
    /// Set by [`Laters::attempted`].
    sealed: bool,
}

/// Event that a mapping is for.
#[derive(Clone)]
pub(super) struct EventRef {
    pub(super) object: ObjectKey,
    /// Number of the event in its source, in order.
    pub(super) number: u64,
}

pub(super) struct Mapping {
    event: Option<EventRef>,
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

impl Default for Laters {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self(Arc::new(Shared {
            sender,
            receiver: Mutex::new(Some(receiver)),
            counts: watch::Sender::default(),
            last_event: AtomicU64::new(0),
            failed_attempts: AtomicU64::new(0),
            dropped_mappings: AtomicU64::new(0),
        }))
    }
}

impl Laters {
    /// Returns the number of an event that a handler is about to be called for.
    pub(super) fn number_event(&self) -> u64 {
        self.0.last_event.fetch_add(1, Relaxed) + 1
    }

    /// Adds a mapping. Drops it if the source has stopped.
    pub(super) fn push(&self, event: Option<EventRef>, attempt: impl Fn() -> AttemptFuture + Send + Sync + 'static) {
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
        let counted = CountGuard { shared, unattempted: true, awaited };
        let mapping = Mapping { event, attempt: Box::new(attempt), counted, span: Span::current() };
        drop(self.0.sender.send(mapping));
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
            failing: FailingMappings::default(),
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
    pub(crate) async fn attempted(&self) {
        self.0.counts.send_if_modified(|counts| !std::mem::replace(&mut counts.sealed, true));
        self.wait_for(|counts| counts.awaited == 0).await;
    }

    /// Waits until no mapping is pending.
    pub(crate) async fn finished(&self) {
        self.wait_for(|counts| counts.pending == 0).await;
    }

    /// Waits until the source may handle another event.
    pub(crate) async fn room(&self) {
        if self.0.counts.borrow().unattempted >= MAX_UNATTEMPTED {
            self.wait_for(|counts| counts.unattempted < MAX_UNATTEMPTED).await;
        }
    }

    async fn wait_for(&self, condition: impl FnMut(&Counts) -> bool) {
        // Cannot fail: `self` owns the sender.
        drop(self.0.counts.subscribe().wait_for(condition).await);
    }

    /// Attempts every mapping once, including those that attempts push. For unit tests.
    pub(super) async fn attempt_all(&self) -> anyhow::Result<()> {
        let mut receiver = self.0.receiver.lock().take();
        while let Some(mapping) = receiver.as_mut().and_then(|receiver| receiver.try_recv().ok()) {
            mapping.attempt().await?;
        }
        Ok(())
    }

    /// Drops the mappings of a source that was never run.
    pub(crate) fn close(&self) {
        // Breaks the cycle of `Arc`s between the mappings and the channel.
        drop(self.0.receiver.lock().take());
    }

    pub(crate) fn failures(&self) -> u64 {
        self.0.failed_attempts.load(Relaxed)
    }

    /// Number of mappings dropped because of [`MAX_FAILING_WITHOUT_OBJECT`](super::failing::MAX_FAILING_WITHOUT_OBJECT).
    pub(crate) fn given_up(&self) -> u64 {
        self.0.dropped_mappings.load(Relaxed)
    }
}

/// State of [`Laters::run`].
struct Run<'a> {
    shared: &'a Shared,
    controller: Option<&'a str>,
    source: &'a str,
    permits: Semaphore,
    failing: FailingMappings,
}

impl Run<'_> {
    /// Attempts one mapping; after a failure, all failing mappings of its object until they succeed.
    async fn attempt_until_success(&self, mut mapping: Mapping) {
        let attempted = self.attempt(&mapping).await;
        mapping.counted.set_attempted();
        let Err(error) = attempted else { return };
        if is_permanent(&error) {
            return self.drop_permanent_failure(&mapping, &error);
        }
        let mapping = Arc::new(mapping);
        let retries = match &mapping.event {
            Some(event) => self.failing.insert(event, &mapping),
            None => self.failing.insert_without_object(),
        };
        self.log_first_failure(&mapping, &error, &retries);
        let object = mapping.event.as_ref().map(|event| event.object.clone());
        match (retries, object) {
            (Retries::Started, Some(object)) => {
                // From here on only `failing` owns the mapping, so that it can drop it.
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
        let Self { controller, source, .. } = *self;
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
        let Self { controller, source, .. } = *self;
        let error = format!("{error:#}");
        let (namespace, name) = mapping.namespace_and_name();
        mapping.span.in_scope(|| match retries {
            Retries::Dropped => {
                tracing::warn!(controller, source, error, "too many failing mappings, mapping dropped");
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
    async fn retry_object(&self, object: &ObjectKey) {
        let mut delay = FIRST_DELAY;
        loop {
            sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
            for mapping in self.failing.get(object) {
                if self.retry(&mapping).await {
                    self.failing.remove(object, &mapping);
                    delay = FIRST_DELAY;
                }
            }
            if self.failing.remove_if_empty(object) {
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
                return self.failing.remove_without_object();
            }
        }
    }

    /// Attempts a mapping that has failed before. Returns `true` if it needs no further attempt.
    async fn retry(&self, mapping: &Mapping) -> bool {
        let Err(error) = self.attempt(mapping).await else { return true };
        if is_permanent(&error) {
            self.drop_permanent_failure(mapping, &error);
            return true;
        }
        let error = format!("{error:#}");
        let Self { controller, source, .. } = *self;
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

/// Returns whether no further attempt can succeed, because the body of the event's object was dropped.
pub(super) fn is_permanent(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(DecodeError::BodyDropped { .. })))
}

impl Mapping {
    async fn attempt(&self) -> anyhow::Result<()> {
        // Calls the closure inside the future, to catch its panics as well.
        match timeout(ATTEMPT_TIMEOUT, caught(pin!(async { (self.attempt)().await }))).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(anyhow::anyhow!("mapping panicked: {panic}")),
            Err(_) => Err(anyhow::anyhow!("mapping timed out after {} s", ATTEMPT_TIMEOUT.as_secs())),
        }
    }

    fn namespace_and_name(&self) -> (Option<&str>, Option<&str>) {
        let object = self.event.as_ref().map(|event| &event.object);
        (object.and_then(ObjectKey::namespace), object.map(ObjectKey::name))
    }
}
