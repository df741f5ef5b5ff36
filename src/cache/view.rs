//! Objects looked at where they are.
//!
//! A view is a snapshot of the store: it shares the store's own chunks, and what changes afterwards changes in copies of those. So whatever an object is
//! shown for, nobody counts that it is held, and nothing of it is decoded but on request.

use super::{
    Query,
    erased::{Kept, Seen},
    stats::Misfit,
    store::{Entry, Slot, Slots as OfType, Snapshot},
};
use crate::object::{DecodeError, KubeObject, Meta, ObjectKey, Payload};
use kube_core::GroupVersionKind;
use std::{borrow::Cow, fmt, marker::PhantomData, sync::Arc};

/// Objects of an informer, all as they were at one moment: made by [`Informer::view`](super::Informer::view) and [`Index::view`](super::Index::view).
///
/// Use it to look at many objects, and to hand on few. Whoever holds it sees no change, and delays nobody; but it keeps all that the informer had in
/// memory, so do not keep it. It is shared by reference, also among threads.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use steersman::cache::{Informer, Query};
/// # fn example(pods: Informer<Pod>) -> anyhow::Result<()> {
/// let pods = pods.view(&Query::default().labels("app=web")?)?;
/// for pod in pods.iter() {
///     // Key and metadata are free in every form; the rest is too if the informer keeps pods as their type, and decoded otherwise.
///     println!("{} since {:?}: {:?}", pod.name(), pod.meta().created(), pod.decode()?.status);
/// }
/// # Ok(())
/// # }
/// ```
pub struct View<K>(Form<K>);

enum Form<K> {
    /// What is kept is what is read.
    Typed(Snapshot<K>),
    Other(Box<dyn Seen>),
}

impl<K> View<K> {
    pub(super) fn of_type(snapshot: Snapshot<K>) -> Self {
        Self(Form::Typed(snapshot))
    }

    pub(super) fn of_other(seen: Box<dyn Seen>) -> Self {
        Self(Form::Other(seen))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Typed(snapshot) => snapshot.len(),
            Form::Other(seen) => seen.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In no order, unless the query asked for one.
    pub fn iter(&self) -> impl Iterator<Item = Shown<'_, K>> {
        self.slots().map(|(_, shown)| shown)
    }

    fn slots(&self) -> Slots<'_, K> {
        match &self.0 {
            Form::Typed(snapshot) => Slots::Typed(snapshot.slots()),
            Form::Other(seen) => Slots::Other(seen.slots()),
        }
    }

    fn only(self, slots: Vec<Slot>) -> Self {
        Self(match self.0 {
            Form::Typed(snapshot) => Form::Typed(snapshot.only(slots.into())),
            Form::Other(seen) => Form::Other(seen.only(slots)),
        })
    }
}

impl<K: KubeObject> View<K> {
    /// What the query leaves of what was looked up for it.
    pub(super) fn narrowed(self, query: &Query<K>, kind: &GroupVersionKind) -> Result<Self, Misfit> {
        let limit = query.limit.unwrap_or(usize::MAX);
        if !query.selects() && !query.sorted && limit >= self.len() {
            return Ok(self);
        }
        let mut found = Vec::new();
        for (slot, shown) in self.slots() {
            if found.len() >= limit && !query.sorted {
                break;
            }
            if query.matches(kind, shown).map_err(|error| Misfit::new(shown.meta(), error))? {
                found.push((shown.key(), slot));
            }
        }
        if query.sorted {
            found.sort_unstable();
            found.truncate(limit);
        }
        let slots = found.into_iter().map(|(_, slot)| slot).collect();
        Ok(self.only(slots))
    }

    /// The same, to be held.
    pub(super) fn list(self, query: &Query<K>, kind: &GroupVersionKind) -> Result<Vec<Arc<K>>, Misfit> {
        // Only an order has to be found first: an object that is visited once costs half of one that is visited twice.
        let found = query.sorted || !query.selects();
        let view = if query.sorted { self.narrowed(query, kind)? } else { self };
        let limit = query.limit.unwrap_or(usize::MAX);
        let mut all = Vec::with_capacity(if found { limit.min(view.len()) } else { 0 });
        for shown in view.iter() {
            if all.len() >= limit {
                break;
            }
            let misfit = |error| Misfit::new(shown.meta(), error);
            if found || query.matches(kind, shown).map_err(misfit)? {
                all.push(shown.decode().map_err(misfit)?.into_owned());
            }
        }
        Ok(all)
    }
}

/// How many there are.
impl<K> fmt::Debug for View<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len", &self.len()).finish_non_exhaustive()
    }
}

enum Slots<'a, K> {
    Typed(OfType<'a, K>),
    Other(Box<dyn Iterator<Item = (Slot, &'a dyn Kept)> + 'a>),
}

impl<'a, K> Iterator for Slots<'a, K> {
    type Item = (Slot, Shown<'a, K>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Typed(slots) => slots.next().map(|(slot, entry)| (slot, Shown(One::Typed(entry)))),
            Self::Other(slots) => slots.next().map(|(slot, kept)| (slot, Shown(One::Other(kept, PhantomData)))),
        }
    }
}

/// An object that a [`View`] shows, for as long as that is held: key and metadata for free, the whole of it through [`Shown::decode`].
pub struct Shown<'a, K>(One<'a, K>);

enum One<'a, K> {
    Typed(&'a Entry<K>),
    Other(&'a dyn Kept, PhantomData<fn() -> K>),
}

impl<'a, K> Shown<'a, K> {
    /// What names the object.
    pub fn key(self) -> &'a ObjectKey {
        match self.0 {
            One::Typed(entry) => &entry.key,
            One::Other(kept, _) => kept.key(),
        }
    }

    /// The object's name.
    pub fn name(self) -> &'a str {
        self.key().name()
    }

    /// `None` for a cluster-scoped object.
    pub fn namespace(self) -> Option<&'a str> {
        self.key().namespace()
    }
}

impl<'a, K: KubeObject> Shown<'a, K> {
    /// The object's metadata.
    pub fn meta(self) -> Meta<'a> {
        match self.0 {
            One::Typed(entry) => Payload::meta(&*entry.object),
            One::Other(kept, _) => kept.meta(),
        }
    }

    /// The whole object: where it is, if the informer keeps it as this type; from a compact one parsed at most once at a time, and shared by all who hold it.
    ///
    /// [`Cow::into_owned`] is for who wants to keep it.
    pub fn decode(self) -> Result<Cow<'a, Arc<K>>, DecodeError> {
        match self.0 {
            One::Typed(entry) => Ok(Cow::Borrowed(&entry.object)),
            One::Other(kept, _) => kept.body().decode().map(Cow::Owned),
        }
    }

    /// All that is in memory of it. A parse, or its reverse, each time.
    pub(super) fn json(self) -> Result<serde_json::Value, DecodeError> {
        match self.0 {
            One::Typed(entry) => entry.object.clone().into_body().json(),
            One::Other(kept, _) => kept.body().json(),
        }
    }
}

impl<K> Clone for Shown<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Shown<'_, K> {}

impl<K> Clone for One<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for One<'_, K> {}

/// Key and metadata; the body may be secret.
impl<K: KubeObject> fmt::Debug for Shown<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("key", self.key()).field("meta", &self.meta()).finish_non_exhaustive()
    }
}
