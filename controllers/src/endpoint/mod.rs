//! Controller that publishes the API endpoint of control planes created by Terraform.
//!
//! For each `CAPTControlPlane` it reads `cluster_endpoint` from the outputs of the `Workspace`, or
//! else from the connection Secret of the `Workspace`. It validates the value and writes host and
//! port to `spec.controlPlaneEndpoint`, first of the `CAPTControlPlane` and then of its `Cluster`.
//!
//! ```text
//! CAPTControlPlane -> WorkspaceTemplateApply -> Workspace -> Secret
//!        |
//!        +-> Cluster
//! ```
//!
//! The controller watches all of these kinds. It caches only the metadata of Secrets, and reads the
//! Secret that it needs from the API server, once per resource version. Of its content, only a
//! valid host and port appear in logs, conditions, events and metrics. A Secret outside of the
//! namespaces of the manager's cache is not read.
//!
//! # Which cluster
//!
//! The `Cluster` of a control plane is the one whose `spec.controlPlaneRef` names it. Where a
//! `Cluster` has no `controlPlaneRef`, an owner reference of the control plane has to have the uid
//! of the `Cluster`. Labels and equal names do not count. A control plane that no `Cluster` refers
//! to gets its own endpoint, and no `Cluster` is written.
//!
//! If several control planes are owned by a `Cluster` without `controlPlaneRef`, or several
//! Clusters refer to one control plane, the controller reports `ClusterConflict` on each control
//! plane and writes to none of the Clusters.
//!
//! When a control plane is deleted, the controller removes the endpoint from the `Cluster` if the
//! `Cluster` still refers to the control plane and the two endpoints are equal. A `Cluster` that
//! was not updated to the latest endpoint keeps its own.
//!
//! # Conditions
//!
//! `EndpointReady` reports the progress:
//!
//! | reason | status | meaning |
//! |---|---|---|
//! | `EndpointPropagated` | True | control plane and cluster have the endpoint |
//! | `EndpointKept` | True | the source is gone; the last known endpoint stays |
//! | `WorkspaceNotReady` | False | the workspace does not exist yet |
//! | `EndpointNotReady` | False | the workspace has no endpoint yet |
//! | `WaitingForCluster` | False | only the control plane has the endpoint; no cluster refers to it |
//! | `ClusterConflict` | False | several control planes or clusters claim each other; no cluster is written |
//! | `InvalidEndpoint` | False | the value is not a valid endpoint; correct it at the source |
//! | `SecretOutOfScope` | False | the Secret is in a namespace that the controller does not cover |
//! | `EndpointUpdateFailed` | False | reads or writes fail repeatedly; retried with backoff |
//!
//! A single failure, and a conflict with another writer, are retried without a report.
//! `EndpointUpdateFailed` is reported from the second attempt since the last success. Retries of
//! `InvalidEndpoint` and `SecretOutOfScope` count as attempts, so a failure after one of these is
//! reported at once.
//!
//! `EndpointHealthy` exists only with [`Options::health`]. It reports whether the endpoint answers,
//! and nothing depends on it:
//!
//! | reason | status | meaning |
//! |---|---|---|
//! | `EndpointReachable` | True | the endpoint answered, with any HTTP status |
//! | `EndpointUnreachable` | False | [`Health::failures`] checks in a row failed |
//! | `NoAuthority` | Unknown | no CA certificate is known, so the endpoint is not checked |
//! | `InvalidAuthority` | Unknown | the CA certificate is invalid, so the endpoint is not checked |
//! | `PrivateEndpoint` | Unknown | the endpoint is private, so it is not checked |
//! | `NotCheckedYet` | Unknown | the endpoint has changed since the last check |
//!
//! # Example
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> anyhow::Result<()> {
//! use serde_json::json;
//! use std::time::Duration;
//! use steersman::{prelude::*, testing::{Env, TestServer}};
//! use steersman_controllers::endpoint::{self, CAPTControlPlane, Cluster, Options};
//!
//! let env = Env::embedded()?; // any other cluster works as well
//! env.install(endpoint::definitions().into_iter().chain(endpoint::dependencies())).await?;
//! let manager = Manager::builder(env.client()?).build()?;
//! endpoint::add_to(&manager, &Options::default())?;
//! tokio::spawn(manager.run_until(std::future::pending()));
//!
//! let client = Client::new(env.client()?)?;
//! let reference = json!({
//!     "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "CAPTControlPlane", "name": "shop",
//! });
//! let cluster = json!({
//!     "metadata": {"namespace": "default", "name": "shop"},
//!     "spec": {"controlPlaneRef": reference},
//! });
//! client.create::<Cluster>(&serde_json::from_value(cluster)?).await?;
//! let plane = json!({
//!     "metadata": {"namespace": "default", "name": "shop"},
//!     "spec": {
//!         "version": "1.31",
//!         "workspaceTemplateRef": {"name": "eks"},
//!         // Normally written by the controller. Without a workspace the last known endpoint is kept.
//!         "controlPlaneEndpoint": {"host": "shop.example.com", "port": 443},
//!     },
//! });
//! client.create::<CAPTControlPlane>(&serde_json::from_value(plane)?).await?;
//!
//! let key = ObjectKey::new("default", "shop");
//! loop {
//!     let plane = client.get::<CAPTControlPlane>(&key).await?.expect("created above");
//!     if plane.status.as_ref().is_some_and(|status| status.ready) {
//!         break;
//!     }
//!     tokio::time::sleep(Duration::from_millis(10)).await;
//! }
//! let cluster = client.get::<Cluster>(&key).await?.expect("created above");
//! let endpoint = cluster.spec.control_plane_endpoint.as_ref().expect("written by the controller");
//! assert_eq!(endpoint.host, "shop.example.com");
//! # Ok(())
//! # }
//! ```

mod address;
mod again;
mod claims;
mod definitions;
mod failure;
mod health;
mod memo;
mod metrics;
mod reconciler;
mod related;
mod retrieve;
mod roles;
mod sources;
mod status;
mod types;

pub use self::{
    definitions::{definitions, dependencies},
    health::{ENDPOINT_HEALTHY, Health},
    reconciler::FINALIZER,
    roles::roles,
    status::ENDPOINT_READY,
    types::{
        Addon, CAPTControlPlane, CAPTControlPlaneSpec, CAPTControlPlaneStatus, Cluster, ClusterSpec,
        ControlPlaneConfig, ControlPlaneReference, Endpoint, EndpointAccess, Phase, TemplateReference, Timeouts,
        WorkspaceTemplateApply, WorkspaceTemplateApplySpec, WorkspaceTemplateApplyStatus, workspace_kind,
    },
};

use self::{
    claims::Claims,
    health::HealthReconciler,
    memo::Memo,
    metrics::Metrics,
    reconciler::EndpointReconciler,
    related::{Related, Selections},
    retrieve::Retrieval,
};
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use std::{sync::Arc, time::Duration};
use steersman::{
    builder::BuildError,
    cache::CacheError,
    manager::{ManagerError, ManagerHandle},
    prelude::*,
    workqueue::Limiter,
};

/// Settings of the controller.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Secrets to watch. Default: [`Secrets::Connections`].
    ///
    /// A connection Secret that is not watched is read from the API server on every reconcile.
    pub secrets: Secrets,
    /// Number of control planes reconciled concurrently. Default: that of the manager.
    pub workers: Option<usize>,
    /// Settings of the health checks. Default: no checks.
    ///
    /// The checks run in a second controller, `endpoint-health`. They need a network in which this
    /// process can reach the endpoints.
    pub health: Option<Health>,
}

