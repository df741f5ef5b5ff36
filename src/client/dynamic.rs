//! Verbs for kinds that are named at run time.

use super::{Client, Discovered, Patch, Result, Subresource, Verb};
use crate::{
    cache::{InformerState, Query, Select},
    object::{KubeObject, Metadata, ObjectKey},
};
use kube_core::{DynamicObject, GroupVersionKind};
use serde::Serialize;
use std::{fmt, pin::pin, sync::Arc};

/// Verbs for a kind that is named at run time, with the settings of its client.
///
/// [`Client::dynamic`] creates it. Verbs that take an object accept a `DynamicObject` like any
/// other: `client.create(&object)`.
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

    /// Returns an object, see [`Client::get`].
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Arc<DynamicObject>>> {
        self.read(Select::dynamic, key).await
    }

    /// Returns the metadata of an object. A live read transfers only the metadata.
    pub async fn get_metadata(&self, key: &ObjectKey) -> Result<Option<Arc<Metadata>>> {
        self.read(Select::dynamic_metadata, key).await
    }

    /// Returns the state of the informer that serves reads, see [`Client::informer_state`].
    ///
    /// An informer that has only the metadata of the kind counts as none.
    pub fn informer_state(&self) -> Option<InformerState> {
        let select = Select::dynamic(self.kind.clone());
        self.client.cache()?.state_for_reads(&select)
    }

    /// Lists objects, see [`Client::list`].
    pub async fn list(&self, query: &Query<DynamicObject>) -> Result<Vec<Arc<DynamicObject>>> {
        self.read_all(Select::dynamic, query).await
    }

    /// Lists the metadata of objects. A live read transfers only the metadata.
    pub async fn list_metadata(&self, query: &Query<Metadata>) -> Result<Vec<Arc<Metadata>>> {
        self.read_all(Select::dynamic_metadata, query).await
    }

    /// Patches an object, see [`Client::patch`].
    pub async fn patch(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Sync>,
    ) -> Result<DynamicObject> {
        self.client
            .patch_of(&*self.client.find(&self.kind).await?, key, patch)
            .await
    }

    /// Patches an object and returns only its metadata.
    pub async fn patch_metadata(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Sync>,
    ) -> Result<Metadata> {
        self.client
            .patch_of(&*self.client.find(&self.kind).await?, key, patch)
            .await
    }

    /// Deletes an object, see [`Client::delete`].
    pub async fn delete(&self, key: &ObjectKey) -> Result<bool> {
        self.client
            .delete_of(&*self.client.find(&self.kind).await?, key)
            .await
    }

    /// Deletes all objects that a query matches, see [`Client::delete_collection`].
    pub async fn delete_collection(&self, query: &Query<DynamicObject>) -> Result<()> {
        self.client
            .delete_all_of(&*self.client.find(&self.kind).await?, query)
            .await
    }

    /// Returns a subresource of an object, see [`Client::subresource_of`].
    pub fn subresource_of(&self, key: &ObjectKey, name: &str) -> Subresource {
        Subresource::named(&self.client, self.kind.clone(), key, name)
    }

    async fn read<K: KubeObject>(
        &self,
        select: fn(GroupVersionKind) -> Select<K>,
        key: &ObjectKey,
    ) -> Result<Option<Arc<K>>> {
        let Self { client, kind } = self;
        // Only discovery knows whether the kind is namespaced. The result is cached.
        let found = client.find(kind).await?;
        let Some(cache) = client.cache() else {
            return client.get_live(&found, key).await;
        };
        let key = client.0.settings.named(&kind.kind, found.namespaced, key)?;
        let read = pin!(async {
            Ok(client
                .informer(cache, select(kind.clone()), &key)
                .await?
                .get(&key)?)
        });
        client
            .intercept_get(|| Discovered::clone(&found), &key, read)
            .await
    }

    async fn read_all<K: KubeObject>(
        &self,
        select: fn(GroupVersionKind) -> Select<K>,
        query: &Query<K>,
    ) -> Result<Vec<Arc<K>>> {
        let Self { client, kind } = self;
        let found = client.find(kind).await?;
        let Some(cache) = client.cache() else {
            return client.list_live(&found, query).await;
        };
        let all = client.0.settings.collection(
            &kind.kind,
            found.namespaced,
            query.list_params().namespace,
        )?;
        let read = pin!(client.list_cached(cache, select(kind.clone()), query, &all));
        client
            .intercept_call(Verb::List, || Discovered::clone(&found), &all, None, read)
            .await
    }
}

impl fmt::Debug for Dynamic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dynamic")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
