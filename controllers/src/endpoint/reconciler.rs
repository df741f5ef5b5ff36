//! One reconcile: finds the endpoint, writes it to the control plane and then to its cluster, and
//! reports the result.
//!
//! Invariants:
//! - Nothing but the status is written while no single cluster refers to the control plane, see
//!   [`claims`](super::claims).
//! - A write is sent only if something differs, with the resource version that was read. The
//!   cluster is compared on its own, after the control plane was written, so the next reconcile
//!   completes one that stopped between the two.
//! - The finalizer is set before the first write to a cluster. A control plane without it has therefore
//!   written to no cluster, and removes no endpoint when it is deleted.

use super::{
    address::Address,
    claims::{Claim, Claims, refers},
    failure::{self, FailedOperation},
    health::ENDPOINT_HEALTHY,
    metrics::Metrics,
    retrieve::{Retrieval, Retrieved, missing_kind_as_none},
    retry::retry_conflicts,
    status::{Report, State},
    types::{CAPTControlPlane, Endpoint},
};
use crate::cluster_api::Cluster;
use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use std::{sync::Arc, time::Duration};
use steersman::{
    client::{self, Finalize},
    object::StaticKind,
    prelude::*,
    reconcile,
    reconcile::{Context, Result},
    recorder::{EventType, Recorder},
};

/// Finalizer of a control plane that has written its endpoint to a `Cluster`.
///
/// It is removed once the endpoint is removed from the `Cluster`.
pub const FINALIZER: &str = "controlplane.cluster.x-k8s.io/endpoint";

/// Requeue delays if no watch reports a change, by state.
const REQUEUE_WHEN_READY: Duration = Duration::from_secs(30);
const REQUEUE_WHEN_WAITING: Duration = Duration::from_secs(5);
const REQUEUE_WHEN_INVALID: Duration = Duration::from_secs(10);

pub(super) struct EndpointReconciler {
    pub(super) client: Client,
    pub(super) retrieval: Arc<Retrieval>,
    pub(super) claims: Claims,
    pub(super) recorder: Recorder,
    pub(super) metrics: Metrics,
    pub(super) checks_health: bool,
}

impl Reconciler for EndpointReconciler {
    async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
        let Some(plane) = self.client.get::<CAPTControlPlane>(&request).await? else {
            self.retrieval.source_cache.remove(&request);
            self.metrics.forget(&request);
            return Ok(Outcome::done());
        };
        if plane.metadata.deletion_timestamp.is_some() {
            return self.release(plane).await;
        }
        match self.process(plane).await {
            Ok(Some((plane, state))) => {
                let outcome = state.outcome();
                self.update_status(plane, &state.report()).await?;
                Ok(outcome)
            }
            // The event of the deletion causes the next reconcile.
            Ok(None) => Ok(Outcome::done()),
            Err(error) => {
                self.report_failure(&error, &request, cx).await;
                Err(error)
            }
        }
    }
}

impl EndpointReconciler {
    /// Returns the control plane as it is after the writes, and the state to report. `None` if the
    /// control plane was deleted meanwhile.
    async fn process(
        &self,
        plane: Arc<CAPTControlPlane>,
    ) -> Result<Option<(Arc<CAPTControlPlane>, State)>> {
        let cluster = match self.claim(&plane)? {
            Claim::Cluster(cluster) => cluster,
            Claim::Unreferenced(message) => {
                return Ok(Some((plane, waiting_for_cluster(message))));
            }
            Claim::Conflict(message) => return Ok(Some((plane, conflict(message)))),
        };
        let (address, state) = match self.retrieval.of(&plane).await? {
            Retrieved::Found { address, origin } => {
                let message = format!("{address}, from {origin}");
                (
                    address,
                    State::Ready {
                        reason: "EndpointPropagated",
                        message,
                    },
                )
            }
            // An endpoint that was known once is kept.
            Retrieved::Waiting { reason, message } => match known_address(&plane) {
                Some(address) => (
                    address,
                    State::Ready {
                        reason: "EndpointKept",
                        message,
                    },
                ),
                None => return Ok(Some((plane, State::Waiting { reason, message }))),
            },
            Retrieved::Invalid {
                reason, message, ..
            } => return Ok(Some((plane, State::Invalid { reason, message }))),
        };
        self.propagate(plane, cluster, &address, state).await
    }

    fn claim(&self, plane: &CAPTControlPlane) -> Result<Claim> {
        let claim = self.claims.claim(plane).map_err(client::Error::from);
        claim.context(FailedOperation::Reading(Cluster::KIND))
    }

