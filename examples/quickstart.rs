//! A controller that renders each `Website` to a `ConfigMap`: `cargo run --example quickstart`
//!
//! It starts its own API server. On a cluster, pass `Config::infer().await?` to `Manager::builder`.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, CustomResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{from_value, json};
use steersman::testing::{Env, TestServer};
use steersman::{cache::InformerEvent, client::owner, prelude::*, reconcile::Context};

#[derive(CustomResource, schemars::JsonSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "example.com", version = "v1", kind = "Website", namespaced)]
struct WebsiteSpec {
    title: String,
}

struct WebsiteReconciler {
    client: Client,
}

impl Reconciler for WebsiteReconciler {
    async fn reconcile(&self, request: Request, _cx: &Context) -> anyhow::Result<Outcome> {
        let Some(site) = self.client.get::<Website>(&request).await? else {
            return Ok(Outcome::done()); // deleted
        };
        let metadata = json!({"namespace": request.namespace(), "name": request.name()});
        let config: ConfigMap = from_value(json!({"metadata": metadata}))?;
        let written = self.client.create_or_patch(config, |config| {
            let data = config.data.get_or_insert_default();
            data.insert("index.html".into(), format!("<h1>{}</h1>", site.spec.title));
            Ok(owner::set_controller(&site, config)?)
        });
        let (change, _) = written.await?;
        println!("ConfigMap {request}: {change:?}");
        Ok(Outcome::done())
    }
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let server = Env::embedded()?;
    server.install([Website::crd()]).await?;
    let manager = Manager::builder(server.client()?).build()?;
    let client = manager.client();
    manager
        .controller("website")
        .for_::<Website>()
        .owns::<ConfigMap>()
        .reconcile(WebsiteReconciler { client })?;

    let title = "My shop".to_owned();
    let site = Website::new("shop", WebsiteSpec { title });
    manager.client().namespace("default").create(&site).await?;

    // Stop when the cache has the ConfigMap. A program stops at `signals::shutdown()`.
    let mut configs = manager.cache().informer::<ConfigMap>()?.events();
    let created = async move { while let Some(InformerEvent::Synced) = configs.next().await {} };
    manager.run_until(created).await
}
