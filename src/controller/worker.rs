//! Workers, which take requests from the queue and call the reconciler.
//!
//! Invariant: a worker holds at most one request and finishes it on every path. Own writes and the
//! limit of a group are updated before the request is finished, so the next reconcile of the
//! request observes them.

use super::{
    Settings,
    enqueue::QueueTarget,
    groups::{GroupLimit, MAX_GROUP_WAIT},
    own_writes::Deferrals,
    reason::{Interrupted, requeue_reason},
    result::{Class, ReconcileResult},
    run::RunningAtShutdown,
    stats::ReconcileCounters,
    terminal::TerminalOutcomes,
};
use crate::{
    cache::ledger::{ReadPolicy, Token},
    client::{Consistency, OWN_WRITES_TIMEOUT},
    coarse_clock::{Stamp, stamp},
    fencing::Fence,
    object::ObjectKey,
    panic_message::panic_message,
    reconcile::{
        ClusterRequest, Context, DynReconciler, Error, Outcome, QueueView, ReconcileRun, Result,
    },
    workqueue::{Item, Key, SupersededWatch, WorkQueue},
};
use futures::{FutureExt, future::BoxFuture};
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{select, sync::watch, task::coop::consume_budget, time::timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field};

impl<R: Key> QueueView for SupersededWatch<R> {
    fn is_queued_again(&self) -> bool {
        self.is_queued_again()
    }

    fn queued_again(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.queued_again())
    }
}

/// State shared by the workers of a controller.
pub(super) struct Workers<R> {
    pub(super) name: Arc<str>,
    /// API group of the reconciled kind; empty if unknown.
    pub(super) group: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) queue: WorkQueue<R>,
    pub(super) target: Arc<QueueTarget<R>>,
    pub(super) settings: Settings,
    pub(super) groups: Option<Box<dyn GroupLimit<R>>>,
    pub(super) deferrals: Arc<Deferrals<R>>,
    pub(super) running_at_shutdown: RunningAtShutdown<R>,
    pub(super) terminal: TerminalOutcomes<R>,
    pub(super) counters: ReconcileCounters,
    pub(super) shutdown: Arc<CancellationToken>,
    pub(super) limit: ConcurrencyLimit,
}

/// Number of workers.
///
/// When it is lowered, workers with the highest numbers end first.
pub(super) struct ConcurrencyLimit {
    now: AtomicUsize,
    changes: watch::Sender<usize>,
}

impl ConcurrencyLimit {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            now: AtomicUsize::new(workers),
            changes: watch::Sender::new(workers),
        }
    }

    pub(super) fn get(&self) -> usize {
        self.now.load(Relaxed)
    }

    pub(super) fn set(&self, workers: usize) {
        // Stored under the lock of the channel, so that concurrent calls leave both values equal.
        self.changes.send_modify(|now| {
            *now = workers;
            self.now.store(workers, Relaxed);
        });
    }

    pub(super) fn changes(&self) -> watch::Receiver<usize> {
        self.changes.subscribe()
    }
}

impl<R: Key> Workers<R> {
    /// Runs worker `number` until the limit is lowered or the queue is closed.
    ///
    /// Returns `number`.
    pub(super) async fn run(
        self: Arc<Self>,
        number: usize,
        reconciler: Arc<dyn DynReconciler<R>>,
    ) -> usize {
        let mut changes = self.limit.changes();
        let mut next = None;
        loop {
            if next.is_none() {
                next = select! {
                    biased;
                    _ = changes.wait_for(|workers| *workers <= number) => None,
                    item = self.queue.get() => item,
                };
            }
            let Some(item) = next else { return number };
            next = self.process(item, number, &*reconciler).await;
            consume_budget().await;
        }
    }

