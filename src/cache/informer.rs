//! Handle of an informer.
//!
//! Invariant: a read returns an error instead of an empty result if the state is unknown, which is
//! before the first list and for namespaces out of scope.

use super::{
    Cache, CacheError, Events, Index, InformerStats, ObjectSize, Query, View,
    core::{Condition, Core},
    erased::{ErasedCore, NamespacesGuard},
    ledger::{PendingWrites, ReadScope, Token},
    namespace_cores::NamespaceCores,
    refcount::{InformerRef, race},
    registry::WeakCache,
    resync::Periods,
    stats::DecodeFailure,
    store::Lookup,
};
use crate::object::{Body, KubeObject, MetadataOnly, ObjectKey, Transform};
use kube_core::GroupVersionKind;
use serde::Serialize;
use std::{any::Any, fmt, hash::Hash, marker::PhantomData, sync::Arc, time::SystemTime};

/// Handle of an informer: objects of one kind and scope in memory.
///
/// The informer runs as long as there is a handle. Reads return at once, and fail before the first
/// sync. Objects are shared and immutable; clone an object to change it. They are milliseconds
/// behind the API server, and more while the informer is [`Degraded`](InformerState::Degraded).
///
/// If the API server is restored from a backup, the next list that is older than the known state is
/// accepted, which takes some minutes. Then every object is reported as changed, even if its
/// resource version is equal. If the API server has reached the known resource version again before
/// that list, this cannot be detected. Create a new cache after a restore.
pub struct Informer<K> {
    pub(super) core: Arc<dyn ErasedCore>,
    reference: Arc<InformerRef>,
    cache: WeakCache,
    /// Resync periods of this handle's events.
    pub(super) resync: Periods,
    kind: PhantomData<fn() -> K>,
}

impl<K> Informer<K> {
    pub(super) fn new(
        core: Arc<dyn ErasedCore>,
        informer_ref: InformerRef,
        cache: WeakCache,
    ) -> Self {
        Self {
            core,
            reference: Arc::new(informer_ref),
            cache,
            resync: Periods::default(),
            kind: PhantomData,
        }
    }

    /// Returns the cache of the informer. The handle does not keep it alive.
    pub(crate) fn cache(&self) -> Option<Cache> {
        self.cache.upgrade()
    }

    /// Sets the resync periods of this handle's events.
    pub(super) fn with_resync(self, resync: Periods) -> Self {
        Self { resync, ..self }
    }

    pub(super) fn kind(&self) -> &str {
        &self.reference.gvk().kind
    }

    /// Returns the kind of the objects.
    pub fn gvk(&self) -> &GroupVersionKind {
        self.reference.gvk()
    }

    /// Returns the current state of the informer.
    pub fn state(&self) -> InformerState {
        InformerState::of(self.core.condition())
    }

    /// Waits until `accepts` returns true for the state, and returns that state.
    ///
    /// Use it to react when a kind is installed or removed. Short-lived states can be missed.
    /// [`Removed`](InformerState::Removed) is final, so accept it unless the wait ends otherwise.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use steersman::{cache::{Informer, InformerState}};
    /// # async fn example(pods: Informer<Pod>) {
    /// let state = pods.wait_for(|state| !matches!(state, InformerState::Synced)).await;
    /// println!("pods are not up to date: {state:?}");
    /// # }
    /// ```
    pub async fn wait_for(&self, accepts: impl Fn(&InformerState) -> bool) -> InformerState {
        let mut conditions = self.core.conditions();
        let accepts = |condition: &Condition| accepts(&InformerState::of(condition.clone()));
        // `self` owns the sender, so `wait_for` cannot fail.
        match conditions.wait_for(accepts).await {
            Ok(condition) => InformerState::of(condition.clone()),
            Err(_) => InformerState::Removed,
        }
    }

    /// Returns a function that returns the state, without keeping the informer running.
    pub(crate) fn states(&self) -> impl Fn() -> InformerState + Send + Sync + use<K> {
        let core = Arc::downgrade(&self.core);
        move || {
            core.upgrade().map_or(InformerState::Removed, |core| {
                InformerState::of(core.condition())
            })
        }
    }

    /// Waits until the kind is missing, a request failed, or the informer is closed.
    pub(crate) fn failed(&self) -> impl Future<Output = ()> + Send + use<K> {
        let mut conditions = self.core.conditions();
        async move { drop(conditions.wait_for(Condition::has_failed).await) }
    }

