//! Watch a kind by hand: cache, source, handler, queue, loop. No manager, no controller, and items of its own instead of requests.
//!
//! `cargo run --example debug_watch` needs no cluster: it brings an API server, and somebody who changes things.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::{from_value, json};
use steersman::{
    handler::Funcs,
    prelude::*,
    source::Kind,
    testing::{Env, TestServer},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Item {
    Created(String),
    Updated(String),
    Deleted(String),
}

pub(crate) async fn watch(client: Client, mut print: impl FnMut(String)) -> anyhow::Result<()> {
    let cache = Cache::new(client.clone(), CacheOptions::default())?;
    tokio::spawn(cache.clone().run_until(std::future::pending()));

    let handler = Funcs::<ConfigMap, _>::new()
        .create(|map, queue| queue.add(Item::Created(map.name().into())))
        .update(|_old, map, queue| queue.add(Item::Updated(map.name().into())))
        .delete(|map, queue| queue.add(Item::Deleted(map.name().into())));

    let queue = WorkQueue::default();
    let watch = Kind::with_cache(&cache, Select::new(), handler).start(&queue)?;
    watch.await_synced().await?;
    print(format!("{} is ready", watch.name()));

    while let Some(item) = queue.get().await {
        print(format!("got {:?}", *item));
        match &*item {
            Item::Created(name) if name == "first" => change(&client).await?,
            Item::Deleted(_) => break,
            _ => {}
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = Env::embedded()?; // or `Client::try_default().await?`, for a cluster of your own
    make(&server.client()?, "first").await?;
    watch(server.client()?, |line| println!("{line}")).await
}

pub(crate) async fn make(client: &Client, name: &str) -> anyhow::Result<ConfigMap> {
    let map = from_value(json!({"metadata": {"name": name}, "data": {"door": "blue"}}))?;
    Ok(Api::default_namespaced(client.clone()).create(&PostParams::default(), &map).await?)
}

/// What kubectl would do.
async fn change(client: &Client) -> anyhow::Result<()> {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let mut map = make(client, "second").await?;
    map.data = Some([("door".to_owned(), "red".to_owned())].into());
    maps.replace("second", &PostParams::default(), &map).await?;
    maps.delete("second", &DeleteParams::default()).await?;
    Ok(())
}
