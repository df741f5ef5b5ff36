//! Whether somebody answers at the endpoint. A condition and a metric say so, and nothing depends on them.
//!
//! It is a controller of its own, with workers of its own: who propagates endpoints never waits for one that hangs. An answer is any HTTP status, since whoever
//! may not read `/readyz` is told so by a control plane that is there. The connection is verified by the control plane's own certificate authority; without
//! one there is none.
//!
//! What holds: a status is written when the verdict has changed, and only then. What was said of one address is not left to stand for another one.

mod course;
mod probe;

use self::{
    course::{Course, Target},
    probe::{probe, trusting},
};
use super::{
    address::Address,
    again::written,
    metrics::Metrics,
    reconciler::kept,
    retrieve::Retrieval,
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
use steersman::prelude::*;
use tokio::{select, time::Instant};

/// The condition.
pub const ENDPOINT_HEALTHY: &str = "EndpointHealthy";

/// How many are asked at once: they mostly wait.
pub(super) const AT_ONCE: usize = 64;

/// How endpoints are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// How often; 60 s by default.
    pub every: Duration,
    /// How often while there is no answer; 10 s by default.
    pub every_when_failing: Duration,
    /// How long a connection may take; 3 s by default.
    pub connect: Duration,
    /// How long everything may take, up to the answer; 5 s by default.
    pub total: Duration,
    /// After how many failures in a row an endpoint counts as unhealthy; 3 by default. One answer makes it healthy.
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

/// What is known of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// There is none.
    Absent,
    /// Nobody can say.
    Unknown {
        reason: &'static str,
        message: &'static str,
    },
    Healthy,
    /// Why, in words that have nothing of what was read.
    Unhealthy(String),
}

pub(super) struct HealthReconciler {
    client: Client,
    retrieval: Arc<Retrieval>,
    metrics: Metrics,
    health: Health,
    courses: Mutex<HashMap<ObjectKey, Course>>,
}

impl HealthReconciler {
    pub(super) fn new(client: Client, retrieval: Arc<Retrieval>, metrics: Metrics, health: Health) -> Self {
        Self { client, retrieval, metrics, health, courses: Mutex::default() }
    }

    /// Where to ask, and whom to trust there; or why nobody is asked.
    async fn target(&self, plane: &CAPTControlPlane) -> Result<Result<(Target, Arc<ClientConfig>), Verdict>> {
        let Some(address) = kept(plane) else { return Ok(Err(Verdict::Absent)) };
        if is_private(plane) {
            let message = "it can be reached from its own network only, and is not checked";
            return Ok(Err(Verdict::Unknown { reason: "PrivateEndpoint", message }));
        }
        let Some(authority) = self.retrieval.authority(plane).await?.or_else(|| self.trusted(plane, &address)) else {
            let message = "neither outputs nor connection secret have cluster_certificate_authority_data, without which nobody there can be trusted";
            return Ok(Err(Verdict::Unknown { reason: "NoAuthority", message }));
        };
        let Some(config) = trusting(&authority) else {
            let message = "cluster_certificate_authority_data is not the base64 of PEM certificates";
            return Ok(Err(Verdict::Unknown { reason: "InvalidAuthority", message }));
        };
        Ok(Ok((Target { address, authority }, config)))
    }

    /// As the endpoint is kept when its source goes, so is what it is known by.
    fn trusted(&self, plane: &CAPTControlPlane, address: &Address) -> Option<Arc<[u8]>> {
        let courses = self.courses.lock();
        let target = courses.get(&ObjectKey::of(plane))?.target.as_ref()?;
        (target.address == *address).then(|| target.authority.clone())
    }

    /// By the condition, if that says something else, and by the metric.
    async fn tell(&self, plane: &ObjectKey, address: &str, verdict: &Verdict) -> Result<()> {
        self.metrics.healthy(plane, verdict.is_healthy());
        let Some(plane) = self.client.get::<CAPTControlPlane>(plane).await? else { return Ok(()) };
        let tell = |plane: Arc<CAPTControlPlane>| async move {
            let mut told = (*plane).clone();
            let conditions = &mut told.status.get_or_insert_default().conditions;
            match verdict.condition(address) {
                None => conditions.retain(|condition| condition.type_ != ENDPOINT_HEALTHY),
                Some(condition) => set(conditions, condition),
            }
            self.client.status().patch_from(&*plane, &told).await
        };
        written(&self.client, &self.metrics, plane, tell).await?;
        Ok(())
    }

