//! References found through an index, secrets watched by metadata only, events from outside, a gate before the first reconcile, and what a reconcile can be told and
//! answer. `cargo run --example extension_config`

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1::Secret;
use kube::{CustomResource, CustomResourceExt};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use steersman::{
    client::Patch,
    controller::Options,
    manager::{ManagerHandle, Stage},
    predicate::{AnnotationsChanged, GenerationChanged, Or},
    prelude::*,
    source::Channel,
    testing::{Env, TestServer},
};
use tokio::sync::{mpsc, oneshot, watch};

#[derive(CustomResource, JsonSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "runtime.example.com", version = "v1", kind = "ExtensionConfig")]
#[serde(rename_all = "camelCase")]
struct ExtensionConfigSpec {
    url: String,
    ca_bundle: Option<String>,
}

/// The annotation is `namespace/name`.
fn ca_secret(config: &ExtensionConfig) -> Option<ObjectKey> {
    let annotations = config.metadata.annotations.as_ref()?;
    let (namespace, name) = annotations.get("runtime.example.com/inject-ca-from-secret")?.split_once('/')?;
    Some(ObjectKey::new(namespace, name))
}

struct ExtensionReconciler {
    client: Client,
    registry: Arc<Registry>,
    tell: mpsc::UnboundedSender<String>,
}

impl Reconciler for ExtensionReconciler {
    async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
        if !*self.registry.ready.borrow() {
            return Ok(Outcome::requeue_after(Duration::from_secs(10)));
        }
        let Some(config) = self.client.get::<ExtensionConfig>(&request).await? else {
            self.registry.names.lock().remove(request.name());
            self.tell.send(format!("{request} is forgotten"))?;
            return Ok(Outcome::done());
        };
        if !config.spec.url.starts_with("https://") {
            self.tell.send(format!("{request} is refused"))?;
            return Err(Failure::terminal(anyhow!("{request}: not an https URL")).into());
        }
        if let Some(key) = ca_secret(&config) {
            let secret = self.client.live().get::<Secret>(&key).await?.context("its secret is not there")?;
            let ca = secret.data.as_ref().and_then(|data| data.get("ca.crt")).context("no ca.crt in its secret")?;
            let ca = String::from_utf8(ca.0.clone()).map_err(Failure::terminal)?;
            if config.spec.ca_bundle.as_ref() != Some(&ca) {
                let patch = Patch::Merge(json!({"spec": {"caBundle": ca}}));
                self.client.patch::<ExtensionConfig>(&request, &patch).await?;
                self.tell.send(format!("{request} is given {ca}"))?;
            }
        }
        tokio::select! {
            discovered = self.registry.discover(&config) => {
                discovered.map_err(|e| Failure::retry(e).after(Duration::from_secs(5)).priority(Priority::LOW))?;
            }
            () = cx.until_superseded() => return Ok(Outcome::requeue().priority(Priority::HIGH)),
        }
        let reasons: Vec<_> = cx.reasons().iter().map(ToString::to_string).collect();
        self.tell.send(format!("{request} is discovered: {}", reasons.join(", ")))?;
        Ok(Outcome::done())
    }
}

#[derive(Default)]
struct Registry {
    ready: watch::Sender<bool>,
    names: Mutex<BTreeSet<String>>,
}

impl Registry {
    /// Stands for a call of the extension.
    async fn discover(&self, config: &ExtensionConfig) -> Result<()> {
        tokio::task::yield_now().await;
        self.names.lock().insert(config.metadata.name.clone().unwrap_or_default());
        Ok(())
    }
}

