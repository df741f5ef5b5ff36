//! Reads, watches and adopts the objects that Clusters refer to.

use super::{
    adoption::adopted,
    clusters::Clusters,
    provisioning::copy_failures,
    role::{Provider, Role, parts},
};
use crate::{
    cluster_api::{Cluster, predicates::Changed},
    external::{self, GroupKind, ObjectTracker, TrackerError, contract},
};
use kube::core::DynamicObject;
use std::sync::Arc;
use steersman::{
    client::{self, delete_only},
    object::KubeObject,
    prelude::*,
    reconcile::Result,
};

pub(super) struct References {
    client: Client,
    clusters: Clusters,
    tracker: ObjectTracker,
}

impl References {
    pub(super) fn new(
        client: &Client,
        cache: &Cache,
        controller: &Controller,
        clusters: Clusters,
    ) -> Result<Self, TrackerError> {
        let tracker = ObjectTracker::builder()
            .controller(controller)
            .cache(cache)
            .resolver(client)
            .span(tracing::info_span!("external"))
            // The deletion of a Cluster waits for them.
            .deletes_of_paused_objects(true);
        Ok(Self {
            client: client.clone(),
            clusters,
            tracker: tracker.build()?,
        })
    }

    /// Returns the object of a reference, with owner reference and label. `None` if it does not
    /// exist.
    ///
    /// Copies its failures to the Cluster. Watches its kind, also if the object does not exist.
    pub(super) async fn read(&self, role: Role, cluster: &mut Cluster) -> Result<Option<Provider>> {
        let Some(reference) = role.reference(cluster) else {
            return Ok(None);
        };
        let kind = GroupKind::from(reference);
        let (namespace, _) = parts(cluster);
        let client = &self.client;
        let contract = self.track(&kind, cluster).await?;
        let read = external::get_from_contract_versioned_ref(client, reference, namespace).await;
        let object = match read {
            Err(error) if error.is_not_found() => None,
            object => Some(object?),
        };
        let Some(object) = object else {
            return Ok(None);
        };
        let Some(object) = self.adopt(object, cluster).await? else {
            return Ok(None);
        };
        copy_failures(cluster, &object)?;
        Ok(Some(Provider { object, contract }))
    }

    /// Watches a kind for a Cluster, and returns the contract that its CRD names.
    ///
    /// The kind is watched before an object is read, so that a failed read is repeated when the
    /// kind is served and its objects can be listed.
    async fn track(&self, kind: &GroupKind, cluster: &Cluster) -> Result<String> {
        let metadata = contract::crd_metadata(&self.client, kind).await;
        let latest = metadata.and_then(|metadata| {
            contract::latest_contract_and_api_version(&metadata.metadata, contract::VERSION)
        });
        let latest = latest.map_err(external::Error::from)?;
        self.tracker.track_for(
            &ObjectKey::of(cluster),
            &kind.with_version(&latest.version),
            self.clusters.of_referenced(kind),
            (Changed,),
        )?;
        Ok(latest.contract)
    }

    /// Sets owner reference and label, if one of them differs. `None` if the object was deleted
    /// meanwhile.
    async fn adopt(
        &self,
        object: Arc<DynamicObject>,
        cluster: &Cluster,
    ) -> Result<Option<Arc<DynamicObject>>> {
        let Some(changed) = adopted(&object, cluster)? else {
            return Ok(Some(object));
        };
        let client = self.client.optimistic_lock(false);
        match client.patch_from(&*object, &changed).await {
            Ok(object) => Ok(Some(Arc::new(object))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes an object, unless another one of its name has replaced it.
    pub(super) async fn delete(&self, object: &DynamicObject) -> client::Result<()> {
        let key = ObjectKey::of(object);
        let kind = object.gvk();
        let kind = kind.ok_or_else(|| client::Error::NoKind(key.clone()))?;
        let client = self.client.delete_params(delete_only(object));
        client.dynamic(&kind).delete(&key).await.map(drop)
    }

    /// Stops the watches of kinds that neither this Cluster nor another one refers to.
    pub(super) fn retain(&self, cluster: &Cluster) {
        let roles = Role::ALL.into_iter();
        let kinds: Vec<_> = roles
            .filter_map(|role| role.reference(cluster).map(GroupKind::from))
            .collect();
        self.tracker.retain(&ObjectKey::of(cluster), &kinds);
    }

    /// Stops the watches that only this Cluster needed.
    pub(super) fn release(&self, cluster: &ObjectKey) {
        self.tracker.release(cluster);
    }
}
