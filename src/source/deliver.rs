//! Delivery of events: predicates, then the handler, with panics caught.

use super::{SourceContext, context::WatchCounters};
use crate::{
    event::Event,
    handler::{Enqueue, EventKind, Handler, Subject},
    object::{AnyKind, DecodeError},
    panic_message::panic_message,
    predicate::Predicate,
    workqueue::Key,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
};
use tokio::{select, task::consume_budget};

/// Predicates and handler of a watch.
pub(super) struct Pipeline<K, R> {
    /// Predicates of the controller, evaluated first.
    pub(super) controller_predicates: Vec<Arc<dyn Predicate<AnyKind>>>,
    pub(super) predicates: Vec<Box<dyn Predicate<K>>>,
    pub(super) handler: Box<dyn Handler<K, R>>,
}

impl<K: 'static, R: Key> Pipeline<K, R> {
    pub(super) fn new(handler: impl Handler<K, R>) -> Self {
        Self {
            controller_predicates: Vec::new(),
            predicates: Vec::new(),
            handler: Box::new(handler),
        }
    }

    /// Connects a running source. `about` describes its events, usually a kind.
    pub(super) fn connect(
        self,
        about: &str,
        queue: Enqueue<R>,
        cx: SourceContext,
    ) -> Delivery<K, R> {
        Delivery {
            pipeline: self,
            subject: Subject::new(about),
            queue,
            cx,
        }
    }

    fn accepts(&self, event: &Event<K>) -> bool {
        let globally = self.controller_predicates.is_empty() || {
            let erased = event.erase();
            self.controller_predicates
                .iter()
                .all(|predicate| predicate.accepts(&erased))
        };
        globally
            && self
                .predicates
                .iter()
                .all(|predicate| predicate.accepts(event))
    }
}

/// A [`Pipeline`] in use by a running source.
pub(super) struct Delivery<K, R> {
    pipeline: Pipeline<K, R>,
    subject: Arc<Subject>,
    queue: Enqueue<R>,
    cx: SourceContext,
}

impl<K: 'static, R: Key> Delivery<K, R> {
    /// Waits until the next event may be delivered; returns false if stopped.
    pub(super) async fn wait_for_capacity(&self) -> bool {
        // Buffered events never wait, so yield to other tasks and to a stop.
        consume_budget().await;
        // Usually there is capacity, and no waker needs to be registered.
        select! {
            biased;
            () = self.queue.capacity() => !self.cx.is_stopped(),
            () = self.cx.stopped() => false,
        }
    }

    /// Delivers one event. If a predicate or the handler panics, the event is dropped.
    pub(super) fn deliver(&self, event: &Event<K>) {
        let object = event.object();
        let _entered = tracing::debug_span!(
            "event",
            controller = self.cx.controller(),
            source = self.cx.name(),
            kind = self.subject.name(),
            namespace = object.namespace(),
            name = object.name(),
            event = EventKind::of(event).text(),
        )
        .entered();
        let WatchCounters {
            events,
            dropped,
            panics,
            ..
        } = self.cx.counters();
        events.fetch_add(1, Relaxed);
        let mut callee = "predicate";
        let delivered = catch_unwind(AssertUnwindSafe(|| {
            let accepted = self.pipeline.accepts(event);
            if accepted {
                callee = "handler";
                self.pipeline
                    .handler
                    .handle(event, &self.queue.for_event(&self.subject, event));
            }
            accepted
        }));
        match delivered {
            Ok(accepted) => {
                dropped.fetch_add(u64::from(!accepted), Relaxed);
                if let Some(error) = event.failed_decode() {
                    self.record_decode_failure(event, &error, callee);
                }
            }
            Err(panic) => {
                panics.fetch_add(1, Relaxed);
                let (controller, source) = (self.cx.controller(), self.cx.name());
                tracing::error!(
                    controller,
                    source,
                    kind = self.subject.name(),
                    namespace = object.namespace(),
                    name = object.name(),
                    error = panic_message(&*panic),
                    callee,
                    "predicate or handler panicked, event dropped"
                );
            }
        }
    }

    /// Counts and logs an event that `callee` could not decode.
    fn record_decode_failure(&self, event: &Event<K>, error: &DecodeError, callee: &str) {
        let count = self.cx.counters().undecoded.fetch_add(1, Relaxed) + 1;
        let (controller, kind) = (self.cx.controller(), self.subject.name());
        let (namespace, name) = (event.object().namespace(), event.object().name());
        // Log sparsely: a slow handler can have a million of such events.
        if count.is_power_of_two() {
            tracing::warn!(controller, kind, namespace, name, %error, callee, count, "decoding object without body failed");
        } else {
            tracing::debug!(controller, kind, namespace, name, %error, callee, count, "decoding object without body failed");
        }
    }
}
