//! Whatever changes on the way is seen by a watch: long before the controller looks again by itself, by a clock that does not wait.

use crate::world::World;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{client::Patch, testing::Env};
use steersman_controllers::endpoint::{CAPTControlPlane, WorkspaceTemplateApply};
use tokio::time::{Instant, timeout};

/// The first look that no watch has asked for is after five of these.
const AT_ONCE: Duration = Duration::from_secs(1);

/// What is propagated, and nothing is to be done.
async fn at_rest(endpoint: &str) -> Result<World> {
    let world = World::new(&Env::embedded()?).await?;
    world.make_workspace(Some(json!({"cluster_endpoint": endpoint}))).await?;
    until_propagated(&world, endpoint).await?;
    Ok(world)
}

/// Or never.
async fn until_propagated(world: &World, endpoint: &str) -> Result<()> {
    timeout(60 * AT_ONCE, world.until_propagated(&format!("{endpoint}:443"))).await?
}

/// After this change.
async fn follows(world: World, endpoint: &str, change: impl AsyncFnOnce(&World) -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    change(&world).await?;
    until_propagated(&world, endpoint).await?;
    ensure!(begun.elapsed() < AT_ONCE, "it took {:?}", begun.elapsed());
    world.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_control_plane_is_seen_at_once() -> Result<()> {
    follows(at_rest("one.example.com").await?, "one.example.com", async |world| {
        let other = json!({"spec": {"controlPlaneEndpoint": {"host": "other.example.com", "port": 1}}});
        world.client.patch::<CAPTControlPlane>(&world.key("plane"), &Patch::Merge(other)).await?;
        Ok(())
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_apply_is_seen_at_once() -> Result<()> {
    let world = at_rest("one.example.com").await?;
    let apply = world.key("plane-eks-controlplane-apply");
    let named = |name: Value| Patch::Merge(json!({"status": {"workspaceName": name}}));
    world.client.status().patch::<WorkspaceTemplateApply>(&apply, &named(Value::Null)).await?;
    world.until_reason("EndpointKept").await?;
    world.set_outputs(json!({"cluster_endpoint": "two.example.com"})).await?;
    follows(world, "two.example.com", async |world| {
        let name = named(world.workspace_key().name().into());
        world.client.status().patch::<WorkspaceTemplateApply>(&apply, &name).await?;
        Ok(())
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_workspace_is_seen_at_once() -> Result<()> {
    follows(at_rest("one.example.com").await?, "two.example.com", async |world| {
        world.set_outputs(json!({"cluster_endpoint": "two.example.com"})).await
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_secret_is_seen_at_once() -> Result<()> {
    let world = at_rest("one.example.com").await?;
    world.set_secret("two.example.com").await?;
    world.set_outputs(json!({"cluster_endpoint": null})).await?;
    world.until_propagated("two.example.com:443").await?;
    follows(world, "three.example.com", async |world| world.set_secret("three.example.com").await).await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_cluster_is_seen_at_once() -> Result<()> {
    follows(at_rest("one.example.com").await?, "one.example.com", async |world| world.set_cluster(Value::Null).await)
        .await
}
