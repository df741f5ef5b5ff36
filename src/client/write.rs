//! Writes: to the server, always.

use super::{
    Client, Discovered, Error, Patch, Result, Verb,
    diff::diff,
    read::statically,
    wire::{Asking, decode, encode, segment, unsent},
};
use crate::{
    cache::Query,
    fence::{Fence, Unanswered},
    object::{KubeObject, ObjectKey, StaticKind},
};
use bytes::Bytes;
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};
use std::{pin::pin, sync::Arc};

impl Client {
    /// Make it; the server may find a name, if it has a `generateName`.
    pub async fn create<K: KubeObject>(&self, object: &K) -> Result<K> {
        let kind = self.kind_of(object).await?;
        let key = self.0.settings.key(&kind.resource.kind, kind.namespaced, &ObjectKey::of(object))?;
        self.no_part(&kind)?;
        let path = kind.path(key.namespace().map(segment).as_deref());
        self.put((Verb::Create, Method::POST), &kind, &key, path, object).await
    }

    /// Replace it; a conflict if `object` is not made from the latest.
    pub async fn update<K: KubeObject>(&self, object: &K) -> Result<K> {
        let kind = self.kind_of(object).await?;
        let key = self.0.settings.key(&kind.resource.kind, kind.namespaced, &ObjectKey::of(object))?;
        self.put((Verb::Update, Method::PUT), &kind, &key, self.path(&kind, &key)?, object).await
    }

    /// Change what is there.
    pub async fn patch<K: StaticKind>(&self, key: &ObjectKey, patch: &Patch<impl Serialize + Sync>) -> Result<K> {
        self.patch_of(&statically::<K>(), key, patch).await
    }

    /// Change what differs between `base`, which is as it was read, and `changed`; a conflict if `base` is not the latest. If nothing differs, nothing is
    /// sent. With [`status`](Self::status) only that counts.
    ///
    /// Lists are sent as a whole. A field that the type does not know is left as it is.
    pub async fn patch_from<K: KubeObject>(&self, base: &K, changed: &K) -> Result<K> {
        let kind = self.kind_of(base).await?;
        let key = self.0.settings.key(&kind.resource.kind, kind.namespaced, &ObjectKey::of(base))?;
        let Some(version) = base.meta().resource_version.clone().filter(|version| !version.is_empty()) else {
            return Err(Error::NoResourceVersion { kind: kind.resource.kind.clone(), key });
        };
        let status = self.0.settings.subresource.as_deref() == Some("status");
        let value = |object: &K| -> Result<Value> {
            let mut value = serde_json::to_value(object).map_err(unsent(&kind, &key))?;
            if status {
                return Ok(json!({ "status": value["status"].take() }));
            }
            for field in ["resourceVersion", "managedFields"] {
                value["metadata"].as_object_mut().map(|meta| meta.remove(field));
            }
            Ok(value)
        };
        let Some(mut patch) = diff(&value(base)?, &value(changed)?) else { return Ok(changed.clone()) };
        patch["metadata"]["resourceVersion"] = version.into();
        self.patch_of(&kind, &key, &Patch::Merge(patch)).await
    }

    /// Server-side apply: own the fields of `object`, which are what is wanted and nothing else; give up those applied before and left out now. Needs a
    /// [`field_owner`](Self::field_owner); a field that somebody else owns is a conflict without [`force`](Self::force).
    pub async fn apply<K: KubeObject>(&self, object: &K) -> Result<K> {
        let kind = self.kind_of(object).await?;
        let key = self.0.settings.key(&kind.resource.kind, kind.namespaced, &ObjectKey::of(object))?;
        let mut value = serde_json::to_value(object).map_err(unsent(&kind, &key))?;
        // What has only metadata says that it is a `PartialObjectMetadata`.
        value["apiVersion"] = kind.resource.api_version.clone().into();
        value["kind"] = kind.resource.kind.clone().into();
        self.patch_of(&kind, &key, &Patch::Apply(value)).await
    }

    /// Delete it; false if there was nothing. It may stay for a while, if it has finalizers. See [`deleting`](Self::deleting).
    pub async fn delete<K: StaticKind>(&self, key: &ObjectKey) -> Result<bool> {
        self.delete_of(&statically::<K>(), key).await
    }

    /// Delete all that `query` is about: in one namespace, if the kind has them. See [`deleting`](Self::deleting).
    pub async fn delete_collection<K: StaticKind>(&self, query: &Query<K>) -> Result<()> {
        self.delete_all_of(&statically::<K>(), query).await
    }

    pub(super) async fn patch_of<K: KubeObject>(
        &self,
        kind: &Discovered,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Sync>,
    ) -> Result<K> {
        let key = self.0.settings.key(&kind.resource.kind, kind.namespaced, key)?;
        let answer = self.send_patch(kind, &key, patch, K::metadata_api()).await?;
        decode(kind, &key, &answer).map(Arc::unwrap_or_clone)
    }

    pub(super) async fn send_patch(
        &self,
        kind: &Discovered,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Sync>,
        metadata_only: bool,
    ) -> Result<Bytes> {
        let apply = matches!(patch, Patch::Apply(_));
        if apply && self.0.settings.field_owner.is_none() {
            return Err(Error::NoFieldOwner { kind: kind.resource.kind.clone(), key: key.clone() });
        }
        let asking = Asking {
            method: Method::PATCH,
            path: self.path(kind, key)?,
            query: self.0.settings.writing(apply).finish(),
            metadata_only,
            body: Some((encode(kind, key, patch.body())?.into(), patch.content_type())),
        };
        self.done(if apply { Verb::Apply } else { Verb::Patch }, kind, key, asking).await
    }

