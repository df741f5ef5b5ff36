//! Workers: from the queue through the reconciler, and back.
//!
//! What holds: a worker has at most one item, and finishes it on every path; what is to be known before the next run of the request (own writes, places in
//! a group) is known before the item is finished.

use super::{
    Settings,
    defer::Deferrals,
    ending::Ending,
    groups::{GroupLimit, PATIENCE},
    inbox::Inbox,
    numbers::Numbers,
    reason::{Interrupted, requeue_reason},
    terminal::TerminalOutcomes,
    verdict::{Class, Verdict},
};
use crate::{
    cache::ledger::{Reads, Token},
    caught::{catch, words},
    client::{Consistency, OWN_WRITES_BOUND},
    fence::Fence,
    object::ObjectKey,
    reconcile::{Again, ClusterRequest, Context, DynReconciler, Error, Outcome, Result, Run},
    stamp::{Stamp, stamp},
    workqueue::{Item, Key, RunWatch, WorkQueue},
};
use futures_util::future::BoxFuture;
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

impl<R: Key> Again for RunWatch<R> {
    fn is_queued_again(&self) -> bool {
        self.is_queued_again()
    }

    fn queued_again(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.queued_again())
    }
}

/// What the workers of a controller share.
pub(super) struct Work<R> {
    pub(super) name: Arc<str>,
    /// Of what is reconciled; empty if the controller was not told.
    pub(super) group: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) queue: WorkQueue<R>,
    pub(super) inbox: Arc<Inbox<R>>,
    pub(super) settings: Settings,
    pub(super) groups: Option<Box<dyn GroupLimit<R>>>,
    pub(super) deferrals: Arc<Deferrals<R>>,
    pub(super) ending: Ending<R>,
    pub(super) terminal: TerminalOutcomes<R>,
    pub(super) numbers: Numbers,
    pub(super) shutdown: Arc<CancellationToken>,
    pub(super) limit: Limit,
}

/// How many workers there are to be; the last ones go first.
pub(super) struct Limit {
    now: AtomicUsize,
    changes: watch::Sender<usize>,
}

impl Limit {
    pub(super) fn new(workers: usize) -> Self {
        Self { now: AtomicUsize::new(workers), changes: watch::Sender::new(workers) }
    }

    pub(super) fn get(&self) -> usize {
        self.now.load(Relaxed)
    }

    pub(super) fn set(&self, workers: usize) {
        // Under its lock, so that both are the same whoever else sets them.
        self.changes.send_modify(|now| {
            *now = workers;
            self.now.store(workers, Relaxed);
        });
    }

    pub(super) fn changes(&self) -> watch::Receiver<usize> {
        self.changes.subscribe()
    }
}

impl<R: Key> Work<R> {
    /// The worker with this number, which it gives back when there are to be fewer, or the queue is closed.
    pub(super) async fn run(self: Arc<Self>, number: usize, reconciler: Arc<dyn DynReconciler<R>>) -> usize {
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

    /// Gives the next item, if there is one and this worker goes on.
    async fn process(&self, item: Item<R>, number: usize, reconciler: &dyn DynReconciler<R>) -> Option<Item<R>> {
        let mut item = self.admit(item)?;
        let token = self.token();
        let outcome = self.reconcile(&mut item, &token, reconciler).await;
        self.ending.ran(item.key());
        if self.settings.consistency == Consistency::Defer {
            let behind = token.behind();
            if !behind.is_empty() {
                self.deferrals.hold(&self.name, &self.queue, item.key(), (token, behind));
            }
        }
        if let Some(groups) = &self.groups {
            groups.leave(item.key(), &mut |next| self.queue.unpark(next));
        }
        match outcome {
            Some((outcome, ended)) if self.limit.get() > number => item.finish_and_try_get_at(outcome, ended),
            Some((outcome, _)) => {
                item.finish(outcome);
                None
            }
            // It was made again: it is ready as soon as this run is over.
            None => {
                drop(item);
                None
            }
        }
    }

    /// Parks what must not run yet, or not any more.
    #[inline]
    fn admit(&self, item: Item<R>) -> Option<Item<R>> {
        // For good: a fence that is closed stays so, and the controller is about to be stopped.
        if Fence::current().is_some_and(|fence| fence.check().is_err()) {
            item.park();
            return None;
        }
        if let Some(groups) = &self.groups
            && !groups.enter(item.key(), item.priority())
        {
            item.park_for(PATIENCE);
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
            Consistency::Defer => Reads::OfReconcile(OWN_WRITES_BOUND),
            Consistency::Block(bound) => Reads::OfClient(bound),
            Consistency::Ignore => Reads::DoNotWait,
        })
    }

