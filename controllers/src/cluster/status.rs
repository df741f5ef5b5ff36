//! Conditions of a Cluster, computed from what the reconcile has read.

use super::{
    deletion::Step,
    role::{Referenced, Role, has_stand_alone_machines, is_deleting},
};
use crate::{
    cluster_api::{
        Cluster,
        conditions::{
            self, CONTROL_PLANE_AVAILABLE, CONTROL_PLANE_INITIALIZED, DELETING, Fallback,
            INFRASTRUCTURE_READY,
        },
    },
    external::contract,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use steersman::conditions::{Status, new};

/// Message of a condition whose reason is an error. The log has the error.
pub(super) const INTERNAL_ERROR: &str = "Please check controller logs for errors";

const DOES_NOT_EXIST: &str = "ObjectDoesNotExist";

/// Results of a reconcile that the conditions report.
pub(super) struct Observed<'a> {
    pub(super) infrastructure: &'a Referenced,
    pub(super) control_plane: &'a Referenced,
    /// Whether a Machine of the control plane became a node; `None` if Machines were not read.
    pub(super) has_node: Option<bool>,
    /// Progress of the deletion, if the Cluster is being deleted.
    pub(super) deletion: Option<&'a Step>,
}

/// Sets the conditions of a Cluster.
pub(super) fn set_conditions(cluster: &mut Cluster, observed: &Observed<'_>, now: Timestamp) {
    let computed = [
        Some(mirrored(
            Role::Infrastructure,
            cluster,
            observed.infrastructure,
            now,
        )),
        Some(mirrored(
            Role::ControlPlane,
            cluster,
            observed.control_plane,
            now,
        )),
        initialized(cluster, observed.control_plane, observed.has_node, now),
        Some(deleting(cluster, observed.deletion, now)),
    ];
    for condition in computed.into_iter().flatten() {
        conditions::set(cluster, condition);
    }
}

/// Returns the condition that mirrors the one of a referenced object.
fn mirrored(role: Role, cluster: &Cluster, referenced: &Referenced, now: Timestamp) -> Condition {
    let (target, source, not_ready, field) = match role {
        Role::Infrastructure => (INFRASTRUCTURE_READY, "Ready", "NotReady", "provisioned"),
        Role::ControlPlane => (
            CONTROL_PLANE_AVAILABLE,
            "Available",
            "NotAvailable",
            "controlPlaneInitialized",
        ),
    };
    let condition =
        |status: Status, reason: &str, message: String| new(target, status, reason, message, now);
    if role.reference(cluster).is_none() && cluster.spec.has_topology() {
        return condition(Status::False, DOES_NOT_EXIST, waiting_for_topology(cluster));
    }
    let (kind, was_ready) = (role.kind(cluster), role.was_ready(cluster));
    match referenced {
        Referenced::Found(provider) => {
            let reported = match conditions::reported(&provider.object, now) {
                Ok(reported) => reported,
                Err(error) => {
                    let reason = "InvalidConditionReported";
                    return condition(Status::Unknown, reason, error.to_string());
                }
            };
            let fallback = if was_ready {
                fallback(Status::True, source, String::new())
            } else {
                let message = format!("{kind} status.initialization.{field} is false");
                fallback(Status::False, not_ready, message)
            };
            let mut mirrored = conditions::mirror(&reported, source, target, Some(fallback), now);
            // A condition in the format of v1beta1 has no reason if it is true.
            if mirrored.reason == conditions::NO_REASON_REPORTED && mirrored.status == "True" {
                mirrored.reason = source.into();
            }
            mirrored
        }
        Referenced::Undefined | Referenced::Unknown => {
            condition(Status::Unknown, "InternalError", INTERNAL_ERROR.into())
        }
        Referenced::NotFound if !was_ready => {
            let message = format!("{kind} does not exist");
            condition(Status::False, DOES_NOT_EXIST, message)
        }
        Referenced::NotFound => {
            let exists = if is_deleting(cluster) {
                ""
            } else {
                " while the cluster still exists"
            };
            let message = format!("{kind} has been deleted{exists}");
            condition(Status::False, "ObjectDeleted", message)
        }
    }
}

fn fallback(status: Status, reason: &str, message: String) -> Fallback {
    Fallback {
        status,
        reason: reason.into(),
        message,
    }
}

/// Returns the condition `ControlPlaneInitialized`; `None` if it is true, because it stays true.
fn initialized(
    cluster: &Cluster,
    control_plane: &Referenced,
    has_node: Option<bool>,
    now: Timestamp,
) -> Option<Condition> {
    if conditions::is_true(cluster, CONTROL_PLANE_INITIALIZED) {
        return None;
    }
    let condition = |status: Status, reason: &str, message: String| {
        new(CONTROL_PLANE_INITIALIZED, status, reason, message, now)
    };
    let internal_error = || condition(Status::Unknown, "InternalError", INTERNAL_ERROR.into());
    let decided = |is_initialized: bool, message: &str| {
        if is_initialized {
            condition(Status::True, "Initialized", String::new())
        } else {
            condition(Status::False, "NotInitialized", message.into())
        }
    };
    if has_stand_alone_machines(cluster) {
        let message = "Waiting for the first control plane machine to have status.nodeRef set";
        return Some(has_node.map_or_else(internal_error, |it| decided(it, message)));
    }
    let role = Role::ControlPlane;
    if role.reference(cluster).is_none() {
        let message = waiting_for_topology(cluster);
        return Some(condition(Status::Unknown, DOES_NOT_EXIST, message));
    }
    Some(match control_plane {
        Referenced::Undefined | Referenced::Unknown => internal_error(),
        Referenced::NotFound => {
            let message = format!("{} does not exist", role.kind(cluster));
            condition(Status::Unknown, DOES_NOT_EXIST, message)
        }
        Referenced::Found(provider) => {
            match contract::control_plane::initialized(&provider.contract, &provider.object) {
                Ok(field) => {
                    let message = "Control plane not yet initialized";
                    decided(field.unwrap_or_default(), message)
                }
                // The reconcile returns the error.
                Err(_) => internal_error(),
            }
        }
    })
}

fn deleting(cluster: &Cluster, deletion: Option<&Step>, now: Timestamp) -> Condition {
    match deletion {
        None => new(DELETING, Status::False, "NotDeleting", "", now),
        Some(step) => {
            let (reason, message) = step.report(cluster);
            new(DELETING, Status::True, reason, message, now)
        }
    }
}

fn waiting_for_topology(cluster: &Cluster) -> String {
    if is_deleting(cluster) {
        String::new()
    } else {
        "Waiting for cluster topology to be reconciled".into()
    }
}
