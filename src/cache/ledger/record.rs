//! From a write's answer into the ledgers of every informer of its kind that has, or will have, the object.

use super::{Deleting, Fate, Pending, Removed, Token, Version, Wanted, Writer};
use crate::{
    cache::{
        Cache, CacheError,
        core::Condition,
        erased::Informing,
        fields::{FieldSelector, field},
        namespaces::Selectors,
        tend::Declared,
    },
    object::{Meta, ObjectKey, Selector},
};
use kube_core::{GroupVersionKind, ObjectMeta};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// What is looked at in the answer to a write: an object, a part of one as `Scale` is, a list of objects, or a `Status`.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Option<AnsweredMeta>,
    #[serde(default)]
    details: Option<Details>,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AnsweredMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<IgnoredAny>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<Vec<IgnoredAny>>,
}

impl AnsweredMeta {
    fn is_marked(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Marked, and nothing holds it: the write that took the last finalizer off has deleted it, whatever version the answer names.
    fn has_ended(&self) -> bool {
        let finalizers = self.finalizers.as_ref().map_or(0, Vec::len);
        self.is_marked() && finalizers == 0 && self.deletion_grace_period_seconds == Some(0)
    }
}

#[derive(Deserialize)]
struct Details {
    uid: Option<String>,
}

/// An object that a server has answered with.
struct Written<'a> {
    key: ObjectKey,
    revision: u64,
    uid: Option<String>,
    /// That it is being deleted, and that it is deleted.
    is_marked: bool,
    has_ended: bool,
    /// Its labels are in it; not in a part of an object.
    labels: Option<ObjectMeta>,
    /// The object, if that is whole.
    whole: Option<&'a [u8]>,
}

impl<'a> Written<'a> {
    /// `None` if it names no object, or no version that can be compared.
    fn of(kind: &GroupVersionKind, json: &'a [u8]) -> Option<Self> {
        let answer: Answer<'_> = serde_json::from_slice(json).ok()?;
        let meta = answer.metadata?;
        // Items of a list do not say what they are.
        let is_whole = answer.kind.is_empty() || answer.kind == kind.kind;
        let has_labels = is_whole || answer.kind == "PartialObjectMetadata";
        Some(Self {
            is_marked: meta.is_marked(),
            has_ended: meta.has_ended(),
            key: ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), &meta.name?),
            revision: meta.resource_version?.parse().ok()?,
            uid: meta.uid,
            labels: has_labels.then(|| ObjectMeta { labels: meta.labels, ..ObjectMeta::default() }),
            whole: is_whole.then_some(json),
        })
    }
}

impl Selectors {
    fn selects_all(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    /// Whether its selectors let the object in; `None` if the answer does not say enough.
    fn selects(&self, kind: &GroupVersionKind, written: &Written<'_>) -> Option<bool> {
        let labels = self.labels.as_deref().map_or(Some(true), |labels| {
            let (selector, meta) = (Selector::parse(labels).ok()?, written.labels.as_ref()?);
            Some(selector.matches(Meta::from(meta).labels()))
        });
        let fields = self.fields.as_deref().map_or(Some(true), |fields| {
            let selector = FieldSelector::parse(fields).ok()?;
            let object = serde_json::from_slice(written.whole?).ok()?;
            Some(selector.matches(|path| field(kind, &object, path)))
        });
        if labels == Some(false) || fields == Some(false) { Some(false) } else { labels.and(fields) }
    }
}

impl Declared {
    /// What is kept of where the object is.
    fn selectors(&self, key: &ObjectKey) -> Option<&Selectors> {
        key.namespace().map_or(Some(&self.plan.whole), |namespace| self.plan.scope.selectors(namespace))
    }

    fn wrote(&self, writer: &Writer, written: &Written<'_>) {
        let version = Version { key: &written.key, revision: written.revision, selected: self.selects(written) };
        self.core.ledger().wrote(writer, version, &fates(&*self.core));
        if written.has_ended {
            self.removed(writer, written, false);
        }
    }

    /// The answer has the object as it was before.
    fn removed(&self, writer: &Writer, written: &Written<'_>, or_deleting: bool) {
        let Some(uid) = written.uid.as_deref() else { return };
        let since = (self.selects(written) == Some(true)).then_some(written.revision);
        let removed = Removed { key: &written.key, uid, or_deleting, since };
        self.core.ledger().removed(writer, &removed, &fates(&*self.core));
    }

    /// See [`Selectors::selects`].
    fn selects(&self, written: &Written<'_>) -> Option<bool> {
        self.selectors(&written.key).map_or(Some(false), |selectors| selectors.selects(&self.gvk, written))
    }

    fn selects_all(&self, key: &ObjectKey) -> bool {
        self.selectors(key).is_some_and(Selectors::selects_all)
    }
}

/// What clients tell of their writes, and wait for. See [the module](super).
impl Cache {
    /// A write of an object of this kind, or of a part of one, was answered so.
    pub(crate) fn wrote(&self, client: &Token, kind: &GroupVersionKind, answer: &[u8]) {
        let informers = self.informers_of(kind);
        if informers.is_empty() {
            return;
        }
        let Some(written) = Written::of(kind, answer) else { return };
        let writer = Writer::of(client);
        for informer in informers {
            informer.wrote(&writer, &written);
        }
    }

