//! The handle by which one kind and selection is read.
//!
//! What holds: it never says that there is nothing where it does not know: not before the first list, and not of a namespace that is not kept.

use super::{
    Cache, CacheError, Events, Index, InformerStats, ObjectSize, Query, View,
    core::{Condition, Core},
    erased::{Informing, Settled},
    ledger::{Pending, Token, Wanted},
    life::{Lease, first},
    parts::Parts,
    registry::WeakCache,
    resync::Periods,
    stats::Misfit,
    store::Lookup,
};
use crate::object::{Body, KubeObject, MetadataOnly, ObjectKey, Transform};
use kube_core::GroupVersionKind;
use serde::Serialize;
use std::{any::Any, fmt, hash::Hash, marker::PhantomData, sync::Arc, time::SystemTime};

/// One kind and selection in memory. Reads are immediate and shared; before the first sync they fail. A clone holds it alive.
///
/// What is read is shared with everybody, and never changes: clone an object to change it. It is as new as the last event, which is
/// milliseconds behind the server, and longer when that is [`Degraded`](InformerState::Degraded).
///
/// A server that was restored from a backup is believed once a list shows it to be behind what was known, which takes some minutes; then every object is told as changed, also
/// if its version is the same. If it has written as much again by then, nobody can tell: make the cache anew after a restore.
pub struct Informer<K> {
    pub(super) core: Arc<dyn Informing>,
    lease: Arc<Lease>,
    home: WeakCache,
    /// Of its events.
    pub(super) resync: Periods,
    kind: PhantomData<fn() -> K>,
}

impl<K> Informer<K> {
    pub(super) fn new(core: Arc<dyn Informing>, lease: Lease, home: WeakCache) -> Self {
        Self { core, lease: Arc::new(lease), home, resync: Periods::default(), kind: PhantomData }
    }

    /// The cache that it is of, which it does not keep alive.
    pub(crate) fn cache(&self) -> Option<Cache> {
        self.home.upgrade()
    }

    /// With events that tell everything again once in so long.
    pub(super) fn resyncing(self, resync: Periods) -> Self {
        Self { resync, ..self }
    }

    pub(super) fn kind(&self) -> &str {
        &self.lease.gvk().kind
    }

    /// The kind of its objects.
    pub fn gvk(&self) -> &GroupVersionKind {
        self.lease.gvk()
    }

    /// How it is.
    pub fn state(&self) -> InformerState {
        InformerState::of(self.core.condition())
    }

    /// [`Self::state`] for who does not hold it.
    pub(crate) fn states(&self) -> impl Fn() -> InformerState + Send + Sync + use<K> {
        let core = Arc::downgrade(&self.core);
        move || core.upgrade().map_or(InformerState::Removed, |core| InformerState::of(core.condition()))
    }

    /// Until the server has said that it has no such kind, or has refused it, or could not be asked; or until it is over.
    pub(crate) fn refused(&self) -> impl Future<Output = ()> + Send + use<K> {
        let mut conditions = self.core.conditions();
        async move { drop(conditions.wait_for(Condition::is_no).await) }
    }

    /// Until the first list has come, or why it does not is known in the server's own words.
    pub(super) async fn await_answer(&self) {
        let mut conditions = self.core.conditions();
        let refused = async { drop(conditions.wait_for(Condition::is_refusal).await) };
        first(self.core.clone().synced(), refused).await;
    }

    /// What is in it, and what has happened. Cheap: nothing is walked over.
    pub fn stats(&self) -> InformerStats {
        self.core.stats()
    }

    /// The five objects that take the most memory, the largest first. Looks at the size of each: for debug pages, not for every request.
    pub fn largest(&self) -> Vec<ObjectSize> {
        self.core.largest()
    }

    /// Up to where the store is, bookmarks included: what was written up to this revision is in it. Of several namespaces, each with a watch of its own,
    /// it is the smallest of those that were listed, so that it may fall when one joins. `None` before the first sync.
    pub fn resource_version(&self) -> Option<u64> {
        self.core.is_listed().then(|| self.core.revision())
    }

    /// Until the first list has come, and reads are served. Waits for as long as the server refuses or the kind is absent: [`state`](Self::state) says
    /// so meanwhile. An error only if the cache has ended before, or it was removed.
    pub async fn await_synced(&self) -> Result<(), CacheError> {
        if self.core.clone().synced().await { Ok(()) } else { Err(self.ended()) }
    }

    /// All objects that are there, as creations, and then what happens to them. It can begin at any time.
    pub fn events(&self) -> Events<K> {
        Events::new(self.clone())
    }

    fn ended(&self) -> CacheError {
        if self.lease.is_removed() { CacheError::Removed { kind: self.kind().to_owned() } } else { CacheError::Ended }
    }

    /// To be awaited before a read, so that it shows what was written under the token.
    pub(crate) fn own_writes(&self, token: &Token, wanted: Wanted<'_>) -> Option<Pending> {
        self.core.ledger().pending(token, wanted)
    }