    fn forget(&self, plane: &ObjectKey) {
        self.courses.lock().remove(plane);
        self.metrics.healthy(plane, None);
    }
}

impl Reconciler for HealthReconciler {
    async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
        let plane = self.client.get::<CAPTControlPlane>(&request).await?;
        let Some(plane) = plane.filter(|plane| plane.metadata.deletion_timestamp.is_none()) else {
            self.forget(&request);
            self.retrieval.memo.forget(&request);
            return Ok(Outcome::done());
        };
        let (target, trusted) = match self.target(&plane).await? {
            Ok(target) => target,
            Err(verdict) => {
                self.forget(&request);
                self.tell(&request, "", &verdict).await?;
                return Ok(match verdict {
                    Verdict::Absent => Outcome::done(),
                    _ => Outcome::requeue_after(self.health.every_when_failing),
                });
            }
        };
        let address = target.address.to_string();
        if says_of_another(&plane, &address) {
            let message = "the endpoint is another one since, and it is not known yet";
            self.tell(&request, &address, &Verdict::Unknown { reason: "NotCheckedYet", message }).await?;
        }
        // Back before anything can fail; lost if this is dropped, it begins anew.
        let mut course = self.courses.lock().remove(&request).unwrap_or_default();
        if course.is_due(&target, Instant::now()) {
            let checked = select! {
                biased;
                () = cx.shutdown() => return Ok(Outcome::done()),
                checked = probe(&target.address, trusted, &self.health) => checked,
            };
            course.record(target, checked, Instant::now(), &self.health);
        }
        let (verdict, wait) = (course.verdict.clone(), course.wait(Instant::now()));
        self.courses.lock().insert(request.clone(), course);
        if let Some(verdict) = verdict {
            self.tell(&request, &address, &verdict).await?;
        }
        Ok(Outcome::requeue_after(wait))
    }
}

/// Whether somebody is said to answer or not at another address: the words begin with it.
fn says_of_another(plane: &CAPTControlPlane, address: &str) -> bool {
    let mut conditions = plane.status.iter().flat_map(|status| &status.conditions);
    let said = conditions.find(|condition| condition.type_ == ENDPOINT_HEALTHY);
    let said = said.filter(|condition| condition.status != "Unknown").map(|condition| condition.message.as_str());
    said.is_some_and(|said| !said.strip_prefix(address).is_some_and(|rest| rest.starts_with([' ', ':'])))
}

/// Nobody outside may reach it.
fn is_private(plane: &CAPTControlPlane) -> bool {
    let access = plane.spec.control_plane_config.as_ref().and_then(|config| config.endpoint_access.as_ref());
    matches!(access, Some(EndpointAccess { public: false, private: true, .. }))
}

impl Verdict {
    fn is_healthy(&self) -> Option<bool> {
        match self {
            Self::Absent | Self::Unknown { .. } => None,
            Self::Healthy => Some(true),
            Self::Unhealthy(_) => Some(false),
        }
    }

    fn condition(&self, address: &str) -> Option<Condition> {
        let (status, reason, message) = match self {
            Self::Absent => return None,
            Self::Unknown { reason, message } => ("Unknown", *reason, (*message).to_owned()),
            Self::Healthy => ("True", "EndpointReachable", format!("{address} answers")),
            Self::Unhealthy(why) => ("False", "EndpointUnreachable", format!("{address}: {why}")),
        };
        Some(Condition {
            type_: ENDPOINT_HEALTHY.into(),
            status: status.into(),
            reason: reason.into(),
            message,
            // It is about who answers, not about what is wanted.
            observed_generation: None,
            last_transition_time: Time(Timestamp::now()),
        })
    }
}
