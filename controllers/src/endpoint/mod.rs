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
//! Clusters are read and written as [`cluster_api::Cluster`](crate::cluster_api::Cluster), in the
//! version v1beta2.
//!
//! The `Cluster` of a control plane is the one whose `spec.controlPlaneRef` names it. Where a
//! `Cluster` has no `controlPlaneRef`, an owner reference of the control plane has to have the uid
//! of the `Cluster`. Labels and equal names do not count. A control plane that no `Cluster` refers
//! to gets a condition, and nothing else is written.
//!
//! If several control planes are owned by a `Cluster` without `controlPlaneRef`, or several
//! Clusters refer to one control plane, the controller reports `ClusterConflict` on each control
//! plane, and nothing else is written.
//!
//! The control plane gets the finalizer [`FINALIZER`] before its endpoint is written to a
//! `Cluster`. When a control plane with this finalizer is deleted, the controller removes the
//! endpoint from the `Cluster` if the `Cluster` still refers to this control plane alone, and the
//! two endpoints are equal. A `Cluster` that was not updated to the latest endpoint keeps its own.
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
//! | `WaitingForCluster` | False | no cluster refers to the control plane; nothing is written |
//! | `ClusterConflict` | False | several control planes or clusters claim each other; nothing is written |
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
//! use steersman_controllers::{cluster_api::Cluster, endpoint::{self, CAPTControlPlane, Options}};
//!
//! let env = Env::embedded()?; // any other cluster works as well
//! env.install(endpoint::definitions().into_iter().chain(endpoint::dependencies())).await?;
//! let manager = Manager::builder(env.client()?).build()?;
//! endpoint::add_to(&manager, &Options::default())?;
//! tokio::spawn(manager.run_until(std::future::pending()));
//!
//! let client = Client::new(env.client()?)?;
//! let reference = json!({
//!     "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "CAPTControlPlane", "name": "shop",
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
//! assert_eq!(endpoint.host(), Some("shop.example.com"));
//! # Ok(())
//! # }
//! ```

mod address;
mod claims;
mod definitions;
mod dependents;
mod failure;
mod health;
mod metrics;
mod reconciler;
mod retrieve;
mod retry;
mod roles;
mod source_cache;
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
        Addon, CAPTControlPlane, CAPTControlPlaneSpec, CAPTControlPlaneStatus, ControlPlaneConfig,
        Endpoint, EndpointAccess, Phase, TemplateReference, Timeouts, WorkspaceTemplateApply,
        WorkspaceTemplateApplySpec, WorkspaceTemplateApplyStatus, workspace_kind,
    },
};

use self::{
    claims::Claims,
    dependents::{DependentPlanes, WatchedKinds},
    health::HealthReconciler,
    metrics::Metrics,
    reconciler::EndpointReconciler,
    retrieve::Retrieval,
    source_cache::SourceCache,
};
use crate::cluster_api::Cluster;
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

/// Error of [`add_to`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An informer could not be declared.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The controller cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The manager rejected the controller.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

/// Adds the controller to a manager, under the name `endpoint`.
///
/// The CRD of `CAPTControlPlane` must be installed. The CRDs of the other kinds can be installed
/// later.
pub fn add_to(manager: &ManagerHandle, options: &Options) -> Result<Controller, Error> {
    let (client, watched_kinds) = (manager.client(), WatchedKinds::new(options));
    let dependents = DependentPlanes::new(&manager.cache(), &watched_kinds)?;
    let claims = Claims::new(&manager.cache(), &watched_kinds)?;
    let metrics = manager.metrics(Metrics::register);
    let retrieval = Arc::new(Retrieval {
        client: client.clone(),
        secrets: manager.cache().informer_of(watched_kinds.secrets.clone())?,
        metrics: metrics.clone(),
        source_cache: SourceCache::new(metrics.clone()),
    });
    let limiter =
        || Limiter::exponential(Duration::from_secs(1), Duration::from_mins(5)).jitter(0.1);
    if let Some(health) = options.health {
        let health =
            HealthReconciler::new(client.clone(), retrieval.clone(), metrics.clone(), health);
        let builder = manager
            .controller("endpoint-health")
            .for_with(watched_kinds.planes.clone());
        builder
            .max_concurrent(health::MAX_CONCURRENT)
            .limiter(limiter())
            .reconcile(health)?;
    }
    let reconciler = EndpointReconciler {
        client,
        retrieval,
        claims: claims.clone(),
        recorder: manager.recorder("steersman.dev/endpoint")?,
        metrics,
        checks_health: options.health.is_some(),
    };
    let WatchedKinds {
        planes,
        applies,
        workspaces,
        secrets,
        clusters,
    } = watched_kinds;
    let [of_apply, of_workspace, of_secret] = [(); 3].map(|()| dependents.clone());
    let [of_cluster, of_plane] = [(); 2].map(|()| claims.clone());
    let builder = manager
        .controller("endpoint")
        .for_with(planes.clone())
        .watches_with(
            applies,
            handler::map(move |it: &Object<WorkspaceTemplateApply>| {
                of_apply.planes_of_apply(it.key())
            }),
        )
        .watches_with(
            workspaces,
            handler::map(move |it: &Object<DynamicObject>| {
                of_workspace.planes_of_workspace(it.key())
            }),
        )
        .watches_with(
            secrets,
            handler::map(move |it: &Object<Metadata<Secret>>| of_secret.planes_of_secret(it.key())),
        )
        .watches_with(
            clusters,
            handler::map(move |it: &Object<Cluster>| {
                it.decode().map(|it| of_cluster.planes_of_cluster(&it))
            }),
        )
        .watches_with(
            planes,
            handler::map(move |it: &Object<CAPTControlPlane>| {
                it.decode().map(|it| of_plane.rivals_of(&it))
            }),
        )
        .limiter(limiter());
    let builder = match options.workers {
        Some(workers) => builder.max_concurrent(workers),
        None => builder,
    };
    Ok(builder.reconcile(reconciler)?)
}
