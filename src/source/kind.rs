//! Objects of one kind in the cluster.

use super::{SelfContained, Source, SourceContext, WatchError, deliver::Route, informed::tell};
use crate::{
    cache::{Cache, Informer, Select},
    handler::{Enqueue, Handler},
    object::{AnyKind, KubeObject},
    predicate::Predicate,
    workqueue::Key,
};
use kube_core::GroupVersionKind;
use std::{fmt, sync::Arc};

/// Which objects to keep in the cache, and which of their events count: a [`Select`] with filters. Use it where a plain one does not say enough.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use steersman::{prelude::*, predicate::GenerationChanged, source::Watch};
///
/// let changed: Watch<Deployment> = Select::<Deployment>::new().labels("app=web").filter(GenerationChanged);
/// let later_if_ever = Select::dynamic(GroupVersionKind::gvk("example.com", "v1", "Website")).optional();
/// # use kube_core::GroupVersionKind;
/// ```
#[must_use = "give it to a source or to a builder"]
pub struct Watch<K> {
    select: Select<K>,
    filters: Vec<Box<dyn Predicate<K>>>,
}

impl<K: KubeObject> Watch<K> {
    /// Only events that this accepts as well. Predicates are asked in order, until one rejects.
    pub fn filter(mut self, predicate: impl Predicate<K>) -> Self {
        self.filters.push(Box::new(predicate));
        self
    }

    /// See [`Select::optional`].
    pub fn optional(self) -> Self {
        Self { select: self.select.optional(), ..self }
    }
}

impl<K> Watch<K> {
    pub(crate) fn gvk(&self) -> &GroupVersionKind {
        self.select.gvk()
    }
}

impl<K> From<Select<K>> for Watch<K> {
    fn from(select: Select<K>) -> Self {
        Self { select, filters: Vec::new() }
    }
}

/// A selection to be watched: see [`Watch`].
impl<K: KubeObject> Select<K> {
    /// Only events that this accepts. The cache keeps the other objects all the same.
    pub fn filter(self, predicate: impl Predicate<K>) -> Watch<K> {
        Watch::from(self).filter(predicate)
    }
}

impl<K> fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("select", &self.select).field("filters", &self.filters.len()).finish()
    }
}

/// Objects of one kind, from the cache of the controller that is given this source: the usual one.
///
/// The source first delivers the existing objects as create events, and the workers start after the handler has processed them. If the kind is missing or forbidden, the
/// controller fails to start after the sync timeout, unless the watch is [`optional`](Select::optional).
pub struct Kind<K, R> {
    select: Select<K>,
    route: Route<K, R>,
    /// Once it is bound.
    bound: Option<(Cache, Informer<K>)>,
}

impl<K: KubeObject, R: Key> Kind<K, R> {
    /// What of which kind, and what becomes of its events.
    pub fn new(watch: impl Into<Watch<K>>, handler: impl Handler<K, R>) -> Self {
        let Watch { select, filters } = watch.into();
        Self { select, route: Route { filters, ..Route::to(handler) }, bound: None }
    }

    /// From this cache and no other, whatever controller runs it, or none.
    pub fn with_cache(cache: &Cache, watch: impl Into<Watch<K>>, handler: impl Handler<K, R>) -> KindWithCache<K, R> {
        KindWithCache { cache: cache.clone(), kind: Self::new(watch, handler) }
    }

    fn declare(&self, cache: Option<&Cache>) -> Result<(Cache, Informer<K>), WatchError> {
        let cache = cache.ok_or_else(|| WatchError::NoCache { source_name: self.name() })?;
        match cache.informer_of(self.select.clone()) {
            Ok(informer) => Ok((cache.clone(), informer)),
            Err(error) => Err(WatchError::Cache { source_name: self.name(), error: Arc::new(error) }),
        }
    }

    /// What every watch of a controller has to pass, before this one's own filters.
    pub(crate) fn behind(mut self, global: Vec<Arc<dyn Predicate<AnyKind>>>) -> Self {
        self.route.global = global;
        self
    }
}

impl<K: KubeObject, R: Key> Source<R> for Kind<K, R> {
    fn name(&self) -> String {
        format!("kind source: {}", self.select.words())
    }

    /// Declares the informer: what cannot be kept so is said, and what can is kept from now on.
    fn bind(&mut self, cache: Option<&Cache>) -> Result<(), WatchError> {
        self.bound = Some(self.declare(cache)?);
        Ok(())
    }

    /// Watches of an added cluster are optional, so that one cluster does not stop the others.
    fn is_optional(&self) -> bool {
        let in_added_cluster = self.bound.as_ref().is_some_and(|(cache, _)| cache.is_of_added_cluster());
        self.select.is_optional() || in_added_cluster
    }

    async fn run(mut self, queue: Enqueue<R>, cx: SourceContext) -> anyhow::Result<()> {
        let (cache, informer) = match self.bound.take() {
            Some(bound) => bound,
            None => self.declare(cx.cache())?,
        };
        let delivery = self.route.open(&informer.gvk().kind, queue.of_cache(Some(cache)), cx.clone());
        tell(informer, delivery, &cx).await
    }
}

impl<K, R> fmt::Debug for Kind<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("select", &self.select).finish_non_exhaustive()
    }
}

/// See [`Kind::with_cache`].
pub struct KindWithCache<K, R> {
    cache: Cache,
    kind: Kind<K, R>,
}

impl<K, R> SelfContained for KindWithCache<K, R> {}

impl<K: KubeObject, R: Key> Source<R> for KindWithCache<K, R> {
    fn name(&self) -> String {
        self.kind.name()
    }

    fn bind(&mut self, _: Option<&Cache>) -> Result<(), WatchError> {
        self.kind.bind(Some(&self.cache))
    }

    fn is_optional(&self) -> bool {
        self.kind.is_optional()
    }

    async fn run(mut self, queue: Enqueue<R>, cx: SourceContext) -> anyhow::Result<()> {
        if self.kind.bound.is_none() {
            self.bind(None)?;
        }
        self.kind.run(queue, cx).await
    }
}

impl<K, R> fmt::Debug for KindWithCache<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}
