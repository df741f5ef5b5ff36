//! Control planes whose workspaces have their outputs, on an embedded server that records calls.

use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use steersman::{manager::ManagerHandle, prelude::*};
use steersman_apiserver::{ApiServer, Journal, Options};
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{
        self, CAPTControlPlane, WorkspaceTemplateApply, definitions, dependencies, workspace_kind,
    },
};
use tokio::{sync::oneshot, task::JoinHandle};

const NAMESPACE: &str = "default";

/// The last write for a control plane.
const LAST_WRITE: &str = "patch captcontrolplanes/status";

pub(crate) struct ControlPlanes {
    server: ApiServer,
    planes: usize,
}

/// A manager that runs the controller.
pub(crate) struct Running {
    manager: ManagerHandle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl ControlPlanes {
    pub(crate) async fn new(planes: usize) -> anyhow::Result<Self> {
        let options = Options {
            journal: Journal::new(100 * planes),
            ..Options::default()
        };
        let server = ApiServer::new(options)?;
        for definition in definitions().into_iter().chain(dependencies()) {
            server
                .install(definition)
                .await
                .map_err(|failure| anyhow::anyhow!("{failure}"))?;
        }
        let control_planes = Self { server, planes };
        let client = Client::new(control_planes.client())?.namespace(NAMESPACE);
        for number in 0..planes {
            create_plane(&client, number).await?;
        }
        Ok(control_planes)
    }

    fn client(&self) -> kube::Client {
        kube::Client::new(self.server.service(), NAMESPACE)
    }

    /// Starts a manager and clears the recorded calls.
    pub(crate) fn start(&self, workers: Option<usize>) -> anyhow::Result<Running> {
        self.server.journal().clear();
        let manager = Manager::builder(self.client()).build()?;
        endpoint::add_to(
            &manager,
            &endpoint::Options {
                workers,
                ..endpoint::Options::default()
            },
        )?;
        let handle = manager.handle();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
        Ok(Running {
            manager: handle,
            stop,
            task,
        })
    }

    /// Waits until the endpoints of all control planes are propagated.
    pub(crate) async fn wait_until_propagated(&self) -> anyhow::Result<()> {
        self.server
            .journal()
            .wait_for(LAST_WRITE, self.planes)
            .await;
        let client = Client::new(self.client())?;
        let planes = client
            .list(&steersman::cache::Query::<CAPTControlPlane>::default())
            .await?;
        let ready = planes
            .iter()
            .filter(|plane| plane.status.as_ref().is_some_and(|status| status.ready))
            .count();
        anyhow::ensure!(
            ready == self.planes,
            "{ready} of {} control planes are ready; the status of some was written twice",
            self.planes
        );
        Ok(())
    }

    /// Returns the number of calls since the start by verb and resource, such as `patch clusters`.
    /// Calls without a resource, such as discovery, are counted by verb.
    pub(crate) fn calls(&self) -> BTreeMap<String, usize> {
        let mut calls = BTreeMap::new();
        for entry in self.server.journal().entries() {
            let suffix = if entry.subresource.is_empty() {
                String::new()
            } else {
                format!("/{}", entry.subresource)
            };
            *calls
                .entry(format!("{} {}{suffix}", entry.verb, entry.resource))
                .or_default() += 1;
        }
        calls
    }
}

impl Running {
    /// Returns the number of reconciles that found nothing left to do.
    pub(crate) fn completed_reconciles(&self) -> u64 {
        self.manager
            .controllers()
            .iter()
            .map(|controller| controller.stats.requeue_after)
            .sum()
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.task.await?
    }
}

/// Creates a control plane with its cluster, its apply and a workspace with its outputs.
async fn create_plane(client: &Client, number: usize) -> anyhow::Result<()> {
    let plane = format!("plane-{number}");
    let workspace = format!("workspace-{number}");
    let kind = workspace_kind();
    let apply = format!("{plane}-eks-controlplane-apply");
    let spec = json!({"version": "1.31", "workspaceTemplateRef": {"name": "eks"}});
    client
        .create::<CAPTControlPlane>(&parse(json!({"metadata": {"name": plane}, "spec": spec}))?)
        .await?;
    let reference = json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "CAPTControlPlane", "name": plane});
    let spec = json!({"controlPlaneRef": reference});
    client
        .create::<Cluster>(&parse(json!({"metadata": {"name": plane}, "spec": spec}))?)
        .await?;
    client
        .create::<WorkspaceTemplateApply>(&parse(json!({"metadata": {"name": apply}, "spec": {}}))?)
        .await?;
    let types = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": workspace}});
    client.create::<DynamicObject>(&parse(types)?).await?;
    let status = |status: Value| steersman::client::Patch::Merge(json!({ "status": status }));
    let key = ObjectKey::new(NAMESPACE, &apply);
    let workspace_name = status(json!({"workspaceName": workspace}));
    client
        .status()
        .patch::<WorkspaceTemplateApply>(&key, &workspace_name)
        .await?;
    let outputs = json!({"cluster_endpoint": format!("https://{plane}.example.com")});
    let outputs = status(json!({"atProvider": {"outputs": outputs}}));
    client
        .status()
        .dynamic(&kind)
        .patch(&ObjectKey::cluster_scoped(&workspace), &outputs)
        .await?;
    Ok(())
}

fn parse<K: DeserializeOwned>(object: Value) -> anyhow::Result<K> {
    Ok(serde_json::from_value(object)?)
}
