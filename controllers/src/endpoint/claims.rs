//! Finds the `Cluster` that a control plane may write to.
//!
//! A `Cluster` refers to a control plane if its `spec.controlPlaneRef` names the control plane or,
//! where it has no `controlPlaneRef`, if an owner reference of the control plane has its uid.
//! Labels and equal names do not count.
//!
//! Invariant: a control plane writes to a `Cluster`, and to itself, only if no other `Cluster`
//! refers to the control plane, and if no other control plane has the same claim. So two control
//! planes never write to one `Cluster` in turns.

use super::{
    dependents::{WatchedKinds, namespace_and_name},
    types::CAPTControlPlane,
};
use crate::cluster_api::{Cluster, ContractVersionedObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use std::sync::Arc;
use steersman::{
    cache::{CacheError, Index},
    prelude::*,
};

/// Result of the search for the `Cluster` of a control plane.
#[derive(Clone, Debug)]
pub(super) enum Claim {
    /// The control plane may write to this `Cluster`.
    Cluster(Arc<Cluster>),
    /// No `Cluster` refers to the control plane. The message is for the condition.
    Unreferenced(String),
    /// Several objects claim each other, so nothing is written. The message is for the condition.
    Conflict(String),
}

/// Indexes over the references between Clusters and control planes. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    clusters: Informer<Cluster>,
    by_reference: Index<Cluster, ObjectKey>,
    planes_by_owner: Index<CAPTControlPlane, String>,
}

impl Claims {
    pub(super) fn new(cache: &Cache, watched_kinds: &WatchedKinds) -> Result<Self, CacheError> {
        let clusters = cache.informer_of(watched_kinds.clusters.clone())?;
        let planes = cache.informer_of(watched_kinds.planes.clone())?;
        Ok(Self {
            by_reference: clusters.index(|cluster| referenced_plane(cluster).into_iter().collect()),
            planes_by_owner: planes.index(|plane| {
                cluster_owners(plane)
                    .map(|owner| owner.uid.clone())
                    .collect()
            }),
            clusters,
        })
    }

    /// Returns the control planes to reconcile when `cluster` changes.
    pub(super) fn planes_of_cluster(&self, cluster: &Cluster) -> Vec<Request> {
        let owned = cluster
            .metadata
            .uid
            .iter()
            .flat_map(|uid| self.planes_by_owner.keys(uid));
        referenced_plane(cluster).into_iter().chain(owned).collect()
    }

    /// Returns the control planes to reconcile when `plane` changes: those with the same owner.
    pub(super) fn rivals_of(&self, plane: &CAPTControlPlane) -> Vec<Request> {
        cluster_owners(plane)
            .flat_map(|owner| self.planes_by_owner.keys(&owner.uid))
            .collect()
    }

    /// Finds the `Cluster` that `plane` may write to.
    pub(super) fn claim(&self, plane: &CAPTControlPlane) -> Result<Claim, CacheError> {
        self.claim_without(plane, &[])
    }

    /// Finds the `Cluster` that `plane` may write to, if the `deleted` control planes do not count.
    pub(super) fn claim_without(
        &self,
        plane: &CAPTControlPlane,
        deleted: &[ObjectKey],
    ) -> Result<Claim, CacheError> {
        let clusters = self.referring(plane)?;
        let cluster = match clusters.as_slice() {
            [] => return Ok(Claim::Unreferenced(self.unreferenced(plane))),
            [cluster] => cluster,
            [first, second, ..] => {
                let (first, second) = (ObjectKey::of(&**first), ObjectKey::of(&**second));
                let message = format!(
                    "Cluster {first} and Cluster {second} both refer to this control plane"
                );
                return Ok(Claim::Conflict(format!(
                    "{message}; set spec.controlPlaneRef of one of them to another"
                )));
            }
        };
        if let Some(rival) = self.rival(plane, cluster, deleted)? {
            let message = format!(
                "{} {rival} also claims Cluster {}",
                kind(),
                ObjectKey::of(&**cluster)
            );
            return Ok(Claim::Conflict(format!(
                "{message}; set spec.controlPlaneRef of the Cluster to one of them"
            )));
        }
        Ok(Claim::Cluster(cluster.clone()))
    }

