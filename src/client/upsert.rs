//! Create or update an object, depending on whether it exists.
//!
//! Invariant: the request contains what `mutate` changed in the object that was read. Fields that
//! the API server has defaulted stay, and an object that is up to date needs no write. The request
//! has the resource version that was read, so a concurrent write is a conflict. If the write could
//! remove fields that a transform dropped from the cached object, the object is read from the API
//! server first.

use super::{
    BoxError, Change, Client, Discovered, Error, Patch, Result, diff::diff, wire::encode_error,
};
use crate::{
    cache::Select,
    object::{KubeObject, ObjectKey, Transform},
};
use kube_core::ObjectMeta;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, mem, pin::pin, sync::Arc};

impl Client {
    /// Creates the object, or changes it with one `PUT`.
    ///
    /// See [`create_or_patch`](Self::create_or_patch) for the arguments, and prefer it: a `PUT`
    /// also removes fields that the Rust type does not have, and does not change a status
    /// subresource. Use this to replace an object as a whole.
    ///
    /// If a [transform](Select::transform) applies to the cached object, a changed object is read
    /// from the API server, and `mutate` is called once more with that one. Otherwise the `PUT`
    /// would remove the fields that the transform dropped.
    pub async fn create_or_update<K: KubeObject>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> Result<(), BoxError> + Send,
    ) -> Result<(Change, K)> {
        let (kind, key) = self.target_of(&object).await?;
        let (base, wanted) = match self
            .mutated(&kind, &key, object, mutate, |_, _| true)
            .await?
        {
            Mutated::Created { created, .. } => return Ok((Change::Created, created)),
            Mutated::Same(same) => return Ok((Change::None, same)),
            Mutated::Differs { base, wanted, .. } => (base, wanted),
        };
        let updated = self.update(&wanted).await?;
        Ok((
            if self.has_changed(&*base, &updated) {
                Change::Updated
            } else {
                Change::None
            },
            updated,
        ))
    }

    /// Creates the object, or patches the fields that `mutate` changes.
    ///
    /// `object` names the object, and is the argument of `mutate` if it does not exist. Otherwise
    /// `mutate` receives the current object. If it changes nothing, no request is sent. Returns the
    /// kind of change and the object as stored by the API server.
    ///
    /// `mutate` sets the desired fields and keeps the others. It must not rename the object. In the
    /// metadata, only labels, annotations, finalizers and owner references can change. If another
    /// client creates the object concurrently, `mutate` is called once more. A concurrent change is
    /// a conflict.
    ///
    /// Fields that a [transform](Select::transform) dropped from the cached object stay on the API
    /// server. A merge patch replaces lists as a whole: if the patch contains a list that the
    /// transform may have changed, the object is read from the API server first, and `mutate` is
    /// called once more with that one.
    ///
    /// If discovery lists a `status` subresource for the kind, the status is written in a second
    /// request after the rest, otherwise in the same one. If the second request fails or is
    /// cancelled, the next call repeats it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use steersman::{client::{Change, owner}, prelude::*, testing::{Env, TestServer}};
    ///
    /// let client = Client::new(Env::embedded()?.client()?)?.namespace("default");
    /// let named = |name| ConfigMap { metadata: kube_core::ObjectMeta { name: Some(name), ..Default::default() }, ..Default::default() };
    /// let shop: ConfigMap = client.create(&named("shop".into())).await?;
    ///
    /// for expected in [Change::Created, Change::None] {
    ///     let (change, colors) = client
    ///         .create_or_patch(named("colors".into()), |colors| {
    ///             colors.data.get_or_insert_default().insert("door".into(), "blue".into());
    ///             Ok(owner::set_controller(&shop, colors)?)
    ///         })
    ///         .await?;
    ///     assert_eq!(change, expected);
    ///     assert!(owner::is_controlled_by(&colors, &shop));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create_or_patch<K: KubeObject>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> Result<(), BoxError> + Send,
    ) -> Result<(Change, K)> {
        // Boxed to keep the futures of the callers small: objects are large.
        Box::pin(self.patch_or_create(object, mutate)).await
    }

    async fn patch_or_create<K: KubeObject>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> Result<(), BoxError> + Send,
    ) -> Result<(Change, K)> {
        let (kind, key) = self.target_of(&object).await?;
        let (base, wanted, mut patch) =
            match self.mutated(&kind, &key, object, mutate, may_lose).await? {
                Mutated::Created { wanted, created } => {
                    let status = value(&kind, &key, &wanted)?["status"].take();
                    return Ok((
                        Change::Created,
                        self.add_status(&kind, &key, created, status).await?,
                    ));
                }
                Mutated::Same(same) => return Ok((Change::None, same)),
                Mutated::Differs {
                    base,
                    wanted,
                    patch,
                } => (base, wanted, patch),
            };
        let separate_status = patch.contains_key("status") && self.has_status(&kind).await?;
        let status_patch = if separate_status {
            patch.remove("status")
        } else {
            None
        };

        let (mut object, mut rest, mut status) = (wanted, false, false);
        // Empty if only the status changed.
        if !patch.is_empty() {
            let whole = (
                patch.keys().any(|key| key != "status"),
                patch.contains_key("status"),
            );
            object = self
                .patch_of(&kind, &key, &with_version(patch.into(), &*base))
                .await?;
            if self.has_changed(&*base, &object) {
                (rest, status) = whole;
            }
        }
        if let Some(patch) = status_patch {
            // Without a patch of the rest, this is the resource version of `base`.
            let before = object;
            object = self.patch_status(&kind, &key, &before, patch).await?;
            status = self.has_changed(&before, &object);
        }
        let change = match (rest, status) {
            (false, false) => Change::None,
            (true, false) => Change::Updated,
            (false, true) => Change::UpdatedStatus,
            (true, true) => Change::Both,
        };
        Ok((change, object))
    }

    /// Returns an error if this client writes a subresource.
    pub(super) fn no_subresource(&self, kind: &Discovered) -> Result<()> {
        if self.0.settings.subresource.is_some() {
            let reason = "a subresource cannot be created or updated by a closure; use a client \
                        without `subresource(…)`";
            return Err(Error::Unsupported {
                kind: kind.resource.kind.clone(),
                reason,
            });
        }
        Ok(())
    }

    async fn target_of<K: KubeObject>(&self, object: &K) -> Result<(Arc<Discovered>, ObjectKey)> {
        let kind = self.kind_of(object).await?;
        self.no_subresource(&kind)?;
        let key =
            self.0
                .settings
                .key(&kind.resource.kind, kind.namespaced, &ObjectKey::of(object))?;
        if key.name().is_empty() {
            return Err(Error::NoName {
                kind: kind.resource.kind.clone(),
            });
        }
        Ok((kind, key))
    }

    /// Creates the object, or computes the patch from the current one.
    ///
    /// If `loses` returns true for the patch of a transformed object, the patch is computed from
    /// the object on the API server instead.
    async fn mutated<K: KubeObject>(
        &self,
        kind: &Discovered,
        key: &ObjectKey,
        mut object: K,
        mut mutate: impl FnMut(&mut K) -> Result<(), BoxError> + Send,
        loses: fn(&Transform, &Map<String, Value>) -> bool,
    ) -> Result<Mutated<K>> {
        let mut change = |object: &mut K| -> Result<()> {
            mutate(object).map_err(Error::Mutate)?;
            match ObjectKey::of(object) {
                same if same == *key => Ok(()),
                changed => Err(Error::Renamed {
                    kind: kind.resource.kind.clone(),
                    key: key.clone(),
                    changed,
                }),
            }
        };
        let read = self.read_any(kind, key).await?;
        let (base, transform): (Arc<K>, _) = if let Some(read) = read {
            read
        } else {
            object.meta_mut().namespace = key.namespace().map(Into::into);
            change(&mut object)?;
            let taken = match self.create(&object).await {
                Ok(created) => {
                    return Ok(Mutated::Created {
                        wanted: object,
                        created,
                    });
                }
                Err(error) if error.is_already_exists() => error,
                Err(error) => return Err(error),
            };
            // Another client created it, or the cache is behind. If it is gone again, return the
            // error.
            (self.get_live(kind, key).await?.ok_or(taken)?, None)
        };
        let mut start = |mut base: Arc<K>| -> Result<Mutated<K>> {
            // Remove empty collections from both sides: a transform may have emptied one that is
            // not empty on the API server, and a patch must not remove it.
            if has_empty(base.meta()) {
                drop_empty(Arc::make_mut(&mut base).meta_mut());
            }
            let mut wanted = (*base).clone();
            change(&mut wanted)?;
            keep(base.meta(), wanted.meta_mut());
            Ok(
                match diff(&value(kind, key, &*base)?, &value(kind, key, &wanted)?) {
                    Some(Value::Object(patch)) => Mutated::Differs {
                        base,
                        wanted,
                        patch,
                    },
                    _ => Mutated::Same(wanted),
                },
            )
        };
        let found = start(base)?;
        let lossy = match (&found, &transform) {
            (Mutated::Differs { patch, .. }, Some(transform)) => loses(transform, patch),
            _ => false,
        };
        if !lossy {
            return Ok(found);
        }
        // If the object is gone, the write returns the error.
        self.get_live(kind, key).await?.map_or(Ok(found), start)
    }

    /// Reads the object as this client does, and returns the transform of the cache.
    async fn read_any<K: KubeObject>(
        &self,
        kind: &Discovered,
        key: &ObjectKey,
    ) -> Result<Option<(Arc<K>, Option<Transform>)>> {
        let Some(cache) = self.cache() else {
            return Ok(self.get_live(kind, key).await?.map(|object| (object, None)));
        };
        let mut transform = None;
        let read = {
            let read = pin!(async {
                let informer = self.informer(cache, Select::all(kind.gvk()), key).await?;
                transform = informer.transform_of(key.namespace());
                Ok(informer.get(key)?)
            });
            self.intercept_get(|| kind.clone(), key, read).await?
        };
        Ok(read.map(|object| (object, transform)))
    }

    async fn has_status(&self, kind: &Discovered) -> Result<bool> {
        self.0
            .family
            .kinds
            .has_status(self.counted(), &kind.gvk())
            .await
    }

    /// Writes the status of an object that was just created.
    async fn add_status<K: KubeObject>(
        &self,
        kind: &Discovered,
        key: &ObjectKey,
        created: K,
        status: Value,
    ) -> Result<K> {
        let none = status.as_object().is_none_or(Map::is_empty);
        // An object that was created in a dry run does not exist.
        if none || self.0.settings.dry_run || !self.has_status(kind).await? {
            return Ok(created);
        }
        self.patch_status(kind, key, &created, status).await
    }

    async fn patch_status<K: KubeObject>(
        &self,
        kind: &Discovered,
        key: &ObjectKey,
        before: &K,
        status: Value,
    ) -> Result<K> {
        let patch = with_version(json!({ "status": status }), before);
        let patched = self.status().patch_of(kind, key, &patch).await;
        // The object is gone, or the kind does not have the subresource any more.
        if patched.as_ref().is_err_and(Error::is_not_found) {
            self.0.family.kinds.forget(&kind.gvk());
        }
        patched
    }

    /// Returns whether the resource version changed; always true in a dry run.
    ///
    /// The API server keeps the resource version if a write changes nothing.
    fn has_changed<K: KubeObject>(&self, before: &K, after: &K) -> bool {
        self.0.settings.dry_run || before.meta().resource_version != after.meta().resource_version
    }
}