    /// What changes the objects of a namespace before they are kept.
    pub(crate) fn transform_of(&self, namespace: Option<&str>) -> Option<Transform> {
        self.core.decoder().transform_of(namespace).cloned()
    }

    /// An error if it will never show anything more.
    pub(crate) fn check_lives(&self) -> Result<(), CacheError> {
        if matches!(self.core.condition(), Condition::Ended) { Err(self.ended()) } else { Ok(()) }
    }

    /// Of a namespace that is not kept nothing is known, not even that there is nothing. The empty one is where cluster-scoped objects are.
    pub(super) fn check_keeps(&self, namespace: Option<&str>) -> Result<(), CacheError> {
        self.check_keeps_at(namespace, None)
    }

    /// The same, as it is while the parts are `settled`.
    fn check_keeps_at(&self, namespace: Option<&str>, settled: Option<&Parts>) -> Result<(), CacheError> {
        let knows = |namespace: &str| settled.map_or_else(|| self.core.knows(namespace), |parts| parts.know(namespace));
        let scope = self.lease.scope();
        let keeps = |namespace: &str| match scope.labelled {
            _ if self.lease.is_whole() => true,
            None => scope.parts.contains_key(&None) || scope.selectors(namespace).is_some(),
            Some(_) => !self.core.is_listed() || knows(namespace),
        };
        match namespace {
            Some(namespace) if !namespace.is_empty() && !keeps(namespace) => {
                Err(CacheError::NotKept { kind: self.kind().to_owned(), namespace: namespace.into() })
            }
            _ => Ok(()),
        }
    }

    /// While this is held no namespace comes to be kept, and none leaves: what the store shows of it, and whether it is kept, are of one moment. `None` where
    /// it is always the same ones.
    fn settled(&self) -> Option<Settled<'_>> {
        self.lease.scope().labelled.is_some().then(|| self.core.settled())
    }

    pub(super) fn check_synced(&self) -> Result<(), CacheError> {
        if self.core.is_listed() {
            return Ok(());
        }
        match self.core.condition() {
            Condition::Ended => Err(self.ended()),
            Condition::Absent { error } => Err(CacheError::Absent { kind: self.kind().to_owned(), last_error: error }),
            condition => Err(CacheError::NotSynced { kind: self.kind().to_owned(), last_error: why_not(condition) }),
        }
    }
}

impl<K: KubeObject> Informer<K> {
    /// What keeps the objects, if it keeps them as this type.
    fn typed(&self) -> Option<&Core<K>> {
        let core: &dyn Any = &*self.core;
        core.downcast_ref()
    }

