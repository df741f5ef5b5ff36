//! One pass: find the endpoint, write it to the control plane, then to its cluster, and say so.
//!
//! What holds: a write is sent only if something differs, and has the resource version that was read. The cluster is written after the control plane, and looked
//! at on its own, so that a pass that was cut off between the two is made good by the next one. Nothing that others own is touched.

use super::{
    address::Address,
    again::written,
    failure::{self, Failed},
    health::ENDPOINT_HEALTHY,
    metrics::Metrics,
    related::cluster_of,
    retrieve::{Retrieval, Retrieved, if_any},
    status::State,
    types::{CAPTControlPlane, Cluster, Endpoint},
};
use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use std::{sync::Arc, time::Duration};
use steersman::{
    client::Finalize,
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
                    self.tell(plane, &state).await?;
                    Ok(state.outcome())
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
    /// What there is to say, of the control plane as it is afterwards.
    async fn pass(&self, plane: Arc<CAPTControlPlane>) -> Result<(Arc<CAPTControlPlane>, State)> {
        let (address, state) = match self.retrieval.of(&plane).await? {
            Retrieved::Found { address, origin } => {
                let message = format!("{address}, from {origin}");
                (Some(address), State::Ready { reason: "EndpointPropagated", message })
            }
            // What was known once is kept.
            Retrieved::Waiting { reason, message } => match kept(&plane) {
                Some(address) => (Some(address), State::Ready { reason: "EndpointKept", message }),
                None => (None, State::Waiting { reason, message }),
            },
            Retrieved::Invalid { message, .. } => (None, State::Invalid { message }),
        };
        match address {
            Some(address) => self.propagate(plane, &address, state).await,
            None => Ok((plane, state)),
        }
    }

    /// What was found out of the control plane as it was here, whatever others have said of it since.
    async fn tell(&self, plane: Arc<CAPTControlPlane>, state: &State) -> Result<()> {
        let seen = plane.metadata.generation;
        let tell = |plane: Arc<CAPTControlPlane>| async move {
            let mut told = (*plane).clone();
            let mut status = state.applied(plane.status.as_ref(), seen, Timestamp::now());
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
        if let Err(unheard) = self.tell(plane, &State::Failed { message }).await {
            tracing::debug!(%key, error = format!("{unheard:#}"), "a failure was not told");
        }
    }

    /// To the control plane, and when that has it, to its cluster.
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
        let key = cluster_of(&plane);
        let Some(cluster) = if_any(self.client.get::<Cluster>(&key).await).context(Failed::Reading(Cluster::KIND))?
        else {
            let message = format!("Cluster {key} is not there yet");
            return Ok((plane, State::Waiting { reason: "WaitingForCluster", message }));
        };
        let before = cluster.endpoint().filter(|before| **before != wanted && is_valid(before)).cloned();
        let cluster = self.write(cluster, Some(&wanted), |_| true).await?;
        if let Some(Endpoint { host, port }) = before {
            let note =
                format!("{host}:{port} is replaced by {address}, of CAPTControlPlane {}", ObjectKey::of(&*plane));
            self.recorder.event(&*cluster, EventType::Normal, "EndpointReplaced", "Propagate", &note);
        }
        Ok((plane, state))
    }

    /// Take our endpoint off the cluster, and nobody else's: ours is the one that the control plane has. The cluster is read from the server, since there is no second look.
    async fn clear(&self, plane: &CAPTControlPlane) -> Result<()> {
        let Some(ours) = plane.endpoint() else { return Ok(()) };
        if let Some(cluster) = if_any(self.client.live().get::<Cluster>(&cluster_of(plane)).await)? {
            self.write(cluster, None, |there| there == ours).await?;
        }
        Ok(())
    }

    /// Make the endpoint so, where it is one that `may` be replaced.
    async fn write<K: HasEndpoint>(
        &self,
        object: Arc<K>,
        wanted: Option<&Endpoint>,
        may: impl Fn(&Endpoint) -> bool + Sync,
    ) -> Result<Arc<K>> {
        let may = &may;
        let write = |object: Arc<K>| async move {
            if object.endpoint() == wanted || object.endpoint().is_some_and(|there| !may(there)) {
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
            tracing::info!(kind = K::TARGET, object = %key, host = wanted.map(|it| it.host.as_str()), "endpoint written");
        }
        Ok(object)
    }
}

impl State {
    /// When to look again.
    fn outcome(&self) -> Outcome {
        match self {
            Self::Ready { .. } => Outcome::requeue_after(WHEN_READY),
            Self::Waiting { .. } | Self::Failed { .. } => Outcome::requeue_after(WHEN_WAITING),
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
