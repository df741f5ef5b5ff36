//! One reconcile: reads the two referenced objects, copies their state, and writes the Cluster.
//!
//! Order:
//! 1. The finalizer is added before there is anything to delete.
//! 2. A paused Cluster only gets its condition `Paused`. This holds for its deletion, too.
//! 3. Infrastructure, control plane, and then the deletion. A failure of one does not stop the
//!    others.
//! 4. The result is written: conditions, then spec and metadata, then the other status. So the
//!    endpoint is visible before the status reports a provisioned infrastructure.
//!
//! Invariant: a reconcile that finds nothing new sends no request.

use super::{
    deletion::Step,
    descendants::DescendantIndex,
    phase,
    provisioning::copy_state,
    reconcile_state::ReconcileState,
    references::References,
    role::{Referenced, Role, has_stand_alone_machines, is_deleting, parts},
};
use crate::cluster_api::{API_VERSION, Cluster, PatchHelper, deprecated, ensure_paused};
use anyhow::Context as _;
use steersman::{
    client::{Finalize, has_finalizer, remove_finalizer},
    prelude::*,
    reconcile::{Context, Error, Result},
    recorder::{EventType, Recorder},
};

/// Finalizer of a Cluster, removed when everything that belongs to it is deleted.
pub const FINALIZER: &str = "cluster.cluster.x-k8s.io";

pub(super) struct ClusterReconciler {
    pub(super) client: Client,
    pub(super) references: References,
    pub(super) descendants: DescendantIndex,
    pub(super) recorder: Recorder,
    /// Clusters with a topology are deleted only with the annotation of the hook.
    pub(super) awaits_hook: bool,
}

impl Reconciler for ClusterReconciler {
    async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
        let Some(read) = self.client.get::<Cluster>(&request).await? else {
            self.references.release(&request);
            return Ok(Outcome::done());
        };
        if !is_deleting(&read) && !has_finalizer(&*read, FINALIZER) {
            // The event of the write causes the next reconcile.
            let _: Finalize<_> = self.client.finalizer(read, FINALIZER).await?;
            return Ok(Outcome::done());
        }
        let helper = PatchHelper::new(&self.client, &*read);
        let mut cluster = (*read).clone();
        let paused = ensure_paused(&self.client, Some(&read), &mut cluster, cx.now()).await?;
        if paused.is_paused || paused.was_written {
            return Ok(Outcome::done());
        }
        self.references.retain(&cluster);
        let mut state = ReconcileState::new(cluster, cx.now());
        self.run(&mut state).await;
        if !state.errors.is_empty() && cx.is_shutting_down() {
            // Watches are rejected during a shutdown. That is not a state of the Cluster.
            return state.outcome();
        }
        let phase = phase::update(&mut state.cluster);
        state.set_conditions();
        match helper.patch(&state.cluster, &state.patch_options()).await {
            Ok(()) => self.record(&state, phase, &read),
            Err(error) => state.errors.push(error.into()),
        }
        state.outcome()
    }
}

impl ClusterReconciler {
    async fn run(&self, state: &mut ReconcileState) {
        let is_deleting = is_deleting(&state.cluster);
        if !is_deleting && waits_for_topology(&state.cluster) {
            let (namespace, name) = parts(&state.cluster);
            tracing::info!(namespace, name, "waiting for the topology to be generated");
            state.skip();
            return;
        }
        state.infrastructure = self.follow(Role::Infrastructure, state).await;
        state.control_plane = self.follow(Role::ControlPlane, state).await;
        if is_deleting || has_stand_alone_machines(&state.cluster) {
            match self.descendants.of(&state.cluster) {
                Ok(descendants) => state.descendants = Some(descendants),
                Err(error) => state.errors.push(error.into()),
            }
        }
        if is_deleting {
            self.delete(state).await;
        } else {
            state.set_deprecated_initialized();
        }
    }

