//! Views of an informer's objects, without copies.
//!
//! A view is a snapshot of the store. It shares the store's chunks, which are copied before they
//! change. So iterating changes no reference counts, and decodes nothing unless requested.

use super::{
    Query,
    erased::{ErasedEntry, ErasedSnapshot},
    stats::DecodeFailure,
    store::{Entry, Slot, Slots as OfType, Snapshot},
};
use crate::object::{DecodeError, KubeObject, Meta, ObjectKey, Payload};
use kube_core::GroupVersionKind;
use std::{borrow::Cow, fmt, marker::PhantomData, ops::Deref, sync::Arc};

/// Snapshot of an informer's objects, read in place.
///
/// Created by [`Informer::view`](super::Informer::view) and [`Index::view`](super::Index::view).
/// Use it to inspect many objects and to keep few of them.
///
/// A view never changes and blocks no writer. It keeps all objects of its snapshot in memory, so
/// drop it soon. Threads can share it by reference.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use steersman::cache::{Informer, Query};
/// # fn example(pods: Informer<Pod>) -> anyhow::Result<()> {
/// let pods = pods.view(&Query::default().labels("app=web")?)?;
/// for pod in pods.iter() {
///     // Key and metadata need no decoding. `decode` borrows the pod of a typed informer.
///     println!("{} since {:?}: {:?}", pod.name(), pod.meta().created(), pod.decode()?.status);
/// }
/// # Ok(())
/// # }
/// ```
pub struct View<K>(ViewSnapshot<K>);

enum ViewSnapshot<K> {
    /// The informer stores objects as `K`.
    Typed(Snapshot<K>),
    Other(Box<dyn ErasedSnapshot>),
}

impl<K> View<K> {
    pub(super) fn typed(snapshot: Snapshot<K>) -> Self {
        Self(ViewSnapshot::Typed(snapshot))
    }

    pub(super) fn erased(snapshot: Box<dyn ErasedSnapshot>) -> Self {
        Self(ViewSnapshot::Other(snapshot))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        match &self.0 {
            ViewSnapshot::Typed(snapshot) => snapshot.len(),
            ViewSnapshot::Other(snapshot) => snapshot.len(),
        }
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the objects, unordered unless the query is sorted.
    pub fn iter(&self) -> impl Iterator<Item = ViewRow<'_, K>> {
        self.slots().map(|(_, row)| row)
    }

    fn slots(&self) -> Slots<'_, K> {
        match &self.0 {
            ViewSnapshot::Typed(snapshot) => Slots::Typed(snapshot.slots()),
            ViewSnapshot::Other(snapshot) => Slots::Other(snapshot.slots()),
        }
    }

    fn only(self, slots: Vec<Slot>) -> Self {
        Self(match self.0 {
            ViewSnapshot::Typed(snapshot) => ViewSnapshot::Typed(snapshot.only(slots.into())),
            ViewSnapshot::Other(snapshot) => ViewSnapshot::Other(snapshot.only(slots)),
        })
    }
}

impl<K: KubeObject> View<K> {
    /// Keeps the objects that match `query`, up to its limit and in its order.
    ///
    /// Calls `on_failure` for each object that does not decode, and leaves it out.
    pub(super) fn narrowed(
        self,
        query: &Query<K>,
        kind: &GroupVersionKind,
        on_failure: impl FnMut(DecodeFailure),
    ) -> Result<Self, DecodeFailure> {
        self.narrowed_to(query.limit.unwrap_or(usize::MAX), query, kind, on_failure)
    }

    fn narrowed_to(
        self,
        limit: usize,
        query: &Query<K>,
        kind: &GroupVersionKind,
        mut on_failure: impl FnMut(DecodeFailure),
    ) -> Result<Self, DecodeFailure> {
        if !query.selects() && !query.sorted && limit >= self.len() {
            return Ok(self);
        }
        let mut found = Vec::new();
        for (slot, row) in self.slots() {
            if found.len() >= limit && !query.sorted {
                break;
            }
            let matches = query.matches(kind, row);
            if row
                .or_decode_failure(matches, &mut on_failure)?
                .unwrap_or(false)
            {
                found.push((row.key(), slot));
            }
        }
        if query.sorted {
            found.sort_unstable();
            found.truncate(limit);
        }
        let slots = found.into_iter().map(|(_, slot)| slot).collect();
        Ok(self.only(slots))
    }

    /// Returns the objects that match `query`, as [`Self::narrowed`] does, decoded.
    pub(super) fn list(
        self,
        query: &Query<K>,
        kind: &GroupVersionKind,
        mut on_failure: impl FnMut(DecodeFailure),
    ) -> Result<Vec<Arc<K>>, DecodeFailure> {
        // Only sorting needs a first pass. Visiting each object once takes half the time.
        let found = query.sorted || !query.selects();
        let view = if query.sorted {
            // The limit counts objects that decode.
            self.narrowed_to(usize::MAX, query, kind, &mut on_failure)?
        } else {
            self
        };
        let limit = query.limit.unwrap_or(usize::MAX);
        let mut all = Vec::with_capacity(if found { limit.min(view.len()) } else { 0 });
        for row in view.iter() {
            if all.len() >= limit {
                break;
            }
            let matches = found || {
                let matches = query.matches(kind, row);
                row.or_decode_failure(matches, &mut on_failure)?
                    .unwrap_or(false)
            };
            if matches && let Some(object) = row.or_decode_failure(row.decode(), &mut on_failure)? {
                all.push(object.into_arc());
            }
        }
        Ok(all)
    }
}