    /// Returns the Clusters that refer to `plane`, each once. There are none while the kind is not
    /// installed.
    fn referring(&self, plane: &CAPTControlPlane) -> Result<Vec<Arc<Cluster>>, CacheError> {
        let mut clusters = match self.by_reference.get(&ObjectKey::of(plane)) {
            Err(CacheError::KindNotFound { .. }) => return Ok(Vec::new()),
            clusters => clusters?,
        };
        for owner in cluster_owners(plane) {
            clusters.extend(
                self.clusters
                    .get(&owner_key(plane, owner))?
                    .filter(|cluster| refers(cluster, plane)),
            );
        }
        clusters.sort_by_key(|cluster| cluster.metadata.name.clone());
        clusters.dedup_by_key(|cluster| cluster.metadata.name.clone());
        Ok(clusters)
    }

    /// Returns another control plane that `cluster` refers to: the first by name, so that the
    /// message is stable.
    ///
    /// A control plane that is being deleted does not count. It writes no endpoint any more.
    fn rival(
        &self,
        plane: &CAPTControlPlane,
        cluster: &Cluster,
        deleted: &[ObjectKey],
    ) -> Result<Option<ObjectKey>, CacheError> {
        let (Some(uid), None) = (&cluster.metadata.uid, reference(cluster)) else {
            return Ok(None);
        };
        let others = self.planes_by_owner.get(uid)?;
        let rivals = others
            .iter()
            .filter(|other| other.metadata.deletion_timestamp.is_none() && refers(cluster, other))
            .map(|other| ObjectKey::of(&**other))
            .filter(|other| *other != ObjectKey::of(plane) && !deleted.contains(other));
        Ok(rivals.min())
    }

    /// Explains why no `Cluster` refers to `plane`.
    fn unreferenced(&self, plane: &CAPTControlPlane) -> String {
        let owner = cluster_owners(plane).find_map(|owner| {
            let cluster = self.clusters.get(&owner_key(plane, owner)).ok().flatten()?;
            (cluster.metadata.uid.as_ref() == Some(&owner.uid)).then_some(cluster)
        });
        match owner {
            Some(cluster) => {
                let cluster = ObjectKey::of(&*cluster);
                format!(
                    "spec.controlPlaneRef of Cluster {cluster}, its owner, names another control plane"
                )
            }
            None => {
                "no Cluster refers to this control plane; set spec.controlPlaneRef of its Cluster"
                    .into()
            }
        }
    }
}

/// Returns whether `cluster` refers to `plane`.
pub(super) fn refers(cluster: &Cluster, plane: &CAPTControlPlane) -> bool {
    if reference(cluster).is_some() {
        return referenced_plane(cluster) == Some(ObjectKey::of(plane));
    }
    cluster.metadata.namespace == plane.metadata.namespace
        && cluster
            .metadata
            .uid
            .as_ref()
            .is_some_and(|uid| cluster_owners(plane).any(|owner| owner.uid == *uid))
}

/// Returns the `CAPTControlPlane` that `spec.controlPlaneRef` names. A control plane lives in the
/// namespace of its Cluster.
fn referenced_plane(cluster: &Cluster) -> Option<ObjectKey> {
    let ContractVersionedObjectReference {
        api_group,
        kind,
        name,
    } = reference(cluster)?;
    let namespace = cluster.metadata.namespace.as_deref()?;
    let is_plane =
        *api_group == CAPTControlPlane::group(&()) && *kind == self::kind() && !name.is_empty();
    is_plane.then(|| ObjectKey::new(namespace, name))
}

/// Returns the reference of `cluster`, unless it is empty.
fn reference(cluster: &Cluster) -> Option<&ContractVersionedObjectReference> {
    let reference = cluster.spec.control_plane_ref.as_ref();
    reference.filter(|reference| reference.is_defined())
}

