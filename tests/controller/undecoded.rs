//! Tests of reconcilers that read an object that does not decode.

use super::fixture::{Fixture, SharedVec, StartedController, owned, until};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use steersman::{
    cache::CacheError,
    client::Error as ClientError,
    predicate::GenerationChanged,
    prelude::*,
    reconcile,
    reconcile::{Context, Result},
    testing::Env,
};

/// Config map whose color is red or green.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct PaintedMap {
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

/// Returns what a reconcile reads of its object, as text.
async fn read(client: &Client, request: &Request) -> Result<String> {
    Ok(match client.get::<PaintedMap>(request).await {
        Ok(Some(map)) => format!("{:?}", map.data["color"]),
        Ok(None) => "none".into(),
        Err(ClientError::Cache(CacheError::Undecodable { .. })) => "undecodable".into(),
        Err(error) => return Err(error.into()),
    })
}

steersman::env_test! {
    /// The predicate drops all updates, because config maps have no generation.
    ///
    /// It cannot compare objects that do not decode.
    async fn an_object_that_does_not_decode_is_reconciled_once(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let set_color = async |name: &str, color: &str| {
            fixture.patch::<ConfigMap>(name, json!({"data": {"color": color}})).await
        };
        let mut map = fixture.map("a", "");
        map.data = Some([("color".to_owned(), "blue".to_owned())].into());
        fixture.client.create(&map).await?;
        let (client, log) = (fixture.client.clone(), SharedVec::new());
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
        let builder = Controller::builder("painted").cache(&fixture.cache).for_::<PaintedMap>().filter(GenerationChanged);
        let painted = StartedController::new(builder.build(reconciler))?;
        until(|| log.len() == 1).await;
        assert_eq!(log.take(), ["a undecodable"], "the first list");

        set_color("a", "red").await?;
        until(|| log.len() == 1).await;
        assert_eq!(log.take(), ["a Red"]);
        set_color("a", "blue").await?;
        until(|| log.len() == 1).await;
        let mut map = fixture.map("barrier", "");
        map.data = Some([("color".to_owned(), "green".to_owned())].into());
        fixture.client.create(&map).await?;
        until(|| log.len() == 2).await;
        assert_eq!(log.take(), ["a undecodable", "barrier Green"]);
        painted.stop().await?;
        fixture.stop().await
    }

    async fn an_owned_object_that_does_not_decode_enqueues_its_owner(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let owner = fixture.client.create(&fixture.secret("owner", "")).await?;
        let runs = SharedVec::new();
        let reconciler = reconcile::from_fn({
            let runs = runs.clone();
            move |request: Request, cx: Context| {
                if request.name() == "owner" {
                    runs.add(cx.reasons().iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
                }
                async { Ok(Outcome::done()) }
            }
        });
        let builder = Controller::builder("owners").cache(&fixture.cache).for_::<Secret>().owns::<PaintedMap>();
        let owners = StartedController::new(builder.build(reconciler))?;
        until(|| runs.len() == 1).await;
        runs.take();
        let mut child = owned(&owner, fixture.map("child", ""));
        child.data = Some([("color".to_owned(), "blue".to_owned())].into());
        fixture.client.create(&child).await?;
        until(|| runs.len() == 1).await;
        assert!(runs.take().concat().contains("child"), "the child is the reason");
        owners.stop().await?;
        fixture.stop().await
    }
}
