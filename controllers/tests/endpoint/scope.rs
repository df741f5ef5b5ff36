//! Tests of the scope of workspaces, which discovery determines.
//!
//! In all other tests they are cluster-scoped.

use crate::fixture::Fixture;
use anyhow::Result;
use serde_json::json;
use std::time::Duration;
use steersman::{
    client::Patch,
    testing::{Env, Environment, Options, Real, TestServer, started_or_skipped},
};
use steersman_controllers::endpoint::{self, workspace_kind};
use tokio::time::timeout;

/// Needs its own server, because the scope of a CRD is immutable.
async fn assert_finds_workspace_of_the_same_namespace(env: Env) -> Result<()> {
    let mut dependencies = endpoint::dependencies();
    for definition in dependencies
        .iter_mut()
        .filter(|it| it["spec"]["names"]["kind"] == workspace_kind().kind)
    {
        definition["spec"]["scope"] = "Namespaced".into();
    }
    env.install(endpoint::definitions().into_iter().chain(dependencies))
        .await?;
    let ours = Fixture::scenario_runner(&env, &env.namespace("ours").await?)?;
    ours.make_plane().await?;
    // A workspace of the same name in another namespace is ignored.
    let theirs = Fixture::scenario_runner(&env, &env.namespace("theirs").await?)?;
    theirs
        .make_workspace(Some(json!({"cluster_endpoint": "theirs.example.com"})))
        .await?;
    let apply = ours.key("plane-eks-controlplane-apply");
    let named = Patch::Merge(json!({"status": {"workspaceName": theirs.namespace}}));
    ours.client
        .status()
        .patch::<endpoint::WorkspaceTemplateApply>(&apply, &named)
        .await?;
    ours.until_reason("WorkspaceNotReady").await?;

    let named = Patch::Merge(json!({"status": {"workspaceName": ours.namespace}}));
    ours.client
        .status()
        .patch::<endpoint::WorkspaceTemplateApply>(&apply, &named)
        .await?;
    ours.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"})))
        .await?;
    ours.until_propagated("one.example.com:443").await?;
    ours.set_outputs(json!({"cluster_endpoint": "two.example.com"}))
        .await?;
    ours.until_propagated("two.example.com:443").await?;
    ours.set_outputs(json!(null)).await?;
    ours.set_secret("three.example.com").await?;
    ours.until_propagated("three.example.com:443").await?;
    theirs.stop().await?;
    ours.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespaced_workspace_is_found_on_the_embedded_server() -> Result<()> {
    timeout(
        Duration::from_mins(2),
        assert_finds_workspace_of_the_same_namespace(Env::embedded()?),
    )
    .await?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespaced_workspace_is_found_on_the_real_server() -> Result<()> {
    let Some(environment) = started_or_skipped(Environment::start(Options::default()).await) else {
        return Ok(());
    };
    let env = Env::Real(Real::new(environment));
    timeout(
        Duration::from_mins(2),
        assert_finds_workspace_of_the_same_namespace(env),
    )
    .await?
}