enum Mutated<K> {
    Created {
        wanted: K,
        created: K,
    },
    Same(K),
    Differs {
        base: Arc<K>,
        wanted: K,
        patch: Map<String, Value>,
    },
}

/// Restores the metadata that only the API server sets.
fn keep(base: &ObjectMeta, wanted: &mut ObjectMeta) {
    let ObjectMeta {
        labels,
        annotations,
        finalizers,
        owner_references,
        ..
    } = mem::take(wanted);
    *wanted = ObjectMeta {
        labels,
        annotations,
        finalizers,
        owner_references,
        ..base.clone()
    };
    drop_empty(wanted);
}

fn has_empty(meta: &ObjectMeta) -> bool {
    let ObjectMeta {
        labels,
        annotations,
        finalizers,
        owner_references,
        ..
    } = meta;
    [labels, annotations]
        .into_iter()
        .flatten()
        .any(BTreeMap::is_empty)
        || finalizers.as_ref().is_some_and(Vec::is_empty)
        || owner_references.as_ref().is_some_and(Vec::is_empty)
}

/// Replaces empty lists and maps by `None`, as the API server does.
fn drop_empty(meta: &mut ObjectMeta) {
    for map in [&mut meta.labels, &mut meta.annotations] {
        map.take_if(|map| map.is_empty());
    }
    meta.finalizers.take_if(|list| list.is_empty());
    meta.owner_references.take_if(|list| list.is_empty());
}

/// Returns whether the patch of a transformed object may remove dropped fields.
///
/// A merge patch replaces lists as a whole, but merges everything else.
fn may_lose(transform: &Transform, patch: &Map<String, Value>) -> bool {
    let whole = |part: &str| part != "metadata" && transform.is_of_metadata();
    patch
        .iter()
        .any(|(part, value)| !whole(part) && has_list(value))
}

fn has_list(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(fields) => fields.values().any(has_list),
        _ => false,
    }
}

fn with_version(mut patch: Value, base: &impl KubeObject) -> Patch<Value> {
    patch["metadata"]["resourceVersion"] = base.meta().resource_version.clone().into();
    Patch::Merge(patch)
}

fn value(kind: &Discovered, key: &ObjectKey, object: &impl KubeObject) -> Result<Value> {
    serde_json::to_value(object).map_err(encode_error(kind, key))
}