    /// Reads the object of a reference and copies its state.
    async fn follow(&self, role: Role, state: &mut ReconcileState) -> Referenced {
        if role.reference(&state.cluster).is_none() {
            if role == Role::Infrastructure && !is_deleting(&state.cluster) {
                role.set_ready(&mut state.cluster);
                deprecated::mark_true(&mut state.cluster, role.deprecated_condition(), state.now);
            }
            return Referenced::Undefined;
        }
        match self.references.read(role, &mut state.cluster).await {
            Ok(Some(provider)) => {
                match copy_state(role, &mut state.cluster, &provider, state.now) {
                    Ok(false) => {}
                    Ok(true) => state.became_ready.push(role),
                    Err(error) => state.errors.push(error.into()),
                }
                Referenced::Found(provider)
            }
            Ok(None) => {
                state.record_missing(role);
                Referenced::NotFound
            }
            Err(error) => {
                state.errors.push(error);
                Referenced::Unknown
            }
        }
    }

    /// Takes the next step of the deletion.
    async fn delete(&self, state: &mut ReconcileState) {
        let (step, gone) = state.next_step(self.awaits_hook);
        for role in gone {
            state.set_deprecated_deleted(role);
        }
        let errors = match &step {
            Step::Descendants(_) => self.delete_descendants(state).await,
            Step::Provider(role) => self.delete_provider(*role, state).await,
            Step::Completed => {
                remove_finalizer(&mut state.cluster, FINALIZER);
                Vec::new()
            }
            Step::Hook | Step::Failed => Vec::new(),
        };
        state.deletion = Some(if errors.is_empty() {
            step
        } else {
            Step::Failed
        });
        state.errors.extend(errors);
    }

    /// Deletes the descendants that the Cluster owns. Returns the errors.
    async fn delete_descendants(&self, state: &ReconcileState) -> Vec<Error> {
        let mut errors = Vec::new();
        let descendants = state.descendants.iter().flat_map(|all| &all.0);
        for it in descendants.filter(|it| it.is_owned && !it.is_deleting) {
            let deleted = it.delete(&self.client).await.with_context(|| {
                let cluster = ObjectKey::of(&state.cluster);
                let object = format!("{API_VERSION}, Kind={} {}", it.kind, it.key.name());
                format!("error deleting cluster {cluster}: failed to delete {object}")
            });
            errors.extend(deleted.err());
        }
        errors
    }

    /// Deletes the object of a reference. Returns the error, if any.
    async fn delete_provider(&self, role: Role, state: &ReconcileState) -> Vec<Error> {
        let provider = state.referenced(role).found();
        let Some(provider) = provider.filter(|provider| !provider.is_deleting()) else {
            return Vec::new();
        };
        let deleted = self
            .references
            .delete(&provider.object)
            .await
            .with_context(|| {
                let (namespace, name) = parts(&state.cluster);
                let kind = role.kind(&state.cluster);
                let object = provider.object.metadata.name.as_deref().unwrap_or_default();
                format!(
                    "failed to delete {kind} \"{object}\" for Cluster \"{name}\" in namespace \
                 \"{namespace}\""
                )
            });
        deleted.err().into_iter().collect()
    }

    /// Records what has changed as Kubernetes events.
    fn record(&self, state: &ReconcileState, phase: Option<&str>, before: &Cluster) {
        let (_, name) = parts(&state.cluster);
        let record = |reason: &str, note: String| {
            let kind = EventType::Normal;
            self.recorder
                .event(&state.cluster, kind, reason, "Reconcile", note);
        };
        for role in &state.became_ready {
            let (reason, flag) = match role {
                Role::Infrastructure => ("InfrastructureReady", "InfrastructureProvisioned"),
                Role::ControlPlane => ("ControlPlaneInitialized", "ControlPlaneInitialized"),
            };
            record(reason, format!("Cluster {name} {flag} is now True"));
        }
        if state.deletion == Some(Step::Completed) && has_finalizer(before, FINALIZER) {
            record("Deleted", format!("Cluster {name} has been deleted"));
        }
        if let Some(phase) = phase {
            record(phase, format!("Cluster {name} is {phase}"));
        }
    }
}

/// Returns whether the topology controller has not set both references yet.
fn waits_for_topology(cluster: &Cluster) -> bool {
    let mut roles = Role::ALL.into_iter();
    cluster.spec.has_topology() && roles.any(|role| role.reference(cluster).is_none())
}
