//! Scenario of the demonstration: three clusters and a runtime extension.
//!
//! Terraform creates the control planes of the first two clusters. One endpoint is in the outputs
//! of a workspace, the other only in a Secret, which rotates. A provider creates the third
//! cluster, which is paused and deleted, see `lifecycle`. For the extension see
//! `runtime_extension`.
//!
//! The controllers are those of `steersman run`. The demonstration simulates Terraform, its
//! operator and the provider by plain writes.

mod lifecycle;
mod runtime_extension;

pub(super) use self::lifecycle::definitions;

use crate::stdout::print_line;
use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use steersman::{client::Patch, manager::ManagerHandle, object::StaticKind, prelude::*};
use steersman_controllers::{
    cluster_api::{ApiEndpoint, Cluster, Machine},
    endpoint::{CAPTControlPlane, ENDPOINT_READY, WorkspaceTemplateApply, workspace_kind},
    extension_config::{ExtensionConfig, server::Running},
};
use tokio::time::{Instant, timeout};

/// Namespace of the demonstration.
pub(super) const NAMESPACE: &str = "demo";

/// Time limit of a step, which normally takes milliseconds.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Scenario {
    client: Client,
    manager: ManagerHandle,
    planes: Informer<CAPTControlPlane>,
    clusters: Informer<Cluster>,
    machines: Informer<Machine>,
    extensions: Informer<ExtensionConfig>,
    started: Instant,
}

impl Scenario {
    pub(super) fn new(manager: ManagerHandle, started: Instant) -> Result<Self> {
        let (cache, client) = (manager.cache(), manager.client());
        Ok(Self {
            client,
            planes: cache.informer()?,
            clusters: cache.informer()?,
            machines: cache.informer()?,
            extensions: cache.informer()?,
            manager,
            started,
        })
    }

    /// Prints a line with the time since the process started.
    pub(super) fn print(&self, line: &str) -> Result<()> {
        print_line(format_args!(
            "{:>7.3} s  {line}",
            self.started.elapsed().as_secs_f64()
        ))
    }

    /// Runs all parts. Returns the runtime extension, which serves until it is dropped.
    pub(super) async fn run(&self) -> Result<Running> {
        let names = self
            .manager
            .controllers()
            .into_iter()
            .map(|it| it.name)
            .collect::<Vec<_>>()
            .join(", ");
        self.print(&format!("manager runs the controllers: {names}"))?;
        self.client
            .create(&object::<Namespace>(
                json!({"metadata": {"name": NAMESPACE}}),
            )?)
            .await?;

        print_line(
            "\n           Terraform publishes the endpoint of shop in an output of its workspace",
        )?;
        self.create_cluster_objects("shop").await?;
        self.create_workspace("shop", "https://4C1D2A.gr7.eu-west-1.eks.amazonaws.com")
            .await?;
        self.wait_until_propagated("shop", "4C1D2A.gr7.eu-west-1.eks.amazonaws.com:443")
            .await?;

        print_line(
            "\n           The endpoint of bank is sensitive, so it is only in the connection Secret",
        )?;
        self.create_cluster_objects("bank").await?;
        self.create_workspace("bank", "").await?;
        self.write_secret("https://blue.bank.example.com:6443")
            .await?;
        self.wait_until_propagated("bank", "blue.bank.example.com:6443")
            .await?;

        print_line("\n           The Secret is updated, and so is the endpoint")?;
        self.write_secret("https://green.bank.example.com:6443")
            .await?;
        self.wait_until_propagated("bank", "green.bank.example.com:6443")
            .await?;

        self.run_lifecycle().await?;
        self.run_extension().await
    }

