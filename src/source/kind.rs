//! Source of the events of one kind in the cluster.

use super::{
    SelfContained, Source, SourceContext, WatchError, deliver::Pipeline, informer::forward_events,
};
use crate::{
    cache::{Cache, Informer, Select},
    handler::{Enqueue, Handler},
    object::{AnyKind, KubeObject},
    predicate::Predicate,
    workqueue::Key,
};
use kube_core::GroupVersionKind;
use std::{fmt, sync::Arc};

/// A [`Select`] with predicates: which objects to cache, and which events to handle.
///
/// Use a plain `Select` to handle all events.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use steersman::{prelude::*, predicate::GenerationChanged, source::Watch};
///
/// let spec_changes: Watch<Deployment> =
///     Select::<Deployment>::new().labels("app=web").filter(GenerationChanged);
/// ```
#[must_use = "pass it to a source or a builder"]
pub struct Watch<K> {
    select: Select<K>,
    predicates: Vec<Box<dyn Predicate<K>>>,
}

impl<K: KubeObject> Watch<K> {
    /// Adds a predicate. The first predicate that rejects an event drops it.
    pub fn filter(mut self, predicate: impl Predicate<K>) -> Self {
        self.predicates.push(Box::new(predicate));
        self
    }

    /// Lets a controller start without this watch, see [`Select::optional`].
    pub fn optional(self) -> Self {
        Self {
            select: self.select.optional(),
            ..self
        }
    }
}

impl<K> Watch<K> {
    pub(crate) fn gvk(&self) -> &GroupVersionKind {
        self.select.gvk()
    }
}

impl<K> From<Select<K>> for Watch<K> {
    fn from(select: Select<K>) -> Self {
        Self {
            select,
            predicates: Vec::new(),
        }
    }
}

impl<K: KubeObject> Select<K> {
    /// Drops events that `predicate` rejects. Their objects stay in the cache.
    pub fn filter(self, predicate: impl Predicate<K>) -> Watch<K> {
        Watch::from(self).filter(predicate)
    }
}

impl<K> fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("select", &self.select)
            .field("filters", &self.predicates.len())
            .finish()
    }
}

/// Source of the events of one kind, from the controller's cache.
///
/// The source first delivers the existing objects as create events, and the workers start after the
/// handler has processed them. If the kind is missing or forbidden, the controller fails to start
/// after the sync timeout, unless the watch is [`optional`](Select::optional).
pub struct Kind<K, R> {
    select: Select<K>,
    pipeline: Pipeline<K, R>,
    /// Set by `bind`.
    bound: Option<(Cache, Informer<K>)>,
}

impl<K: KubeObject, R: Key> Kind<K, R> {
    /// Creates a source that passes the events of `watch` to `handler`.
    pub fn new(watch: impl Into<Watch<K>>, handler: impl Handler<K, R>) -> Self {
        let Watch { select, predicates } = watch.into();
        Self {
            select,
            pipeline: Pipeline {
                predicates,
                ..Pipeline::new(handler)
            },
            bound: None,
        }
    }

    /// Creates a source that uses `cache` instead of the controller's.
    pub fn with_cache(
        cache: &Cache,
        watch: impl Into<Watch<K>>,
        handler: impl Handler<K, R>,
    ) -> KindWithCache<K, R> {
        KindWithCache {
            cache: cache.clone(),
            kind: Self::new(watch, handler),
        }
    }

    fn declare_informer(&self, cache: Option<&Cache>) -> Result<(Cache, Informer<K>), WatchError> {
        let cache = cache.ok_or_else(|| WatchError::NoCache {
            source_name: self.name(),
        })?;
        match cache.informer_of(self.select.clone()) {
            Ok(informer) => Ok((cache.clone(), informer)),
            Err(error) => Err(WatchError::Cache {
                source_name: self.name(),
                error: Arc::new(error),
            }),
        }
    }

    /// Sets the predicates of the controller, evaluated before those of the watch.
    pub(crate) fn controller_predicates(
        mut self,
        predicates: Vec<Arc<dyn Predicate<AnyKind>>>,
    ) -> Self {
        self.pipeline.controller_predicates = predicates;
        self
    }
}

impl<K: KubeObject, R: Key> Source<R> for Kind<K, R> {
    fn name(&self) -> String {
        format!("kind source: {}", self.select.describe())
    }

    /// Declares the informer, and returns conflicts with existing ones.
    fn bind(&mut self, cache: Option<&Cache>) -> Result<(), WatchError> {
        self.bound = Some(self.declare_informer(cache)?);
        Ok(())
    }

    /// Returns true for watches of an added cluster, too.
    ///
    /// One cluster does not prevent the start of controllers for the others.
    fn is_optional(&self) -> bool {
        let in_added_cluster = self
            .bound
            .as_ref()
            .is_some_and(|(cache, _)| cache.is_of_added_cluster());
        self.select.is_optional() || in_added_cluster
    }

    async fn run(mut self, queue: Enqueue<R>, cx: SourceContext) -> anyhow::Result<()> {
        let (cache, informer) = match self.bound.take() {
            Some(bound) => bound,
            None => self.declare_informer(cx.cache())?,
        };
        let delivery = self.pipeline.connect(
            &informer.gvk().kind,
            queue.with_cache(Some(cache)),
            cx.clone(),
        );
        forward_events(informer, delivery, &cx).await
    }
}

impl<K, R> fmt::Debug for Kind<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind")
            .field("select", &self.select)
            .finish_non_exhaustive()
    }
}

/// Source of one kind with its own cache, see [`Kind::with_cache`].
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
