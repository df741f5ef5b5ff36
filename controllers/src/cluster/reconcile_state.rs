//! State of one reconcile, and the conditions and the outcome that follow from it.

use super::{
    deletion::Step,
    descendants::Descendants,
    role::{CONTROL_PLANE_READY, Referenced, Role, has_stand_alone_machines, is_deleting, parts},
    status::{self, Observed},
};
use crate::cluster_api::{
    Cluster, PatchOptions, Severity, aggregate,
    conditions::{
        CONTROL_PLANE_AVAILABLE, CONTROL_PLANE_INITIALIZED, DELETING, INFRASTRUCTURE_READY, PAUSED,
    },
    deprecated::{self, Summary},
};
use anyhow::anyhow;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use steersman::{
    prelude::*,
    reconcile::{Error, Result},
};

/// Delay until a missing object is looked up again, if no watch reports it.
const MISSING_RETRY: Duration = Duration::from_secs(30);

pub(super) struct ReconcileState {
    /// The Cluster with all changes.
    pub(super) cluster: Cluster,
    pub(super) now: Timestamp,
    pub(super) infrastructure: Referenced,
    pub(super) control_plane: Referenced,
    /// `None` if they are not needed, or if reading them has failed.
    pub(super) descendants: Option<Descendants>,
    /// Progress of the deletion, if the Cluster is being deleted.
    pub(super) deletion: Option<Step>,
    /// References whose objects are ready for the first time.
    pub(super) became_ready: Vec<Role>,
    pub(super) errors: Vec<Error>,
    is_object_missing: bool,
}

impl ReconcileState {
    pub(super) fn new(cluster: Cluster, now: Timestamp) -> Self {
        Self {
            cluster,
            now,
            infrastructure: Referenced::Undefined,
            control_plane: Referenced::Undefined,
            descendants: None,
            deletion: None,
            became_ready: Vec::new(),
            errors: Vec::new(),
            is_object_missing: false,
        }
    }

    pub(super) fn referenced(&self, role: Role) -> &Referenced {
        match role {
            Role::Infrastructure => &self.infrastructure,
            Role::ControlPlane => &self.control_plane,
        }
    }

    /// Records that the object of a reference does not exist.
    ///
    /// That is an error if it existed before, unless the Cluster is being deleted.
    pub(super) fn record_missing(&mut self, role: Role) {
        if is_deleting(&self.cluster) {
            return;
        }
        let kind = role.kind(&self.cluster);
        if role.was_ready(&self.cluster) {
            let verb = role.ready_verb();
            self.errors
                .push(anyhow!("{kind} has been deleted after being {verb}"));
            return;
        }
        let (namespace, name) = parts(&self.cluster);
        tracing::info!(
            kind,
            namespace,
            name,
            "referenced object not found, requeueing"
        );
        self.is_object_missing = true;
    }

    fn referenced_mut(&mut self, role: Role) -> &mut Referenced {
        match role {
            Role::Infrastructure => &mut self.infrastructure,
            Role::ControlPlane => &mut self.control_plane,
        }
    }

    /// Returns the next step of the deletion, and the references whose objects are gone.
    pub(super) fn next_step(&self, awaits_hook: bool) -> (Step, Vec<Role>) {
        Step::decide(
            &self.cluster,
            awaits_hook,
            self.descendants.as_ref(),
            &self.control_plane,
            &self.infrastructure,
        )
    }

    /// Sets the deprecated condition of an object that is gone.
    pub(super) fn set_deprecated_deleted(&mut self, role: Role) {
        let type_ = role.deprecated_condition();
        let cluster = &mut self.cluster;
        deprecated::mark_false(cluster, type_, "Deleted", Severity::Info, "", self.now);
    }