    /// Creates the objects of a user, and the status that the operator writes.
    async fn create_cluster_objects(&self, name: &str) -> Result<()> {
        let metadata = |name: &str| json!({"namespace": NAMESPACE, "name": name});
        let apply = format!("{name}-eks-controlplane-apply");
        let reference = json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "CAPTControlPlane", "name": name});
        let spec = json!({"controlPlaneRef": reference});
        self.client
            .create(&object::<Cluster>(
                json!({"metadata": metadata(name), "spec": spec}),
            )?)
            .await?;
        self.client
            .create(&object::<WorkspaceTemplateApply>(
                json!({"metadata": metadata(&apply), "spec": {}}),
            )?)
            .await?;
        let status = Patch::Merge(json!({"status": {"workspaceName": name}}));
        self.client
            .status()
            .patch::<WorkspaceTemplateApply>(&ObjectKey::new(NAMESPACE, &apply), &status)
            .await?;
        let spec = json!({"version": "1.31", "workspaceTemplateRef": {"name": "eks"}});
        self.client
            .create(&object::<CAPTControlPlane>(
                json!({"metadata": metadata(name), "spec": spec}),
            )?)
            .await?;
        self.print(&format!(
            "created Cluster, WorkspaceTemplateApply and CAPTControlPlane {NAMESPACE}/{name}"
        ))?;
        let plane = self
            .until(&self.planes, name, |plane| condition(plane).is_some())
            .await?;
        let (status, reason) = condition(&plane).unwrap_or_default();
        self.print(&format!(
            "CAPTControlPlane {NAMESPACE}/{name}: condition {ENDPOINT_READY}={status}, {reason}"
        ))
    }

    /// Creates a workspace, as Terraform would.
    async fn create_workspace(&self, name: &str, output: &str) -> Result<()> {
        let kind = workspace_kind();
        let secret = json!({"namespace": NAMESPACE, "name": connection(name)});
        let workspace = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": {"name": name}, "spec": {"writeConnectionSecretToRef": secret},
        });
        self.client
            .create(&object::<DynamicObject>(workspace)?)
            .await?;
        let status = Patch::Merge(
            json!({"status": {"atProvider": {"outputs": {"cluster_endpoint": output}}}}),
        );
        self.client
            .status()
            .dynamic(&kind)
            .patch(&ObjectKey::cluster_scoped(name), &status)
            .await?;
        self.print(&format!(
            "created Workspace {name} with output cluster_endpoint={output:?}"
        ))
    }

    async fn write_secret(&self, endpoint: &str) -> Result<()> {
        let (name, data) = (connection("bank"), json!({"cluster_endpoint": endpoint}));
        let secret = json!({
            "metadata": {"namespace": NAMESPACE, "name": name},
            "type": "connection.crossplane.io/v1alpha1", "stringData": data,
        });
        let key = ObjectKey::new(NAMESPACE, &name);
        let exists = self.client.live().get::<Secret>(&key).await?.is_some();
        if exists {
            self.client
                .patch::<Secret>(&key, &Patch::Merge(json!({"stringData": data})))
                .await?;
        } else {
            self.client.create(&object::<Secret>(secret)?).await?;
        }
        let verb = if exists { "updated" } else { "created" };
        // A program should not print a Secret. This one contains sample data.
        self.print(&format!(
            "{verb} Secret {key} with cluster_endpoint={endpoint:?}"
        ))
    }

    async fn wait_until_propagated(&self, name: &str, endpoint: &str) -> Result<()> {
        let matches_endpoint =
            |it: Option<ApiEndpoint>| it.is_some_and(|it| it.to_string() == endpoint);
        self.until(&self.planes, name, |plane| {
            matches_endpoint(plane.spec.control_plane_endpoint.clone().map(Into::into))
        })
        .await?;
        self.print(&format!(
            "CAPTControlPlane {NAMESPACE}/{name}: endpoint {endpoint}"
        ))?;
        self.until(&self.clusters, name, |cluster| {
            matches_endpoint(cluster.spec.control_plane_endpoint.clone())
        })
        .await?;
        self.print(&format!("Cluster {NAMESPACE}/{name}: endpoint {endpoint}"))?;
        let is_ready =
            |plane: &CAPTControlPlane| condition(plane).is_some_and(|(status, _)| status == "True");
        self.until(&self.planes, name, is_ready).await?;
        self.print(&format!(
            "CAPTControlPlane {NAMESPACE}/{name}: condition {ENDPOINT_READY}=True"
        ))
    }

    /// Waits until an object in the cache satisfies a condition.
    async fn until<K: StaticKind>(
        &self,
        informer: &Informer<K>,
        name: &str,
        holds: impl Fn(&K) -> bool,
    ) -> Result<Arc<K>> {
        let object = self
            .until_state(informer, name, |object| object.is_some_and(&holds))
            .await?;
        object.context("the object exists")
    }

    /// Waits until an object in the cache, or its absence, satisfies a condition.
    async fn until_state<K: StaticKind>(
        &self,
        informer: &Informer<K>,
        name: &str,
        holds: impl Fn(Option<&K>) -> bool,
    ) -> Result<Option<Arc<K>>> {
        let key = if K::NAMESPACED {
            ObjectKey::new(NAMESPACE, name)
        } else {
            ObjectKey::cluster_scoped(name)
        };
        let wait = async {
            let mut events = informer.events();
            loop {
                let object = informer.get(&key)?;
                if holds(object.as_deref()) {
                    return Ok(object);
                }
                if events.next().await.is_none() {
                    bail!("cache closed");
                }
            }
        };
        let kind = &informer.gvk().kind;
        timeout(STEP_TIMEOUT, wait).await.with_context(|| {
            let seconds = STEP_TIMEOUT.as_secs();
            format!(
                "{kind} {key} did not change within {seconds} s; read the logs of the \
                 controllers with `steersman demo --log-filter info`"
            )
        })?
    }
}

/// Returns the name of the connection Secret.
fn connection(name: &str) -> String {
    format!("{name}-connection")
}

fn condition(plane: &CAPTControlPlane) -> Option<(String, String)> {
    let conditions = &plane.status.as_ref()?.conditions;
    conditions
        .iter()
        .find(|it| it.type_ == ENDPOINT_READY)
        .map(|it| (it.status.clone(), it.reason.clone()))
}

fn object<K: serde::de::DeserializeOwned>(json: Value) -> Result<K> {
    Ok(serde_json::from_value(json)?)
}
