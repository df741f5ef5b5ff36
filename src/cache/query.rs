//! What to list of what is in memory.

use super::{
    CacheError, Index, Shown,
    fields::{FieldSelector, field},
    indexed::Narrowing,
};
use crate::object::{DecodeError, KubeObject, ObjectKey, Selector};
use kube_core::GroupVersionKind;
use std::{borrow::Cow, hash::Hash, sync::Arc};

/// Narrows a list or a view; `Query::default()` is everything, in no order. All parts must match.
///
/// A namespace and indexes are looked up; labels are looked at, object by object, without decoding any: narrow by an index first where there are
/// many. Fields other than an object's name are slow.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::cache::Query;
///
/// let query = Query::<Pod>::default().namespace(Some("shop")).labels("app=web")?.sorted().limit(10);
/// # Ok::<_, steersman::cache::CacheError>(())
/// ```
#[must_use = "ask for it with `Informer::list` or `Informer::view`"]
pub struct Query<K> {
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<Selector>,
    pub(super) fields: Option<FieldSelector>,
    pub(super) indexes: Vec<Arc<dyn Narrowing<K>>>,
    pub(super) sorted: bool,
    pub(super) limit: Option<usize>,
}

impl<K: 'static> Query<K> {
    /// Only in this namespace; in all with `None`. The empty one is as if none was said, in memory and live, as in client-go.
    pub fn namespace(self, namespace: Option<&str>) -> Self {
        Self { namespace: namespace.filter(|name| !name.is_empty()).map(Into::into), ..self }
    }

    /// Only those with such labels, as in `kubectl -l`. Parsed here, once: keep the query if it is used often.
    pub fn labels(self, selector: &str) -> Result<Self, CacheError> {
        Ok(Self { labels: Some(Selector::parse(selector)?), ..self })
    }

    /// Only those with such fields, as in `kubectl --field-selector`. Here every field can be asked for by its path, `spec.nodeName=node-1`; one that an
    /// object does not have is the empty text. A live read asks the server, which refuses fields that it does not select this kind by: of most kinds it knows
    /// `metadata.name` and `metadata.namespace` alone.
    ///
    /// `metadata.name` and `metadata.namespace` cost nothing. Any other makes JSON of every object that the rest of the query leaves: where that are many, or it
    /// is asked often, an [`Index`] is the way. An error where only metadata is in memory.
    pub fn fields(self, selector: &str) -> Result<Self, CacheError> {
        Ok(Self { fields: Some(FieldSelector::parse(selector)?), ..self })
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

    /// At most so many of those that match: the first ones if it is [`sorted`](Self::sorted), any otherwise.
    ///
    /// There is no `continue`, so that nobody pages by mistake: what is in memory is had at once, and a live read pages by itself. To go over all of it without
    /// a copy, take a [`view`](super::Informer::view); to go on later from a key, sort, and skip what is not after it.
    pub fn limit(self, objects: usize) -> Self {
        Self { limit: Some(objects), ..self }
    }
}

/// Fields that every object's key says.
fn of_key<'a>(key: &'a ObjectKey, path: &str) -> Option<Cow<'a, str>> {
    match path {
        "metadata.name" => Some(key.name().into()),
        "metadata.namespace" => Some(key.namespace().unwrap_or_default().into()),
        _ => None,
    }
}

impl<K> Query<K> {
    /// A field that only the whole object says.
    pub(super) fn field_of_body(&self) -> Option<&str> {
        let mut paths = self.fields.iter().flat_map(FieldSelector::paths);
        paths.find(|path| !matches!(*path, "metadata.name" | "metadata.namespace"))
    }

    /// Whether some objects of what is looked up may be left out.
    pub(super) fn selects(&self) -> bool {
        self.labels.is_some() || self.fields.is_some()
    }
}

impl<K: KubeObject> Query<K> {
    /// Whether an object of this kind has such labels and fields.
    pub(super) fn matches(&self, kind: &GroupVersionKind, object: Shown<'_, K>) -> Result<bool, DecodeError> {
        if self.labels.as_ref().is_some_and(|labels| !labels.matches(object.meta().labels())) {
            return Ok(false);
        }
        let Some(fields) = &self.fields else { return Ok(true) };
        if self.field_of_body().is_none() {
            return Ok(fields.matches(|path| of_key(object.key(), path)));
        }
        let json = object.json()?;
        Ok(fields.matches(|path| of_key(object.key(), path).or_else(|| field(kind, &json, path))))
    }
}

impl<K> Default for Query<K> {
    fn default() -> Self {
        Self { namespace: None, labels: None, fields: None, indexes: Vec::new(), sorted: false, limit: None }
    }
}

impl<K> Clone for Query<K> {
    fn clone(&self) -> Self {
        let Self { namespace, labels, fields, indexes, sorted, limit } = self;
        Self {
            namespace: namespace.clone(),
            labels: labels.clone(),
            fields: fields.clone(),
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
            .field("fields", &self.fields.as_ref().map(ToString::to_string))
            .field("indexes", &self.indexes.len())
            .field("sorted", &self.sorted)
            .field("limit", &self.limit)
            .finish()
    }
}