    /// Writes the report to the status, with the generation that was reconciled.
    async fn update_status(&self, plane: Arc<CAPTControlPlane>, report: &Report) -> Result<()> {
        let seen = plane.metadata.generation;
        let update_status = |plane: Arc<CAPTControlPlane>| async move {
            let mut updated = (*plane).clone();
            let mut status = report.applied(plane.status.as_ref(), seen, Timestamp::now());
            if !self.checks_health {
                // The condition is from a time when checks were on, and is not updated any more.
                status
                    .conditions
                    .retain(|condition| condition.type_ != ENDPOINT_HEALTHY);
            }
            updated.status = Some(status);
            self.client.status().patch_from(&*plane, &updated).await
        };
        retry_conflicts(&self.client, &self.metrics, plane, update_status).await?;
        Ok(())
    }

    /// Reports a failed reconcile, from the second attempt on.
    ///
    /// The first failure is not reported, so that the condition does not flap with single lost
    /// responses. A failure to report is only logged.
    async fn report_failure(&self, error: &reconcile::Error, key: &ObjectKey, cx: &Context) {
        let Some(message) = failure::message(error).filter(|_| cx.attempt() > 1) else {
            return;
        };
        let Ok(Some(plane)) = self.client.get::<CAPTControlPlane>(key).await else {
            return;
        };
        if let Err(status_error) = self.update_status(plane, &Report::failed(message)).await {
            let (namespace, name) = (key.namespace(), key.name());
            let error = format!("{status_error:#}");
            tracing::debug!(namespace, name, error, "reporting failure in status failed");
        }
    }

    /// Writes the endpoint to the control plane, then to the cluster that refers to it.
    async fn propagate(
        &self,
        mut plane: Arc<CAPTControlPlane>,
        cluster: Arc<Cluster>,
        address: &Address,
        state: State,
    ) -> Result<Option<(Arc<CAPTControlPlane>, State)>> {
        let wanted = Endpoint {
            host: address.host().into(),
            port: address.port().into(),
        };
        if cluster.endpoint().as_ref() != Some(&wanted) {
            let finalize = |plane| self.client.finalizer(plane, FINALIZER);
            match retry_conflicts(&self.client, &self.metrics, plane, finalize).await? {
                Finalize::Active(active) => plane = active,
                Finalize::Deleting(_) | Finalize::Released => return Ok(None),
            }
        }
        let is_changed = plane.endpoint().as_ref() != Some(&wanted);
        let plane = self
            .write(plane, Some(&wanted), |plane| refers(&cluster, plane))
            .await?;
        if is_changed {
            self.metrics.changed(&ObjectKey::of(&*plane));
        }
        let before = cluster
            .endpoint()
            .filter(|before| *before != wanted && is_valid(before));
        let cluster = self
            .write(cluster, Some(&wanted), |cluster| refers(cluster, &plane))
            .await?;
        if cluster.endpoint().as_ref() != Some(&wanted) {
            let message = format!(
                "Cluster {} no longer refers to this control plane",
                ObjectKey::of(&*cluster)
            );
            return Ok(Some((plane, waiting_for_cluster(message))));
        }
        if let Some(Endpoint { host, port }) = before {
            let note = format!(
                "endpoint {host}:{port} replaced by {address} of CAPTControlPlane {}",
                ObjectKey::of(&*plane)
            );
            self.recorder.event(
                &*cluster,
                EventType::Normal,
                "EndpointReplaced",
                "Propagate",
                &note,
            );
        }
        Ok(Some((plane, state)))
    }

    /// Removes the endpoint of a deleted control plane from its cluster, then the finalizer.
    async fn release(&self, plane: Arc<CAPTControlPlane>) -> Result<Outcome> {
        if let Finalize::Deleting(deletion) = self.client.finalizer(plane, FINALIZER).await? {
            self.clear(deletion.object()).await?;
            deletion.finish().await?;
        }
        Ok(Outcome::done())
    }

    /// Removes the endpoint of a deleted control plane from its cluster if equal.
    ///
    /// The cluster, and control planes that claim it as well, are read from the API server, because no
    /// later reconcile corrects a mistake.
    async fn clear(&self, plane: &CAPTControlPlane) -> Result<()> {
        let Some(ours) = plane.endpoint() else {
            return Ok(());
        };
        let claim = match self.claim(plane)? {
            Claim::Conflict(_) => self.claim_without_deleted(plane).await?,
            claim => claim,
        };
        let Claim::Cluster(cluster) = claim else {
            return Ok(());
        };
        let is_permitted = |cluster: &Cluster| {
            cluster.endpoint().as_ref() == Some(&ours) && refers(cluster, plane)
        };
        let live = self.client.live();
        if let Some(cluster) =
            missing_kind_as_none(live.get::<Cluster>(&ObjectKey::of(&*cluster)).await)?
        {
            self.write(cluster, None, is_permitted).await?;
        }
        Ok(())
    }

