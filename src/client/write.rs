//! Writes, which are always sent to the API server.

use super::{
    Client, Discovered, Error, Patch, Result, Verb,
    diff::diff,
    patch::{delete_options, encode_patch},
    read::static_kind,
    wire::{ApiRequest, decode, encode, encode_error, path_segment},
};
use crate::{
    cache::Query,
    fencing::{Fence, WriteError},
    object::{KubeObject, ObjectKey, StaticKind},
};
use bytes::Bytes;
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};
use std::{pin::pin, sync::Arc};

impl Client {
    /// Creates an object. The API server chooses the name if `generateName` is set.
    pub async fn create<K: KubeObject>(&self, object: &K) -> Result<K> {
        let kind = self.kind_of(object).await?;
        let key =
            self.0
                .settings
                .key(&kind.resource.kind, kind.namespaced, &ObjectKey::of(object))?;
        self.no_such_subresource(&kind)?;
        let path = kind.path(key.namespace().map(path_segment).as_deref());
        self.put((Verb::Create, Method::POST), &kind, &key, path, object)
            .await
    }

    /// Replaces an object. Fails with a conflict if it is not the latest version.
    pub async fn update<K: KubeObject>(&self, object: &K) -> Result<K> {
        let kind = self.kind_of(object).await?;
        let key =
            self.0
                .settings
                .key(&kind.resource.kind, kind.namespaced, &ObjectKey::of(object))?;
        self.put(
            (Verb::Update, Method::PUT),
            &kind,
            &key,
            self.path(&kind, &key)?,
            object,
        )
        .await
    }