    /// Before a delete is sent.
    pub(crate) fn deleting(&self, kind: &GroupVersionKind, key: &ObjectKey) -> Announced {
        let announce = |informer: Arc<Declared>| {
            let announced = informer.core.ledger().deleting(key);
            (informer, announced)
        };
        let informers = self.informers_of(kind).into_iter().map(announce).collect();
        Announced { cache: self.clone(), kind: kind.clone(), key: key.clone(), informers }
    }

    /// Objects of this kind were deleted, or marked, as the answer lists them.
    pub(crate) fn collected(&self, client: &Token, kind: &GroupVersionKind, answer: &[u8]) {
        let informers = self.informers_of(kind);
        if informers.is_empty() {
            return;
        }
        let Ok(Answer { items: Some(items), .. }) = serde_json::from_slice(answer) else { return };
        let writer = Writer::of(client);
        for written in items.into_iter().filter_map(|item| Written::of(kind, item.get().as_bytes())) {
            for informer in &informers {
                informer.removed(&writer, &written, true);
            }
        }
    }

    /// Until every write under a token that was answered before this was called is shown, in whichever informer; at most so long.
    pub(crate) fn caught_up(
        &self,
        token: &Token,
        at_most: Duration,
    ) -> impl Future<Output = Result<(), CacheError>> + use<> {
        let pending = |informer: &Arc<Declared>| {
            Some((informer.gvk.kind.clone(), informer.core.ledger().pending(token, Wanted::All)?))
        };
        let all: Vec<_> = self.all_informers().iter().filter_map(pending).collect();
        let (cache, begun) = (self.clone(), Instant::now());
        async move {
            for (kind, pending) in all {
                pending.within(&kind, at_most.saturating_sub(begun.elapsed())).await.map_err(|error| match error {
                    CacheError::Behind { kind, key, .. } => CacheError::Behind { kind, key, waited: begun.elapsed() },
                    other => other,
                })?;
            }
            // One that was removed is not among them, and nobody's concern.
            let has_ended = |informer: &Arc<Declared>| informer.core.condition() == Condition::Ended;
            if cache.all_informers().iter().any(has_ended) { Err(CacheError::Ended) } else { Ok(()) }
        }
    }

    /// Whether there is nothing of that.
    pub(crate) fn is_caught_up(&self, token: &Token) -> bool {
        self.all_informers().iter().all(|informer| informer.core.ledger().is_caught_up(token))
    }
}

impl Pending {
    /// At most so long.
    pub(crate) async fn within(mut self, kind: &str, at_most: Duration) -> Result<(), CacheError> {
        if timeout(at_most, &mut self).await.is_ok() {
            return Ok(());
        }
        let behind = |key| Err(CacheError::Behind { kind: kind.to_owned(), key, waited: at_most });
        self.give_up().map_or(Ok(()), behind)
    }
}

/// A delete on its way. Dropped, nothing was deleted, as far as is known.
pub(crate) struct Announced {
    cache: Cache,
    kind: GroupVersionKind,
    key: ObjectKey,
    informers: Vec<(Arc<Declared>, Deleting)>,
}

impl Announced {
    /// With the object if it was only marked, else with its uid; of some kinds with the object all the same.
    pub(crate) fn answered(self, client: &Token, answer: &[u8]) {
        // Those that were declared since may have listed it before it was gone.
        let is_new = |informer: &Arc<Declared>| !self.informers.iter().any(|(known, ..)| Arc::ptr_eq(known, informer));
        let mut new = self.cache.informers_of(&self.kind);
        new.retain(is_new);
        if self.informers.is_empty() && new.is_empty() {
            return;
        }
        let writer = Writer::of(client);
        let uid = match Written::of(&self.kind, answer) {
            Some(written) if written.is_marked && !written.has_ended => {
                for informer in self.informers.iter().map(|(informer, ..)| informer).chain(&new) {
                    informer.wrote(&writer, &written);
                }
                return;
            }
            Some(written) => written.uid,
            None => serde_json::from_slice::<Answer<'_>>(answer).ok().and_then(|answer| answer.details?.uid),
        };
        let Some(uid) = uid else { return };
        for informer in new {
            let since = informer.selects_all(&self.key).then_some(0);
            let removed = Removed { key: &self.key, uid: &uid, or_deleting: false, since };
            informer.core.ledger().removed(&writer, &removed, &fates(&*informer.core));
        }
        for (informer, announced) in self.informers {
            announced.deleted(&writer, &uid, informer.selects_all(&self.key), &fates(&*informer.core));
        }
    }
}

fn fates(core: &dyn Informing) -> impl Fn(&ObjectKey, Option<&str>) -> Fate {
    move |key, uid| core.fate(key, uid)
}
