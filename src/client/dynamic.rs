//! Kinds that are named at run time.

use super::{Client, Discovered, Patch, Result, Subresource, Verb};
use crate::{
    cache::{Query, Select},
    object::{KubeObject, Metadata, ObjectKey},
};
use kube_core::{DynamicObject, GroupVersionKind};
use serde::Serialize;
use std::{fmt, pin::pin, sync::Arc};

/// The verbs that a type names the kind for, for a kind that is named at run time. The others take a `DynamicObject` as they take any object:
/// `client.create(&object)`. From [`Client::dynamic`], whose settings it has.
///
/// ```
/// # use steersman::client::{Client, Result};
/// # use steersman::object::ObjectKey;
/// # async fn example(client: Client) -> Result<()> {
/// use kube_core::GroupVersionKind;
///
/// let clusters = client.live().dynamic(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"));
/// if let Some(cluster) = clusters.get(&ObjectKey::new("shop", "web")).await? {
///     println!("{}", cluster.data["status"]["phase"]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dynamic {
    client: Client,
    kind: GroupVersionKind,
}

impl Dynamic {
    pub(super) fn new(client: Client, kind: GroupVersionKind) -> Self {
        Self { client, kind }
    }

    /// As [`Client::get`].
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Arc<DynamicObject>>> {
        self.read(Select::dynamic, key).await
    }

    /// Only the metadata: all that is sent, if it is read from the server.
    pub async fn get_metadata(&self, key: &ObjectKey) -> Result<Option<Arc<Metadata>>> {
        self.read(Select::dynamic_metadata, key).await
    }

    /// As [`Client::list`].
    pub async fn list(&self, query: &Query<DynamicObject>) -> Result<Vec<Arc<DynamicObject>>> {
        self.read_all(Select::dynamic, query).await
    }

    /// Only the metadata: all that is sent, if it is read from the server.
    pub async fn list_metadata(&self, query: &Query<Metadata>) -> Result<Vec<Arc<Metadata>>> {
        self.read_all(Select::dynamic_metadata, query).await
    }

    /// As [`Client::patch`].
    pub async fn patch(&self, key: &ObjectKey, patch: &Patch<impl Serialize + Sync>) -> Result<DynamicObject> {
        self.client.patch_of(&*self.client.find(&self.kind).await?, key, patch).await
    }

    /// The same, when nothing but metadata has to come back.
    pub async fn patch_metadata(&self, key: &ObjectKey, patch: &Patch<impl Serialize + Sync>) -> Result<Metadata> {
        self.client.patch_of(&*self.client.find(&self.kind).await?, key, patch).await
    }

    /// As [`Client::delete`].
    pub async fn delete(&self, key: &ObjectKey) -> Result<bool> {
        self.client.delete_of(&*self.client.find(&self.kind).await?, key).await
    }

    /// As [`Client::delete_collection`].
    pub async fn delete_collection(&self, query: &Query<DynamicObject>) -> Result<()> {
        self.client.delete_all_of(&*self.client.find(&self.kind).await?, query).await
    }

    /// As [`Client::subresource_of`].
    pub fn subresource_of(&self, key: &ObjectKey, name: &str) -> Subresource {
        Subresource::named(&self.client, self.kind.clone(), key, name)
    }

    async fn read<K: KubeObject>(
        &self,
        select: fn(GroupVersionKind) -> Select<K>,
        key: &ObjectKey,
    ) -> Result<Option<Arc<K>>> {
        let Self { client, kind } = self;
        // Whether a namespace counts, only the server knows; it is asked once.
        let found = client.find(kind).await?;
        let Some(cache) = client.cache() else { return client.get_live(&found, key).await };
        let key = client.0.settings.named(&kind.kind, found.namespaced, key)?;
        let read = pin!(async { Ok(client.informer(cache, select(kind.clone()), &key).await?.get(&key)?) });
        client.got(|| Discovered::clone(&found), &key, read).await
    }

    async fn read_all<K: KubeObject>(
        &self,
        select: fn(GroupVersionKind) -> Select<K>,
        query: &Query<K>,
    ) -> Result<Vec<Arc<K>>> {
        let Self { client, kind } = self;
        let found = client.find(kind).await?;
        let Some(cache) = client.cache() else { return client.list_live(&found, query).await };
        let all = client.0.settings.collection(&kind.kind, found.namespaced, query.asked().namespace)?;
        let read = pin!(client.list_cached(cache, select(kind.clone()), query, &all));
        client.through(Verb::List, || Discovered::clone(&found), &all, None, read).await
    }
}

impl fmt::Debug for Dynamic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dynamic").field("kind", &self.kind).finish_non_exhaustive()
    }
}
