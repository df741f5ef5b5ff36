//! Copy an endpoint from an object whose type nobody has, or from the secret it names, to a control plane; clear it on deletion. `cargo run --example endpoint`
//!
//! An index finds the control planes of a workspace; secrets are watched by metadata only, and read from the server when they are needed.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{CustomResource, CustomResourceExt, core::DynamicObject};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    cache::Index,
    client::{self, Change, Finalize, Patch, owner},
    manager::ManagerHandle,
    prelude::*,
    testing::{Env, TestServer},
};
use tokio::{sync::mpsc, task::JoinHandle};

#[derive(CustomResource, JsonSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "example.com", version = "v1", kind = "ControlPlane", namespaced)]
struct ControlPlaneSpec {
    workspace: String,
    endpoint: Option<String>,
}

const FINALIZER: &str = "example.com/endpoint";

fn workspace_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("tf.example.com", "v1", "Workspace")
}

struct EndpointReconciler {
    client: Client,
    tell: mpsc::UnboundedSender<String>,
}

impl Reconciler for EndpointReconciler {
    async fn reconcile(&self, request: Request, _cx: &Context) -> Result<Outcome> {
        let Some(plane) = self.client.get::<ControlPlane>(&request).await? else { return Ok(Outcome::done()) };
        match self.client.finalizer(plane, FINALIZER).await? {
            Finalize::Active(plane) => self.propagate(&plane).await,
            Finalize::Deleting(deletion) => {
                self.set_endpoint(&request, None).await?;
                deletion.finish().await?;
                self.tell.send(format!("{request}: endpoint cleared"))?;
                Ok(Outcome::done())
            }
            Finalize::Released => Ok(Outcome::done()),
        }
    }
}

impl EndpointReconciler {
    async fn propagate(&self, plane: &ControlPlane) -> Result<Outcome> {
        let key = ObjectKey::of(plane);
        let Some(endpoint) = self.endpoint(plane).await? else {
            // The watches say when there is one.
            return Ok(Outcome::requeue_after(Duration::from_mins(5)));
        };
        if plane.spec.endpoint.as_ref() != Some(&endpoint) {
            self.set_endpoint(&key, Some(&endpoint)).await?;
        }
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"namespace": key.namespace(), "name": key.name(), "labels": {"app": "endpoint"}},
        }))?;
        // The cache has only those with the label, and so does not say that there is none.
        let client = self.client.live();
        let copied = client.create_or_patch(map, |map| {
            map.data.get_or_insert_default().insert("endpoint".into(), endpoint.clone());
            Ok(owner::set_controller(plane, map)?)
        });
        let (change, _) = copied.await?;
        if change != Change::None {
            self.tell.send(format!("{key}: endpoint {endpoint}"))?;
        }
        Ok(Outcome::done())
    }

    async fn endpoint(&self, plane: &ControlPlane) -> Result<Option<String>> {
        let kind = workspace_kind();
        let Some(discovered) = self.client.discover(&kind).await? else { return Ok(None) };
        let key = discovered.key(plane.metadata.namespace.as_deref(), &plane.spec.workspace);
        let Some(workspace) = self.client.dynamic(&kind).get(&key).await? else { return Ok(None) };
        if let Some(endpoint) = workspace.data["status"]["outputs"]["endpoint"].as_str() {
            return Ok(Some(endpoint.into()));
        }
        let reference = &workspace.data["spec"]["secret"];
        let (Some(namespace), Some(name)) = (reference["namespace"].as_str(), reference["name"].as_str()) else {
            return Ok(None);
        };
        let secret = self.client.live().get::<Secret>(&ObjectKey::new(namespace, name)).await?;
        let Some(value) = secret.as_ref().and_then(|secret| secret.data.as_ref()?.get("endpoint")) else {
            return Ok(None);
        };
        Ok(Some(String::from_utf8(value.0.clone()).map_err(Failure::terminal)?))
    }

    /// A conflict is an error like any other: it is retried quietly.
    async fn set_endpoint(&self, key: &ObjectKey, endpoint: Option<&str>) -> client::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"endpoint": endpoint}}));
        self.client.patch::<ControlPlane>(key, &patch).await.map(drop)
    }
}