    /// One run, what follows from it, and when it ended; `None` if it was dropped because its request was made again.
    async fn reconcile(
        &self,
        item: &mut Item<R>,
        token: &Token,
        reconciler: &dyn DynReconciler<R>,
    ) -> Option<(Outcome, Stamp)> {
        let (reasons, again) = item.reasons_and_watch();
        let deadline = self.settings.reconcile_timeout.and_then(|timeout| item.began().checked_add(timeout));
        let context = Context::from(Run {
            id: run_id(),
            attempt: item.attempt(),
            priority: item.priority(),
            waited: item.waited(),
            reasons,
            deadline,
            shutdown: Some(self.shutdown.clone()),
            fencing_token: Fence::current().map(|fence| fence.token()),
            again,
        });
        let span = self.span(item.key(), &context);
        // Called within, so that a panic before there is a future is caught, too.
        let request = item.key().clone();
        let run = async { reconciler.reconcile(request, &context).await };
        let mut place = pin!(Some(token.clone().scope(run).instrument(span.clone())));
        let run = catch(place.as_mut().as_pin_mut().expect("it is there"));
        let run = async {
            match deadline {
                Some(deadline) => timeout_at(deadline, run).await,
                None => Ok(run.await),
            }
        };
        let answer = if self.settings.cancel_superseded {
            select! {
                biased;
                answer = run => Some(answer),
                () = context.until_superseded() => None,
            }
        } else {
            Some(run.await)
        };
        // What it held goes here, and may panic as the run itself may.
        let dropped = catch_unwind(AssertUnwindSafe(|| place.set(None)));
        let result = match (answer, dropped) {
            (Some(Ok(Err(panic))), _) | (_, Err(panic)) => Err(self.panicked(panic)),
            (Some(Ok(Ok(result))), Ok(())) => result,
            (Some(Err(_)), Ok(())) => {
                self.numbers.timeouts.fetch_add(1, Relaxed);
                let timeout = self.settings.reconcile_timeout.unwrap_or_default();
                Err(Interrupted::Timeout(timeout).into())
            }
            (None, Ok(())) => {
                self.numbers.superseded.fetch_add(1, Relaxed);
                span.in_scope(|| tracing::debug!("dropped, because it was made again"));
                return None;
            }
        };
        let ended = stamp();
        let took = item.held_until(ended);
        Some((span.in_scope(|| self.conclude(item, result, took)), ended))
    }

    fn panicked(&self, panic: Box<dyn Any + Send>) -> Error {
        self.numbers.panics.fetch_add(1, Relaxed);
        if !self.settings.recover_panics {
            resume_unwind(panic);
        }
        Interrupted::Panic(words(&*panic)).into()
    }

    /// Count and log how it ended, and say what follows.
    fn conclude(&self, item: &mut Item<R>, result: Result<Outcome>, took: Duration) -> Outcome {
        let attempt = item.attempt();
        let Verdict { outcome, class } = Verdict::of(&result, attempt, &self.settings);
        self.numbers.count(class, took);
        if let Some(reason) = requeue_reason(class, outcome, &result) {
            item.set_reason(reason);
        }
        if class != Class::Terminal {
            self.terminal.remove(item.key());
        }
        if let Err(error) = result {
            let error: Arc<str> = format!("{error:#}").into();
            // Whose it is, the span says.
            match class {
                Class::Conflict => tracing::debug!(error = &*error, "conflict, to be retried"),
                Class::Terminal => {
                    tracing::error!(error = &*error, "reconciler error, not to be retried");
                    self.terminal.insert(item.key(), error.clone(), attempt);
                }
                _ => tracing::error!(error = &*error, "reconciler error"),
            }
            item.set_error(error);
        } else {
            tracing::debug!(result = outcome.label(), "reconciled");
        }
        outcome
    }

    /// Of a run, linked to the events that led to it. Costs nothing if nobody subscribes.
    fn span(&self, request: &R, context: &Context) -> Span {
        let links = self.inbox.take_links(request);
        // Of the highest level, so that it is there wherever an error is logged.
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

/// What is known of a request depends on its type.
fn describe<R: Key>(span: &Span, request: &R) {
    let any: &dyn Any = request;
    let of_cluster = any.downcast_ref::<ClusterRequest>();
    let object: Option<&ObjectKey> = any.downcast_ref().or(of_cluster.map(|request| &request.request));
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

/// A random UUID.
fn run_id() -> u128 {
    let random: u128 = rand::random();
    (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62)
}
