//! Source of the events of an existing informer, and the delivery of informer events.

use super::{
    SelfContained, Source, SourceContext,
    context::Health,
    deliver::{Delivery, Pipeline},
};
use crate::{
    cache::{CacheError, Informer, InformerEvent, InformerState},
    handler::{Enqueue, Handler},
    object::KubeObject,
    predicate::Predicate,
    workqueue::Key,
};
use std::{fmt, pin::pin};
use tokio::select;

/// Creates a source from an informer that the caller holds, of any cache.
///
/// Unlike [`Kind`](super::Kind), it does not delay the start of a controller. Wait for the informer
/// where that matters.
pub fn informer<K: KubeObject, R: Key>(
    informer: &Informer<K>,
    handler: impl Handler<K, R>,
) -> InformerSource<K, R> {
    InformerSource {
        informer: informer.clone(),
        pipeline: Pipeline::new(handler),
    }
}

/// Source of an existing informer, created by [`informer`].
#[must_use = "let a controller watch it, or start it"]
pub struct InformerSource<K, R> {
    informer: Informer<K>,
    pipeline: Pipeline<K, R>,
}

impl<K: KubeObject, R: Key> InformerSource<K, R> {
    /// Adds a predicate. The first predicate that rejects an event drops it.
    pub fn filter(mut self, predicate: impl Predicate<K>) -> Self {
        self.pipeline.predicates.push(Box::new(predicate));
        self
    }
}

impl<K, R> SelfContained for InformerSource<K, R> {}

impl<K: KubeObject, R: Key> Source<R> for InformerSource<K, R> {
    fn name(&self) -> String {
        format!("informer source: {}", self.informer.gvk().kind)
    }

    fn is_optional(&self) -> bool {
        true
    }

    async fn run(self, queue: Enqueue<R>, cx: SourceContext) -> anyhow::Result<()> {
        cx.reported();
        let queue = queue.with_cache(self.informer.cache());
        let delivery = self
            .pipeline
            .connect(&self.informer.gvk().kind, queue, cx.clone());
        forward_events(self.informer, delivery, &cx).await
    }
}

impl<K, R> fmt::Debug for InformerSource<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerSource")
            .field("informer", &self.informer)
            .finish_non_exhaustive()
    }
}

/// Forwards the events of an informer until it ends or the source is stopped.
pub(super) async fn forward_events<K: 'static, R: Key>(
    informer: Informer<K>,
    delivery: Delivery<K, R>,
    cx: &SourceContext,
) -> anyhow::Result<()> {
    let mut events = informer.events();
    cx.set_health({
        // The handle of a watch must not keep the informer alive.
        let state = informer.states();
        move || health(state())
    });
    let mut failed = pin!(informer.failed());
    let (mut synced, mut reported) = (false, false);
    while delivery.wait_for_capacity().await {
        let event = select! {
            biased;
            event = events.next() => event,
            () = cx.stopped() => break,
            () = &mut failed, if !reported => {
                reported = true;
                cx.reported();
                continue;
            }
        };
        match event {
            Some(InformerEvent::Event(event)) => delivery.deliver(&event),
            Some(InformerEvent::Synced) => {
                synced = true;
                cx.synced();
            }
            None => return end_result(&informer, synced),
        }
    }
    Ok(())
}

/// Returns an error if the informer ended, unless the cache ended after the sync.
fn end_result<K>(informer: &Informer<K>, synced: bool) -> anyhow::Result<()> {
    match informer.check_open() {
        Err(CacheError::Closed) if synced => Ok(()),
        result => Ok(result?),
    }
}

fn health(state: InformerState) -> Health {
    match state {
        InformerState::Synced => Health::Good,
        InformerState::Idle => {
            Health::Waiting("the cache does not run; call its `run_until`".into())
        }
        InformerState::Starting => Health::Waiting("the first list is not complete".into()),
        InformerState::KindNotFound { error } => Health::Waiting(error),
        InformerState::Degraded { since, error } => Health::Bad { since, error },
        InformerState::Removed => Health::Waiting("its informer was removed".into()),
    }
}
