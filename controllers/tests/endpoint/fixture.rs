//! Cluster with CRDs, a manager with the controller, and one control plane.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    cache::Namespaces,
    client::Patch,
    manager::{ManagerBuilder, ManagerHandle},
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{
        self, CAPTControlPlane, ENDPOINT_READY, Options, WorkspaceTemplateApply, workspace_kind,
    },
};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) manager: ManagerHandle,
    stop: oneshot::Sender<()>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Fixture {
    /// Creates a control plane `plane` with apply and Cluster, without a workspace.
    pub(crate) async fn new(env: &Env) -> anyhow::Result<Self> {
        let namespace = env.namespace("endpoint").await?;
        Self::install(env).await?;
        Self::begin(env, &namespace, env.client()?).await
    }

    /// Like `new`, in an existing namespace and with this client for the manager.
    pub(crate) async fn begin(
        env: &Env,
        namespace: &str,
        managers: kube::Client,
    ) -> anyhow::Result<Self> {
        let this = Self::with(
            env.client()?,
            Manager::builder(managers),
            &Options::default(),
            namespace,
        )?;
        this.make_plane().await?;
        Ok(this)
    }

    /// Installs all CRDs.
    pub(crate) async fn install(env: &Env) -> anyhow::Result<()> {
        Ok(env
            .install(
                endpoint::definitions()
                    .into_iter()
                    .chain(endpoint::dependencies()),
            )
            .await?)
    }

    /// Starts a manager for existing objects.
    pub(crate) fn scenario_runner(env: &Env, namespace: &str) -> anyhow::Result<Self> {
        Self::with(
            env.client()?,
            Manager::builder(env.client()?),
            &Options::default(),
            namespace,
        )
    }

    /// Starts a manager from `builder`. The test itself uses `client`.
    pub(crate) fn with(
        client: kube::Client,
        builder: ManagerBuilder,
        options: &Options,
        namespace: &str,
    ) -> anyhow::Result<Self> {
        let cache = CacheOptions {
            namespaces: Namespaces::List(vec![namespace.into()]),
            ..CacheOptions::default()
        };
        let manager = builder.cache(cache).build()?;
        endpoint::add_to(&manager, options)?;
        let client = Client::new(client)?.namespace(namespace);
        let (handle, (stop, stopped)) = (manager.handle(), oneshot::channel());
        let running = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
        Ok(Self {
            client,
            namespace: namespace.into(),
            manager: handle,
            stop,
            running,
        })
    }

    /// Creates the control plane, its apply and its Cluster.
    pub(crate) async fn make_plane(&self) -> anyhow::Result<()> {
        self.client.create(&cluster()).await?;
        self.make_apply().await?;
        self.client.create(&plane()).await?;
        Ok(())
    }

    /// Creates the apply, which names the workspace.
    pub(crate) async fn make_apply(&self) -> anyhow::Result<()> {
        self.client.create(&apply()).await?;
        self.set_workspace_name().await
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.running.await?
    }

    pub(crate) fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&self.namespace, name)
    }

    /// Returns the key of the workspace.
    ///
    /// Workspaces are cluster-scoped, so each test names its own after its namespace.
    pub(crate) fn workspace_key(&self) -> ObjectKey {
        ObjectKey::cluster_scoped(&self.namespace)
    }

    async fn set_workspace_name(&self) -> anyhow::Result<()> {
        let status = Patch::Merge(json!({"status": {"workspaceName": self.namespace}}));
        let key = self.key("plane-eks-controlplane-apply");
        self.client
            .status()
            .patch::<WorkspaceTemplateApply>(&key, &status)
            .await?;
        Ok(())
    }

    /// Creates the workspace, which names the secret `connection`, with these outputs.
    pub(crate) async fn make_workspace(&self, outputs: Option<Value>) -> anyhow::Result<()> {
        let reference = json!({"namespace": self.namespace, "name": "connection"});
        let kind = workspace_kind();
        let workspace = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": self.workspace_key().name()},
            "spec": {"writeConnectionSecretToRef": reference},
        });
        self.client
            .create::<DynamicObject>(&serde_json::from_value(workspace)?)
            .await?;
        match outputs {
            Some(outputs) => self.set_outputs(outputs).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn set_outputs(&self, outputs: Value) -> anyhow::Result<()> {
        let status = Patch::Merge(json!({"status": {"atProvider": {"outputs": outputs}}}));
        self.client
            .status()
            .dynamic(&workspace_kind())
            .patch(&self.workspace_key(), &status)
            .await?;
        Ok(())
    }

    pub(crate) async fn set_secret(&self, endpoint: &str) -> anyhow::Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "connection.crossplane.io/v1alpha1",
            "metadata": {"name": "connection"}, "stringData": {"cluster_endpoint": endpoint},
        });
        let kind = GroupVersionKind::gvk("", "v1", "Secret");
        let key = self.key("connection");
        if self.client.dynamic(&kind).get(&key).await?.is_some() {
            self.client
                .dynamic(&kind)
                .patch(&key, &Patch::Merge(secret))
                .await?;
        } else {
            self.client
                .create::<DynamicObject>(&serde_json::from_value(secret)?)
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn plane(&self) -> anyhow::Result<CAPTControlPlane> {
        let plane = self
            .client
            .get::<CAPTControlPlane>(&self.key("plane"))
            .await?;
        plane
            .map(|plane| (*plane).clone())
            .ok_or_else(|| anyhow::anyhow!("the control plane was deleted"))
    }

    /// Returns `host:port` of control plane and Cluster.
    pub(crate) async fn endpoints(&self) -> anyhow::Result<(Option<String>, Option<String>)> {
        let text = |endpoint: &endpoint::Endpoint| format!("{}:{}", endpoint.host, endpoint.port);
        let plane = self
            .client
            .get::<CAPTControlPlane>(&self.key("plane"))
            .await?;
        let cluster = self.client.get::<Cluster>(&self.key("plane")).await?;
        Ok((
            plane.and_then(|plane| plane.spec.control_plane_endpoint.as_ref().map(text)),
            cluster.and_then(|cluster| {
                cluster
                    .spec
                    .control_plane_endpoint
                    .as_ref()
                    .map(ToString::to_string)
            }),
        ))
    }

    /// Returns reason and status of the condition.
    pub(crate) async fn condition(&self) -> anyhow::Result<(String, String)> {
        let status = self.plane().await?.status.unwrap_or_default();
        let condition = status
            .conditions
            .into_iter()
            .find(|condition| condition.type_ == ENDPOINT_READY);
        Ok(condition
            .map(|condition| (condition.reason, condition.status))
            .unwrap_or_default())
    }

    /// Waits until both objects have this endpoint and the condition is true.
    pub(crate) async fn until_propagated(&self, endpoint: &str) -> anyhow::Result<()> {
        until(async || {
            let both = (Some(endpoint.to_owned()), Some(endpoint.to_owned()));
            Ok(self.endpoints().await? == both && self.condition().await?.1 == "True")
        })
        .await
    }

    pub(crate) async fn until_reason(&self, reason: &str) -> anyhow::Result<()> {
        until(async || Ok(self.condition().await?.0 == reason)).await
    }
}

fn apply() -> WorkspaceTemplateApply {
    let apply = json!({"metadata": {"name": "plane-eks-controlplane-apply"}, "spec": {}});
    serde_json::from_value(apply).expect("an apply")
}

/// Returns a Cluster that refers to the control plane.
pub(crate) fn cluster() -> Cluster {
    let cluster =
        json!({"metadata": {"name": "plane"}, "spec": {"controlPlaneRef": reference("plane")}});
    serde_json::from_value(cluster).expect("valid Cluster")
}

/// Returns a `spec.controlPlaneRef` to a control plane.
pub(crate) fn reference(name: &str) -> Value {
    json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "CAPTControlPlane", "name": name})
}

pub(crate) fn plane() -> CAPTControlPlane {
    let plane = json!({"metadata": {"name": "plane"}, "spec": {"version": "1.31", "workspaceTemplateRef": {"name": "eks"}}});
    serde_json::from_value(plane).expect("a control plane")
}

/// Waits until `holds` returns true, with growing intervals.
///
/// The test has its own timeout.
pub(crate) async fn until(holds: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let mut pause = Duration::from_millis(10);
    while !holds().await? {
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
    Ok(())
}
