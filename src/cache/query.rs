//! What to list of what is in memory.

use super::{CacheError, Index, indexed::Narrowing, selector::Selector};
use std::{hash::Hash, sync::Arc};

/// Narrows a list; `Query::default()` is everything, in no order. All parts must match.
///
/// A namespace and indexes are looked up; labels are looked at, object by object, without decoding any: narrow by an index first where there are
/// many.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::cache::Query;
///
/// let query = Query::<Pod>::default().namespace(Some("shop")).labels("app=web")?.sorted().limit(10);
/// # Ok::<_, steersman::cache::CacheError>(())
/// ```
#[must_use = "list it with `Informer::list`"]
pub struct Query<K> {
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<Selector>,
    pub(super) indexes: Vec<Arc<dyn Narrowing<K>>>,
    pub(super) sorted: bool,
    pub(super) limit: Option<usize>,
}

impl<K: 'static> Query<K> {
    /// Only in this namespace; in all with `None`. The empty one is where cluster-scoped objects are.
    pub fn namespace(self, namespace: Option<&str>) -> Self {
        Self { namespace: namespace.map(Into::into), ..self }
    }

    /// Only those with such labels, as in `kubectl -l`. Parsed here, once: keep the query if it is used often.
    pub fn labels(self, selector: &str) -> Result<Self, CacheError> {
        Ok(Self { labels: Some(Selector::parse(selector)?), ..self })
    }

    /// Only those the index has under `value`.
    pub fn index<V: Hash + Eq + Send + Sync + 'static>(mut self, index: &Index<K, V>, value: V) -> Self {
        self.indexes.push(index.narrowing(value));
        self
    }

    /// In the order of their keys, as the server lists.
    pub fn sorted(self) -> Self {
        Self { sorted: true, ..self }
    }

    /// At most so many: the first ones if it is [`sorted`](Self::sorted), any otherwise.
    pub fn limit(self, objects: usize) -> Self {
        Self { limit: Some(objects), ..self }
    }
}

impl<K> Default for Query<K> {
    fn default() -> Self {
        Self { namespace: None, labels: None, indexes: Vec::new(), sorted: false, limit: None }
    }
}

impl<K> Clone for Query<K> {
    fn clone(&self) -> Self {
        let Self { namespace, labels, indexes, sorted, limit } = self;
        Self {
            namespace: namespace.clone(),
            labels: labels.clone(),
            indexes: indexes.clone(),
            sorted: *sorted,
            limit: *limit,
        }
    }
}

impl<K> std::fmt::Debug for Query<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Query")
            .field("namespace", &self.namespace)
            .field("labels", &self.labels.as_ref().map(ToString::to_string))
            .field("indexes", &self.indexes.len())
            .field("sorted", &self.sorted)
            .field("limit", &self.limit)
            .finish()
    }
}
