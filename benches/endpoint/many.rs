//! Many control planes whose workspaces have said everything already, on an embedded server that counts the calls that follow.

use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use steersman::{manager::ManagerHandle, prelude::*};
use steersman_apiserver::{ApiServer, Journal, Options};
use steersman_controllers::endpoint::{
    self, CAPTControlPlane, Cluster, WorkspaceTemplateApply, definitions, dependencies, workspace_kind,
};
use tokio::{sync::oneshot, task::JoinHandle};

const NAMESPACE: &str = "default";

/// The last thing that is written of a control plane.
const LAST: &str = "patch captcontrolplanes/status";

pub(crate) struct Many {
    server: ApiServer,
    planes: usize,
}

/// A manager that runs the controller.
pub(crate) struct Running {
    manager: ManagerHandle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Many {
    pub(crate) async fn new(planes: usize) -> anyhow::Result<Self> {
        let options = Options { journal: Journal::new(100 * planes), ..Options::default() };
        let server = ApiServer::new(options)?;
        for definition in definitions().into_iter().chain(dependencies()) {
            server.install(definition).await.map_err(|failure| anyhow::anyhow!("{failure}"))?;
        }
        let this = Self { server, planes };
        let client = Client::new(this.client())?.namespace(NAMESPACE);
        for number in 0..planes {
            make(&client, number).await?;
        }
        Ok(this)
    }

    fn client(&self) -> kube::Client {
        kube::Client::new(self.server.service(), NAMESPACE)
    }

    /// From here on calls are counted.
    pub(crate) fn start(&self, workers: Option<usize>) -> anyhow::Result<Running> {
        self.server.journal().clear();
        let manager = Manager::builder(self.client()).build()?;
        endpoint::add_to(&manager, &endpoint::Options { workers, ..endpoint::Options::default() })?;
        let (manager, (stop, stopped), running) = (manager.handle(), oneshot::channel(), manager);
        let task = tokio::spawn(running.run_until(async { drop(stopped.await) }));
        Ok(Running { manager, stop, task })
    }

    /// Until the last has been told of.
    pub(crate) async fn propagated(&self) -> anyhow::Result<()> {
        self.server.journal().wait_for(LAST, self.planes).await;
        let client = Client::new(self.client())?;
        let planes = client.list(&steersman::cache::Query::<CAPTControlPlane>::default()).await?;
        let ready = planes.iter().filter(|plane| plane.status.as_ref().is_some_and(|status| status.ready)).count();
        anyhow::ensure!(ready == self.planes, "{ready} of {} are ready: some were told of twice", self.planes);
        Ok(())
    }

    /// How often each was called since the start: `patch clusters`; reads of other things than objects are not told apart.
    pub(crate) fn calls(&self) -> BTreeMap<String, usize> {
        let mut calls = BTreeMap::new();
        for entry in self.server.journal().entries() {
            let part = if entry.subresource.is_empty() { String::new() } else { format!("/{}", entry.subresource) };
            *calls.entry(format!("{} {}{part}", entry.verb, entry.resource)).or_default() += 1;
        }
        calls
    }
}

impl Running {
    /// How many reconciles have ended well, and there is something to do no more.
    pub(crate) fn done(&self) -> u64 {
        self.manager.controllers().iter().map(|controller| controller.stats.requeue_after).sum()
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.task.await?
    }
}

/// A control plane, its cluster, its apply, and the workspace that has its output.
async fn make(client: &Client, number: usize) -> anyhow::Result<()> {
    let (plane, workspace, kind) = (format!("plane-{number}"), format!("workspace-{number}"), workspace_kind());
    let apply = format!("{plane}-eks-controlplane-apply");
    let spec = json!({"version": "1.31", "workspaceTemplateRef": {"name": "eks"}});
    client.create::<CAPTControlPlane>(&read(json!({"metadata": {"name": plane}, "spec": spec}))?).await?;
    let reference =
        json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "CAPTControlPlane", "name": plane});
    let spec = json!({"controlPlaneRef": reference});
    client.create::<Cluster>(&read(json!({"metadata": {"name": plane}, "spec": spec}))?).await?;
    client.create::<WorkspaceTemplateApply>(&read(json!({"metadata": {"name": apply}, "spec": {}}))?).await?;
    let types = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": workspace}});
    client.create::<DynamicObject>(&read(types)?).await?;
    let status = |status: Value| steersman::client::Patch::Merge(json!({ "status": status }));
    let key = ObjectKey::new(NAMESPACE, &apply);
    let named = status(json!({"workspaceName": workspace}));
    client.status().patch::<WorkspaceTemplateApply>(&key, &named).await?;
    let outputs = json!({"cluster_endpoint": format!("https://{plane}.example.com")});
    let told = status(json!({"atProvider": {"outputs": outputs}}));
    client.status().dynamic(&kind).patch(&ObjectKey::cluster_scoped(&workspace), &told).await?;
    Ok(())
}

fn read<K: DeserializeOwned>(object: Value) -> anyhow::Result<K> {
    Ok(serde_json::from_value(object)?)
}
