//! A controller for a custom resource: what it owns, what it refers to, and a periodic check. `cargo run --example quickstart`
//!
//! It runs on the embedded API server: no cluster is needed. With one, the connection is `Config::infer().await?`.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{future::pending, time::Duration};
use steersman::{
    cache::{Events, Notice},
    client::{Patch, owner},
    prelude::*,
    testing::{Env, TestServer},
};

#[derive(CustomResource, JsonSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "example.com", version = "v1", kind = "Website", namespaced)]
struct WebsiteSpec {
    /// The config map with its settings.
    config: String,
}

struct WebsiteReconciler {
    client: Client,
}

impl Reconciler for WebsiteReconciler {
    async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
        let Some(site) = self.client.get::<Website>(&request).await? else { return Ok(Outcome::done()) };
        let reasons: Vec<_> = cx.reasons().iter().map(ToString::to_string).collect();
        let config = self.client.get::<ConfigMap>(&Request::new("default", &site.spec.config)).await?;
        let image = config.and_then(|config| config.data.as_ref()?.get("image").cloned());
        let image = image.unwrap_or_else(|| "nginx".into());
        println!("{request} is to run {image}: looked at because of {}", reasons.join(", "));

        // Made if it is not there, patched if it differs, left alone otherwise.
        let wanted: Deployment = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": request.name()},
            "spec": {
                "selector": {"matchLabels": {"website": request.name()}},
                "template": {
                    "metadata": {"labels": {"website": request.name()}},
                    "spec": {"containers": [{"name": "web", "image": "nginx"}]},
                },
            },
        }))?;
        let made = self.client.create_or_patch(wanted, |deployment| {
            if let Some(pod) = &mut deployment.spec.template.spec {
                pod.containers[0].image = Some(image.clone());
            }
            Ok(owner::set_controller(&*site, deployment)?)
        });
        made.await?;
        Ok(Outcome::requeue_after(Duration::from_mins(5)))
    }
}

/// A config map says by a label whom it is for.
fn websites_using(config: &Object<ConfigMap>) -> Option<Request> {
    Some(Request::new(config.namespace()?, config.meta().labels().get("website")?))
}

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let server = Env::embedded()?;
    server.install([Website::crd()]).await?;
    let cache = Cache::new(server.client()?, CacheOptions::default())?;
    let client = Client::new(server.client()?)?.with_cache(cache.clone());

    let (controller, task) = Controller::builder("website")
        .cache(&cache)
        .for_::<Website>()
        .owns::<Deployment>()
        .watches::<ConfigMap>(handler::map(websites_using))
        .max_concurrent(8)
        .build(WebsiteReconciler { client: client.clone() })?;
    let mut deployments = cache.informer::<Deployment>()?.events();
    tokio::spawn(cache.run_until(pending()));
    let running = tokio::spawn(task.run_until(pending()));

    println!("-- somebody makes a website");
    let mut site = Website::new("shop", WebsiteSpec { config: "shop".into() });
    site.metadata.namespace = Some("default".into());
    client.create(&site).await?;
    until_image(&mut deployments, "nginx").await;

    println!("-- and a config map for it");
    let config = json!({
        "metadata": {"namespace": "default", "name": "shop", "labels": {"website": "shop"}}, "data": {"image": "caddy"},
    });
    client.create::<ConfigMap>(&serde_json::from_value(config)?).await?;
    until_image(&mut deployments, "caddy").await;

    println!("-- somebody changes the deployment by hand");
    let patch =
        Patch::Merge(json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "oops"}]}}}}));
    client.patch::<Deployment>(&Request::new("default", "shop"), &patch).await?;
    until_image(&mut deployments, "oops").await;
    until_image(&mut deployments, "caddy").await;

    println!("-- and deletes it");
    client.delete::<Deployment>(&Request::new("default", "shop")).await?;
    until_image(&mut deployments, "caddy").await;

    controller.stop().await;
    running.await?
}

/// Until a deployment with this image is made, or becomes one.
async fn until_image(deployments: &mut Events<Deployment>, image: &str) {
    while let Some(notice) = deployments.next().await {
        let Notice::Event(Event::Create { object, .. } | Event::Update { new: object, .. }) = notice else {
            continue;
        };
        let pod = object.decode().ok().and_then(|deployment| deployment.spec.template.spec.clone());
        if pod.and_then(|pod| pod.containers.into_iter().next()?.image).as_deref() == Some(image) {
            return;
        }
    }
}
