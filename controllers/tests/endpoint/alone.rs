//! With our own definition alone: what others bring along is waited for, and what nobody has brought holds up no deletion.

use crate::world::{World, until};
use anyhow::Result;
use serde_json::json;
use std::time::Duration;
use steersman::{
    client::Patch,
    testing::{Env, Environment, Options, Real, TestServer, or_left_out},
};
use steersman_controllers::endpoint::{self, CAPTControlPlane};
use tokio::time::timeout;

/// Definitions of others are everybody's: this takes a server of its own.
async fn a_plane_waits_for_kinds_that_are_absent_and_goes_without_them(env: Env) -> Result<()> {
    env.install(endpoint::definitions()).await?;
    let world = World::again(&env, &env.namespace("alone").await?)?;
    world.client.create(&crate::world::plane()).await?;
    world.until_reason("WorkspaceNotReady").await?;
    // One that was known before needs no workspace, and its cluster is the next that there is not.
    let known = json!({"host": "one.example.com", "port": 443});
    let patch = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": known}}));
    world.client.patch::<CAPTControlPlane>(&world.key("plane"), &patch).await?;
    world.until_reason("WaitingForCluster").await?;
    let page = world.manager.metrics_page();
    assert!(page.contains(r#"controller_runtime_reconcile_errors_total{controller="endpoint"} 0"#), "{page}");

    world.client.delete::<CAPTControlPlane>(&world.key("plane")).await?;
    until(async || Ok(world.client.get::<CAPTControlPlane>(&world.key("plane")).await?.is_none())).await?;

    env.install(endpoint::dependencies()).await?;
    world.make_plane().await?;
    world.make_workspace(Some(json!({"cluster_endpoint": "two.example.com"}))).await?;
    world.until_propagated("two.example.com:443").await?;
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plane_waits_for_kinds_that_are_absent_and_goes_without_them_on_the_embedded_server() -> Result<()> {
    timeout(Duration::from_mins(2), a_plane_waits_for_kinds_that_are_absent_and_goes_without_them(Env::embedded()?))
        .await?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plane_waits_for_kinds_that_are_absent_and_goes_without_them_on_the_real_server() -> Result<()> {
    let Some(environment) = or_left_out(Environment::start(Options::default()).await) else { return Ok(()) };
    let env = Env::Real(Real::new(environment));
    timeout(Duration::from_mins(2), a_plane_waits_for_kinds_that_are_absent_and_goes_without_them(env)).await?
}
