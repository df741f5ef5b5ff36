//! Records the responses to writes in the ledgers of the informers of the kind.

use super::{
    DeleteAnnouncement, Existence, PendingWrites, ReadScope, RemovedObject, Token, Writer,
    WrittenVersion,
};
use crate::{
    cache::{
        Cache, CacheError,
        core::Condition,
        erased::ErasedCore,
        fields::{FieldSelector, field},
        informer_task::DeclaredInformer,
        namespaces::Selectors,
    },
    object::{Meta, ObjectKey, Selector},
};
use kube_core::{GroupVersionKind, ObjectMeta};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// Parsed fields of a response to a write.
///
/// It is an object, a subresource such as `Scale`, a list or a `Status`.
#[derive(Deserialize)]
struct WriteResponse<'a> {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Option<ResponseMeta>,
    #[serde(default)]
    details: Option<Details>,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResponseMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<IgnoredAny>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<Vec<IgnoredAny>>,
}

impl ResponseMeta {
    fn is_marked(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns whether the write deleted the object, which is marked and unblocked.
    ///
    /// The response to the write that removes the last finalizer still contains the object.
    fn is_deleted(&self) -> bool {
        let finalizers = self.finalizers.as_ref().map_or(0, Vec::len);
        self.is_marked() && finalizers == 0 && self.deletion_grace_period_seconds == Some(0)
    }
}

#[derive(Deserialize)]
struct Details {
    uid: Option<String>,
}

/// Object of a response.
struct Written<'a> {
    key: ObjectKey,
    revision: u64,
    uid: Option<String>,
    /// Whether the object is marked for deletion, and whether it is deleted.
    is_marked: bool,
    is_deleted: bool,
    /// Metadata with the labels. `None` for a subresource, which has no labels.
    labels: Option<ObjectMeta>,
    /// JSON of the object, if the response is the whole object.
    whole: Option<&'a [u8]>,
}

impl<'a> Written<'a> {
    /// Parses a response. Returns `None` without an object or a numeric resource version.
    fn of(kind: &GroupVersionKind, json: &'a [u8]) -> Option<Self> {
        let response: WriteResponse<'_> = serde_json::from_slice(json).ok()?;
        let meta = response.metadata?;
        // Items of a list have no `kind`.
        let is_whole = response.kind.is_empty() || response.kind == kind.kind;
        let has_labels = is_whole || response.kind == "PartialObjectMetadata";
        Some(Self {
            is_marked: meta.is_marked(),
            is_deleted: meta.is_deleted(),
            key: ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), &meta.name?),
            revision: meta.resource_version?.parse().ok()?,
            uid: meta.uid,
            labels: has_labels.then(|| ObjectMeta {
                labels: meta.labels,
                ..ObjectMeta::default()
            }),
            whole: is_whole.then_some(json),
        })
    }
}

impl Selectors {
    fn selects_all(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    /// Returns whether the object matches. `None` if the response is not sufficient.
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
        if labels == Some(false) || fields == Some(false) {
            Some(false)
        } else {
            labels.and(fields)
        }
    }
}

impl DeclaredInformer {
    /// Returns the selectors for the namespace of the object, if it is in scope.
    fn selectors(&self, key: &ObjectKey) -> Option<&Selectors> {
        key.namespace()
            .map_or(Some(&self.plan.cluster_selectors), |namespace| {
                self.plan.scope.selectors(namespace)
            })
    }

    fn wrote(&self, writer: &Writer, written: &Written<'_>) {
        let version = WrittenVersion {
            key: &written.key,
            revision: written.revision,
            selected: self.selects(written),
        };
        self.core
            .ledger()
            .wrote(writer, version, &existence(&*self.core));
        if written.is_deleted {
            self.removed(writer, written, false);
        }
    }

    /// Records a removal whose response has the object as it was before.
    fn removed(&self, writer: &Writer, written: &Written<'_>, or_deleting: bool) {
        let Some(uid) = written.uid.as_deref() else {
            return;
        };
        let since = (self.selects(written) == Some(true)).then_some(written.revision);
        let removed = RemovedObject {
            key: &written.key,
            uid,
            or_deleting,
            since,
        };
        self.core
            .ledger()
            .removed(writer, &removed, &existence(&*self.core));
    }

    /// See [`Selectors::selects`].
    fn selects(&self, written: &Written<'_>) -> Option<bool> {
        self.selectors(&written.key)
            .map_or(Some(false), |selectors| {
                selectors.selects(&self.gvk, written)
            })
    }

    fn selects_all(&self, key: &ObjectKey) -> bool {
        self.selectors(key).is_some_and(Selectors::selects_all)
    }
}

/// Recording of writes by clients, and waiting for them. See [the module](super).
impl Cache {
    /// Records the response to a write of an object, or of a subresource.
    pub(crate) fn record_write(&self, client: &Token, kind: &GroupVersionKind, response: &[u8]) {
        let informers = self.informers_of(kind);
        if informers.is_empty() {
            return;
        }
        let Some(written) = Written::of(kind, response) else {
            return;
        };
        let writer = Writer::of(client);
        for informer in informers {
            informer.wrote(&writer, &written);
        }
    }