    /// Waits for the first list, or until a retry of it cannot succeed.
    pub(super) async fn await_synced_or_rejected(&self) {
        let mut conditions = self.core.conditions();
        let rejected = async { drop(conditions.wait_for(Condition::is_rejected).await) };
        race(self.core.clone().synced(), rejected).await;
    }

    /// Returns the counters of the informer. Does not iterate over the objects.
    pub fn stats(&self) -> InformerStats {
        self.core.stats()
    }

    /// Returns the five objects that take the most memory, the largest first.
    ///
    /// Iterates over all objects. Use it for debug pages, not for every request.
    pub fn largest(&self) -> Vec<ObjectSize> {
        self.core.largest()
    }

    /// Returns the revision of the store: it contains all writes up to this one.
    ///
    /// Bookmarks count. With several namespaces, each of which has its own watch, this is the
    /// smallest revision of those that are listed, so it may decrease when a namespace is added.
    /// `None` before the first sync.
    pub fn resource_version(&self) -> Option<u64> {
        self.core.is_listed().then(|| self.core.revision())
    }

    /// Waits for the first list. Reads are served afterwards.
    ///
    /// Waits without limit while the API server rejects the list or the kind is missing.
    /// [`state`](Self::state) returns the reason meanwhile.
    ///
    /// Errors: the cache is closed or the informer is removed before the first list.
    pub async fn await_synced(&self) -> Result<(), CacheError> {
        if self.core.clone().synced().await {
            Ok(())
        } else {
            Err(self.closed_error())
        }
    }

    /// Subscribes to all current objects, as creations, and then to their changes.
    pub fn events(&self) -> Events<K> {
        Events::new(self.clone())
    }

    fn closed_error(&self) -> CacheError {
        if self.reference.is_removed() {
            CacheError::Removed {
                kind: self.kind().to_owned(),
            }
        } else {
            CacheError::Closed
        }
    }

    /// Returns a future to await before a read that shows the writes under `token`.
    pub(crate) fn pending_writes(
        &self,
        token: &Token,
        wanted: ReadScope<'_>,
    ) -> Option<PendingWrites> {
        self.core.ledger().pending(token, wanted)
    }

    /// Returns the transform of a namespace's objects.
    pub(crate) fn transform_of(&self, namespace: Option<&str>) -> Option<Transform> {
        self.core.decoder().transform_of(namespace).cloned()
    }

    /// Returns an error if the informer is closed or removed.
    pub(crate) fn check_open(&self) -> Result<(), CacheError> {
        if matches!(self.core.condition(), Condition::Closed) {
            Err(self.closed_error())
        } else {
            Ok(())
        }
    }

    /// Returns an error if the namespace is not in scope.
    ///
    /// Cluster-scoped objects are in the empty namespace.
    pub(super) fn check_namespace(&self, namespace: Option<&str>) -> Result<(), CacheError> {
        self.check_namespace_with(namespace, None)
    }

