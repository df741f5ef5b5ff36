//! Watch a kind by hand: cache, source, handler, queue, loop. No manager, no controller, and items of its own instead of requests.
//!
//! `cargo run --example debug_watch` needs no cluster: it brings an API server, and somebody who changes things.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams, core::Resource};
use serde_json::{from_value, json};
use steersman::{handler::Funcs, prelude::*, source::Kind, testing::*};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Item {
    Created(String),
    Updated(String),
    Deleted(String),
}

pub(crate) async fn watch(client: Client, mut print: impl FnMut(String)) -> anyhow::Result<()> {
    let cache = Cache::new(client.clone(), CacheOptions::default())?;
    tokio::spawn(cache.clone().run_until(std::future::pending()));

    let handler = Funcs::<Pod, _>::new()
        .create(|pod, queue| queue.add(Item::Created(pod.name().into())))
        .update(|_old, pod, queue| queue.add(Item::Updated(pod.name().into())))
        .delete(|pod, queue| queue.add(Item::Deleted(pod.name().into())));

    let queue = WorkQueue::default();
    let watch = Kind::with_cache(&cache, Select::new(), handler).start(&queue)?;
    watch.await_synced().await?;
    print(format!("{} is ready", watch.name()));

    change(client).await?;
    while let Some(item) = queue.get().await {
        print(format!("got {:?}", *item));
        if *item == Item::Deleted("web-1".into()) {
            break;
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = Env::embedded()?; // or `Client::try_default().await?`, for a cluster of your own
    make(&server.client()?, "web-0").await?;
    watch(server.client()?, |line| println!("{line}")).await
}

pub(crate) async fn make(client: &Client, name: &str) -> anyhow::Result<Pod> {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "web", "image": "web"}]}});
    Ok(Api::default_namespaced(client.clone()).create(&PostParams::default(), &from_value(pod)?).await?)
}

/// What kubectl would do.
async fn change(client: Client) -> anyhow::Result<()> {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let mut pod = make(&client, "web-1").await?;
    pod.meta_mut().labels = Some([("seen".to_owned(), "yes".to_owned())].into());
    pods.replace("web-1", &PostParams::default(), &pod).await?;
    let now = kube::api::DeleteParams::default().grace_period(0);
    pods.delete("web-1", &now).await?;
    Ok(())
}