    /// Finds the cluster again, without rivals whose deletion the cache may not show yet.
    async fn claim_without_deleted(&self, plane: &CAPTControlPlane) -> Result<Claim> {
        let live = self.client.live();
        let mut deleted = Vec::new();
        for rival in self.claims.rivals_of(plane) {
            let found = missing_kind_as_none(live.get::<CAPTControlPlane>(&rival).await)?;
            if found.is_none_or(|rival| rival.metadata.deletion_timestamp.is_some()) {
                deleted.push(rival);
            }
        }
        let claim = self.claims.claim_without(plane, &deleted);
        let claim = claim.map_err(client::Error::from);
        claim.context(FailedOperation::Reading(Cluster::KIND))
    }

    /// Sets the endpoint of an object, if it differs and the object satisfies `is_permitted`.
    async fn write<K: HasEndpoint>(
        &self,
        object: Arc<K>,
        wanted: Option<&Endpoint>,
        is_permitted: impl Fn(&K) -> bool + Sync,
    ) -> Result<Arc<K>> {
        let is_permitted = &is_permitted;
        // Also called for the object as it is after a conflict.
        let write = |object: Arc<K>| async move {
            if object.endpoint().as_ref() == wanted || !is_permitted(&object) {
                return Ok((object, false));
            }
            let mut changed = (*object).clone();
            changed.set_endpoint(wanted.cloned());
            let written = self.client.patch_from(&*object, &changed).await;
            self.metrics.propagated(
                K::TARGET,
                written
                    .as_ref()
                    .is_ok_and(|written| written.endpoint().as_ref() == wanted),
            );
            Ok((Arc::new(written?), true))
        };
        let key = ObjectKey::of(&*object);
        let written = retry_conflicts(&self.client, &self.metrics, object, write).await;
        let (object, is_new) = written.context(FailedOperation::Writing(K::KIND))?;
        if is_new && object.endpoint().as_ref() != wanted {
            let error = anyhow::anyhow!("{key} has another endpoint after the write");
            return Err(error.context(FailedOperation::Writing(K::KIND)));
        }
        if is_new {
            let (namespace, name) = (key.namespace(), key.name());
            let (host, port) = (wanted.map(|it| it.host.as_str()), wanted.map(|it| it.port));
            tracing::info!(
                kind = K::KIND,
                namespace,
                name,
                host,
                port,
                "patched endpoint"
            );
        }
        Ok(object)
    }
}

fn waiting_for_cluster(message: String) -> State {
    State::Waiting {
        reason: "WaitingForCluster",
        message,
    }
}

fn conflict(message: String) -> State {
    State::Waiting {
        reason: "ClusterConflict",
        message,
    }
}

impl State {
    /// Returns when to reconcile again if no watch reports a change.
    fn outcome(&self) -> Outcome {
        match self {
            Self::Ready { .. } => Outcome::requeue_after(REQUEUE_WHEN_READY),
            Self::Waiting { .. } => Outcome::requeue_after(REQUEUE_WHEN_WAITING),
            Self::Invalid { .. } => Outcome::requeue_not_before(REQUEUE_WHEN_INVALID),
        }
    }
}

/// Returns the valid endpoint of a control plane.
///
/// Older control planes have a whole URL as the host. Its port takes precedence.
pub(super) fn known_address(plane: &CAPTControlPlane) -> Option<Address> {
    let Endpoint { host, port } = plane.endpoint()?;
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    match host.as_str() {
        v6 if v6.contains(':') && !v6.contains("://") => {
            Address::with_default(&format!("[{v6}]"), port)
        }
        name_or_url => Address::with_default(name_or_url, port),
    }
    .ok()
}

fn is_valid(endpoint: &Endpoint) -> bool {
    !endpoint.host.is_empty() && endpoint.port != 0
}

/// Kinds to which endpoints are written.
trait HasEndpoint: StaticKind + Clone {
    const KIND: &'static str;
    /// Label for metrics.
    const TARGET: &'static str;
    fn endpoint(&self) -> Option<Endpoint>;
    fn set_endpoint(&mut self, endpoint: Option<Endpoint>);
}

impl HasEndpoint for CAPTControlPlane {
    const KIND: &'static str = "CAPTControlPlane";
    const TARGET: &'static str = "controlplane";

    fn endpoint(&self) -> Option<Endpoint> {
        self.spec.control_plane_endpoint.clone()
    }

    fn set_endpoint(&mut self, endpoint: Option<Endpoint>) {
        self.spec.control_plane_endpoint = endpoint;
    }
}

impl HasEndpoint for Cluster {
    const KIND: &'static str = "Cluster";
    const TARGET: &'static str = "cluster";

    fn endpoint(&self) -> Option<Endpoint> {
        self.spec.control_plane_endpoint.clone().map(Into::into)
    }

    fn set_endpoint(&mut self, endpoint: Option<Endpoint>) {
        self.spec.control_plane_endpoint = endpoint.map(Into::into);
    }
}
