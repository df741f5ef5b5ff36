//! Watch Secrets by metadata, with an index and a finalizer: `cargo run --example endpoint`
//!
//! A `ControlPlane` names a Secret. The controller copies the endpoint from the Secret to the
//! `ControlPlane`, and clears it when the `ControlPlane` is deleted. The cache keeps only the
//! metadata of Secrets. Their data is read from the API server when it is needed.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{from_value, json};
use steersman::{
    client::{self, Finalize, Patch},
    manager::ManagerHandle,
    prelude::*,
    reconcile::{Context, Result},
    testing::{Env, TestServer},
};
use tokio::sync::{mpsc, oneshot};

#[derive(CustomResource, JsonSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "ControlPlane",
    namespaced
)]
struct ControlPlaneSpec {
    secret: String,
    endpoint: Option<String>,
}

const FINALIZER: &str = "example.com/endpoint";

struct EndpointReconciler {
    client: Client,
    /// Receives a line for each change of an endpoint.
    changes: mpsc::UnboundedSender<String>,
}

impl Reconciler for EndpointReconciler {
    async fn reconcile(&self, request: Request, _cx: &Context) -> Result<Outcome> {
        let Some(plane) = self.client.get::<ControlPlane>(&request).await? else {
            return Ok(Outcome::done());
        };
        match self.client.finalizer(plane, FINALIZER).await? {
            Finalize::Active(plane) => {
                // Without an endpoint, the next event of the Secret enqueues the request again.
                let endpoint = self.read_endpoint(&plane).await?;
                if let Some(endpoint) = endpoint
                    && plane.spec.endpoint.as_ref() != Some(&endpoint)
                {
                    self.set_endpoint(&request, Some(&endpoint)).await?;
                    let change = format!("{request}: endpoint {endpoint}");
                    self.changes.send(change)?;
                }
            }
            Finalize::Deleting(deletion) => {
                self.set_endpoint(&request, None).await?;
                deletion.finish().await?;
                self.changes.send(format!("{request}: endpoint cleared"))?;
            }
            Finalize::Released => {}
        }
        Ok(Outcome::done())
    }
}

impl EndpointReconciler {
    async fn read_endpoint(&self, plane: &ControlPlane) -> Result<Option<String>> {
        let namespace = plane.metadata.namespace.as_deref().unwrap_or_default();
        let key = ObjectKey::new(namespace, &plane.spec.secret);
        let secret = self.client.live().get::<Secret>(&key).await?;
        let value = secret.and_then(|secret| secret.data.as_ref()?.get("endpoint").cloned());
        let endpoint = value.map(|value| String::from_utf8(value.0)).transpose();
        // Retrying does not help until the Secret changes.
        Ok(endpoint.map_err(Failure::terminal)?)
    }

    async fn set_endpoint(&self, key: &ObjectKey, endpoint: Option<&str>) -> client::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"endpoint": endpoint}}));
        self.client.patch::<ControlPlane>(key, &patch).await?;
        Ok(())
    }
}

fn add_to(manager: &ManagerHandle, changes: mpsc::UnboundedSender<String>) -> anyhow::Result<()> {
    let planes = manager.cache().informer::<ControlPlane>()?;
    let by_secret = planes.index(|plane| {
        let namespace = plane.metadata.namespace.as_deref().unwrap_or_default();
        vec![ObjectKey::new(namespace, &plane.spec.secret)]
    });
    let client = manager.client();
    manager
        .controller("endpoint")
        .for_::<ControlPlane>()
        .watches_with(
            Select::<Metadata<Secret>>::new().fields("type=example.com/connection"),
            handler::map(move |secret| by_secret.keys(secret.key())),
        )
        .reconcile(EndpointReconciler { client, changes })?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run_demo(&Env::embedded()?, |line| println!("{line}")).await
}

/// Runs the controller, creates and changes the objects, and prints the changes of the endpoint.
pub(crate) async fn run_demo(
    server: &impl TestServer,
    mut print: impl FnMut(String),
) -> anyhow::Result<()> {
    server.install([ControlPlane::crd()]).await?;
    let manager = Manager::builder(server.client()?).build()?;
    let client = manager.client().namespace("default");
    let (sender, mut changes) = mpsc::unbounded_channel();
    add_to(&manager, sender)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(manager.run_until(async { drop(stopped.await) }));

    let plane = json!({"metadata": {"name": "plane"}, "spec": {"secret": "east"}});
    client.create::<ControlPlane>(&from_value(plane)?).await?;
    let secret = json!({
        "metadata": {"name": "east"}, "type": "example.com/connection",
        "stringData": {"endpoint": "10.0.0.1:6443"},
    });
    client.create::<Secret>(&from_value(secret)?).await?;
    print(changes.recv().await.context("the controller stopped")?);

    let secret = ObjectKey::new("default", "east");
    let data = json!({"stringData": {"endpoint": "east.example.com:6443"}});
    client.patch::<Secret>(&secret, &Patch::Merge(data)).await?;
    print(changes.recv().await.context("the controller stopped")?);

    let plane = ObjectKey::new("default", "plane");
    client.delete::<ControlPlane>(&plane).await?;
    print(changes.recv().await.context("the controller stopped")?);
    drop(stop);
    running.await?
}
