//! The handle by which one kind and selection is read.

use super::{
    CacheError, Events, Index, Query,
    core::Condition,
    erased::{Informing, Shown},
    ledger::{OwnWrites, Pending, Token, Wanted},
    life::Lease,
    store::Lookup,
};
use crate::object::{KubeObject, ObjectKey};
use kube_core::GroupVersionKind;
use serde::Serialize;
use std::{
    fmt,
    hash::Hash,
    marker::PhantomData,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// One kind and selection in memory. Reads are immediate and shared; before the first sync they fail. A clone holds it alive.
///
/// What is read is shared with everybody, and never changes: clone an object to change it. It is as new as the last event, which is
/// milliseconds behind the server, and longer when that is [`Degraded`](InformerState::Degraded).
pub struct Informer<K> {
    pub(super) core: Arc<dyn Informing>,
    lease: Arc<Lease>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Informer<K> {
    pub(super) fn new(core: Arc<dyn Informing>, lease: Lease) -> Self {
        Self { core, lease: Arc::new(lease), kind: PhantomData }
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

    /// What is in it, and what has happened. Walks over all objects for their size: for debug pages, not for every request.
    pub fn stats(&self) -> InformerStats {
        InformerStats::of(&*self.core)
    }

    /// Up to where the store is, bookmarks included: what was written up to this revision is in it. Of several namespaces, each with a watch of its own,
    /// it is the smallest. `None` before the first sync.
    pub fn resource_version(&self) -> Option<u64> {
        self.core.is_listed().then(|| self.core.revision())
    }

    /// Until the first list has come, and reads are served. Waits for as long as the server refuses or the kind is absent: [`state`](Self::state) says
    /// so meanwhile. An error only if the cache has ended before.
    pub async fn await_synced(&self) -> Result<(), CacheError> {
        if self.core.clone().synced().await { Ok(()) } else { Err(CacheError::Ended) }
    }

    /// All objects that are there, as creations, and then what happens to them. It can begin at any time.
    pub fn events(&self) -> Events<K> {
        Events::new(self.clone())
    }

    /// To be awaited before a read, so that it shows what was written under the token.
    pub(crate) fn own_writes(&self, token: &Token, wanted: Wanted<'_>) -> Option<Pending> {
        self.core.ledger().pending(token, wanted)
    }

    pub(super) fn check_synced(&self) -> Result<(), CacheError> {
        if self.core.is_listed() {
            return Ok(());
        }
        let last_error = match self.core.condition() {
            Condition::Ended => return Err(CacheError::Ended),
            Condition::Idle => "the cache does not run: call `run_until`, and `await_synced` before reading".into(),
            Condition::Absent { error } | Condition::Degraded { error, .. } => error,
            Condition::Starting | Condition::Synced => {
                "the first list has not come yet: call `await_synced` before reading".into()
            }
        };
        Err(CacheError::NotSynced { kind: self.kind().to_owned(), last_error })
    }
}

impl<K: KubeObject> Informer<K> {
    /// One object; `None` if there is none.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, CacheError> {
        self.check_synced()?;
        Ok(self.core.get(key).map(|body| body.decode()).transpose()?)
    }

    /// The objects that `query` is about, all as they were at one moment. One that cannot be read as a `K` fails it.
    pub fn list(&self, query: &Query<K>) -> Result<Vec<Arc<K>>, CacheError> {
        let lookups: Vec<_> = query.indexes.iter().map(|index| index.lookup_in(self)).collect::<Result<_, _>>()?;
        self.list_by(query, &lookups)
    }

    /// With the query's own indexes looked up.
    pub(super) fn list_by(&self, query: &Query<K>, lookups: &[Lookup<'_>]) -> Result<Vec<Arc<K>>, CacheError> {
        self.check_synced()?;
        let limit = query.limit.unwrap_or(usize::MAX);
        let wanted =
            |shown: &dyn Shown| query.labels.as_ref().is_none_or(|labels| labels.matches(shown.meta().labels()));
        let mut found = Vec::new();
        self.core.visit(query.namespace.as_deref(), lookups, &mut |shown| {
            if found.len() >= limit && !query.sorted {
                return ControlFlow::Break(());
            }
            if wanted(shown) {
                found.push((query.sorted.then(|| shown.key().clone()), shown.body()));
            }
            ControlFlow::Continue(())
        });
        if query.sorted {
            found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            found.truncate(limit);
        }
        // Decoded last, and only what is handed out.
        Ok(found.into_iter().map(|(_, body)| body.decode()).collect::<Result<_, _>>()?)
    }

    /// Find objects by what `values` says of them; also while running. Dropping the index removes it.
    ///
    /// The function must say the same of the same object each time. In a compact informer each object that comes, changes or goes is decoded for it.
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
        Self { core: self.core.clone(), lease: self.lease.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("kind", self.gvk()).field("state", &self.state()).finish_non_exhaustive()
    }
}

/// How an informer is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub enum InformerState {
    /// Declared in a cache that does not run yet.
    Idle,
    /// The first list is on its way.
    Starting,
    /// The server has no such kind yet, or no longer. It is looked for again and again.
    Absent,
    /// Up to date, as far as the server has told.
    Synced,
    /// Serving what it had, if it had something.
    Degraded {
        /// Since when.
        since: SystemTime,
        /// In the server's own words.
        error: String,
    },
    /// Nobody used it any more, or the cache has ended. It serves what it had.
    Removed,
}

impl InformerState {
    pub(super) fn of(condition: Condition) -> Self {
        match condition {
            Condition::Idle => Self::Idle,
            Condition::Starting => Self::Starting,
            Condition::Absent { .. } => Self::Absent,
            Condition::Synced => Self::Synced,
            Condition::Degraded { since, error } => Self::Degraded { since, error },
            Condition::Ended => Self::Removed,
        }
    }
}

/// What is in an informer, and what has happened.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct InformerStats {
    /// How many there are.
    pub objects: usize,
    /// About how much memory they take.
    pub approximate_bytes: usize,
    /// Changes so far, those of the first list included.
    pub events: u64,
    /// Lists after the first one: each is a gap in what the server could tell.
    pub relists: u64,
    /// Objects left out because they did not fit the type.
    pub decode_errors: u64,
    /// The last one, and what to do about it.
    pub last_decode_error: Option<String>,
    /// How long ago something last changed.
    pub since_last_event: Option<Duration>,
    /// How it keeps up with what is written through clients that read from it.
    pub own_writes: OwnWrites,
}

impl InformerStats {
    pub(super) fn of(core: &dyn Informing) -> Self {
        let counts = core.counts();
        Self {
            objects: core.len(),
            approximate_bytes: core.heap_bytes(),
            events: counts.events,
            relists: counts.relists,
            decode_errors: counts.decode_errors,
            last_decode_error: counts.last_decode_error,
            since_last_event: counts.last_event.map(|last| last.elapsed()),
            own_writes: core.ledger().stats(),
        }
    }
}