    /// Checks the scope like [`check_namespace`](Self::check_namespace), with locked parts.
    fn check_namespace_with(
        &self,
        namespace: Option<&str>,
        settled: Option<&NamespaceCores>,
    ) -> Result<(), CacheError> {
        let knows = |namespace: &str| {
            settled.map_or_else(
                || self.core.is_namespace_listed(namespace),
                |parts| parts.is_listed(namespace),
            )
        };
        let scope = self.reference.scope();
        let keeps = |namespace: &str| match scope.labelled {
            _ if self.reference.is_cluster_scoped() => true,
            None => scope.parts.contains_key(&None) || scope.selectors(namespace).is_some(),
            Some(_) => !self.core.is_listed() || knows(namespace),
        };
        match namespace {
            Some(namespace) if !namespace.is_empty() && !keeps(namespace) => {
                Err(CacheError::NamespaceNotCached {
                    kind: self.kind().to_owned(),
                    namespace: namespace.into(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Locks the set of namespaces, if they are selected by label.
    ///
    /// The lock makes a read see the scope and the content of a namespace at the same time.
    fn settled(&self) -> Option<NamespacesGuard<'_>> {
        self.reference
            .scope()
            .labelled
            .is_some()
            .then(|| self.core.lock_namespaces())
    }

    pub(super) fn check_synced(&self) -> Result<(), CacheError> {
        if self.core.is_listed() {
            return Ok(());
        }
        match self.core.condition() {
            Condition::Closed => Err(self.closed_error()),
            Condition::KindNotFound { error } => Err(CacheError::KindNotFound {
                kind: self.kind().to_owned(),
                last_error: error,
            }),
            condition => Err(CacheError::NotSynced {
                kind: self.kind().to_owned(),
                last_error: not_synced_reason(condition),
            }),
        }
    }
}

impl<K: KubeObject> Informer<K> {
    /// Returns the core, if the informer stores objects as `K`.
    fn typed(&self) -> Option<&Core<K>> {
        let core: &dyn Any = &*self.core;
        core.downcast_ref()
    }

    /// Returns the object with this key, or `None` if it does not exist.
    ///
    /// Errors: [`NamespaceNotCached`](CacheError::NamespaceNotCached) if the informer does not keep
    /// the namespace of the object, and [`Undecodable`](CacheError::Undecodable) if the object's
    /// current version does not decode as a `K`.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, CacheError> {
        let found = match self.typed() {
            Some(core) if core.is_listed() => match core.undecoded.get(key) {
                Some(object) => self.decoded(Some(Body::Undecoded(object)))?,
                None => core.store.get(key),
            },
            _ => {
                if !self.core.is_listed() {
                    self.check_namespace(key.namespace())?;
                    self.check_synced()?;
                }
                self.decoded(self.core.get(key))?
            }
        };
        // An object that is found is in scope. Only a missing one needs the check.
        if found.is_some() {
            Ok(found)
        } else {
            self.get_missing(key)
        }
    }

    /// Looks up an object that was not found. Returns an error if its namespace is not in scope.
    fn get_missing(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, CacheError> {
        let found = {
            let settled = self.settled();
            self.check_namespace_with(key.namespace(), settled.as_deref())?;
            // Look again: the namespace may have been listed since the first lookup.
            settled.and_then(|_settled| self.core.get(key))
        };
        self.decoded(found)
    }

    fn decoded(&self, found: Option<Body>) -> Result<Option<Arc<K>>, CacheError> {
        // Counted when it was received. Its metadata does decode.
        if let Some(Body::Undecoded(object)) = &found
            && !K::metadata_api()
        {
            let (kind, error) = (self.kind().to_owned(), object.reason().to_owned());
            return Err(CacheError::Undecodable {
                kind,
                key: object.key(),
                error,
            });
        }
        let decode = |body: Body| {
            body.decode()
                .map_err(|error| DecodeFailure::new(body.meta(), error))
        };
        self.count_decode_failure(found.map(decode).transpose())
    }

    /// Counts the error of an object that does not decode as a `K`.
    fn count_decode_failure<T>(&self, read: Result<T, DecodeFailure>) -> Result<T, CacheError> {
        read.map_err(|failure| {
            self.core.record_decode_failure(&failure);
            failure.error
        })
    }

    /// Returns the objects of a view that match `query`. Leaves out and counts those that do not
    /// decode as a `K`.
    pub(super) fn decode_all(
        &self,
        view: View<K>,
        query: &Query<K>,
    ) -> Result<Vec<Arc<K>>, CacheError> {
        self.count_decode_failure(view.list(query, self.gvk(), |failure| {
            self.core.record_decode_failure(&failure);
        }))
    }

    /// Returns the objects that match `query`, all from one snapshot of the cache.
    ///
    /// Use a [`view`](Self::view) to inspect objects without keeping them.
    ///
    /// An object whose current version does not decode is in the list with its last good state, or
    /// is left out if it never decoded. A compact informer decodes objects when they are read:
    /// there, an object whose current version does not decode as a `K` is always left out.
    /// [`InformerStats::undecoded`] counts such objects, and [`get`](Self::get) returns the error.
    ///
    /// Errors: [`NamespaceNotCached`](CacheError::NamespaceNotCached) if the namespace is not in
    /// the informer's scope.
    pub fn list(&self, query: &Query<K>) -> Result<Vec<Arc<K>>, CacheError> {
        self.decode_all(self.lookup(query)?, query)
    }

    /// Returns a view of the objects that match `query`, all from one snapshot.
    ///
    /// Nothing is copied or decoded. The cost of a view of all objects, of one namespace or of one
    /// index value does not depend on their number. Labels, fields and sorting inspect each object.
    ///
    /// An object whose current version does not decode is treated as by [`list`](Self::list), but a
    /// view of a compact informer does not decode: it contains every object, and
    /// [`ViewRow::decode`](super::ViewRow::decode) returns the error.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use steersman::cache::{CacheError, Informer, Query};
    /// # fn example(pods: Informer<Pod>) -> Result<(), CacheError> {
    /// let shop = pods.view(&Query::default().namespace(Some("shop")))?;
    /// let deleting = shop.iter().filter(|pod| pod.meta().is_deleting()).count();
    /// println!("{deleting} of {} pods are being deleted", shop.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn view(&self, query: &Query<K>) -> Result<View<K>, CacheError> {
        let view = self.lookup(query)?;
        self.count_decode_failure(view.narrowed(query, self.gvk(), |failure| {
            self.core.record_decode_failure(&failure);
        }))
    }

    /// Evaluates the namespace and the indexes of a query.
    fn lookup(&self, query: &Query<K>) -> Result<View<K>, CacheError> {
        let lookups: Vec<_> = query
            .indexes
            .iter()
            .map(|index| index.lookup_in(self))
            .collect::<Result<_, _>>()?;
        if let Some(field) = query.field_of_body()
            && (&*self.core as &dyn Any).is::<Core<MetadataOnly>>()
        {
            return Err(CacheError::FieldNotCached {
                kind: self.kind().to_owned(),
                field: field.to_owned(),
            });
        }
        self.check_namespace(query.namespace.as_deref())?;
        // The scope of namespaces selected by label is unknown before the sync.
        self.check_synced()?;
        let settled = query.namespace.as_ref().and_then(|_| self.settled());
        self.check_namespace_with(query.namespace.as_deref(), settled.as_deref())?;
        self.select(query.namespace.as_deref(), &lookups)
    }

    /// Returns a view of the objects of a namespace that all lookups find.
    pub(super) fn select(
        &self,
        namespace: Option<&str>,
        lookups: &[Lookup<'_>],
    ) -> Result<View<K>, CacheError> {
        self.check_synced()?;
        Ok(match self.typed() {
            Some(core) => View::typed(core.store.select(namespace, lookups)),
            None => View::erased(self.core.select(namespace, lookups)),
        })
    }

    /// Adds an index of the objects by the values of a function. Dropping it removes it.
    ///
    /// An index can be added at any time. The function must be deterministic. In a compact informer
    /// each object that is added, changed or deleted is decoded for it.
    ///
    /// A list is stored in one step, which decodes and indexes every object that it adds, replaces
    /// or deletes. With tens of thousands of objects this blocks a thread of the runtime. If that
    /// is too long, use a typed informer, or run the cache on its own runtime.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use steersman::cache::{CacheError, Informer};
    /// # fn example(pods: Informer<Pod>) -> Result<(), CacheError> {
    /// let by_node = pods.index(|pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
    /// let there = by_node.get(&"node-1".to_owned())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn index<V: Hash + Eq + Send + Sync + 'static>(
        &self,
        values: impl Fn(&K) -> Vec<V> + Send + Sync + 'static,
    ) -> Index<K, V> {
        Index::new(self.clone(), values)
    }
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        let (core, informer_ref, home) = (
            self.core.clone(),
            self.reference.clone(),
            self.cache.clone(),
        );
        Self {
            core,
            reference: informer_ref,
            cache: home,
            resync: self.resync.clone(),
            ..*self
        }
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer")
            .field("kind", self.gvk())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Returns why an informer is not synced, with the message of the API server.
pub(super) fn not_synced_reason(condition: Condition) -> String {
    match condition {
        Condition::Idle => {
            "the cache does not run; call `run_until`, and `await_synced` before reading".into()
        }
        Condition::KindNotFound { error } | Condition::Degraded { error, .. } => error,
        Condition::Starting | Condition::Synced => {
            "the first list is not complete; call `await_synced` before reading".into()
        }
        Condition::Closed => "the informer was closed".into(),
    }
}

/// State of an informer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum InformerState {
    /// Declared, but the cache does not run.
    Idle,
    /// The first list, or that of an added namespace, has not completed.
    ///
    /// In the latter case the objects of the other namespaces are served.
    Starting,
    /// The API server does not serve the kind. There are no objects until it is installed.
    KindNotFound {
        /// Missing kind, and the event that triggers the next discovery.
        error: String,
    },
    /// The objects are up to date with the watch.
    Synced,
    /// A list or watch failed. The last known objects are served, and requests are retried.
    Degraded {
        /// Time of the first failure.
        #[serde(serialize_with = "super::stats::rfc3339")]
        since: SystemTime,
        /// Message of the last failure.
        error: String,
    },
    /// The informer is removed or the cache is closed. The last known objects are served.
    Removed,
}

impl InformerState {
    pub(super) fn of(condition: Condition) -> Self {
        match condition {
            Condition::Idle => Self::Idle,
            Condition::Starting => Self::Starting,
            Condition::KindNotFound { error } => Self::KindNotFound { error },
            Condition::Synced => Self::Synced,
            Condition::Degraded { since, error, .. } => Self::Degraded { since, error },
            Condition::Closed => Self::Removed,
        }
    }
}

#[cfg(test)]
mod tests;
