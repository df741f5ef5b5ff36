//! Watch a kind without a manager or a controller: `cargo run --example debug_watch`
//!
//! A cache feeds a source, whose handler adds items of any type to a queue. The example starts its
//! own API server and changes objects on it.

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
        .create(|event, queue| queue.add(Item::Created(event.object.name().into())))
        .update(|_old, map, queue| queue.add(Item::Updated(map.name().into())))
        .delete(|event, queue| queue.add(Item::Deleted(event.object.name().into())));

    let queue = WorkQueue::default();
    let watch = Kind::with_cache(&cache, Select::new(), handler).start(&queue)?;
    watch.await_synced().await?;
    print(format!("{} is ready", watch.name()));

    while let Some(item) = queue.get().await {
        print(format!("got {:?}", *item));
        match &*item {
            Item::Created(name) if name == "first" => change_objects(&client).await?,
            Item::Deleted(_) => break,
            _ => {}
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = Env::embedded()?; // for a cluster: `Client::try_default().await?`
    create(&server.client()?, "first").await?;
    watch(server.client()?, |line| println!("{line}")).await
}

pub(crate) async fn create(client: &Client, name: &str) -> anyhow::Result<ConfigMap> {
    let map = from_value(json!({"metadata": {"name": name}, "data": {"color": "blue"}}))?;
    let maps = Api::default_namespaced(client.clone());
    Ok(maps.create(&PostParams::default(), &map).await?)
}

/// Creates, updates and deletes an object, as another client of the cluster would.
async fn change_objects(client: &Client) -> anyhow::Result<()> {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let mut map = create(client, "second").await?;
    map.data = Some([("color".to_owned(), "red".to_owned())].into());
    maps.replace("second", &PostParams::default(), &map).await?;
    maps.delete("second", &DeleteParams::default()).await?;
    Ok(())
}
