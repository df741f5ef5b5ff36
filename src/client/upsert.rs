//! Objects made as they are wanted, whether they are there or not.
//!
//! What holds: what is sent is what `mutate` has changed in the object as it was read, never what differs from an object that somebody has written down. So a
//! field that the server has filled in stays, and what is as it is wanted costs no write. And what is sent has the version that was read: a conflict, if that
//! is not the latest. What a transform has left out of an object in the cache is nothing that anybody wants to take away: where a write could, the object is read
//! from the server before.

use super::{BoxError, Change, Client, Discovered, Error, Patch, Result, diff::diff, wire::unsent};
use crate::{
    cache::Select,
    object::{KubeObject, ObjectKey, Transform},
};
use kube_core::ObjectMeta;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, mem, pin::pin, sync::Arc};

impl Client {
    /// Make the object what `mutate` wants, with one `PUT` if it is there.
    ///
    /// Prefer [`create_or_patch`](Self::create_or_patch), which says the rest: a `PUT` also takes away what the type does not know, and does not change a status
    /// that is written apart. Use it for what has to be replaced as a whole.
    ///
    /// What a [transform](Select::transform) has left out of the object in the cache would be taken away, too. So where there is one, an object that is to
    /// be changed is read from the server, and `mutate` called once more, with that one.
    pub async fn create_or_update<K: KubeObject>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> Result<(), BoxError> + Send,
    ) -> Result<(Change, K)> {
        let (kind, key) = self.meant(&object).await?;
        let (base, wanted) = match self.wanted(&kind, &key, object, mutate, |_, _| true).await? {
            Start::Created { created, .. } => return Ok((Change::Created, created)),
            Start::Same(same) => return Ok((Change::None, same)),
            Start::Differs { base, wanted, .. } => (base, wanted),
        };
        let updated = self.update(&wanted).await?;
        Ok((if self.has_changed(&*base, &updated) { Change::Updated } else { Change::None }, updated))
    }

    /// Make the object what `mutate` wants: `object` names it, and is what `mutate` starts from if there is none yet. Otherwise that is the object as it is,
    /// read as this client reads, and what `mutate` changes is patched. If it changes nothing, nothing is sent. Gives what was done, and the object as the
    /// server has it then.
    ///
    /// `mutate` sets what is wanted and leaves the rest alone. It must not rename the object; of the metadata it may change labels, annotations, finalizers
    /// and owners. It is called once more if somebody makes the object in between. Somebody who changes it in between makes it a conflict.
    ///
    /// What a [transform](Select::transform) has left out of the object in the cache stays on the server. Lists are sent as a whole: if there is one in what is to
    /// be sent, of a part that the transform may change, the object is read from the server first, and `mutate` called once more, with that one.
    ///
    /// A status is written where the server has it: in a request of its own, after the rest, if discovery says that the kind has a `status` subresource, and
    /// with the rest otherwise. What was dropped or has failed between the two, the next call does.
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
        // Objects are large, and are moved about here: whoever calls it stays small.
        Box::pin(self.patch_or_create(object, mutate)).await
    }

    async fn patch_or_create<K: KubeObject>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> Result<(), BoxError> + Send,
    ) -> Result<(Change, K)> {
        let (kind, key) = self.meant(&object).await?;
        let (base, wanted, mut patch) = match self.wanted(&kind, &key, object, mutate, may_lose).await? {
            Start::Created { wanted, created } => {
                let status = value(&kind, &key, &wanted)?["status"].take();
                return Ok((Change::Created, self.add_status(&kind, &key, created, status).await?));
            }
            Start::Same(same) => return Ok((Change::None, same)),
            Start::Differs { base, wanted, patch } => (base, wanted, patch),
        };
        let apart = patch.contains_key("status") && self.has_status(&kind).await?;
        let status_patch = if apart { patch.remove("status") } else { None };

        let (mut object, mut rest, mut status) = (wanted, false, false);
        // Unless it was the status alone.
        if !patch.is_empty() {
            let whole = (patch.keys().any(|key| key != "status"), patch.contains_key("status"));
            object = self.patch_of(&kind, &key, &with_version(patch.into(), &*base)).await?;
            if self.has_changed(&*base, &object) {
                (rest, status) = whole;
            }
        }
        if let Some(patch) = status_patch {
            // Without a patch of the rest, the version is that of `base`.
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

    /// That this client writes whole objects.
    pub(super) fn no_subresource(&self, kind: &Discovered) -> Result<()> {
        if self.0.settings.subresource.is_some() {
            let what = "this is done to a whole object: use a client without `subresource(…)`";
            return Err(Error::Unsupported { kind: kind.resource.kind.clone(), what });
        }
        Ok(())
    }

    async fn meant<K: KubeObject>(&self, object: &K) -> Result<(Arc<Discovered>, ObjectKey)> {
        let kind = self.kind_of(object).await?;
        self.no_subresource(&kind)?;
        let key = self.0.settings.key(&kind.resource.kind, kind.namespaced, &ObjectKey::of(object))?;
        if key.name().is_empty() {
            return Err(Error::NoName { kind: kind.resource.kind.clone() });
        }
        Ok((kind, key))
    }

    /// Create the object as it is wanted, or find what it is and is to be. What `loses` something if it is written from an object that a transform has changed is
    /// found from the whole one.
    async fn wanted<K: KubeObject>(
        &self,
        kind: &Discovered,
        key: &ObjectKey,
        mut object: K,
        mut mutate: impl FnMut(&mut K) -> Result<(), BoxError> + Send,
        loses: fn(&Transform, &Map<String, Value>) -> bool,
    ) -> Result<Start<K>> {
        let mut change = |object: &mut K| -> Result<()> {
            mutate(object).map_err(Error::Mutate)?;
            match ObjectKey::of(object) {
                same if same == *key => Ok(()),
                changed => Err(Error::Renamed { kind: kind.resource.kind.clone(), key: key.clone(), changed }),
            }
        };
        let read = self.read_any(kind, key).await?;
        let (base, transform): (Arc<K>, _) = if let Some(read) = read {
            read
        } else {
            object.meta_mut().namespace = key.namespace().map(Into::into);
            change(&mut object)?;
            let taken = match self.create(&object).await {
                Ok(created) => return Ok(Start::Created { wanted: object, created }),
                Err(error) if error.is_already_exists() => error,
                Err(error) => return Err(error),
            };
            // Somebody was faster, or the cache is behind; if it is gone again, that is for the next time.
            (self.get_live(kind, key).await?.ok_or(taken)?, None)
        };
        let mut start = |mut base: Arc<K>| -> Result<Start<K>> {
            // The same on both sides: what a transform has emptied is there on the server, and nobody wants it gone.
            if has_empty(base.meta()) {
                drop_empty(Arc::make_mut(&mut base).meta_mut());
            }
            let mut wanted = (*base).clone();
            change(&mut wanted)?;
            keep(base.meta(), wanted.meta_mut());
            Ok(match diff(&value(kind, key, &*base)?, &value(kind, key, &wanted)?) {
                Some(Value::Object(patch)) => Start::Differs { base, wanted, patch },
                _ => Start::Same(wanted),
            })
        };
        let found = start(base)?;
        let lossy = match (&found, &transform) {
            (Start::Differs { patch, .. }, Some(transform)) => loses(transform, patch),
            _ => false,
        };
        if !lossy {
            return Ok(found);
        }
        // If it is gone by now, the server says so to the write.
        self.get_live(kind, key).await?.map_or(Ok(found), start)
    }

    /// As this client reads, whatever names the kind; and what has changed the object since it came from the server.
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
            self.got(|| kind.clone(), key, read).await?
        };
        Ok(read.map(|object| (object, transform)))
    }

    async fn has_status(&self, kind: &Discovered) -> Result<bool> {
        self.0.family.kinds.has_status(self.link(), &kind.gvk()).await
    }

    /// The status of what was just made.
    async fn add_status<K: KubeObject>(
        &self,
        kind: &Discovered,
        key: &ObjectKey,
        created: K,
        status: Value,
    ) -> Result<K> {
        let none = status.as_object().is_none_or(Map::is_empty);
        // What was made in a dry run is not there to be written to.
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
        // Either the object is gone, or what discovery has said is not so any more.
        if patched.as_ref().is_err_and(Error::is_not_found) {
            self.0.family.kinds.forget(&kind.gvk());
        }
        patched
    }

    /// A server that is sent what it has already keeps its version. So it does in a dry run, of which all is believed.
    fn has_changed<K: KubeObject>(&self, before: &K, after: &K) -> bool {
        self.0.settings.dry_run || before.meta().resource_version != after.meta().resource_version
    }
}

