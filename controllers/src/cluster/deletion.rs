//! Deletion of what belongs to a Cluster, step by step.
//!
//! Order: the descendants that the Cluster owns, the control plane, the infrastructure. The
//! finalizer is removed when all of them are gone. Each wait ends with a watch event.

use super::{
    descendants::Descendants,
    role::{Referenced, Role},
};
use crate::cluster_api::Cluster;

/// Annotation of a Cluster whose hook `BeforeClusterDelete` has succeeded.
pub(super) const OK_TO_DELETE: &str = "runtime.cluster.x-k8s.io/ok-to-delete";

/// State of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Waits for the annotation [`OK_TO_DELETE`].
    Hook,
    /// A read, or the deletion of an object, has failed. The reconcile returns the error.
    Failed,
    /// Waits for the objects in the message. Those that the Cluster owns are to be deleted.
    Descendants(String),
    /// Waits for the object of a reference, which is to be deleted.
    Provider(Role),
    /// Everything is gone.
    Completed,
}

impl Step {
    /// Returns the next step, and the references whose objects are gone.
    pub(super) fn decide(
        cluster: &Cluster,
        awaits_hook: bool,
        descendants: Option<&Descendants>,
        control_plane: &Referenced,
        infrastructure: &Referenced,
    ) -> (Self, Vec<Role>) {
        let mut gone = Vec::new();
        if awaits_hook && cluster.spec.has_topology() && !is_ok_to_delete(cluster) {
            return (Self::Hook, gone);
        }
        match descendants {
            None => return (Self::Failed, gone),
            Some(Descendants(all)) if all.is_empty() => {}
            Some(descendants) => return (Self::Descendants(descendants.to_string()), gone),
        }
        let in_order = [
            (Role::ControlPlane, control_plane),
            (Role::Infrastructure, infrastructure),
        ];
        for (role, referenced) in in_order {
            match referenced {
                Referenced::Undefined => {}
                Referenced::NotFound => gone.push(role),
                Referenced::Unknown => return (Self::Failed, gone),
                Referenced::Found(_) => return (Self::Provider(role), gone),
            }
        }
        (Self::Completed, gone)
    }

    /// Returns reason and message of the condition `Deleting`.
    pub(super) fn report(&self, cluster: &Cluster) -> (&'static str, String) {
        let waiting = |role: Role| format!("Waiting for {} to be deleted", role.kind(cluster));
        match self {
            Self::Hook => (
                "WaitingForBeforeDeleteHook",
                "Waiting for BeforeClusterDelete hook".into(),
            ),
            Self::Failed => ("InternalError", super::status::INTERNAL_ERROR.into()),
            Self::Descendants(objects) => ("WaitingForWorkersDeletion", objects.clone()),
            Self::Provider(role @ Role::ControlPlane) => {
                ("WaitingForControlPlaneDeletion", waiting(*role))
            }
            Self::Provider(role @ Role::Infrastructure) => {
                ("WaitingForInfrastructureDeletion", waiting(*role))
            }
            Self::Completed => ("DeletionCompleted", "Deletion completed".into()),
        }
    }
}

fn is_ok_to_delete(cluster: &Cluster) -> bool {
    let annotations = cluster.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(OK_TO_DELETE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Referenced::{NotFound, Undefined, Unknown};
    use serde_json::{Value, json};

    fn cluster(annotations: Value) -> Cluster {
        let topology = json!({"classRef": {"name": "c"}, "version": "v1.33.0"});
        let reference = |kind: &str| json!({"apiGroup": "a", "kind": kind, "name": "c"});
        serde_json::from_value(json!({
            "metadata": {"name": "shop", "annotations": annotations},
            "spec": {
                "topology": topology, "infrastructureRef": reference("Barn"),
                "controlPlaneRef": reference("Plane"),
            },
        }))
        .expect("a Cluster")
    }

    fn decide(control_plane: &Referenced, infrastructure: &Referenced) -> (Step, Vec<Role>) {
        let none = Descendants::default();
        Step::decide(
            &cluster(json!({})),
            false,
            Some(&none),
            control_plane,
            infrastructure,
        )
    }

    #[test]
    fn a_cluster_with_a_topology_waits_for_the_hook_if_configured() {
        let none = Descendants::default();
        let decide = |annotations, awaits_hook| {
            let cluster = cluster(annotations);
            Step::decide(&cluster, awaits_hook, Some(&none), &Undefined, &Undefined).0
        };
        assert_eq!(decide(json!({}), false), Step::Completed);
        assert_eq!(decide(json!({}), true), Step::Hook);
        assert_eq!(decide(json!({OK_TO_DELETE: ""}), true), Step::Completed);
        let mut plain = cluster(json!({}));
        plain.spec.topology = None;
        let (step, _) = Step::decide(&plain, true, Some(&none), &Undefined, &Undefined);
        assert_eq!(step, Step::Completed);
        let (reason, message) = Step::Hook.report(&plain);
        assert_eq!(
            (reason, &*message),
            (
                "WaitingForBeforeDeleteHook",
                "Waiting for BeforeClusterDelete hook"
            )
        );
    }

    #[test]
    fn nothing_is_deleted_after_a_failed_read() {
        let (step, gone) = Step::decide(&cluster(json!({})), false, None, &NotFound, &NotFound);
        assert_eq!((step, gone), (Step::Failed, vec![]));
        assert_eq!(decide(&Unknown, &NotFound), (Step::Failed, vec![]));
        assert_eq!(
            decide(&NotFound, &Unknown),
            (Step::Failed, vec![Role::ControlPlane])
        );
        let (reason, message) = Step::Failed.report(&cluster(json!({})));
        assert_eq!(
            (reason, &*message),
            ("InternalError", "Please check controller logs for errors")
        );
    }

    #[test]
    fn the_deletion_is_complete_when_both_objects_are_gone() {
        let both = vec![Role::ControlPlane, Role::Infrastructure];
        assert_eq!(decide(&NotFound, &NotFound), (Step::Completed, both));
        assert_eq!(decide(&Undefined, &Undefined), (Step::Completed, vec![]));
    }
}
