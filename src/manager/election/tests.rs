//! Elections on the embedded API server, with paused time.

mod clocks;
mod leader;
mod leader_work;
mod standby;

use super::*;
use kube_client::{Api, Client};
use kube_core::{
    DynamicObject,
    params::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use std::{future::pending, time::Duration};
use steersman_apiserver::{ApiServer, Fault, Options};
use tokio::{task::JoinHandle, time::Instant};

struct Fixture {
    server: ApiServer,
}

impl Fixture {
    fn new() -> Self {
        Self {
            server: ApiServer::new(Options::default()).expect("a server without data starts"),
        }
    }

    fn client(&self) -> Client {
        Client::new(self.server.service(), "default")
    }

    /// Creates a candidate with this identity.
    fn elector(&self, identity: &str) -> Elector {
        self.elector_with(LeaderElection {
            identity: identity.into(),
            ..LeaderElection::new("web", "default")
        })
    }

    fn elector_with(&self, options: LeaderElection) -> Elector {
        Elector::new(self.client(), options).expect("the options are right")
    }

    fn leases(&self) -> Api<DynamicObject> {
        let gvk = kube_core::GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
        Api::default_namespaced_with(self.client(), &kube_core::ApiResource::from_gvk(&gvk))
    }

    async fn spec(&self) -> Value {
        self.leases().get("web").await.expect("a Lease").data["spec"].clone()
    }

    /// Updates the spec as another process would.
    async fn write(&self, spec: Value) {
        self.patch(json!({"spec": spec})).await;
    }

    async fn patch(&self, patch: Value) {
        self.leases()
            .patch("web", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("written");
    }

    fn fault(&self, rule: &str) -> steersman_apiserver::RuleHandle {
        self.server
            .faults()
            .add(rule.parse::<Fault>().expect("a rule"))
    }
}

/// Holds the leadership until it is lost.
fn held(mut leadership: Leadership) -> JoinHandle<(Leadership, Result<(), Lost>)> {
    tokio::spawn(async move {
        let held = leadership.hold(pending()).await;
        (leadership, held)
    })
}

async fn leads(elector: &Elector) -> Leadership {
    elector
        .acquire(pending())
        .await
        .expect("the elector was not stopped")
}

/// Waits until the elector leads, and returns the time.
fn waiting(elector: &Elector) -> JoinHandle<(Leadership, Instant)> {
    let elector = elector.clone();
    tokio::spawn(async move { (leads(&elector).await, Instant::now()) })
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
