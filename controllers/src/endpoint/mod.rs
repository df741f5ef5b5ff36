//! The endpoint of a control plane that Terraform has made: found in its workspace, written to the control plane and to its cluster, and taken back when it goes.
//!
//! For each `CAPTControlPlane` it looks for `cluster_endpoint` in the outputs of its `Workspace`, and where those do not have it, in the workspace's connection secret.
//! What it finds it checks, and writes as host and port to `spec.controlPlaneEndpoint` of the control plane and then of its `Cluster`. The condition
//! `EndpointReady` says how far it is:
//!
//! | reason | status | what it means |
//! |---|---|---|
//! | `EndpointPropagated` | True | control plane and cluster have it |
//! | `EndpointKept` | True | its source is gone; what was known is kept |
//! | `WorkspaceNotReady`, `EndpointNotReady` | False | something is not there yet |
//! | `WaitingForCluster` | False | the control plane has it, and there is no cluster yet |
//! | `InvalidEndpoint` | False | it is no endpoint: mend it where it comes from |
//! | `EndpointUpdateFailed` | False | twice in a row something could not be read or written; it is tried again, less and less often. Once is not worth a word, nor is a conflict |
//!
//! `EndpointHealthy`, if [wanted](Options::health), says whether somebody answers there, and nothing depends on it:
//!
//! | reason | status | what it means |
//! |---|---|---|
//! | `EndpointReachable` | True | there is an answer, whichever: who may not ask is told so |
//! | `EndpointUnreachable` | False | three times in a row there was none, or none that can be trusted |
//! | `NoAuthority`, `InvalidAuthority` | Unknown | it is not known whom to trust there, so nobody is asked |
//! | `PrivateEndpoint` | Unknown | it can be reached from its own network only |
//! | `NotCheckedYet` | Unknown | the endpoint has changed, and what was said of the old one does not count |
//!
//! When a control plane goes, the endpoint that it has is taken off its cluster, and no other: if it goes after its endpoint has changed, and before the cluster could be
//! told, what the cluster had before stays there.
//!
//! A change anywhere on the way is seen by a watch. Of secrets only metadata is kept in memory; the one that is needed is read when it has changed, and nothing of it is
//! logged, told or counted but a host that is valid.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> anyhow::Result<()> {
//! use serde_json::json;
//! use std::time::Duration;
//! use steersman::{prelude::*, testing::{Env, TestServer}};
//! use steersman_controllers::endpoint::{self, CAPTControlPlane, Options};
//!
//! let env = Env::embedded()?; // or any other cluster
//! env.install(endpoint::definitions().into_iter().chain(endpoint::dependencies())).await?;
//! let manager = Manager::builder(env.client()?).build()?;
//! endpoint::add_to(&manager, &Options::default())?;
//! tokio::spawn(manager.run_until(std::future::pending()));
//!
//! // There is neither a workspace nor a cluster yet, and that is said.
//! let client = Client::new(env.client()?)?;
//! let plane = json!({
//!     "metadata": {"namespace": "default", "name": "shop"},
//!     "spec": {"version": "1.31", "workspaceTemplateRef": {"name": "eks"}},
//! });
//! client.create::<CAPTControlPlane>(&serde_json::from_value(plane)?).await?;
//! loop {
//!     let plane = client.get::<CAPTControlPlane>(&ObjectKey::new("default", "shop")).await?.expect("it was made");
//!     if let Some(status) = &plane.status {
//!         assert_eq!((status.ready, &*status.conditions[0].reason), (false, "WorkspaceNotReady"));
//!         break;
//!     }
//!     tokio::time::sleep(Duration::from_millis(10)).await;
//! }
//! # Ok(())
//! # }
//! ```

mod address;
mod again;
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
        ControlPlaneConfig, Endpoint, EndpointAccess, Phase, TemplateReference, Timeouts, WorkspaceTemplateApply,
        WorkspaceTemplateApplySpec, WorkspaceTemplateApplyStatus, workspace_kind,
    },
};

use self::{
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

/// How the controller is to work.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which secrets are watched; `Connections` by default. One that is referred to and not among them is read every time.
    pub secrets: Secrets,
    /// How many control planes are looked at at once; the manager's default if there is none.
    pub workers: Option<usize>,
    /// Whether it is checked that somebody answers at the endpoints, and how often; `None` by default, it is not: it takes a network in which this process can
    /// reach them. It runs as a controller of its own, `endpoint-health`.
    pub health: Option<Health>,
}

/// Which secrets are watched.
#[derive(Clone, Debug, Default)]
pub enum Secrets {
    /// Those that Crossplane writes: of type `connection.crossplane.io/v1alpha1`.
    #[default]
    Connections,
    /// Those with such labels, as in `kubectl -l`; all with an empty text.
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

/// Let a manager run the controller, under the name `endpoint`. The definition of `CAPTControlPlane` has to be installed; those of the others may come later.
pub fn add_to(manager: &ManagerHandle, options: &Options) -> Result<Controller, Error> {
    let (client, selections) = (manager.client(), Selections::new(options));
    let related = Related::new(&manager.cache(), &selections)?;
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
        recorder: manager.recorder("steersman.dev/endpoint")?,
        metrics,
        checks_health: options.health.is_some(),
    };
    let Selections { applies, workspaces, secrets, clusters } = selections;
    let [of_apply, of_workspace, of_secret, of_cluster] = [(); 4].map(|()| related.clone());
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
        .watches_with(clusters, handler::map(move |it: &Object<Cluster>| of_cluster.planes_of_cluster(it.key())))
        .limiter(limiter());
    let builder = match options.workers {
        Some(workers) => builder.max_concurrent(workers),
        None => builder,
    };
    Ok(builder.reconcile(reconciler)?)
}