    pub(super) async fn delete_of(&self, kind: &Discovered, key: &ObjectKey) -> Result<bool> {
        let key = self.0.settings.key(&kind.resource.kind, kind.namespaced, key)?;
        self.no_part(kind)?;
        let asking = Asking::json(Method::DELETE, self.path(kind, &key)?, self.deletion(kind, &key)?);
        match self.done(Verb::Delete, kind, &key, asking).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn delete_all_of<K>(&self, kind: &Discovered, query: &Query<K>) -> Result<()> {
        let asked = query.asked();
        let all = self.selected(kind, &asked)?;
        if kind.namespaced && all.namespace().is_none() {
            return Err(Error::NoNamespace { kind: kind.resource.kind.clone(), key: all });
        }
        if asked.limit.is_some() {
            let (kind, what) = (kind.resource.kind.clone(), "what is deleted together has no limit: select it");
            return Err(Error::Unsupported { kind, what });
        }
        let path = kind.path(all.namespace().map(segment).as_deref());
        let mut asking = Asking::json(Method::DELETE, path, self.deletion(kind, &all)?);
        asking.query = asked.selectors().finish();
        self.done(Verb::DeleteCollection, kind, &all, asking).await.map(drop)
    }

    fn deletion(&self, kind: &Discovered, key: &ObjectKey) -> Result<Vec<u8>> {
        let settings = &self.0.settings;
        if settings.deleting.uid.as_deref() == Some("") {
            return Err(Error::NoUid { kind: kind.resource.kind.clone(), key: key.clone() });
        }
        encode(kind, key, &settings.deleting.options(settings.dry_run))
    }

    fn no_part(&self, kind: &Discovered) -> Result<()> {
        if self.0.settings.subresource.is_some() {
            let what = "a subresource is neither created nor deleted as its object is: use `subresource_of(…)`";
            return Err(Error::Unsupported { kind: kind.resource.kind.clone(), what });
        }
        Ok(())
    }

    /// Send all of it.
    async fn put<K: KubeObject>(
        &self,
        (verb, method): (Verb, Method),
        kind: &Discovered,
        key: &ObjectKey,
        path: String,
        object: &K,
    ) -> Result<K> {
        if K::metadata_api() {
            return Err(Error::MetadataOnly { kind: kind.resource.kind.clone(), key: key.clone() });
        }
        let mut asking = Asking::json(method, path, encode(kind, key, object)?);
        asking.query = self.0.settings.writing(false).finish();
        let answer = self.done(verb, kind, key, asking).await?;
        decode(kind, key, &answer).map(Arc::unwrap_or_clone)
    }

    /// What every write goes through, and its answer: when this returns one, the server has done it.
    pub(super) async fn done(&self, verb: Verb, kind: &Discovered, key: &ObjectKey, asking: Asking) -> Result<Bytes> {
        let (body, mut done) = (asking.body.as_ref().map(|(body, _)| body.clone()), None);
        let answer = {
            let write = pin!(async {
                let own = self.own_write(verb, kind, key);
                // So that what writes stays small.
                let sent = Box::pin(self.send(asking, false));
                let answer = match Fence::current() {
                    Some(fence) => under(&fence, verb, kind, key, sent).await?,
                    None => sent.await,
                };
                // A dry run never changes anything, so its time-out stays that of a read.
                let dry_run = self.0.settings.dry_run;
                let answer = answer.map_err(|error| if dry_run { error } else { error.of_write(kind, key) });
                let answer = self.judged(kind, answer).await?;
                done = Some((own, answer.clone()));
                Ok(answer)
            });
            self.through(verb, || kind.clone(), key, body, write).await?
        };
        // As the server has said it. If it got lost, it was not heard here either.
        if let Some((own, said)) = done {
            own.answered(&said);
        }
        Ok(answer)
    }
}

/// Sent by a leader, as long as it is one. What may arrive later is told.
async fn under<T>(
    fence: &Fence,
    verb: Verb,
    kind: &Discovered,
    key: &ObjectKey,
    write: impl Future<Output = T>,
) -> Result<T> {
    let answer = fence.write(write).await;
    let (lease, token, of) = (fence.lease(), fence.token(), &kind.resource.kind);
    let (kind, of_key) = (of.clone(), key.clone());
    match answer {
        Ok(answer) => {
            if fence.check().is_err() {
                tracing::warn!(
                    lease,
                    token,
                    ?verb,
                    kind = of,
                    ?key,
                    "a write was answered when its time of leading was over"
                );
            }
            Ok(answer)
        }
        Err(Unanswered::Unsent(fenced)) => Err(Error::Fenced { kind, key: of_key, fenced }),
        Err(Unanswered::OnItsWay(fenced)) => {
            tracing::warn!(
                lease,
                token,
                ?verb,
                kind = of,
                ?key,
                "a write was on its way when its time of leading was over"
            );
            Err(Error::FencedOnItsWay { kind, key: of_key, fenced })
        }
    }
}
