//! Tests without the CRDs of other projects.
//!
//! The controller waits for them, and deletions do not.

use crate::fixture::{Fixture, until};
use anyhow::Result;
use serde_json::json;
use std::time::Duration;
use steersman::testing::{Env, Environment, Options, Real, TestServer, started_or_skipped};
use steersman_controllers::endpoint::{self, CAPTControlPlane};
use tokio::time::timeout;

/// Needs its own server, because CRDs are cluster-scoped.
async fn assert_waits_for_missing_kinds(env: Env) -> Result<()> {
    env.install(endpoint::definitions()).await?;
    let fixture = Fixture::scenario_runner(&env, &env.namespace("alone").await?)?;
    fixture.client.create(&crate::fixture::plane()).await?;
    fixture.until_reason("WaitingForCluster").await?;
    let (clusters, others): (Vec<_>, Vec<_>) = endpoint::dependencies()
        .into_iter()
        .partition(|definition| definition["spec"]["names"]["kind"] == "Cluster");
    env.install(clusters).await?;
    fixture.client.create(&crate::fixture::cluster()).await?;
    fixture.until_reason("WorkspaceNotReady").await?;
    let page = fixture.manager.metrics_page();
    assert!(
        page.contains(r#"controller_runtime_reconcile_errors_total{controller="endpoint"} 0"#),
        "{page}"
    );

    fixture
        .client
        .delete::<CAPTControlPlane>(&fixture.key("plane"))
        .await?;
    until(async || {
        Ok(fixture
            .client
            .get::<CAPTControlPlane>(&fixture.key("plane"))
            .await?
            .is_none())
    })
    .await?;

    env.install(others).await?;
    fixture.make_apply().await?;
    fixture.client.create(&crate::fixture::plane()).await?;
    fixture
        .make_workspace(Some(json!({"cluster_endpoint": "two.example.com"})))
        .await?;
    fixture.until_propagated("two.example.com:443").await?;
    fixture.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plane_waits_for_missing_kinds_on_the_embedded_server() -> Result<()> {
    timeout(
        Duration::from_mins(2),
        assert_waits_for_missing_kinds(Env::embedded()?),
    )
    .await?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plane_waits_for_missing_kinds_on_the_real_server() -> Result<()> {
    let Some(environment) = started_or_skipped(Environment::start(Options::default()).await) else {
        return Ok(());
    };
    let env = Env::Real(Real::new(environment));
    timeout(Duration::from_mins(2), assert_waits_for_missing_kinds(env)).await?
}
