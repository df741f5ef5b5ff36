//! A reconciler meets the error of an object that does not decode.

use super::world::{Log, Started, World, owned, until};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use steersman::{
    cache::CacheError, client::Error as ClientError, predicate::GenerationChanged, prelude::*, reconcile, testing::Env,
};

/// A config map whose doors are red or green.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct Painted {
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, Color>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Color {
    Red,
    Green,
}

/// What a reconcile reads of its object.
async fn read(client: &Client, request: &Request) -> Result<String> {
    Ok(match client.get::<Painted>(request).await {
        Ok(Some(map)) => format!("{:?}", map.data["door"]),
        Ok(None) => "none".into(),
        Err(ClientError::Cache(CacheError::Undecodable { .. })) => "undecodable".into(),
        Err(error) => return Err(error.into()),
    })
}

steersman::env_test! {
    /// The predicate drops all updates, because config maps have no generation. It cannot compare
    /// what does not decode.
    async fn a_reconcile_of_an_object_that_does_not_decode_meets_the_error_once(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        let paint = async |name: &str, color: &str| {
            world.patch::<ConfigMap>(name, json!({"data": {"door": color}})).await
        };
        let mut map = world.map("a", "");
        map.data = Some([("door".to_owned(), "blue".to_owned())].into());
        world.client.create(&map).await?;
        let (client, log) = (world.client.clone(), Log::new());
        let reconciler = reconcile::from_fn({
            let log = log.clone();
            move |request: Request, _| {
                let (client, log) = (client.clone(), log.clone());
                async move {
                    if matches!(request.name(), "a" | "barrier") {
                        log.add(format!("{} {}", request.name(), read(&client, &request).await?));
                    }
                    Ok(Outcome::done())
                }
            }
        });
        let builder = Controller::builder("painted").cache(&world.cache).for_::<Painted>().filter(GenerationChanged);
        let painted = Started::new(builder.build(reconciler))?;
        until(|| log.len() == 1).await;
        assert_eq!(log.take(), ["a undecodable"], "in the first list");

        paint("a", "red").await?;
        until(|| log.len() == 1).await;
        assert_eq!(log.take(), ["a Red"]);
        paint("a", "blue").await?;
        until(|| log.len() == 1).await;
        let mut map = world.map("barrier", "");
        map.data = Some([("door".to_owned(), "green".to_owned())].into());
        world.client.create(&map).await?;
        until(|| log.len() == 2).await;
        assert_eq!(log.take(), ["a undecodable", "barrier Green"]);
        painted.stop().await?;
        world.stop().await
    }

    async fn an_owned_object_that_does_not_decode_enqueues_its_owner(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        let owner = world.client.create(&world.secret("owner", "")).await?;
        let runs = Log::new();
        let reconciler = reconcile::from_fn({
            let runs = runs.clone();
            move |request: Request, cx: Context| {
                if request.name() == "owner" {
                    runs.add(cx.reasons().iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
                }
                async { Ok(Outcome::done()) }
            }
        });
        let builder = Controller::builder("owners").cache(&world.cache).for_::<Secret>().owns::<Painted>();
        let owners = Started::new(builder.build(reconciler))?;
        until(|| runs.len() == 1).await;
        runs.take();
        let mut child = owned(&owner, world.map("child", ""));
        child.data = Some([("door".to_owned(), "blue".to_owned())].into());
        world.client.create(&child).await?;
        until(|| runs.len() == 1).await;
        assert!(runs.take().concat().contains("child"), "the child is the reason");
        owners.stop().await?;
        world.stop().await
    }
}
