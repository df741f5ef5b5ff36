//! Changes that no event reports, because the kind was not watched yet.
//!
//! The controller must react before its next retry. That retry is minutes away, because the tests
//! let it fail for hours of paused time first.

use super::{
    fixture::{BARN, Fixture},
    recording_proxy::Proxy,
    watching::LATE,
};
use anyhow::ensure;
use serde_json::json;
use std::time::Duration;
use steersman::testing::{Embedded, Env, TestServer};
use steersman_apiserver::{ApiServer, Fault, Options};
use steersman_controllers::cluster_api::Cluster;
use tokio::time::{Instant, sleep};

/// Time limit of a reaction. The next retry comes later.
const SOON: Duration = Duration::from_secs(5);

/// Starts a server in which the test can inject faults.
fn start_server() -> anyhow::Result<(ApiServer, Env)> {
    let server = ApiServer::new(Options::default())?;
    let env = Env::Embedded(Embedded::new(server.clone()));
    Ok((server, env))
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_before_its_kind_is_listed_ends_the_deletion() -> anyhow::Result<()>
{
    let (server, env) = start_server()?;
    let fixture = Fixture::new(&env).await?;
    let running = fixture.start(env.client()?)?;
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    fixture.create(BARN, held).await?;
    fixture
        .create_cluster(json!({"infrastructureRef": BARN.reference()}))
        .await?;
    fixture
        .until_reason("InfrastructureReady", "NotReady")
        .await?;
    fixture.client.delete::<Cluster>(&fixture.key()).await?;
    fixture
        .until_reason("Deleting", "WaitingForInfrastructureDeletion")
        .await?;
    running.stop().await?;

    // Delays the first list of the informer, which is a watch request with initial events.
    let slow = "watch barnclusters -> delay 5s once".parse::<Fault>()?;
    server.faults().add(slow);
    let running = fixture.start(env.client()?)?;
    sleep(Duration::from_secs(2)).await;
    ensure!(running.reconciles("success") > 0, "the object was read");
    fixture
        .patch(BARN, json!({"metadata": {"finalizers": null}}))
        .await?;
    let start = Instant::now();
    fixture.until_gone().await?;
    ensure!(start.elapsed() < SOON, "after {:?}", start.elapsed());
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_served_later_than_its_crd_is_established_is_found() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let fixture = Fixture::new(&env).await?;
    let proxy = Proxy::recording();
    let running = fixture.start(proxy.client(env.client()?))?;
    fixture
        .create_cluster(json!({"infrastructureRef": LATE.reference()}))
        .await?;
    fixture
        .until_reason("InfrastructureReady", "InternalError")
        .await?;
    sleep(Duration::from_hours(2)).await;
    proxy.hide(LATE.group);
    env.install([LATE.definition()]).await?;
    sleep(Duration::from_secs(1)).await;
    proxy.show();
    let start = Instant::now();
    fixture
        .until_reason("InfrastructureReady", "ObjectDoesNotExist")
        .await?;
    ensure!(start.elapsed() < SOON, "after {:?}", start.elapsed());
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_becomes_readable_is_found() -> anyhow::Result<()> {
    let (server, env) = start_server()?;
    let fixture = Fixture::new(&env).await?;
    let forbidden = Fault::on("* barnclusters").status(403);
    let forbidden = server.faults().add(forbidden);
    let running = fixture.start(env.client()?)?;
    fixture
        .create_cluster(json!({"infrastructureRef": BARN.reference()}))
        .await?;
    fixture
        .until_reason("InfrastructureReady", "InternalError")
        .await?;
    sleep(Duration::from_hours(2)).await;
    forbidden.remove();
    // The informer retries within a minute.
    sleep(Duration::from_mins(1)).await;
    fixture
        .until_reason("InfrastructureReady", "ObjectDoesNotExist")
        .await?;
    running.stop().await
}