    /// Announces a delete to all informers of the kind before it is sent.
    pub(crate) fn announce_delete(
        &self,
        kind: &GroupVersionKind,
        key: &ObjectKey,
    ) -> DeleteAnnouncements {
        let announce = |informer: Arc<DeclaredInformer>| {
            let announced = informer.core.ledger().announce_delete(key);
            (informer, announced)
        };
        let informers = self.informers_of(kind).into_iter().map(announce).collect();
        DeleteAnnouncements {
            cache: self.clone(),
            kind: kind.clone(),
            key: key.clone(),
            informers,
        }
    }

    /// Records the response to the deletion of a collection.
    pub(crate) fn record_collection_delete(
        &self,
        client: &Token,
        kind: &GroupVersionKind,
        response: &[u8],
    ) {
        let informers = self.informers_of(kind);
        if informers.is_empty() {
            return;
        }
        let Ok(WriteResponse {
            items: Some(items), ..
        }) = serde_json::from_slice(response)
        else {
            return;
        };
        let writer = Writer::of(client);
        for written in items
            .into_iter()
            .filter_map(|item| Written::of(kind, item.get().as_bytes()))
        {
            for informer in &informers {
                informer.removed(&writer, &written, true);
            }
        }
    }

    /// Waits until all informers show the completed writes of a token.
    pub(crate) fn caught_up(
        &self,
        token: &Token,
        at_most: Duration,
    ) -> impl Future<Output = Result<(), CacheError>> + use<> {
        let pending = |informer: &Arc<DeclaredInformer>| {
            Some((
                informer.gvk.kind.clone(),
                informer.core.ledger().pending(token, ReadScope::All)?,
            ))
        };
        let all: Vec<_> = self.all_informers().iter().filter_map(pending).collect();
        let (cache, begun) = (self.clone(), Instant::now());
        async move {
            for (kind, pending) in all {
                pending
                    .within(&kind, at_most.saturating_sub(begun.elapsed()))
                    .await
                    .map_err(|error| match error {
                        CacheError::WriteNotObserved { kind, key, .. } => {
                            CacheError::WriteNotObserved {
                                kind,
                                key,
                                waited: begun.elapsed(),
                            }
                        }
                        other => other,
                    })?;
            }
            // Informers that were removed meanwhile are not in the cache, and do not count.
            let has_ended =
                |informer: &Arc<DeclaredInformer>| informer.core.condition() == Condition::Closed;
            if cache.all_informers().iter().any(has_ended) {
                Err(CacheError::Closed)
            } else {
                Ok(())
            }
        }
    }

    /// Returns whether all informers show all writes of a token.
    pub(crate) fn is_caught_up(&self, token: &Token) -> bool {
        self.all_informers()
            .iter()
            .all(|informer| informer.core.ledger().is_caught_up(token))
    }
}

impl PendingWrites {
    /// Waits at most for `at_most`.
    pub(crate) async fn within(mut self, kind: &str, at_most: Duration) -> Result<(), CacheError> {
        if timeout(at_most, &mut self).await.is_ok() {
            return Ok(());
        }
        let behind = |key| {
            Err(CacheError::WriteNotObserved {
                kind: kind.to_owned(),
                key,
                waited: at_most,
            })
        };
        self.time_out().map_or(Ok(()), behind)
    }
}

/// Delete announced to all informers of a kind. Dropping it retracts the announcements.
pub(crate) struct DeleteAnnouncements {
    cache: Cache,
    kind: GroupVersionKind,
    key: ObjectKey,
    informers: Vec<(Arc<DeclaredInformer>, DeleteAnnouncement)>,
}

impl DeleteAnnouncements {
    /// Records the response to the delete.
    ///
    /// The response is the object if it was only marked, for some kinds also if it was deleted, and
    /// otherwise a `Status` with the uid.
    pub(crate) fn record_response(self, client: &Token, response: &[u8]) {
        // Informers that were declared since the announcement may have listed the object.
        let is_new = |informer: &Arc<DeclaredInformer>| {
            !self
                .informers
                .iter()
                .any(|(known, ..)| Arc::ptr_eq(known, informer))
        };
        let mut new = self.cache.informers_of(&self.kind);
        new.retain(is_new);
        if self.informers.is_empty() && new.is_empty() {
            return;
        }
        let writer = Writer::of(client);
        let uid = match Written::of(&self.kind, response) {
            Some(written) if written.is_marked && !written.is_deleted => {
                for informer in self
                    .informers
                    .iter()
                    .map(|(informer, ..)| informer)
                    .chain(&new)
                {
                    informer.wrote(&writer, &written);
                }
                return;
            }
            Some(written) => written.uid,
            None => serde_json::from_slice::<WriteResponse<'_>>(response)
                .ok()
                .and_then(|response| response.details?.uid),
        };
        let Some(uid) = uid else { return };
        for informer in new {
            let since = informer.selects_all(&self.key).then_some(0);
            let removed = RemovedObject {
                key: &self.key,
                uid: &uid,
                or_deleting: false,
                since,
            };
            informer
                .core
                .ledger()
                .removed(&writer, &removed, &existence(&*informer.core));
        }
        for (informer, announced) in self.informers {
            announced.deleted(
                &writer,
                &uid,
                informer.selects_all(&self.key),
                &existence(&*informer.core),
            );
        }
    }
}

fn existence(core: &dyn ErasedCore) -> impl Fn(&ObjectKey, Option<&str>) -> Existence {
    move |key, uid| core.existence(key, uid)
}
