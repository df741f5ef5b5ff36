//! Events of an informer that somebody holds.

use super::{SelfContained, Source, SourceContext, deliver::Route, informed::tell};
use crate::{
    cache::Informer,
    handler::{Enqueue, Handler},
    object::KubeObject,
    predicate::Predicate,
    workqueue::Key,
};
use std::fmt;

/// Events of an informer that you hold, from whichever cache. Unlike [`Kind`](super::Kind) it does not hold up a controller's start: wait for it yourself where it
/// matters.
pub fn informer<K: KubeObject, R: Key>(informer: &Informer<K>, handler: impl Handler<K, R>) -> InformerSource<K, R> {
    InformerSource { informer: informer.clone(), route: Route::to(handler) }
}

/// See [`informer`].
#[must_use = "let a controller watch it, or start it"]
pub struct InformerSource<K, R> {
    informer: Informer<K>,
    route: Route<K, R>,
}

impl<K: KubeObject, R: Key> InformerSource<K, R> {
    /// Only events that this accepts as well.
    pub fn filter(mut self, predicate: impl Predicate<K>) -> Self {
        self.route.filters.push(Box::new(predicate));
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
        cx.known();
        let queue = queue.of_cache(self.informer.cache());
        let delivery = self.route.open(&self.informer.gvk().kind, queue, cx.clone());
        tell(self.informer, delivery, &cx).await
    }
}

impl<K, R> fmt::Debug for InformerSource<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerSource").field("informer", &self.informer).finish_non_exhaustive()
    }
}
