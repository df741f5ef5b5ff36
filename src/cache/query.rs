//! Queries of an informer's objects.

use super::{
    CacheError, Index, ViewRow,
    fields::{FieldSelector, field},
    indexed::IndexLookup,
};
use crate::object::{DecodeError, KubeObject, LabelQuery, ObjectKey, Selector};
use kube_core::GroupVersionKind;
use std::{borrow::Cow, hash::Hash, sync::Arc};

/// Filter, order and limit of a list or view.
///
/// `Query::default()` selects all objects, in no order. An object is selected if it matches all
/// parts of the query.
///
/// Namespaces and indexes are lookups. Labels are compared object by object, without decoding. Add
/// an index if there are many objects. Fields other than the object's name are slow.
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
    pub(super) indexes: Vec<Arc<dyn IndexLookup<K>>>,
    pub(super) sorted: bool,
    pub(super) limit: Option<usize>,
}

impl<K: 'static> Query<K> {
    /// Selects objects of a namespace. `None` and an empty name select all namespaces.
    pub fn namespace(self, namespace: Option<&str>) -> Self {
        Self {
            namespace: namespace.filter(|name| !name.is_empty()).map(Into::into),
            ..self
        }
    }

    /// Selects objects by labels, as in `kubectl -l`.
    ///
    /// The selector is parsed once, here. Keep a query that is used often.
    pub fn labels(self, selector: impl Into<LabelQuery>) -> Result<Self, CacheError> {
        Ok(Self {
            labels: Some(Selector::parse(&selector.into().0)?),
            ..self
        })
    }

    /// Selects objects by fields, as in `kubectl --field-selector`.
    ///
    /// A cached read accepts every field by its path, such as `spec.nodeName=node-1`. A missing
    /// field equals the empty string. A live read sends the selector to the API server, which
    /// rejects fields that the kind does not support; most kinds support `metadata.name` and
    /// `metadata.namespace` only.
    ///
    /// `metadata.name` and `metadata.namespace` cost nothing. Any other field converts every object
    /// that matches the rest of the query to JSON. Use an [`Index`] for frequent queries or many
    /// objects. A query by another field fails if the informer stores metadata only.
    pub fn fields(self, selector: &str) -> Result<Self, CacheError> {
        Ok(Self {
            fields: Some(FieldSelector::parse(selector)?),
            ..self
        })
    }

    /// Selects objects that the index has under `value`.
    pub fn index<V: Hash + Eq + Send + Sync + 'static>(
        mut self,
        index: &Index<K, V>,
        value: V,
    ) -> Self {
        self.indexes.push(index.lookup(value));
        self
    }

    /// Sorts the objects by key, like a list of the API server.
    pub fn sorted(self) -> Self {
        Self {
            sorted: true,
            ..self
        }
    }

    /// Limits the number of objects.
    ///
    /// Returns the first ones if the query is [`sorted`](Self::sorted), and any otherwise.
    ///
    /// There is no `continue` token. A cached list is complete, and a live list reads all pages.
    /// Use a [`view`](super::Informer::view) to iterate over all objects without a copy. To resume
    /// at a key, sort and skip the keys before it.
    pub fn limit(self, objects: usize) -> Self {
        Self {
            limit: Some(objects),
            ..self
        }
    }
}

/// Returns the value of a field that is part of the key.
fn of_key<'a>(key: &'a ObjectKey, path: &str) -> Option<Cow<'a, str>> {
    match path {
        "metadata.name" => Some(key.name().into()),
        "metadata.namespace" => Some(key.namespace().unwrap_or_default().into()),
        _ => None,
    }
}

impl<K> Query<K> {
    /// Returns a selected field that is not part of the key.
    pub(super) fn field_of_body(&self) -> Option<&str> {
        let mut paths = self.fields.iter().flat_map(FieldSelector::paths);
        paths.find(|path| !matches!(*path, "metadata.name" | "metadata.namespace"))
    }

    /// Returns whether the query has label or field selectors.
    pub(super) fn selects(&self) -> bool {
        self.labels.is_some() || self.fields.is_some()
    }
}

impl<K: KubeObject> Query<K> {
    /// Returns whether an object of `kind` matches the label and field selectors.
    pub(super) fn matches(
        &self,
        kind: &GroupVersionKind,
        object: ViewRow<'_, K>,
    ) -> Result<bool, DecodeError> {
        if self
            .labels
            .as_ref()
            .is_some_and(|labels| !labels.matches(object.meta().labels()))
        {
            return Ok(false);
        }
        let Some(fields) = &self.fields else {
            return Ok(true);
        };
        if self.field_of_body().is_none() {
            return Ok(fields.matches(|path| of_key(object.key(), path)));
        }
        let json = object.json()?;
        Ok(fields.matches(|path| of_key(object.key(), path).or_else(|| field(kind, &json, path))))
    }
}

impl<K> Default for Query<K> {
    fn default() -> Self {
        Self {
            namespace: None,
            labels: None,
            fields: None,
            indexes: Vec::new(),
            sorted: false,
            limit: None,
        }
    }
}

impl<K> Clone for Query<K> {
    fn clone(&self) -> Self {
        let Self {
            namespace,
            labels,
            fields,
            indexes,
            sorted,
            limit,
        } = self;
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