    /// Sets the deprecated condition `ControlPlaneInitialized` of a control plane of Machines.
    ///
    /// Once true, it stays true.
    pub(super) fn set_deprecated_initialized(&mut self) {
        let type_ = CONTROL_PLANE_INITIALIZED;
        let descendants = self.descendants.as_ref();
        let has_node = descendants.map(Descendants::have_active_control_plane_node);
        let cluster = &mut self.cluster;
        if !has_stand_alone_machines(cluster) || deprecated::is_true(cluster, type_) {
            return;
        }
        match has_node {
            None => {}
            Some(true) => deprecated::mark_true(cluster, type_, self.now),
            Some(false) => {
                let message =
                    "Waiting for the first control plane machine to have its status.nodeRef set";
                let (reason, severity) = ("MissingNodeRef", Severity::Info);
                deprecated::mark_false(cluster, type_, reason, severity, message, self.now);
            }
        }
    }

    /// Marks the objects of the references as not read.
    pub(super) fn skip(&mut self) {
        for role in Role::ALL {
            if role.reference(&self.cluster).is_some() {
                *self.referenced_mut(role) = Referenced::Unknown;
            }
        }
    }

    /// Sets the conditions that follow from this reconcile.
    pub(super) fn set_conditions(&mut self) {
        let observed = Observed {
            infrastructure: &self.infrastructure,
            control_plane: &self.control_plane,
            has_node: self.has_node(),
            deletion: self.deletion.as_ref(),
        };
        status::set_conditions(&mut self.cluster, &observed, self.now);
        let summary = Summary {
            types: Some(&[CONTROL_PLANE_READY, INFRASTRUCTURE_READY]),
            ..Summary::default()
        };
        deprecated::set_summary(&mut self.cluster, &summary, self.now);
    }

    fn has_node(&self) -> Option<bool> {
        let descendants = self.descendants.as_ref()?;
        Some(descendants.have_control_plane_node())
    }

    /// Returns how the Cluster is written.
    pub(super) fn patch_options(&self) -> PatchOptions<'static> {
        PatchOptions {
            owned: &[
                PAUSED,
                INFRASTRUCTURE_READY,
                CONTROL_PLANE_AVAILABLE,
                CONTROL_PLANE_INITIALIZED,
                DELETING,
            ],
            owned_deprecated: &[
                deprecated::READY,
                CONTROL_PLANE_READY,
                INFRASTRUCTURE_READY,
                CONTROL_PLANE_INITIALIZED,
            ],
            observed_generation: self.errors.is_empty(),
            ..PatchOptions::default()
        }
    }

    /// Returns the error, or when to reconcile again.
    pub(super) fn outcome(self) -> Result<Outcome> {
        if let Some(error) = aggregate(self.errors) {
            return Err(error);
        }
        Ok(if self.is_object_missing {
            Outcome::requeue_after(MISSING_RETRY)
        } else {
            Outcome::done()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn state(metadata: Value, status: Value) -> ReconcileState {
        let reference = |kind: &str| json!({"apiGroup": "a", "kind": kind, "name": "c"});
        let spec =
            json!({"infrastructureRef": reference("Barn"), "controlPlaneRef": reference("Plane")});
        let cluster = json!({"metadata": metadata, "spec": spec, "status": status});
        let cluster = serde_json::from_value(cluster).expect("a Cluster");
        ReconcileState::new(cluster, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_missing_object_is_an_error_only_if_it_was_ready() {
        let mut unready = state(json!({}), json!({}));
        unready.record_missing(Role::Infrastructure);
        assert_eq!(
            unready.outcome().expect("no error"),
            Outcome::requeue_after(MISSING_RETRY)
        );

        let ready = json!({"infrastructureProvisioned": true, "controlPlaneInitialized": true});
        let mut both = state(json!({}), json!({"initialization": ready}));
        both.record_missing(Role::Infrastructure);
        both.record_missing(Role::ControlPlane);
        assert!(!both.patch_options().observed_generation);
        let error = both.outcome().expect_err("two errors").to_string();
        assert_eq!(
            error,
            "[Barn has been deleted after being provisioned, Plane has been deleted after being initialized]"
        );

        let deleted = json!({"deletionTimestamp": "2024-05-06T07:08:09Z"});
        let mut deleted = state(deleted, json!({"initialization": ready}));
        deleted.record_missing(Role::Infrastructure);
        assert_eq!(deleted.outcome().expect("no error"), Outcome::done());
    }
}