    /// Patches an object.
    pub async fn patch<K: StaticKind>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Sync>,
    ) -> Result<K> {
        self.patch_of(&static_kind::<K>(), key, patch).await
    }

    /// Sends the difference between `base`, an object as it was read, and `changed`.
    ///
    /// The difference is a merge patch. If `base` is not the latest version, the result is a
    /// conflict; turn that off with [`optimistic_lock`](Self::optimistic_lock). If the two do not
    /// differ, no request is sent. With [`status`](Self::status) only the status is compared.
    ///
    /// A list that differs is sent as a whole. A field that the type does not have is not changed.
    pub async fn patch_from<K: KubeObject>(&self, base: &K, changed: &K) -> Result<K> {
        let kind = self.kind_of(base).await?;
        let key =
            self.0
                .settings
                .key(&kind.resource.kind, kind.namespaced, &ObjectKey::of(base))?;
        let version = base.meta().resource_version.clone();
        let version = version.filter(|version| !version.is_empty());
        let lock = !self.0.settings.without_lock;
        if lock && version.is_none() {
            return Err(Error::NoResourceVersion {
                kind: kind.resource.kind.clone(),
                key,
            });
        }
        let status = self.0.settings.subresource.as_deref() == Some("status");
        let value = |object: &K| -> Result<Value> {
            let mut value = serde_json::to_value(object).map_err(encode_error(&kind, &key))?;
            if status {
                return Ok(json!({ "status": value["status"].take() }));
            }
            for field in ["resourceVersion", "managedFields"] {
                value["metadata"]
                    .as_object_mut()
                    .map(|meta| meta.remove(field));
            }
            Ok(value)
        };
        let Some(mut patch) = diff(&value(base)?, &value(changed)?) else {
            return Ok(changed.clone());
        };
        if lock {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        self.patch_of(&kind, &key, &Patch::Merge(patch)).await
    }

    /// Applies an object with server-side apply.
    ///
    /// The field manager owns the fields of `object` afterwards, and releases those that an earlier
    /// apply contained and this one does not. Requires a [`field_owner`](Self::field_owner). A
    /// field of another owner is a conflict without [`force`](Self::force).
    pub async fn apply<K: KubeObject>(&self, object: &K) -> Result<K> {
        let kind = self.kind_of(object).await?;
        let key =
            self.0
                .settings
                .key(&kind.resource.kind, kind.namespaced, &ObjectKey::of(object))?;
        let mut value = serde_json::to_value(object).map_err(encode_error(&kind, &key))?;
        // The type of a metadata-only object is `PartialObjectMetadata`.
        value["apiVersion"] = kind.resource.api_version.clone().into();
        value["kind"] = kind.resource.kind.clone().into();
        self.patch_of(&kind, &key, &Patch::Apply(value)).await
    }

    /// Deletes an object; returns false if it does not exist.
    ///
    /// An object with finalizers stays until they are removed. See
    /// [`delete_params`](Self::delete_params).
    pub async fn delete<K: StaticKind>(&self, key: &ObjectKey) -> Result<bool> {
        self.delete_of(&static_kind::<K>(), key).await
    }

    /// Deletes all objects that `query` matches.
    ///
    /// For a namespaced kind, the query needs a namespace. See
    /// [`delete_params`](Self::delete_params).
    pub async fn delete_collection<K: StaticKind>(&self, query: &Query<K>) -> Result<()> {
        self.delete_all_of(&static_kind::<K>(), query).await
    }

    pub(super) async fn patch_of<K: KubeObject>(
        &self,
        kind: &Discovered,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Sync>,
    ) -> Result<K> {
        let key = self
            .0
            .settings
            .key(&kind.resource.kind, kind.namespaced, key)?;
        let response = self
            .send_patch(kind, &key, patch, K::metadata_api())
            .await?;
        decode(kind, &key, &response).map(Arc::unwrap_or_clone)
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
            return Err(Error::NoFieldOwner {
                kind: kind.resource.kind.clone(),
                key: key.clone(),
            });
        }
        let request = ApiRequest {
            method: Method::PATCH,
            path: self.path(kind, key)?,
            query: self.0.settings.writing(apply).finish(),
            metadata_only,
            body: Some(encode_patch(patch).map_err(encode_error(kind, key))?),
        };
        self.send_write(
            if apply { Verb::Apply } else { Verb::Patch },
            kind,
            key,
            request,
        )
        .await
    }

    pub(super) async fn delete_of(&self, kind: &Discovered, key: &ObjectKey) -> Result<bool> {
        let key = self
            .0
            .settings
            .key(&kind.resource.kind, kind.namespaced, key)?;
        self.no_such_subresource(kind)?;
        let request = ApiRequest::json(
            Method::DELETE,
            self.path(kind, &key)?,
            self.deletion(kind, &key)?,
        );
        match self.send_write(Verb::Delete, kind, &key, request).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn delete_all_of<K>(&self, kind: &Discovered, query: &Query<K>) -> Result<()> {
        let params = query.list_params();
        let all = self.selected(kind, &params)?;
        if kind.namespaced && all.namespace().is_none() {
            return Err(Error::NoNamespace {
                kind: kind.resource.kind.clone(),
                key: all,
            });
        }
        if params.limit.is_some() {
            let (kind, reason) = (
                kind.resource.kind.clone(),
                "a collection cannot be deleted with a limit; select the objects instead",
            );
            return Err(Error::Unsupported { kind, reason });
        }
        let path = kind.path(all.namespace().map(path_segment).as_deref());
        let mut request = ApiRequest::json(Method::DELETE, path, self.deletion(kind, &all)?);
        request.query = params.selectors().finish();
        self.send_write(Verb::DeleteCollection, kind, &all, request)
            .await
            .map(drop)
    }

    fn deletion(&self, kind: &Discovered, key: &ObjectKey) -> Result<Vec<u8>> {
        let settings = &self.0.settings;
        let preconditions = settings.delete_params.preconditions.as_ref();
        if preconditions.is_some_and(|conditions| conditions.uid.as_deref() == Some("")) {
            return Err(Error::NoUid {
                kind: kind.resource.kind.clone(),
                key: key.clone(),
            });
        }
        let options = delete_options(&settings.delete_params, settings.dry_run);
        encode(kind, key, &options.map_err(encode_error(kind, key))?)
    }

    fn no_such_subresource(&self, kind: &Discovered) -> Result<()> {
        if self.0.settings.subresource.is_some() {
            let reason = "a subresource cannot be created or deleted like its object; use \
                        `subresource_of(…)`";
            return Err(Error::Unsupported {
                kind: kind.resource.kind.clone(),
                reason,
            });
        }
        Ok(())
    }

    /// Sends a whole object.
    async fn put<K: KubeObject>(
        &self,
        (verb, method): (Verb, Method),
        kind: &Discovered,
        key: &ObjectKey,
        path: String,
        object: &K,
    ) -> Result<K> {
        if K::metadata_api() {
            return Err(Error::MetadataOnly {
                kind: kind.resource.kind.clone(),
                key: key.clone(),
            });
        }
        let mut asking = ApiRequest::json(method, path, encode(kind, key, object)?);
        asking.query = self.0.settings.writing(false).finish();
        let answer = self.send_write(verb, kind, key, asking).await?;
        decode(kind, key, &answer).map(Arc::unwrap_or_clone)
    }

    /// Sends a write, and records it for the consistency of reads.
    ///
    /// All writes use this function. A response means that the API server has applied the write.
    pub(super) async fn send_write(
        &self,
        verb: Verb,
        kind: &Discovered,
        key: &ObjectKey,
        asking: ApiRequest,
    ) -> Result<Bytes> {
        let (body, mut done) = (asking.body.as_ref().map(|(body, _)| body.clone()), None);
        let answer = {
            let write = pin!(async {
                let own = self.own_write(verb, kind, key);
                // Boxed to keep the futures of the callers small.
                let sent = Box::pin(self.send(asking, false));
                let answer = match Fence::current() {
                    Some(fence) => under(&fence, verb, kind, key, sent).await?,
                    None => sent.await,
                };
                // A dry run never changes anything, so its timeout stays that of a read.
                let dry_run = self.0.settings.dry_run;
                let answer = answer.map_err(|error| {
                    if dry_run {
                        error
                    } else {
                        error.of_write(kind, key)
                    }
                });
                let answer = self.classified(kind, answer).await?;
                done = Some((own, answer.clone()));
                Ok(answer)
            });
            self.intercept_call(verb, || kind.clone(), key, body, write)
                .await?
        };
        // Record the response of the API server, unless an interceptor replaced it by an error.
        if let Some((own, response)) = done {
            own.record_response(&response);
        }
        Ok(answer)
    }
}

/// Sends a write under a lease.
///
/// Logs a warning if the write may be applied after the lease has ended.
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
                    namespace = key.namespace(),
                    name = key.name(),
                    "response to write arrived after lease ended"
                );
            }
            Ok(answer)
        }
        Err(WriteError::Unsent(fenced)) => Err(Error::Fenced {
            kind,
            key: of_key,
            fenced,
        }),
        Err(WriteError::InFlight(fenced)) => {
            tracing::warn!(
                lease,
                token,
                ?verb,
                kind = of,
                namespace = key.namespace(),
                name = key.name(),
                "lease ended before response to write, write may have been applied"
            );
            Err(Error::FencedOnItsWay {
                kind,
                key: of_key,
                fenced,
            })
        }
    }
}
