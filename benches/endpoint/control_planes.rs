//! Control planes whose workspaces have their outputs, on an embedded server that records calls.

use crate::recording_server::{NAMESPACE, Running, Server};
use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use steersman::{cache::Query, prelude::*};
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{
        self, CAPTControlPlane, WorkspaceTemplateApply, definitions, dependencies, workspace_kind,
    },
};

/// The last write for a control plane.
const LAST_WRITE: &str = "patch captcontrolplanes/status";

pub(crate) struct ControlPlanes {
    pub(crate) server: Server,
    planes: usize,
}

impl ControlPlanes {
    pub(crate) async fn new(planes: usize) -> anyhow::Result<Self> {
        let definitions = definitions().into_iter().chain(dependencies());
        let server = Server::new(definitions, 100 * planes).await?;
        let client = server.client()?;
        for number in 0..planes {
            create_plane(&client, number).await?;
        }
        Ok(Self { server, planes })
    }

    /// Starts a manager and clears the recorded calls.
    pub(crate) fn start(&self, workers: Option<usize>) -> anyhow::Result<Running> {
        let options = endpoint::Options {
            workers,
            ..endpoint::Options::default()
        };
        self.server.start(|manager| {
            endpoint::add_to(manager, &options)?;
            Ok(())
        })
    }

    /// Waits until the endpoints of all control planes are propagated.
    pub(crate) async fn wait_until_propagated(&self) -> anyhow::Result<()> {
        let journal = self.server.0.journal();
        journal.wait_for(LAST_WRITE, self.planes).await;
        let client = self.server.client()?;
        let planes = client.list(&Query::<CAPTControlPlane>::default()).await?;
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
}

/// Returns the number of reconciles that found nothing left to do.
pub(crate) fn completed_reconciles(running: &Running) -> u64 {
    running
        .manager
        .controllers()
        .iter()
        .map(|controller| controller.stats.requeue_after)
        .sum()
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