/// Prints the number of objects.
impl<K> fmt::Debug for View<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

enum Slots<'a, K> {
    Typed(OfType<'a, K>),
    Other(Box<dyn Iterator<Item = (Slot, &'a dyn ErasedEntry)> + 'a>),
}

impl<'a, K> Iterator for Slots<'a, K> {
    type Item = (Slot, ViewRow<'a, K>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Typed(slots) => slots
                .next()
                .map(|(slot, entry)| (slot, ViewRow(RowSource::Typed(entry)))),
            Self::Other(slots) => slots
                .next()
                .map(|(slot, entry)| (slot, ViewRow(RowSource::Other(entry, PhantomData)))),
        }
    }
}

/// Object of a [`View`], which it borrows.
///
/// Key and metadata need no decoding. [`ViewRow::decode`] returns the whole object.
pub struct ViewRow<'a, K>(RowSource<'a, K>);

enum RowSource<'a, K> {
    Typed(&'a Entry<K>),
    Other(&'a dyn ErasedEntry, PhantomData<fn() -> K>),
}

impl<'a, K> ViewRow<'a, K> {
    /// Returns the key of the object.
    pub fn key(self) -> &'a ObjectKey {
        match self.0 {
            RowSource::Typed(entry) => &entry.key,
            RowSource::Other(entry, _) => entry.key(),
        }
    }

    /// Returns the name of the object.
    pub fn name(self) -> &'a str {
        self.key().name()
    }

    /// Returns the namespace of the object, or `None` for a cluster-scoped one.
    pub fn namespace(self) -> Option<&'a str> {
        self.key().namespace()
    }
}

impl<'a, K: KubeObject> ViewRow<'a, K> {
    /// Returns the metadata of the object.
    pub fn meta(self) -> Meta<'a> {
        match self.0 {
            RowSource::Typed(entry) => Payload::meta(&*entry.object),
            RowSource::Other(entry, _) => entry.meta(),
        }
    }

    /// Returns the whole object.
    ///
    /// Borrows the object if the informer stores it as `K`. Otherwise decodes it, or shares an
    /// earlier result that is still in use.
    pub fn decode(self) -> Result<DecodedRow<'a, K>, DecodeError> {
        match self.0 {
            RowSource::Typed(entry) => Ok(DecodedRow(Cow::Borrowed(&entry.object))),
            RowSource::Other(entry, _) => Ok(DecodedRow(Cow::Owned(entry.body().decode()?))),
        }
    }

    /// Calls `on_failure` and returns `None` if the object does not decode. Other errors
    /// are returned.
    fn or_decode_failure<T>(
        self,
        read: Result<T, DecodeError>,
        mut on_failure: impl FnMut(DecodeFailure),
    ) -> Result<Option<T>, DecodeFailure> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error @ DecodeError::Mismatch { .. }) => {
                on_failure(DecodeFailure::new(self.meta(), error));
                Ok(None)
            }
            Err(error) => Err(DecodeFailure::new(self.meta(), error)),
        }
    }

    /// Converts the object to JSON, as far as it is in memory. Parses or serializes at each call.
    pub(super) fn json(self) -> Result<serde_json::Value, DecodeError> {
        match self.0 {
            RowSource::Typed(entry) => entry.object.clone().into_body().json(),
            RowSource::Other(entry, _) => entry.body().json(),
        }
    }
}

/// Whole object of a [`ViewRow`], returned by [`ViewRow::decode`]. Dereferences to the object.
///
/// Use [`into_arc`](Self::into_arc) to keep the object longer than the view.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use steersman::{cache::{Informer, Query}, object::ObjectKey};
/// # use std::{collections::BTreeMap, sync::Arc};
/// # fn example(maps: Informer<ConfigMap>) -> anyhow::Result<()> {
/// let mut with_data: BTreeMap<ObjectKey, Arc<ConfigMap>> = BTreeMap::new();
/// for row in maps.view(&Query::default())?.iter() {
///     let map = row.decode()?;
///     if map.data.is_some() {
///         with_data.insert(row.key().clone(), map.into_arc());
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct DecodedRow<'a, K>(Cow<'a, Arc<K>>);

impl<K> DecodedRow<'_, K> {
    /// Returns a reference that does not depend on the view. Copies no object.
    pub fn into_arc(self) -> Arc<K> {
        self.0.into_owned()
    }
}

impl<K> Deref for DecodedRow<'_, K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K: fmt::Debug> fmt::Debug for DecodedRow<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<K> Clone for ViewRow<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for ViewRow<'_, K> {}

impl<K> Clone for RowSource<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for RowSource<'_, K> {}

/// Prints key and metadata only, because the body may be secret.
impl<K: KubeObject> fmt::Debug for ViewRow<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewRow")
            .field("key", self.key())
            .field("meta", &self.meta())
            .finish_non_exhaustive()
    }
}
