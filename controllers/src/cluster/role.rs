//! The two references of a Cluster, and the result of reading them.

use crate::cluster_api::{
    Cluster, ContractVersionedObjectReference, conditions::INFRASTRUCTURE_READY,
};
use kube::core::DynamicObject;
use std::sync::Arc;

/// Type of the deprecated condition that mirrors `Ready` of the control plane.
pub(super) const CONTROL_PLANE_READY: &str = "ControlPlaneReady";

/// One of the two references of a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Infrastructure,
    ControlPlane,
}

impl Role {
    pub(super) const ALL: [Self; 2] = [Self::Infrastructure, Self::ControlPlane];

    /// Returns the reference, unless it is missing or empty.
    pub(super) fn reference(self, cluster: &Cluster) -> Option<&ContractVersionedObjectReference> {
        let reference = match self {
            Self::Infrastructure => &cluster.spec.infrastructure_ref,
            Self::ControlPlane => &cluster.spec.control_plane_ref,
        };
        reference
            .as_ref()
            .filter(|reference| reference.is_defined())
    }

    /// Returns the kind that the reference names, for messages.
    pub(super) fn kind(self, cluster: &Cluster) -> &str {
        self.reference(cluster)
            .map_or("", |reference| &reference.kind)
    }

    /// Returns whether the status of the Cluster reports that the object was ready once.
    pub(super) fn was_ready(self, cluster: &Cluster) -> bool {
        cluster.status.as_ref().is_some_and(|status| match self {
            Self::Infrastructure => status.is_infrastructure_provisioned(),
            Self::ControlPlane => status.is_control_plane_initialized(),
        })
    }

    /// Reports in the status of the Cluster that the object was ready once.
    pub(super) fn set_ready(self, cluster: &mut Cluster) {
        let status = cluster.status.get_or_insert_default();
        let initialization = status.initialization.get_or_insert_default();
        let flag = match self {
            Self::Infrastructure => &mut initialization.infrastructure_provisioned,
            Self::ControlPlane => &mut initialization.control_plane_initialized,
        };
        *flag = Some(true);
    }

    /// Returns the type of the deprecated condition that mirrors `Ready` of the object.
    pub(super) fn deprecated_condition(self) -> &'static str {
        match self {
            Self::Infrastructure => INFRASTRUCTURE_READY,
            Self::ControlPlane => CONTROL_PLANE_READY,
        }
    }

    /// Returns the state that the object reaches once, for errors.
    pub(super) fn ready_verb(self) -> &'static str {
        match self {
            Self::Infrastructure => "provisioned",
            Self::ControlPlane => "initialized",
        }
    }

    /// Returns the type of provider, for errors.
    pub(super) fn provider(self) -> &'static str {
        match self {
            Self::Infrastructure => "infrastructure",
            Self::ControlPlane => "control plane",
        }
    }
}

/// Returns whether the control plane consists of Machines without an object that creates them.
///
/// Then the Machines decide whether it is initialized.
pub(super) fn has_stand_alone_machines(cluster: &Cluster) -> bool {
    Role::ControlPlane.reference(cluster).is_none() && !cluster.spec.has_topology()
}

/// Object that a reference names, with the contract of its CRD.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    pub(super) object: Arc<DynamicObject>,
    /// Contract version, such as `v1beta1`. It determines the names of the status fields.
    pub(super) contract: String,
}

impl Provider {
    pub(super) fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }
}

/// Result of reading the object of a reference.
#[derive(Clone, Debug)]
pub(super) enum Referenced {
    /// The Cluster has no reference.
    Undefined,
    /// The object does not exist. Its CRD does.
    NotFound,
    /// The object was not read, or the read failed.
    Unknown,
    Found(Provider),
}

impl Referenced {
    pub(super) fn found(&self) -> Option<&Provider> {
        match self {
            Self::Found(provider) => Some(provider),
            _ => None,
        }
    }
}

/// Returns whether the deletion of a Cluster was requested.
pub(super) fn is_deleting(cluster: &Cluster) -> bool {
    cluster.metadata.deletion_timestamp.is_some()
}

/// Returns namespace and name, which every object from the API server has.
pub(super) fn parts(cluster: &Cluster) -> (&str, &str) {
    let text = Option::as_deref;
    (
        text(&cluster.metadata.namespace).unwrap_or_default(),
        text(&cluster.metadata.name).unwrap_or_default(),
    )
}