    /// Returns the object with this key, or `None` if it does not exist.
    ///
    /// Errors: [`NotKept`](CacheError::NotKept) if the informer does not keep the namespace of the
    /// object, [`Undecodable`](CacheError::Undecodable) if the object's current version does not
    /// decode, and [`Decode`](CacheError::Decode) if a compact informer's object does not decode as
    /// a `K`.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, CacheError> {
        let found = match self.typed() {
            Some(core) if core.is_listed() => match core.undecoded.get(key) {
                Some(object) => self.decoded(Some(Body::Undecoded(object)))?,
                None => core.store.get(key),
            },
            _ => {
                if !self.core.is_listed() {
                    self.check_keeps(key.namespace())?;
                    self.check_synced()?;
                }
                self.decoded(self.core.get(key))?
            }
        };
        // What is there is kept: only who finds nothing has to know.
        if found.is_some() { Ok(found) } else { self.get_kept(key) }
    }

    /// An object that was not there a moment ago; an error if nothing is kept of its namespace.
    fn get_kept(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, CacheError> {
        let found = {
            let settled = self.settled();
            self.check_keeps_at(key.namespace(), settled.as_deref())?;
            // Its namespace may have been listed since: that it is kept now says nothing of what was found before.
            settled.and_then(|_settled| self.core.get(key))
        };
        self.decoded(found)
    }

    fn decoded(&self, found: Option<Body>) -> Result<Option<Arc<K>>, CacheError> {
        // Counted when it came. Its metadata did decode.
        if let Some(Body::Undecoded(object)) = &found
            && !K::metadata_api()
        {
            let (kind, error) = (self.kind().to_owned(), object.reason().to_owned());
            return Err(CacheError::Undecodable { kind, key: object.key(), error });
        }
        let decode = |body: Body| body.decode().map_err(|error| Misfit::new(body.meta(), error));
        self.counted(found.map(decode).transpose())
    }

    /// That an object does not fit its type is found by who reads it, if it is kept compact: it is told in the stats, too.
    pub(super) fn counted<T>(&self, read: Result<T, Misfit>) -> Result<T, CacheError> {
        read.map_err(|misfit| {
            self.core.misfit(&misfit);
            misfit.error.into()
        })
    }

    /// Returns the objects that match `query`, all from one snapshot of the cache.
    ///
    /// Errors: [`NotKept`](CacheError::NotKept) if the informer does not keep the namespace.
    ///
    /// An object whose current version does not decode is in the list with its last good state, or
    /// is left out if it never decoded. [`InformerStats::undecoded`] counts such objects, and
    /// [`get`](Self::get) returns the error. A compact informer decodes objects when they are read:
    /// there, an object that does not decode as a `K` fails the list.
    ///
    /// For objects that are kept, or handed on; who only looks at them takes a [`view`](Self::view).
    pub fn list(&self, query: &Query<K>) -> Result<Vec<Arc<K>>, CacheError> {
        self.counted(self.looked_up(query)?.list(query, self.gvk()))
    }

    /// The objects that `query` is about, all as they were at one moment, to be looked at where they are: nothing is copied, counted or decoded.
    ///
    /// An object whose current version does not decode is treated as by [`list`](Self::list).
    ///
    /// Everything, one namespace, and what one index finds is there at once, however much it is; labels, fields and an order are looked at first.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use steersman::cache::{CacheError, Informer, Query};
    /// # fn example(pods: Informer<Pod>) -> Result<(), CacheError> {
    /// let shop = pods.view(&Query::default().namespace(Some("shop")))?;
    /// let leaving = shop.iter().filter(|pod| pod.meta().is_deleting()).count();
    /// println!("{leaving} of {} pods are on their way out", shop.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn view(&self, query: &Query<K>) -> Result<View<K>, CacheError> {
        self.counted(self.looked_up(query)?.narrowed(query, self.gvk()))
    }

    /// What of a query needs no look at the objects.
    fn looked_up(&self, query: &Query<K>) -> Result<View<K>, CacheError> {
        let lookups: Vec<_> = query.indexes.iter().map(|index| index.lookup_in(self)).collect::<Result<_, _>>()?;
        if let Some(field) = query.field_of_body()
            && (&*self.core as &dyn Any).is::<Core<MetadataOnly>>()
        {
            return Err(CacheError::FieldOfMetadata { kind: self.kind().to_owned(), field: field.to_owned() });
        }
        self.check_keeps(query.namespace.as_deref())?;
        // Before a sync it is not known what is kept.
        self.check_synced()?;
        let settled = query.namespace.as_ref().and_then(|_| self.settled());
        self.check_keeps_at(query.namespace.as_deref(), settled.as_deref())?;
        self.select(query.namespace.as_deref(), &lookups)
    }

    /// The objects of a namespace that all the lookups find.
    pub(super) fn select(&self, namespace: Option<&str>, lookups: &[Lookup<'_>]) -> Result<View<K>, CacheError> {
        self.check_synced()?;
        Ok(match self.typed() {
            Some(core) => View::of_type(core.store.select(namespace, lookups)),
            None => View::of_other(self.core.select(namespace, lookups)),
        })
    }

    /// Find objects by what `values` says of them; also while running. Dropping the index removes it.
    ///
    /// The function must say the same of the same object each time. In a compact informer each object that comes, changes or goes is decoded for it.
    ///
    /// A list goes into memory in one go, and every object that is new in it, or is replaced or gone, is decoded and indexed there: with some ten thousand of them
    /// that thread of the runtime does nothing else for as long as that takes. Where that is too long, keep the kind typed, or give the cache a runtime of its own.
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
        let (core, lease, home) = (self.core.clone(), self.lease.clone(), self.home.clone());
        Self { core, lease, home, resync: self.resync.clone(), ..*self }
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("kind", self.gvk()).field("state", &self.state()).finish_non_exhaustive()
    }
}

/// Why an informer is not synced yet, in the server's words if it has said something.
pub(super) fn why_not(condition: Condition) -> String {
    match condition {
        Condition::Idle => "the cache does not run: call `run_until`, and `await_synced` before reading".into(),
        Condition::Absent { error } | Condition::Degraded { error, .. } => error,
        Condition::Starting | Condition::Synced => {
            "the first list has not come yet: call `await_synced` before reading".into()
        }
        Condition::Ended => "it has ended".into(),
    }
}

/// How an informer is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum InformerState {
    /// Declared in a cache that does not run yet.
    Idle,
    /// The first list is on its way; or that of a namespace that has joined, and what was there is served.
    Starting,
    /// The server has no such kind yet, or no longer: there are no objects. They come when it does.
    Absent {
        /// What is missing, and how it is looked for.
        error: String,
    },
    /// Up to date, as far as the server has told.
    Synced,
    /// Serving what it had, if it had something.
    Degraded {
        /// Since when.
        #[serde(serialize_with = "super::stats::rfc3339")]
        since: SystemTime,
        /// In the server's own words.
        error: String,
    },
    /// The cache has ended, or it was removed from it. It serves what it had.
    Removed,
}

impl InformerState {
    pub(super) fn of(condition: Condition) -> Self {
        match condition {
            Condition::Idle => Self::Idle,
            Condition::Starting => Self::Starting,
            Condition::Absent { error } => Self::Absent { error },
            Condition::Synced => Self::Synced,
            Condition::Degraded { since, error, .. } => Self::Degraded { since, error },
            Condition::Ended => Self::Removed,
        }
    }
}

#[cfg(test)]
mod tests;
