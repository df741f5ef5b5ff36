//! Public handles of indexes.

use super::{
    CacheError, Informer, Query, View,
    store::{FnIndexer, IndexId, Lookup},
};
use crate::object::{Body, KubeObject, ObjectKey};
use std::{fmt, hash::Hash, marker::PhantomData, sync::Arc};

/// Index of an informer's objects by the values of a function.
///
/// Created by [`Informer::index`]. The index is removed when its last clone, and the last query
/// that uses it, is dropped. It keeps its informer alive.
///
/// Use it where a list would scan many objects to find few, such as the pods that mount a secret,
/// or the children of an owner.
///
/// The index omits objects that do not decode as `K`, and objects on which the function panics.
/// [`InformerStats`](super::InformerStats) count them and contain the last error.
///
/// The function runs while the next change of the informer waits, so it must be fast. It may read,
/// also from its own informer, which then returns the state before the change. It deadlocks if it
/// creates or drops [`Events`](super::Events) or an index of its own informer.
pub struct Index<K, V>(Arc<IndexHandle<K, V>>);

struct IndexHandle<K, V> {
    informer: Informer<K>,
    number: usize,
    value: PhantomData<fn(V)>,
}

impl<K, V> Drop for IndexHandle<K, V> {
    fn drop(&mut self) {
        self.informer.core.remove_index(self.number);
    }
}

impl<K: KubeObject, V: Hash + Eq + Send + Sync + 'static> Index<K, V> {
    pub(super) fn new(
        informer: Informer<K>,
        values: impl Fn(&K) -> Vec<V> + Send + Sync + 'static,
    ) -> Self {
        let values = move |body: &Body| match body.decode::<K>() {
            Ok(object) => Ok(values(&object)),
            Err(error) => Err(error.to_string()),
        };
        let number = informer.core.add_index(Arc::new(FnIndexer::new(values)));
        Self(Arc::new(IndexHandle {
            informer,
            number,
            value: PhantomData,
        }))
    }

    /// Returns the keys of the objects under a value, without decoding. For mapping functions.
    ///
    /// Empty before the first sync.
    pub fn keys(&self, value: &V) -> Vec<ObjectKey> {
        // Before the sync the view is an error, because some namespaces may be missing.
        self.view(value)
            .map(|view| view.iter().map(|object| object.key().clone()).collect())
            .unwrap_or_default()
    }

    /// Returns the objects under a value. Use [`Query::index`] to add further conditions.
    pub fn get(&self, value: &V) -> Result<Vec<Arc<K>>, CacheError> {
        self.0
            .informer
            .decode_all(self.view(value)?, &Query::default())
    }

    /// Returns a view of the objects under a value. See [`Informer::view`].
    pub fn view(&self, value: &V) -> Result<View<K>, CacheError> {
        self.0
            .informer
            .select(None, &[IndexId::new(self.0.number).of(value)])
    }
}

impl<K: 'static, V: Hash + Eq + Send + Sync + 'static> Index<K, V> {
    pub(super) fn lookup(&self, value: V) -> Arc<dyn IndexLookup<K>> {
        Arc::new(IndexValue {
            index: self.clone(),
            value,
        })
    }
}

/// Index and value of a query, without the type of the value. Keeps the index alive.
pub(super) trait IndexLookup<K>: Send + Sync {
    /// Returns the lookup, or an error if the index belongs to another informer.
    fn lookup_in(&self, informer: &Informer<K>) -> Result<Lookup<'_>, CacheError>;
}

struct IndexValue<K, V> {
    index: Index<K, V>,
    value: V,
}

impl<K, V: Hash + Eq + Send + Sync + 'static> IndexLookup<K> for IndexValue<K, V> {
    fn lookup_in(&self, informer: &Informer<K>) -> Result<Lookup<'_>, CacheError> {
        let IndexHandle {
            informer: own,
            number,
            ..
        } = &*self.index.0;
        if !Arc::ptr_eq(&own.core, &informer.core) {
            return Err(CacheError::IndexMismatch {
                kind: informer.kind().to_owned(),
            });
        }
        Ok(IndexId::new(*number).of(&self.value))
    }
}

impl<K, V> Clone for Index<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("informer", &self.0.informer)
            .finish_non_exhaustive()
    }
}
