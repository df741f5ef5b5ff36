//! Finds the Clusters that an event affects.
//!
//! | event of | affects the Clusters |
//! |---|---|
//! | a referenced kind | that refer to the object, or that its owner references name |
//! | a `CustomResourceDefinition` | that refer to an object of its group |
//! | a Machine, or an object that creates Machines | that its label names, while they wait for it |
//!
//! A new object of a provider has no owner reference yet. It is found by the reference of its
//! Cluster.

use super::{
    descendants::cluster_of,
    role::{Role, has_stand_alone_machines, is_deleting, parts},
};
use crate::{
    cluster_api::{Cluster, labels},
    external::{GroupKind, contract::CrdMetadata},
};
use kube::core::DynamicObject;
use steersman::{
    cache::{CacheError, Index},
    handler::{self, Handler},
    object::KubeObject,
    prelude::*,
};

/// Indexes of Clusters by their references. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    informer: Informer<Cluster>,
    by_object: Index<Cluster, Target>,
    by_group: Index<Cluster, String>,
}

/// Object that a reference names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Target {
    kind: GroupKind,
    key: ObjectKey,
}

impl Clusters {
    pub(super) fn new(cache: &Cache) -> Result<Self, CacheError> {
        let informer = cache.informer::<Cluster>()?;
        Ok(Self {
            by_object: informer.index(targets),
            by_group: informer.index(|cluster| {
                let targets = targets(cluster).into_iter();
                targets.map(|target| target.kind.group).collect()
            }),
            informer,
        })
    }

    /// Returns the handler of a referenced kind.
    pub(super) fn of_referenced(
        &self,
        kind: &GroupKind,
    ) -> impl Handler<DynamicObject, Request> + use<> {
        let (by_object, kind) = (self.by_object.clone(), kind.clone());
        let referring = handler::map(move |object: &Object<DynamicObject>| {
            by_object.keys(&Target {
                kind: kind.clone(),
                key: object.key().clone(),
            })
        });
        let owners = handler::owner::<Cluster>().any();
        handler::from_fn(move |event, queue| {
            referring.handle(event, queue);
            owners.handle(event, queue);
        })
    }

    /// Returns the handler of CRDs.
    ///
    /// A CRD is not compared by its kind, which is not part of its metadata.
    pub(super) fn of_definitions(&self) -> impl Handler<CrdMetadata, Request> + use<> {
        let by_group = self.by_group.clone();
        handler::map(move |definition: &Object<CrdMetadata>| {
            // The name is `plural.group`.
            let group = definition.name().split_once('.').map(|(_, group)| group);
            group.map_or_else(Vec::new, |group| by_group.keys(&group.to_owned()))
        })
    }

    /// Returns the handler of a kind whose objects are deleted before the control plane.
    pub(super) fn of_descendants<K: KubeObject>(&self) -> impl Handler<K, Request> + use<K> {
        let informer = self.informer.clone();
        handler::map(move |object: &Object<K>| {
            let Some(key) = cluster_of(object.meta(), object.namespace()) else {
                return Ok(None);
            };
            let is_control_plane = object.meta().labels().contains(labels::CONTROL_PLANE);
            let cluster = informer.get(&key)?.filter(|cluster| {
                is_deleting(cluster) || is_control_plane && has_stand_alone_machines(cluster)
            });
            Ok::<_, CacheError>(cluster.map(|_| key))
        })
    }
}

fn targets(cluster: &Cluster) -> Vec<Target> {
    let (namespace, _) = parts(cluster);
    let references = Role::ALL
        .into_iter()
        .filter_map(|role| role.reference(cluster));
    references
        .map(|reference| Target {
            kind: GroupKind::from(reference),
            key: ObjectKey::new(namespace, &reference.name),
        })
        .collect()
}