enum Start<K> {
    Created { wanted: K, created: K },
    Same(K),
    Differs { base: Arc<K>, wanted: K, patch: Map<String, Value> },
}

/// What the server alone says of an object stays as it was read.
fn keep(base: &ObjectMeta, wanted: &mut ObjectMeta) {
    let ObjectMeta { labels, annotations, finalizers, owner_references, .. } = mem::take(wanted);
    *wanted = ObjectMeta { labels, annotations, finalizers, owner_references, ..base.clone() };
    drop_empty(wanted);
}

fn has_empty(meta: &ObjectMeta) -> bool {
    let ObjectMeta { labels, annotations, finalizers, owner_references, .. } = meta;
    [labels, annotations].into_iter().flatten().any(BTreeMap::is_empty)
        || finalizers.as_ref().is_some_and(Vec::is_empty)
        || owner_references.as_ref().is_some_and(Vec::is_empty)
}

/// An empty list or map is the same as none: the server keeps none.
fn drop_empty(meta: &mut ObjectMeta) {
    for map in [&mut meta.labels, &mut meta.annotations] {
        map.take_if(|map| map.is_empty());
    }
    meta.finalizers.take_if(|list| list.is_empty());
    meta.owner_references.take_if(|list| list.is_empty());
}

/// Whether a patch that was made from what this has left may take away what it has not: a list is sent as a whole, and nothing else is.
fn may_lose(transform: &Transform, patch: &Map<String, Value>) -> bool {
    let whole = |part: &str| part != "metadata" && transform.is_of_metadata();
    patch.iter().any(|(part, value)| !whole(part) && has_list(value))
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
    serde_json::to_value(object).map_err(unsent(kind, key))
}