/// Returns the owner references of `plane` to Clusters, of any version.
fn cluster_owners(plane: &CAPTControlPlane) -> impl Iterator<Item = &OwnerReference> {
    let is_cluster = |owner: &&OwnerReference| {
        owner.kind == Cluster::kind(&())
            && group_of(&owner.api_version) == Cluster::group(&())
            && !owner.uid.is_empty()
    };
    plane
        .metadata
        .owner_references
        .iter()
        .flatten()
        .filter(is_cluster)
}

fn owner_key(plane: &CAPTControlPlane, owner: &OwnerReference) -> ObjectKey {
    ObjectKey::new(namespace_and_name(plane).0, &owner.name)
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn kind() -> std::borrow::Cow<'static, str> {
    CAPTControlPlane::kind(&())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const GROUP: &str = "controlplane.cluster.x-k8s.io";

    fn plane(owners: Value) -> CAPTControlPlane {
        let metadata = json!({
            "namespace": "shop", "name": "plane", "ownerReferences": owners,
            "labels": {"cluster.x-k8s.io/cluster-name": "plane"},
        });
        let spec = json!({"version": "1.31", "workspaceTemplateRef": {"name": "eks"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec}))
            .expect("valid control plane")
    }

    fn cluster(reference: Value) -> Cluster {
        let metadata = json!({"namespace": "shop", "name": "plane", "uid": "1"});
        serde_json::from_value(
            json!({"metadata": metadata, "spec": {"controlPlaneRef": reference}}),
        )
        .expect("valid Cluster")
    }

    fn owner(api_version: &str, kind: &str, uid: &str) -> Value {
        json!([{"apiVersion": api_version, "kind": kind, "name": "plane", "uid": uid}])
    }

    #[test]
    fn a_reference_matches_by_group_kind_and_name() {
        let reference = json!({"apiGroup": GROUP, "kind": "CAPTControlPlane", "name": "plane"});
        assert!(refers(&cluster(reference.clone()), &plane(json!([]))));
        for (field, value) in [
            ("apiGroup", json!("other.io")),
            ("apiGroup", json!("")),
            ("kind", json!("KubeadmControlPlane")),
            ("kind", json!("")),
            ("name", json!("other")),
            ("name", json!("")),
        ] {
            let mut other = reference.clone();
            other[field] = value;
            let owned = plane(owner("cluster.x-k8s.io/v1beta1", "Cluster", "1"));
            assert!(
                !refers(&cluster(other.clone()), &owned),
                "an owner reference does not replace {other}"
            );
        }
    }

    #[test]
    fn an_owner_reference_counts_by_uid_if_the_cluster_has_no_reference() {
        for none in [Value::Null, json!({}), json!({"kind": "", "name": ""})] {
            let refers = |owners| refers(&cluster(none.clone()), &plane(owners));
            assert!(
                refers(owner("cluster.x-k8s.io/v1beta1", "Cluster", "1")),
                "{none}"
            );
            assert!(
                refers(owner("cluster.x-k8s.io/v1beta2", "Cluster", "1")),
                "any version: {none}"
            );
            assert!(
                !refers(owner("cluster.x-k8s.io/v1beta1", "Cluster", "2")),
                "equal names: {none}"
            );
            assert!(!refers(owner("other.io/v1", "Cluster", "1")), "{none}");
            assert!(
                !refers(owner("cluster.x-k8s.io/v1beta1", "Machine", "1")),
                "{none}"
            );
            assert!(!refers(json!([])), "label and name do not count: {none}");
        }
        let mut elsewhere = cluster(Value::Null);
        elsewhere.metadata.namespace = Some("bank".into());
        assert!(
            !refers(
                &elsewhere,
                &plane(owner("cluster.x-k8s.io/v1beta1", "Cluster", "1"))
            ),
            "another namespace"
        );
    }
}