/// In a function of its own, as a program would have it, to be tested on whatever cluster.
fn add_to(manager: &ManagerHandle, tell: mpsc::UnboundedSender<String>) -> anyhow::Result<()> {
    let planes = manager.cache().informer::<ControlPlane>()?;
    let by_workspace = planes.index(|plane| vec![plane.spec.workspace.clone()]);
    manager
        .controller("endpoint")
        .for_::<ControlPlane>()
        // It may be installed later.
        .watches_with(Select::dynamic(workspace_kind()).optional(), handler::map(users(by_workspace)))
        .watches_with(
            Select::<Metadata<Secret>>::new().fields("type=example.com/connection"),
            handler::map_async(move |secret| planes_near(planes.clone(), secret)),
        )
        .owns_with(Select::<ConfigMap>::new().compact().labels("app=endpoint"))
        .reconcile(EndpointReconciler { client: manager.client(), tell })?;
    Ok(())
}

fn users(by_workspace: Index<ControlPlane, String>) -> impl Fn(&Object<DynamicObject>) -> Vec<Request> {
    move |workspace| by_workspace.keys(&workspace.name().to_owned())
}

/// Asynchronous and fallible only to show that it may be.
#[expect(clippy::unused_async, reason = "see above")]
async fn planes_near(planes: Informer<ControlPlane>, secret: Object<Metadata<Secret>>) -> Result<Vec<Request>> {
    let planes = planes.list(&Query::default().namespace(secret.namespace())).context("listing control planes")?;
    Ok(planes.iter().map(|plane| ObjectKey::of(&**plane)).collect())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = Env::embedded()?; // or a cluster, by `Config::infer().await?`
    story(&server, |line| println!("{line}")).await
}

/// Somebody makes a control plane, then what it refers to; both change, and it goes.
pub(crate) async fn story(server: &impl TestServer, mut say: impl FnMut(String)) -> anyhow::Result<()> {
    server.install([serde_json::to_value(ControlPlane::crd())?, workspace_definition()]).await?;
    let manager = Manager::builder(server.client()?).build()?;
    let client = manager.client().namespace("default");
    let (tell, mut told) = mpsc::unbounded_channel();
    add_to(&manager, tell)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running: JoinHandle<_> = tokio::spawn(manager.run_until(async { drop(stopped.await) }));

    let plane = ControlPlane::new("plane", ControlPlaneSpec { workspace: "east".into(), endpoint: None });
    client.create(&plane).await?;
    let secret = json!({
        "metadata": {"name": "east"}, "type": "example.com/connection", "stringData": {"endpoint": "10.0.0.1:6443"},
    });
    client.create::<Secret>(&serde_json::from_value(secret)?).await?;
    let workspace = json!({
        "apiVersion": "tf.example.com/v1", "kind": "Workspace", "metadata": {"name": "east"},
        "spec": {"secret": {"namespace": "default", "name": "east"}},
    });
    client.create::<DynamicObject>(&serde_json::from_value(workspace)?).await?;
    say(told.recv().await.context("it says so")?);

    let outputs = Patch::Merge(json!({"status": {"outputs": {"endpoint": "east.example.com:6443"}}}));
    client.dynamic(&workspace_kind()).patch(&ObjectKey::new("default", "east"), &outputs).await?;
    say(told.recv().await.context("it says so")?);

    client.delete::<ControlPlane>(&ObjectKey::new("default", "plane")).await?;
    say(told.recv().await.context("it says so")?);
    drop(stop);
    running.await?
}

fn workspace_definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "workspaces.tf.example.com"},
        "spec": {
            "group": "tf.example.com", "scope": "Namespaced", "names": {"plural": "workspaces", "kind": "Workspace"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}
