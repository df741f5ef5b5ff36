//! Owner reference and label that a Cluster sets on the objects that it refers to.
//!
//! With a topology the Cluster is the controller of the object. Without one it is a plain owner, so
//! that another controller can own the object as well.
//!
//! Invariant: owners other than this Cluster are kept. An object whose owner reference and label are
//! right is not changed.

use crate::cluster_api::{Cluster, labels, owners};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DynamicObject;
use steersman::prelude::*;

/// Error of an object with another controller, if the Cluster has a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Object {object} is already owned by another {kind} controller {name}")]
pub(super) struct AlreadyOwned {
    object: ObjectKey,
    /// Kind of the other controller.
    kind: String,
    /// Name of the other controller.
    name: String,
}

/// Returns the object with owner reference and label; `None` if it has both.
pub(super) fn adopted(
    object: &DynamicObject,
    cluster: &Cluster,
) -> Result<Option<DynamicObject>, AlreadyOwned> {
    let controls = cluster.spec.has_topology().then_some(true);
    let wanted = OwnerReference {
        controller: controls,
        block_owner_deletion: controls,
        ..owners::reference(cluster)
    };
    let metadata = &object.metadata;
    let references = metadata.owner_references.as_deref().unwrap_or_default();
    let labels = metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(labels::CLUSTER_NAME));
    if owners::contains_exactly(references, &wanted) && label == Some(&wanted.name) {
        return Ok(None);
    }
    let is_other = |owner: &&OwnerReference| {
        owner.controller == Some(true) && !owners::contains(std::slice::from_ref(*owner), &wanted)
    };
    if let Some(other) = references
        .iter()
        .find(is_other)
        .filter(|_| controls.is_some())
    {
        return Err(AlreadyOwned {
            object: ObjectKey::of(object),
            kind: other.kind.clone(),
            name: other.name.clone(),
        });
    }
    let mut adopted = object.clone();
    let labels = adopted.metadata.labels.get_or_insert_default();
    labels.insert(labels::CLUSTER_NAME.into(), wanted.name.clone());
    owners::ensure(
        adopted.metadata.owner_references.get_or_insert_default(),
        wanted,
    );
    Ok(Some(adopted))
}