/// Selects the Secrets that the controller watches.
#[derive(Clone, Debug, Default)]
pub enum Secrets {
    /// Secrets that Crossplane writes, of type `connection.crossplane.io/v1alpha1`.
    #[default]
    Connections,
    /// Secrets that match a label selector, written as for `kubectl -l`. Empty matches all.
    Labelled(String),
}

/// Why the controller could not be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cache does not take what it has to keep.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The controller cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The manager does not take it.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

/// Let a manager run the controller, under the name `endpoint`. The definition of
/// `CAPTControlPlane` has to be installed; those of the others may come later.
pub fn add_to(manager: &ManagerHandle, options: &Options) -> Result<Controller, Error> {
    let (client, selections) = (manager.client(), Selections::new(options));
    let related = Related::new(&manager.cache(), &selections)?;
    let claims = Claims::new(&manager.cache(), &selections)?;
    let metrics = manager.metrics(Metrics::register);
    let retrieval = Arc::new(Retrieval {
        client: client.clone(),
        secrets: manager.cache().informer_of(selections.secrets.clone())?,
        metrics: metrics.clone(),
        memo: Memo::new(metrics.clone()),
    });
    let limiter = || Limiter::exponential(Duration::from_secs(1), Duration::from_mins(5)).jitter(0.1);
    if let Some(health) = options.health {
        let health = HealthReconciler::new(client.clone(), retrieval.clone(), metrics.clone(), health);
        let builder = manager.controller("endpoint-health").for_::<CAPTControlPlane>();
        builder.max_concurrent(health::AT_ONCE).limiter(limiter()).reconcile(health)?;
    }
    let reconciler = EndpointReconciler {
        client,
        retrieval,
        claims: claims.clone(),
        recorder: manager.recorder("steersman.dev/endpoint")?,
        metrics,
        checks_health: options.health.is_some(),
    };
    let Selections { applies, workspaces, secrets, clusters } = selections;
    let [of_apply, of_workspace, of_secret] = [(); 3].map(|()| related.clone());
    let [of_cluster, of_plane] = [(); 2].map(|()| claims.clone());
    let builder = manager
        .controller("endpoint")
        .for_::<CAPTControlPlane>()
        .watches_with(
            applies,
            handler::map(move |it: &Object<WorkspaceTemplateApply>| of_apply.planes_of_apply(it.key())),
        )
        .watches_with(
            workspaces,
            handler::map(move |it: &Object<DynamicObject>| of_workspace.planes_of_workspace(it.key())),
        )
        .watches_with(secrets, handler::map(move |it: &Object<Metadata<Secret>>| of_secret.planes_of_secret(it.key())))
        .watches_with(
            clusters,
            handler::map(move |it: &Object<Cluster>| it.decode().map(|it| of_cluster.planes_of_cluster(&it))),
        )
        .watches(handler::map(move |it: &Object<CAPTControlPlane>| it.decode().map(|it| of_plane.rivals_of(&it))))
        .limiter(limiter());
    let builder = match options.workers {
        Some(workers) => builder.max_concurrent(workers),
        None => builder,
    };
    Ok(builder.reconcile(reconciler)?)
}
