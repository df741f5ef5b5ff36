//! The story: two clusters whose control planes Terraform makes. Of one it says the endpoint openly, of the other only in a secret, which rotates.
//!
//! The controllers are not told about it: they see what anybody sees. Terraform and its operator are played by plain writes.

use crate::say::say;
use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use steersman::{client::Patch, manager::ManagerHandle, object::StaticKind, prelude::*};
use steersman_controllers::endpoint::{
    CAPTControlPlane, Cluster, ENDPOINT_READY, Endpoint, WorkspaceTemplateApply, workspace_kind,
};
use tokio::time::{Instant, timeout};

/// Where it plays.
pub(super) const NAMESPACE: &str = "demo";

/// Each step takes milliseconds. What takes longer than this does not happen.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Story {
    client: Client,
    manager: ManagerHandle,
    planes: Informer<CAPTControlPlane>,
    clusters: Informer<Cluster>,
    begun: Instant,
}

impl Story {
    pub(super) fn new(manager: ManagerHandle, begun: Instant) -> Result<Self> {
        let (cache, client) = (manager.cache(), manager.client());
        Ok(Self { client, planes: cache.informer()?, clusters: cache.informer()?, manager, begun })
    }

    /// A line, with the time since the process began.
    pub(super) fn say(&self, line: &str) -> Result<()> {
        say(format_args!("{:>7.3} s  {line}", self.begun.elapsed().as_secs_f64()))
    }

    pub(super) async fn tell(&self) -> Result<()> {
        let names = self.manager.controllers().into_iter().map(|it| it.name).collect::<Vec<_>>().join(", ");
        self.say(&format!("the manager runs: {names}"))?;
        self.client.create(&object::<Namespace>(json!({"metadata": {"name": NAMESPACE}}))?).await?;

        say("\n           Terraform says where the control plane of shop listens, in an output of its workspace")?;
        self.make("shop").await?;
        self.make_workspace("shop", "https://4C1D2A.gr7.eu-west-1.eks.amazonaws.com").await?;
        self.reaches("shop", "4C1D2A.gr7.eu-west-1.eks.amazonaws.com:443").await?;

        say("\n           That of bank is sensitive: the output is empty, and the endpoint is in a secret")?;
        self.make("bank").await?;
        self.make_workspace("bank", "").await?;
        self.write_secret("https://blue.bank.example.com:6443").await?;
        self.reaches("bank", "blue.bank.example.com:6443").await?;

        say("\n           The secret rotates, and the endpoint follows")?;
        self.write_secret("https://green.bank.example.com:6443").await?;
        self.reaches("bank", "green.bank.example.com:6443").await
    }

