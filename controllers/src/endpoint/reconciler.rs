//! One reconcile: finds the endpoint, writes it to the control plane and then to its cluster, and reports the result.
//!
//! Invariant: a write is sent only if something differs, with the resource version that was read. The cluster is compared
//! on its own, after the control plane was written, so the next reconcile completes one that stopped between the two. A
//! cluster is written only while it refers to the control plane, see [`claims`](super::claims).

use super::{
    address::Address,
    again::written,
    claims::{Claim, Claims, refers},
    failure::{self, Failed},
    health::ENDPOINT_HEALTHY,
    metrics::Metrics,
    retrieve::{Retrieval, Retrieved, if_any},
    status::{Report, State},
    types::{CAPTControlPlane, Cluster, Endpoint},
};
use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use std::{sync::Arc, time::Duration};
use steersman::{
    client::{self, Finalize},
    object::StaticKind,
    prelude::*,
    reconcile,
    recorder::{EventType, Recorder},
};

/// On a control plane until its endpoint is taken off its cluster.
pub const FINALIZER: &str = "controlplane.cluster.x-k8s.io/endpoint";

/// When to look again where no watch has said anything: all is well, something is missing, something is wrong.
const WHEN_READY: Duration = Duration::from_secs(30);
const WHEN_WAITING: Duration = Duration::from_secs(5);
const WHEN_INVALID: Duration = Duration::from_secs(10);

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
            self.retrieval.memo.forget(&request);
            self.metrics.forget(&request);
            return Ok(Outcome::done());
        };
        let finalize = |plane| self.client.finalizer(plane, FINALIZER);
        match written(&self.client, &self.metrics, plane, finalize).await? {
            Finalize::Active(plane) => match self.pass(plane).await {
                Ok((plane, state)) => {
                    let outcome = state.outcome();
                    self.tell(plane, &state.report()).await?;
                    Ok(outcome)
                }
                Err(error) => {
                    self.tell_of(&error, &request, cx).await;
                    Err(error)
                }
            },
            Finalize::Deleting(deletion) => {
                self.clear(deletion.object()).await?;
                deletion.finish().await?;
                Ok(Outcome::done())
            }
            Finalize::Released => Ok(Outcome::done()),
        }
    }
}

impl EndpointReconciler {
    /// Returns the control plane as it is after the writes, and the state to report.
    async fn pass(&self, plane: Arc<CAPTControlPlane>) -> Result<(Arc<CAPTControlPlane>, State)> {
        let (address, state) = match self.retrieval.of(&plane).await? {
            Retrieved::Found { address, origin } => {
                let message = format!("{address}, from {origin}");
                (Some(address), State::Ready { reason: "EndpointPropagated", message })
            }
            // An endpoint that was known once is kept.
            Retrieved::Waiting { reason, message } => match kept(&plane) {
                Some(address) => (Some(address), State::Ready { reason: "EndpointKept", message }),
                None => (None, State::Waiting { reason, message }),
            },
            Retrieved::Invalid { reason, message, .. } => (None, State::Invalid { reason, message }),
        };
        match address {
            Some(address) => self.propagate(plane, &address, state).await,
            // A conflict is reported before there is an endpoint. Otherwise the cluster does not matter yet.
            None => match self.claims.claim(&plane) {
                Ok(Claim::Conflict(message)) => Ok((plane, conflict(message))),
                _ => Ok((plane, state)),
            },
        }
    }

    /// What was found out of the control plane as it was here, whatever others have said of it since.
    async fn tell(&self, plane: Arc<CAPTControlPlane>, report: &Report) -> Result<()> {
        let seen = plane.metadata.generation;
        let tell = |plane: Arc<CAPTControlPlane>| async move {
            let mut told = (*plane).clone();
            let mut status = report.applied(plane.status.as_ref(), seen, Timestamp::now());
            if !self.checks_health {
                // From when it was checked: nobody knows any more.
                status.conditions.retain(|condition| condition.type_ != ENDPOINT_HEALTHY);
            }
            told.status = Some(status);
            self.client.status().patch_from(&*plane, &told).await
        };
        written(&self.client, &self.metrics, plane, tell).await?;
        Ok(())
    }

    /// Of a failure, as far as somebody hears it: it is the failure that counts. What was said before is believed until the next try, so that it does not come and go
    /// with each answer that is lost.
    async fn tell_of(&self, error: &reconcile::Error, key: &ObjectKey, cx: &Context) {
        let Some(message) = failure::words(error).filter(|_| cx.attempt() > 1) else { return };
        let Ok(Some(plane)) = self.client.get::<CAPTControlPlane>(key).await else { return };
        if let Err(unheard) = self.tell(plane, &Report::failed(message)).await {
            tracing::debug!(%key, error = format!("{unheard:#}"), "a failure was not told");
        }
    }

