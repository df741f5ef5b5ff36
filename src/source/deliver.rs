//! From events to requests: predicates, then the handler, with every panic contained.

use super::{SourceContext, context::Counters};
use crate::{
    caught::words,
    event::Event,
    handler::{Enqueue, Handler, Subject, Verb},
    object::{AnyKind, DecodeError},
    predicate::Predicate,
    workqueue::Key,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
};
use tokio::{select, task::consume_budget};

/// Which events count, and what becomes of them.
pub(super) struct Route<K, R> {
    /// For every kind; they are asked first.
    pub(super) global: Vec<Arc<dyn Predicate<AnyKind>>>,
    pub(super) filters: Vec<Box<dyn Predicate<K>>>,
    pub(super) handler: Box<dyn Handler<K, R>>,
}

impl<K: 'static, R: Key> Route<K, R> {
    pub(super) fn to(handler: impl Handler<K, R>) -> Self {
        Self { global: Vec::new(), filters: Vec::new(), handler: Box::new(handler) }
    }

    /// From a source that runs. `about` is what its events are of, mostly a kind.
    pub(super) fn open(self, about: &str, queue: Enqueue<R>, cx: SourceContext) -> Delivery<K, R> {
        Delivery { route: self, subject: Subject::new(about), queue, cx }
    }

    fn accepts(&self, event: &Event<K>) -> bool {
        let globally = self.global.is_empty() || {
            let erased = event.erase();
            self.global.iter().all(|predicate| predicate.accepts(&erased))
        };
        globally && self.filters.iter().all(|predicate| predicate.accepts(event))
    }
}

/// A [`Route`] that is in use.
pub(super) struct Delivery<K, R> {
    route: Route<K, R>,
    subject: Arc<Subject>,
    queue: Enqueue<R>,
    cx: SourceContext,
}

impl<K: 'static, R: Key> Delivery<K, R> {
    /// True when the next event may be delivered, false if there is to be none: the source was stopped.
    pub(super) async fn goes_on(&self) -> bool {
        // Events that are there already never wait: whoever shares the thread gets a turn, and a stop is seen.
        consume_budget().await;
        // Mostly there is room, and nobody has to be asked to be woken.
        select! {
            biased;
            () = self.queue.room() => !self.cx.is_stopped(),
            () = self.cx.stopped() => false,
        }
    }

    /// One event. A panic costs it, and nothing else.
    pub(super) fn deliver(&self, event: &Event<K>) {
        let object = event.object();
        let _entered = tracing::debug_span!(
            "event",
            controller = self.cx.controller(),
            source = self.cx.name(),
            kind = self.subject.name(),
            namespace = object.namespace(),
            name = object.name(),
            event = Verb::of(event).text(),
        )
        .entered();
        let Counters { events, dropped, panics, .. } = self.cx.counters();
        events.fetch_add(1, Relaxed);
        let mut who = "predicate";
        let delivered = catch_unwind(AssertUnwindSafe(|| {
            let accepted = self.route.accepts(event);
            if accepted {
                who = "handler";
                self.route.handler.handle(event, &self.queue.because(&self.subject, event));
            }
            accepted
        }));
        match delivered {
            Ok(accepted) => {
                dropped.fetch_add(u64::from(!accepted), Relaxed);
                if let Some(error) = event.failed_decode() {
                    self.note_failed_decode(event, &error, who);
                }
            }
            Err(panic) => {
                panics.fetch_add(1, Relaxed);
                let (controller, source) = (self.cx.controller(), self.cx.name());
                let (object, panic) = (object.key(), words(&*panic));
                tracing::error!(controller, source, %object, panic, who, "a panic has cost an event");
            }
        }
    }

    /// Counts and logs an event that `who` could not decode.
    fn note_failed_decode(&self, event: &Event<K>, error: &DecodeError, who: &str) {
        let count = self.cx.counters().undecoded.fetch_add(1, Relaxed) + 1;
        let (controller, kind) = (self.cx.controller(), self.subject.name());
        let (namespace, name) = (event.object().namespace(), event.object().name());
        // A handler that is behind can have a million of them.
        if count.is_power_of_two() {
            tracing::warn!(controller, kind, namespace, name, %error, who, count, "decoding deleted object failed");
        } else {
            tracing::debug!(controller, kind, namespace, name, %error, who, count, "decoding deleted object failed");
        }
    }
}