    /// What a person makes, and what the operator says of it.
    async fn make(&self, name: &str) -> Result<()> {
        let metadata = |name: &str| json!({"namespace": NAMESPACE, "name": name});
        let apply = format!("{name}-eks-controlplane-apply");
        let reference =
            json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "CAPTControlPlane", "name": name});
        let spec = json!({"controlPlaneRef": reference});
        self.client.create(&object::<Cluster>(json!({"metadata": metadata(name), "spec": spec}))?).await?;
        self.client
            .create(&object::<WorkspaceTemplateApply>(json!({"metadata": metadata(&apply), "spec": {}}))?)
            .await?;
        let status = Patch::Merge(json!({"status": {"workspaceName": name}}));
        self.client.status().patch::<WorkspaceTemplateApply>(&ObjectKey::new(NAMESPACE, &apply), &status).await?;
        let spec = json!({"version": "1.31", "workspaceTemplateRef": {"name": "eks"}});
        self.client.create(&object::<CAPTControlPlane>(json!({"metadata": metadata(name), "spec": spec}))?).await?;
        self.say(&format!("made      Cluster, WorkspaceTemplateApply and CAPTControlPlane {NAMESPACE}/{name}"))?;
        let plane = self.until(&self.planes, name, |plane| condition(plane).is_some()).await?;
        let (status, reason) = condition(&plane).unwrap_or_default();
        self.say(&format!("says      CAPTControlPlane {NAMESPACE}/{name}: {ENDPOINT_READY} {status}, {reason}"))
    }

    /// What Terraform makes.
    async fn make_workspace(&self, name: &str, output: &str) -> Result<()> {
        let kind = workspace_kind();
        let secret = json!({"namespace": NAMESPACE, "name": connection(name)});
        let workspace = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": {"name": name}, "spec": {"writeConnectionSecretToRef": secret},
        });
        self.client.create(&object::<DynamicObject>(workspace)?).await?;
        let status = Patch::Merge(json!({"status": {"atProvider": {"outputs": {"cluster_endpoint": output}}}}));
        self.client.status().dynamic(&kind).patch(&ObjectKey::cluster_scoped(name), &status).await?;
        self.say(&format!("made      Workspace {name}, whose output cluster_endpoint is {output:?}"))
    }

    async fn write_secret(&self, endpoint: &str) -> Result<()> {
        let (name, data) = (connection("bank"), json!({"cluster_endpoint": endpoint}));
        let secret = json!({
            "metadata": {"namespace": NAMESPACE, "name": name},
            "type": "connection.crossplane.io/v1alpha1", "stringData": data,
        });
        let key = ObjectKey::new(NAMESPACE, &name);
        let is_there = self.client.live().get::<Secret>(&key).await?.is_some();
        if is_there {
            self.client.patch::<Secret>(&key, &Patch::Merge(json!({"stringData": data}))).await?;
        } else {
            self.client.create(&object::<Secret>(secret)?).await?;
        }
        let verb = if is_there { "rotated" } else { "made" };
        // Not what a program should print of a secret: but this one was made up a moment ago.
        self.say(&format!("{verb:<9} Secret {key}, whose cluster_endpoint is {endpoint:?}"))
    }

    async fn reaches(&self, name: &str, endpoint: &str) -> Result<()> {
        let has = |it: Option<&Endpoint>| it.is_some_and(|it| format!("{}:{}", it.host, it.port) == endpoint);
        self.until(&self.planes, name, |plane| has(plane.spec.control_plane_endpoint.as_ref())).await?;
        self.say(&format!("reached   CAPTControlPlane {NAMESPACE}/{name}: {endpoint}"))?;
        self.until(&self.clusters, name, |cluster| has(cluster.spec.control_plane_endpoint.as_ref())).await?;
        self.say(&format!("reached   Cluster {NAMESPACE}/{name}: {endpoint}"))?;
        let is_ready = |plane: &CAPTControlPlane| condition(plane).is_some_and(|(status, _)| status == "True");
        self.until(&self.planes, name, is_ready).await?;
        self.say(&format!("says      CAPTControlPlane {NAMESPACE}/{name}: {ENDPOINT_READY} True"))
    }

    /// Until the object is so, as the cache tells.
    async fn until<K: StaticKind>(
        &self,
        informer: &Informer<K>,
        name: &str,
        holds: impl Fn(&K) -> bool,
    ) -> Result<Arc<K>> {
        let key = ObjectKey::new(NAMESPACE, name);
        let seen = async {
            let mut events = informer.events();
            loop {
                match informer.get(&key)? {
                    Some(object) if holds(&object) => return Ok(object),
                    _ if events.next().await.is_none() => bail!("the cache has ended"),
                    _ => {}
                }
            }
        };
        let kind = &informer.gvk().kind;
        timeout(PATIENCE, seen).await.with_context(|| {
            let seconds = PATIENCE.as_secs();
            format!("nothing has happened to {kind} {key} within {seconds} s: see what the controllers say with `steersman demo --log-filter info`")
        })?
    }
}

/// Where Terraform writes what is sensitive.
fn connection(name: &str) -> String {
    format!("{name}-connection")
}

fn condition(plane: &CAPTControlPlane) -> Option<(String, String)> {
    let conditions = &plane.status.as_ref()?.conditions;
    conditions.iter().find(|it| it.type_ == ENDPOINT_READY).map(|it| (it.status.clone(), it.reason.clone()))
}

fn object<K: serde::de::DeserializeOwned>(json: Value) -> Result<K> {
    Ok(serde_json::from_value(json)?)
}
