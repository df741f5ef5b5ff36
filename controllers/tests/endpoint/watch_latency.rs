//! Tests that watches detect every relevant change before the next requeue.
//!
//! The clock is paused.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{client::Patch, testing::Env};
use steersman_controllers::endpoint::{CAPTControlPlane, WorkspaceTemplateApply};
use tokio::time::{Instant, timeout};

/// Limit for a reaction by watch. The first requeue is after five times as long.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Creates an idle fixture whose endpoint is propagated.
async fn propagated_fixture(endpoint: &str) -> Result<Fixture> {
    let fixture = Fixture::new(&Env::embedded()?).await?;
    fixture
        .make_workspace(Some(json!({"cluster_endpoint": endpoint})))
        .await?;
    until_propagated(&fixture, endpoint).await?;
    Ok(fixture)
}

/// Waits until the endpoint is propagated, with a timeout.
async fn until_propagated(fixture: &Fixture, endpoint: &str) -> Result<()> {
    timeout(
        60 * AT_ONCE,
        fixture.until_propagated(&format!("{endpoint}:443")),
    )
    .await?
}

/// Asserts that `endpoint` is propagated by a watch after `change`.
async fn assert_propagated_at_once(
    fixture: Fixture,
    endpoint: &str,
    change: impl AsyncFnOnce(&Fixture) -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    change(&fixture).await?;
    until_propagated(&fixture, endpoint).await?;
    ensure!(
        begun.elapsed() < AT_ONCE,
        "propagated after {:?}",
        begun.elapsed()
    );
    fixture.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_control_plane_is_reconciled_at_once() -> Result<()> {
    assert_propagated_at_once(
        propagated_fixture("one.example.com").await?,
        "one.example.com",
        async |fixture| {
            let other =
                json!({"spec": {"controlPlaneEndpoint": {"host": "other.example.com", "port": 1}}});
            fixture
                .client
                .patch::<CAPTControlPlane>(&fixture.key("plane"), &Patch::Merge(other))
                .await?;
            Ok(())
        },
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_apply_is_reconciled_at_once() -> Result<()> {
    let fixture = propagated_fixture("one.example.com").await?;
    let apply = fixture.key("plane-eks-controlplane-apply");
    let named = |name: Value| Patch::Merge(json!({"status": {"workspaceName": name}}));
    fixture
        .client
        .status()
        .patch::<WorkspaceTemplateApply>(&apply, &named(Value::Null))
        .await?;
    fixture.until_reason("EndpointKept").await?;
    fixture
        .set_outputs(json!({"cluster_endpoint": "two.example.com"}))
        .await?;
    assert_propagated_at_once(fixture, "two.example.com", async |fixture| {
        let name = named(fixture.workspace_key().name().into());
        fixture
            .client
            .status()
            .patch::<WorkspaceTemplateApply>(&apply, &name)
            .await?;
        Ok(())
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_workspace_is_reconciled_at_once() -> Result<()> {
    assert_propagated_at_once(
        propagated_fixture("one.example.com").await?,
        "two.example.com",
        async |fixture| {
            fixture
                .set_outputs(json!({"cluster_endpoint": "two.example.com"}))
                .await
        },
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_secret_is_reconciled_at_once() -> Result<()> {
    let fixture = propagated_fixture("one.example.com").await?;
    fixture.set_secret("two.example.com").await?;
    fixture
        .set_outputs(json!({"cluster_endpoint": null}))
        .await?;
    fixture.until_propagated("two.example.com:443").await?;
    assert_propagated_at_once(fixture, "three.example.com", async |fixture| {
        fixture.set_secret("three.example.com").await
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_cluster_is_reconciled_at_once() -> Result<()> {
    assert_propagated_at_once(
        propagated_fixture("one.example.com").await?,
        "one.example.com",
        async |fixture| fixture.set_cluster(Value::Null).await,
    )
    .await
}