/// `calls` stand for an HTTP server: somebody called, look at that extension again.
fn add_to(
    manager: &ManagerHandle,
    tell: mpsc::UnboundedSender<String>,
    mut calls: mpsc::Receiver<String>,
) -> anyhow::Result<()> {
    let (client, registry) = (manager.client(), Arc::new(Registry::default()));
    let configs = manager.cache().informer::<ExtensionConfig>()?;
    let by_secret = configs.index(|config| ca_secret(config).into_iter().collect());
    let callbacks = Channel::new(1024);
    manager
        .controller("extensionconfig")
        .for_with(Select::<ExtensionConfig>::new().filter(Or(GenerationChanged, AnnotationsChanged)))
        .watches::<Metadata<Secret>>(handler::map(move |secret: &Object<Metadata<Secret>>| {
            by_secret.keys(secret.key())
        }))
        .watches_source(callbacks.source(handler::object()))
        .options(Options { reconcile_timeout: Some(Duration::from_secs(30)), ..Options::default() })
        .reconcile(ExtensionReconciler { client: client.clone(), registry: registry.clone(), tell: tell.clone() })?;

    // Nothing is reconciled before this returns.
    manager.add(Stage::Gate, "extension-warmup", async move |_cx| {
        let configs = client.list::<ExtensionConfig>(&Query::default()).await?;
        for config in &configs {
            registry.discover(config).await?;
        }
        registry.ready.send_replace(true);
        tell.send(format!("{} warmed up", configs.len()))?;
        Ok(())
    })?;
    manager.add(Stage::Server, "callbacks", async move |cx| {
        cx.ready();
        loop {
            tokio::select! {
                Some(name) = calls.recv() => callbacks.send(Object::named(ObjectKey::cluster_scoped(&name))),
                () = cx.stopped() => return Ok(()),
            }
        }
    })?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = Env::embedded()?; // or a cluster, by `Config::infer().await?`
    story(&server, |line| println!("{line}")).await
}

/// There is an extension before the start; its secret comes and changes, it is called, and goes.
pub(crate) async fn story(server: &impl TestServer, mut say: impl FnMut(String)) -> anyhow::Result<()> {
    server.install([ExtensionConfig::crd()]).await?;
    let manager = Manager::builder(server.client()?).build()?;
    let client = manager.client();
    let mut config =
        ExtensionConfig::new("greeter", ExtensionConfigSpec { url: "https://greeter".into(), ca_bundle: None });
    client.create(&config).await?;

    let ((tell, mut told), (call, calls)) = (mpsc::unbounded_channel(), mpsc::channel(8));
    add_to(&manager, tell, calls)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
    let mut next = async || told.recv().await.context("it says so");
    say(next().await?);
    say(next().await?);

    call.send("greeter".into()).await?;
    say(next().await?);

    let secret = json!({"metadata": {"namespace": "default", "name": "ca"}, "stringData": {"ca.crt": "trust me"}});
    client.create::<Secret>(&serde_json::from_value(secret)?).await?;
    let annotations = json!({"runtime.example.com/inject-ca-from-secret": "default/ca"});
    let annotated = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    client.patch::<ExtensionConfig>(&ObjectKey::cluster_scoped("greeter"), &annotated).await?;
    say(next().await?);
    until(&mut next, "greeter is discovered").await?;

    let renewed = Patch::Merge(json!({"stringData": {"ca.crt": "trust her"}}));
    client.patch::<Secret>(&ObjectKey::new("default", "ca"), &renewed).await?;
    say(until(&mut next, "greeter is given").await?);

    config.metadata.name = Some("plain".into());
    config.spec.url = "http://plain".into();
    client.create(&config).await?;
    say(until(&mut next, "plain").await?);

    client.delete::<ExtensionConfig>(&ObjectKey::cluster_scoped("greeter")).await?;
    say(until(&mut next, "greeter is forgotten").await?);
    drop(stop);
    running.await?
}

/// What is said next that begins so.
async fn until(next: &mut impl AsyncFnMut() -> anyhow::Result<String>, beginning: &str) -> anyhow::Result<String> {
    loop {
        let line = next().await?;
        if line.starts_with(beginning) {
            return Ok(line);
        }
    }
}