    /// Reconciles a request and returns the next one, if any.
    ///
    /// Returns `None` as well if this worker is above the limit.
    async fn process(
        &self,
        item: Item<R>,
        number: usize,
        reconciler: &dyn DynReconciler<R>,
    ) -> Option<Item<R>> {
        let mut item = self.admit(item)?;
        let token = self.token();
        let outcome = self.reconcile(&mut item, &token, reconciler).await;
        self.running_at_shutdown.finished(item.key());
        if self.settings.consistency == Consistency::Defer {
            let caches = token.caches_behind();
            if !caches.is_empty() {
                self.deferrals
                    .hold(&self.name, &self.queue, item.key(), (token, caches));
            }
        }
        if let Some(groups) = &self.groups {
            groups.leave(item.key(), &mut |next| self.queue.unpark(next));
        }
        match outcome {
            Some((outcome, ended)) if self.limit.get() > number => {
                item.finish_and_try_get_at(outcome, ended)
            }
            Some((outcome, _)) => {
                item.finish(outcome);
                None
            }
            // Superseded: the request is ready again as soon as the item is dropped.
            None => {
                drop(item);
                None
            }
        }
    }

    /// Parks a request that must not be reconciled now. Returns `None` in that case.
    #[inline]
    fn admit(&self, item: Item<R>) -> Option<Item<R>> {
        // A closed fence never opens again, and the controller is about to stop.
        if Fence::current().is_some_and(|fence| fence.check().is_err()) {
            item.park();
            return None;
        }
        if let Some(groups) = &self.groups
            && !groups.enter(item.key(), item.priority())
        {
            item.park_for(MAX_GROUP_WAIT);
            return None;
        }
        if self.deferrals.holds(item.key()) {
            if let Some(groups) = &self.groups {
                groups.leave(item.key(), &mut |next| self.queue.unpark(next));
            }
            item.park();
            return None;
        }
        Some(item)
    }

    fn token(&self) -> Token {
        Token::of_reconcile(match self.settings.consistency {
            Consistency::Defer => ReadPolicy::OfReconcile(OWN_WRITES_TIMEOUT),
            Consistency::Block(bound) => ReadPolicy::OfClient(bound),
            Consistency::Ignore => ReadPolicy::DoNotWait,
        })
    }

    /// Runs one reconcile. Returns its outcome and the time at which it ended.
    ///
    /// Returns `None` if the reconcile was cancelled because its request was queued again.
    async fn reconcile(
        &self,
        item: &mut Item<R>,
        token: &Token,
        reconciler: &dyn DynReconciler<R>,
    ) -> Option<(Outcome, Stamp)> {
        let (reasons, queue_view) = item.reasons_and_watch();
        let deadline = self
            .settings
            .reconcile_timeout
            .and_then(|timeout| item.began().checked_add(timeout));
        let context = Context::from(ReconcileRun {
            id: run_id(),
            attempt: item.attempt(),
            priority: item.priority(),
            waited: item.waited(),
            reasons,
            deadline,
            shutdown: Some(self.shutdown.clone()),
            fencing_token: Fence::current().map(|fence| fence.token()),
            again: queue_view,
        });
        let span = self.span(item.key(), &context);
        // Called inside the future, so that a panic in `reconcile` itself is caught as well.
        let request = item.key().clone();
        let run = async { reconciler.reconcile(request, &context).await };
        let mut future = pin!(Some(token.clone().scope(run).instrument(span.clone())));
        let run = future.as_mut().as_pin_mut().expect("the future is set");
        let run = AssertUnwindSafe(run).catch_unwind();
        let run = async {
            match deadline {
                Some(deadline) => timeout_at(deadline, run).await,
                None => Ok(run.await),
            }
        };
        let result = if self.settings.cancel_superseded {
            select! {
                biased;
                result = run => Some(result),
                () = context.until_superseded() => None,
            }
        } else {
            Some(run.await)
        };
        // Dropping the future runs user code, which may panic as well.
        let dropped = catch_unwind(AssertUnwindSafe(|| future.set(None)));
        let result = match (result, dropped) {
            (Some(Ok(Err(panic))), _) | (_, Err(panic)) => Err(self.panicked(panic)),
            (Some(Ok(Ok(result))), Ok(())) => result,
            (Some(Err(_)), Ok(())) => {
                self.counters.timeouts.fetch_add(1, Relaxed);
                let timeout = self.settings.reconcile_timeout.unwrap_or_default();
                Err(Interrupted::Timeout(timeout).into())
            }
            (None, Ok(())) => {
                self.counters.superseded.fetch_add(1, Relaxed);
                span.in_scope(|| tracing::debug!("reconcile cancelled, request queued again"));
                return None;
            }
        };
        let ended = stamp();
        let took = item.held_until(ended);
        Some((
            span.in_scope(|| self.record_result(item, result, took)),
            ended,
        ))
    }