    /// Writes the endpoint to the control plane, then to the cluster that refers to it.
    async fn propagate(
        &self,
        plane: Arc<CAPTControlPlane>,
        address: &Address,
        state: State,
    ) -> Result<(Arc<CAPTControlPlane>, State)> {
        let wanted = Endpoint { host: address.host().into(), port: address.port().into() };
        let is_news = plane.endpoint() != Some(&wanted);
        let plane = self.write(plane, Some(&wanted), |_| true).await?;
        if is_news {
            self.metrics.changed(&ObjectKey::of(&*plane));
        }
        let claim = self.claims.claim(&plane).map_err(client::Error::from).context(Failed::Reading(Cluster::KIND))?;
        let cluster = match claim {
            Claim::Cluster(cluster) => cluster,
            Claim::Unreferenced(message) => return Ok((plane, waiting_for_cluster(message))),
            Claim::Conflict(message) => return Ok((plane, conflict(message))),
        };
        let before = cluster.endpoint().filter(|before| **before != wanted && is_valid(before)).cloned();
        let cluster = self.write(cluster, Some(&wanted), |cluster| refers(cluster, &plane)).await?;
        if cluster.endpoint() != Some(&wanted) {
            let message = format!("Cluster {} no longer refers to this control plane", ObjectKey::of(&*cluster));
            return Ok((plane, waiting_for_cluster(message)));
        }
        if let Some(Endpoint { host, port }) = before {
            let note =
                format!("{host}:{port} is replaced by {address}, of CAPTControlPlane {}", ObjectKey::of(&*plane));
            self.recorder.event(&*cluster, EventType::Normal, "EndpointReplaced", "Propagate", &note);
        }
        Ok((plane, state))
    }

    /// Removes the endpoint of a deleted control plane from its cluster, if the two are equal.
    ///
    /// The cluster is read from the API server because there is no later reconcile that corrects a mistake.
    async fn clear(&self, plane: &CAPTControlPlane) -> Result<()> {
        let Some(ours) = plane.endpoint() else { return Ok(()) };
        let may = |cluster: &Cluster| cluster.endpoint() == Some(ours) && refers(cluster, plane);
        for key in self.claims.claimed_alone(plane).map_err(client::Error::from)? {
            if let Some(cluster) = if_any(self.client.live().get::<Cluster>(&key).await)? {
                self.write(cluster, None, may).await?;
            }
        }
        Ok(())
    }

    /// Sets the endpoint of an object, if it differs and the object `may` be written.
    async fn write<K: HasEndpoint>(
        &self,
        object: Arc<K>,
        wanted: Option<&Endpoint>,
        may: impl Fn(&K) -> bool + Sync,
    ) -> Result<Arc<K>> {
        let may = &may;
        // Also called for the object as it is after a conflict.
        let write = |object: Arc<K>| async move {
            if object.endpoint() == wanted || !may(&object) {
                return Ok((object, false));
            }
            let mut changed = (*object).clone();
            *changed.endpoint_mut() = wanted.cloned();
            let written = self.client.patch_from(&*object, &changed).await;
            self.metrics.propagated(K::TARGET, written.as_ref().is_ok_and(|written| written.endpoint() == wanted));
            Ok((Arc::new(written?), true))
        };
        let key = ObjectKey::of(&*object);
        let written = written(&self.client, &self.metrics, object, write).await;
        let (object, is_new) = written.context(Failed::Writing(K::KIND))?;
        if is_new && object.endpoint() != wanted {
            let error = anyhow::anyhow!("{key} was written and has another endpoint");
            return Err(error.context(Failed::Writing(K::KIND)));
        }
        if is_new {
            let (namespace, name) = (key.namespace(), key.name());
            let (host, port) = (wanted.map(|it| it.host.as_str()), wanted.map(|it| it.port));
            tracing::info!(kind = K::KIND, namespace, name, host, port, "patched endpoint");
        }
        Ok(object)
    }
}

fn waiting_for_cluster(message: String) -> State {
    State::Waiting { reason: "WaitingForCluster", message }
}

fn conflict(message: String) -> State {
    State::Waiting { reason: "ClusterConflict", message }
}

impl State {
    /// Returns when to reconcile again if no watch reports a change.
    fn outcome(&self) -> Outcome {
        match self {
            Self::Ready { .. } => Outcome::requeue_after(WHEN_READY),
            Self::Waiting { .. } => Outcome::requeue_after(WHEN_WAITING),
            Self::Invalid { .. } => Outcome::requeue_not_before(WHEN_INVALID),
        }
    }
}

/// The endpoint that a control plane has, if it can be one. Older ones have a whole URL as the host, and its port counts.
pub(super) fn kept(plane: &CAPTControlPlane) -> Option<Address> {
    let Endpoint { host, port } = plane.endpoint()?;
    let port = u16::try_from(*port).ok().filter(|port| *port != 0)?;
    match host {
        v6 if v6.contains(':') && !v6.contains("://") => Address::with_default(&format!("[{v6}]"), port),
        name_or_url => Address::with_default(name_or_url, port),
    }
    .ok()
}

fn is_valid(endpoint: &Endpoint) -> bool {
    !endpoint.host.is_empty() && endpoint.port != 0
}

/// What endpoints are written to.
trait HasEndpoint: StaticKind + Clone {
    const KIND: &'static str;
    /// As metrics have it.
    const TARGET: &'static str;
    fn endpoint(&self) -> Option<&Endpoint>;
    fn endpoint_mut(&mut self) -> &mut Option<Endpoint>;
}

impl HasEndpoint for CAPTControlPlane {
    const KIND: &'static str = "CAPTControlPlane";
    const TARGET: &'static str = "controlplane";

    fn endpoint(&self) -> Option<&Endpoint> {
        self.spec.control_plane_endpoint.as_ref()
    }

    fn endpoint_mut(&mut self) -> &mut Option<Endpoint> {
        &mut self.spec.control_plane_endpoint
    }
}

impl HasEndpoint for Cluster {
    const KIND: &'static str = "Cluster";
    const TARGET: &'static str = "cluster";

    fn endpoint(&self) -> Option<&Endpoint> {
        self.spec.control_plane_endpoint.as_ref()
    }

    fn endpoint_mut(&mut self) -> &mut Option<Endpoint> {
        &mut self.spec.control_plane_endpoint
    }
}
