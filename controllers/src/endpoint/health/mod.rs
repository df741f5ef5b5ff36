//! Checks whether endpoints answer, and reports it as a condition and a metric.
//!
//! The checks run in a separate controller with its own workers, so that a check that hangs does
//! not delay the propagation of endpoints. Any HTTP status is an answer, because a control plane
//! that is up may reject the request for `/readyz`. The connection is verified with the CA
//! certificate of the control plane. Without one, no connection is opened.
//!
//! Invariant: the status is written only if the state has changed, and the state of one
//! address is not kept for another.

mod probe;
mod schedule;

use self::{
    probe::{probe, tls_config},
    schedule::{CheckSchedule, Target},
};
use super::{
    address::Address,
    metrics::Metrics,
    reconciler::known_address,
    retrieve::Retrieval,
    retry::retry_conflicts,
    status::set,
    types::{CAPTControlPlane, EndpointAccess},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::{collections::HashMap, sync::Arc, time::Duration};
use steersman::{
    prelude::*,
    reconcile::{Context, Result},
};
use tokio::{select, time::Instant};

/// Type of the condition.
pub const ENDPOINT_HEALTHY: &str = "EndpointHealthy";

/// Concurrent checks. They mostly wait.
pub(super) const MAX_CONCURRENT: usize = 64;

/// Options of the health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Interval of checks. Default: 60 s.
    pub every: Duration,
    /// Interval of checks while an endpoint does not answer. Default: 10 s.
    pub every_when_failing: Duration,
    /// Time limit of opening a connection. Default: 3 s.
    pub connect: Duration,
    /// Time limit of a check, including the connection. Default: 5 s.
    pub total: Duration,
    /// Consecutive failures after which an endpoint is unhealthy. Default: 3.
    ///
    /// One answer makes it healthy again.
    pub failures: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            every: Duration::from_mins(1),
            every_when_failing: Duration::from_secs(10),
            connect: Duration::from_secs(3),
            total: Duration::from_secs(5),
            failures: 3,
        }
    }
}

/// Result of the checks of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HealthState {
    /// The control plane has no endpoint.
    NoEndpoint,
    /// The endpoint is not checked, or not yet.
    Unknown {
        reason: &'static str,
        message: &'static str,
    },
    Healthy,
    /// The endpoint does not answer. The message contains nothing that was read.
    Unhealthy(String),
}

pub(super) struct HealthReconciler {
    client: Client,
    retrieval: Arc<Retrieval>,
    metrics: Metrics,
    health: Health,
    schedules: Mutex<HashMap<ObjectKey, CheckSchedule>>,
}

impl HealthReconciler {
    pub(super) fn new(
        client: Client,
        retrieval: Arc<Retrieval>,
        metrics: Metrics,
        health: Health,
    ) -> Self {
        Self {
            client,
            retrieval,
            metrics,
            health,
            schedules: Mutex::default(),
        }
    }

    /// Returns target and TLS configuration, or the reason why there is no check.
    async fn target(
        &self,
        plane: &CAPTControlPlane,
    ) -> Result<Result<(Target, Arc<ClientConfig>), HealthState>> {
        let Some(address) = known_address(plane) else {
            return Ok(Err(HealthState::NoEndpoint));
        };
        if is_private(plane) {
            let message =
                "the endpoint is reachable only from its own network, so it is not checked";
            return Ok(Err(HealthState::Unknown {
                reason: "PrivateEndpoint",
                message,
            }));
        }
        let Some(authority) = self
            .retrieval
            .authority(plane)
            .await?
            .or_else(|| self.known_authority(plane, &address))
        else {
            let message = "neither the outputs nor the connection Secret have cluster_certificate_authority_data, which is needed to verify the endpoint";
            return Ok(Err(HealthState::Unknown {
                reason: "NoAuthority",
                message,
            }));
        };
        let Some(config) = tls_config(&authority) else {
            let message =
                "cluster_certificate_authority_data is not the base64 of PEM certificates";
            return Ok(Err(HealthState::Unknown {
                reason: "InvalidAuthority",
                message,
            }));
        };
        Ok(Ok((Target { address, authority }, config)))
    }

    /// Returns the last CA certificate of an endpoint.
    ///
    /// It is kept, like the endpoint, when its source is gone.
    fn known_authority(&self, plane: &CAPTControlPlane, address: &Address) -> Option<Arc<[u8]>> {
        let schedules = self.schedules.lock();
        let target = schedules.get(&ObjectKey::of(plane))?.target.as_ref()?;
        (target.address == *address).then(|| target.authority.clone())
    }