    fn panicked(&self, panic: Box<dyn Any + Send>) -> Error {
        self.counters.panics.fetch_add(1, Relaxed);
        if !self.settings.recover_panics {
            resume_unwind(panic);
        }
        Interrupted::Panic(panic_message(&*panic)).into()
    }

    /// Counts and logs the result, and returns the outcome for the queue.
    fn record_result(
        &self,
        item: &mut Item<R>,
        result: Result<Outcome>,
        took: Duration,
    ) -> Outcome {
        let attempt = item.attempt();
        let ReconcileResult { outcome, class } =
            ReconcileResult::of(&result, attempt, &self.settings);
        self.counters.count(class, took);
        if let Some(reason) = requeue_reason(class, outcome, &result) {
            item.set_reason(reason);
        }
        if class != Class::Terminal {
            self.terminal.remove(item.key());
        }
        if let Err(error) = result {
            let error: Arc<str> = format!("{error:#}").into();
            // The span has the fields of the request.
            match class {
                Class::Conflict => {
                    tracing::debug!(error = &*error, "reconcile failed with conflict, retrying");
                }
                Class::Terminal => {
                    tracing::error!(error = &*error, "reconcile failed, not retrying");
                    self.terminal.insert(item.key(), error.clone(), attempt);
                }
                _ => tracing::error!(error = &*error, "reconcile failed, retrying"),
            }
            item.set_error(error);
        } else {
            tracing::debug!(result = outcome.label(), "reconciled");
        }
        outcome
    }

    /// Creates the span of a reconcile, linked to the spans of its events.
    ///
    /// Without a subscriber the span is disabled and nothing is recorded.
    fn span(&self, request: &R, context: &Context) -> Span {
        let links = self.target.take_links(request);
        // Level `error`, so that the span is enabled wherever an error is logged.
        let span = tracing::error_span!(
            "reconcile",
            controller = &*self.name,
            group = &*self.group,
            kind = &*self.kind,
            cluster = field::Empty,
            namespace = field::Empty,
            name = field::Empty,
            request = field::Empty,
            reconcile_id = %context.id(),
            attempt = context.attempt(),
            reasons = field::Empty,
        );
        if !span.is_disabled() {
            describe(&span, request);
            let reasons: Vec<_> = context.reasons().iter().map(ToString::to_string).collect();
            span.record("reasons", reasons.join(", "));
            for link in links {
                span.follows_from(link.id());
            }
        }
        span
    }
}

/// Records the fields of a request in the span, according to its type.
fn describe<R: Key>(span: &Span, request: &R) {
    let any: &dyn Any = request;
    let of_cluster = any.downcast_ref::<ClusterRequest>();
    let object: Option<&ObjectKey> = any
        .downcast_ref()
        .or(of_cluster.map(|request| &request.request));
    if let Some(of_cluster) = of_cluster {
        span.record("cluster", &*of_cluster.cluster);
    }
    match object {
        Some(object) => {
            span.record("namespace", object.namespace().unwrap_or_default());
            span.record("name", object.name());
        }
        None => {
            span.record("request", field::debug(request));
        }
    }
}

/// Returns a random UUID (version 4).
fn run_id() -> u128 {
    let random: u128 = rand::random();
    (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62)
}