    /// Sets the metric, and writes the condition if it has changed.
    async fn update_condition(
        &self,
        plane: &ObjectKey,
        address: &str,
        state: &HealthState,
    ) -> Result<()> {
        self.metrics.healthy(plane, state.is_healthy());
        let Some(plane) = self.client.get::<CAPTControlPlane>(plane).await? else {
            return Ok(());
        };
        let update_condition = |plane: Arc<CAPTControlPlane>| async move {
            let mut updated = (*plane).clone();
            let conditions = &mut updated.status.get_or_insert_default().conditions;
            match state.condition(address) {
                None => conditions.retain(|condition| condition.type_ != ENDPOINT_HEALTHY),
                Some(condition) => set(conditions, condition),
            }
            self.client.status().patch_from(&*plane, &updated).await
        };
        retry_conflicts(&self.client, &self.metrics, plane, update_condition).await?;
        Ok(())
    }

    fn forget(&self, plane: &ObjectKey) {
        self.schedules.lock().remove(plane);
        self.metrics.healthy(plane, None);
    }
}

impl Reconciler for HealthReconciler {
    async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
        let plane = self.client.get::<CAPTControlPlane>(&request).await?;
        let Some(plane) = plane.filter(|plane| plane.metadata.deletion_timestamp.is_none()) else {
            self.forget(&request);
            self.retrieval.source_cache.remove(&request);
            return Ok(Outcome::done());
        };
        let (target, known_authority) = match self.target(&plane).await? {
            Ok(target) => target,
            Err(state) => {
                self.forget(&request);
                self.update_condition(&request, "", &state).await?;
                return Ok(match state {
                    HealthState::NoEndpoint => Outcome::done(),
                    _ => Outcome::requeue_after(self.health.every_when_failing),
                });
            }
        };
        let address = target.address.to_string();
        if is_about_another_address(&plane, &address) {
            let message = "the endpoint has changed since the last check";
            self.update_condition(
                &request,
                &address,
                &HealthState::Unknown {
                    reason: "NotCheckedYet",
                    message,
                },
            )
            .await?;
        }
        // Inserted again below. If this reconcile is cancelled, the checks start over.
        let mut schedule = self.schedules.lock().remove(&request).unwrap_or_default();
        if schedule.is_due(&target, Instant::now()) {
            let checked = select! {
                biased;
                () = cx.shutdown() => return Ok(Outcome::done()),
                checked = probe(&target.address, known_authority, &self.health) => checked,
            };
            schedule.record(target, checked, Instant::now(), &self.health);
        }
        let (state, wait) = (schedule.state.clone(), schedule.wait(Instant::now()));
        self.schedules.lock().insert(request.clone(), schedule);
        if let Some(state) = state {
            self.update_condition(&request, &address, &state).await?;
        }
        Ok(Outcome::requeue_after(wait))
    }
}

/// Returns whether the condition is about another address.
///
/// Its message starts with the address.
fn is_about_another_address(plane: &CAPTControlPlane, address: &str) -> bool {
    let mut conditions = plane.status.iter().flat_map(|status| &status.conditions);
    let message = conditions.find(|condition| condition.type_ == ENDPOINT_HEALTHY);
    let message = message
        .filter(|condition| condition.status != "Unknown")
        .map(|condition| condition.message.as_str());
    message.is_some_and(|message| {
        !message
            .strip_prefix(address)
            .is_some_and(|rest| rest.starts_with([' ', ':']))
    })
}

/// Returns whether the endpoint is only reachable from its own network.
fn is_private(plane: &CAPTControlPlane) -> bool {
    let access = plane
        .spec
        .control_plane_config
        .as_ref()
        .and_then(|config| config.endpoint_access.as_ref());
    matches!(
        access,
        Some(EndpointAccess {
            public: false,
            private: true,
            ..
        })
    )
}

impl HealthState {
    fn is_healthy(&self) -> Option<bool> {
        match self {
            Self::NoEndpoint | Self::Unknown { .. } => None,
            Self::Healthy => Some(true),
            Self::Unhealthy(_) => Some(false),
        }
    }

    fn condition(&self, address: &str) -> Option<Condition> {
        let (status, reason, message) = match self {
            Self::NoEndpoint => return None,
            Self::Unknown { reason, message } => ("Unknown", *reason, (*message).to_owned()),
            Self::Healthy => ("True", "EndpointReachable", format!("{address} responds")),
            Self::Unhealthy(why) => ("False", "EndpointUnreachable", format!("{address}: {why}")),
        };
        Some(Condition {
            type_: ENDPOINT_HEALTHY.into(),
            status: status.into(),
            reason: reason.into(),
            message,
            // The condition is about the endpoint, not about a generation of the spec.
            observed_generation: None,
            last_transition_time: Time(Timestamp::now()),
        })
    }
}
