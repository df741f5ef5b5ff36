//! Watches that replace polling. The clock is paused where the time of a reaction matters.

use super::{
    fixture::{BARN, BARN_PLANE, Fixture, Kind, NAME, condition},
    recording_proxy::Proxy,
};
use anyhow::ensure;
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::cluster_api::{self, Cluster, ClusterStatus, Machine};
use tokio::time::{Instant, sleep};

/// Limit for a reaction to an event. The first requeue is after 30 s.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Infrastructure of the contract v1beta1 whose CRD is installed during the test.
pub(super) const LATE: Kind = Kind {
    group: "late.cluster.x-k8s.io",
    version: "v1alpha3",
    name: "LateCluster",
    plural: "lateclusters",
    contract: "cluster.x-k8s.io/v1beta1",
};

fn is_provisioned(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(ClusterStatus::is_infrastructure_provisioned)
}

/// Installs only the kinds that the controller needs.
async fn minimal(env: &Env) -> anyhow::Result<Fixture> {
    let definitions = cluster_api::definitions().into_iter().take(1);
    env.install(definitions.chain([BARN.definition(), BARN_PLANE.definition()]))
        .await?;
    Fixture::in_namespace(env).await
}

#[tokio::test(start_paused = true)]
async fn a_new_object_is_found_by_its_own_event() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let fixture = Fixture::new(&env).await?;
    let running = fixture.start(env.client()?)?;
    let spec =
        json!({"infrastructureRef": BARN.reference(), "controlPlaneRef": BARN_PLANE.reference()});
    fixture.create_cluster(spec).await?;
    fixture
        .until_reason("InfrastructureReady", "ObjectDoesNotExist")
        .await?;
    sleep(Duration::from_secs(5)).await;
    let start = Instant::now();
    fixture
        .create(
            BARN,
            json!({"status": {"initialization": {"provisioned": true}}}),
        )
        .await?;
    fixture.until(is_provisioned).await?;
    let initialized = json!({"initialization": {"controlPlaneInitialized": true}});
    fixture
        .create(BARN_PLANE, json!({"status": initialized}))
        .await?;
    fixture
        .until_reason("ControlPlaneInitialized", "Initialized")
        .await?;
    ensure!(start.elapsed() < AT_ONCE, "after {:?}", start.elapsed());
    running.stop().await
}

steersman::env_test! {
    async fn a_provider_that_is_installed_later_is_found_without_a_restart(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"infrastructureRef": LATE.reference(), "controlPlaneRef": BARN_PLANE.reference()})).await?;
        fixture.create(BARN_PLANE, json!({"status": {"initialization": {"controlPlaneInitialized": true}}})).await?;
        fixture.until_reason("ControlPlaneInitialized", "Initialized").await?;
        let (status, _) = fixture.until_reason("InfrastructureReady", "InternalError").await?;
        assert_eq!(status, "Unknown");
        env.install([LATE.definition()]).await?;
        fixture.create(LATE, json!({"status": {"ready": true}})).await?;
        fixture.until(is_provisioned).await?;
        running.stop().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_installed_later_is_found_at_once() -> anyhow::Result<()> {
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
    sleep(Duration::from_hours(1)).await;
    let start = proxy.len();
    sleep(Duration::from_hours(1)).await;
    let reads = proxy.unwatched(start);
    // Retries with backoff discover the kind.
    ensure!(
        reads.len() <= 4 && reads.iter().all(|read| read == "GET /apis"),
        "{reads:?}"
    );
    let start = Instant::now();
    env.install([LATE.definition()]).await?;
    fixture
        .create(LATE, json!({"status": {"ready": true}}))
        .await?;
    fixture.until(is_provisioned).await?;
    ensure!(start.elapsed() < AT_ONCE, "after {:?}", start.elapsed());
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_changed_contract_is_followed() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let fixture = Fixture::new(&env).await?;
    let running = fixture.start(env.client()?)?;
    env.install([LATE.definition()]).await?;
    fixture
        .create_cluster(json!({"infrastructureRef": LATE.reference()}))
        .await?;
    fixture
        .create(
            LATE,
            json!({"status": {"initialization": {"provisioned": true}}}),
        )
        .await?;
    fixture
        .until_reason("InfrastructureReady", "NotReady")
        .await?;
    let start = Instant::now();
    let upgraded = Kind {
        contract: "cluster.x-k8s.io/v1beta2",
        ..LATE
    };
    env.install([upgraded.definition()]).await?;
    fixture.until(is_provisioned).await?;
    ensure!(start.elapsed() < AT_ONCE, "after {:?}", start.elapsed());
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_deletion_does_not_wait_for_a_timer() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let fixture = Fixture::new(&env).await?;
    let running = fixture.start(env.client()?)?;
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    fixture.create(BARN, held.clone()).await?;
    fixture.create(BARN_PLANE, held).await?;
    let spec =
        json!({"infrastructureRef": BARN.reference(), "controlPlaneRef": BARN_PLANE.reference()});
    fixture.create_cluster(spec).await?;
    let cluster = fixture
        .until(|cluster| condition(cluster, "Deleting").is_some())
        .await?;
    let machine = json!({
        "metadata": {
            "name": "worker", "labels": {"cluster.x-k8s.io/cluster-name": NAME},
            "finalizers": ["example.com/hold"], "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": NAME,
                "uid": cluster.metadata.uid,
            }],
        },
        "spec": {"clusterName": NAME},
    });
    fixture
        .client
        .create::<Machine>(&serde_json::from_value(machine)?)
        .await?;
    fixture.client.delete::<Cluster>(&fixture.key()).await?;
    fixture
        .until_reason("Deleting", "WaitingForWorkersDeletion")
        .await?;

    sleep(Duration::from_mins(10)).await;
    let start = Instant::now();
    let released = json!({"metadata": {"finalizers": null}});
    let key = ObjectKey::new(&fixture.namespace, "worker");
    fixture
        .client
        .patch::<Machine>(&key, &Patch::Merge(released.clone()))
        .await?;
    fixture
        .until_reason("Deleting", "WaitingForControlPlaneDeletion")
        .await?;
    fixture.patch(BARN_PLANE, released.clone()).await?;
    fixture
        .until_reason("Deleting", "WaitingForInfrastructureDeletion")
        .await?;
    fixture.patch(BARN, released).await?;
    fixture.until_gone().await?;
    ensure!(start.elapsed() < AT_ONCE, "after {:?}", start.elapsed());
    running.stop().await
}

/// Deletes a Cluster whose infrastructure is paused.
///
/// Returns how long the Cluster remains after the infrastructure.
async fn paused_infrastructure(env: Env) -> anyhow::Result<Duration> {
    let fixture = Fixture::new(&env).await?;
    let running = fixture.start(env.client()?)?;
    fixture.create(BARN, json!({"metadata": {
        "finalizers": ["example.com/hold"], "annotations": {"cluster.x-k8s.io/paused": "true"},
    }}))
    .await?;
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
    running.manager.wait_queues_empty().await;
    let start = Instant::now();
    fixture
        .patch(BARN, json!({"metadata": {"finalizers": null}}))
        .await?;
    fixture.until_gone().await?;
    let elapsed = start.elapsed();
    running.stop().await?;
    Ok(elapsed)
}

steersman::env_test! {
    async fn the_deletion_of_a_paused_object_ends_the_wait(env: Env) -> anyhow::Result<()> {
        paused_infrastructure(env).await.map(drop)
    }
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_paused_object_is_seen_at_once() -> anyhow::Result<()> {
    let elapsed = paused_infrastructure(Env::embedded()?).await?;
    ensure!(elapsed < AT_ONCE, "after {elapsed:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_deleted_without_the_crds_of_machines() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let fixture = minimal(&env).await?;
    let running = fixture.start(env.client()?)?;
    fixture.create(BARN, json!({"spec": {}})).await?;
    fixture
        .create_cluster(json!({"infrastructureRef": BARN.reference()}))
        .await?;
    fixture
        .until_reason("InfrastructureReady", "NotReady")
        .await?;
    fixture.client.delete::<Cluster>(&fixture.key()).await?;
    fixture.until_gone().await?;
    ensure!(fixture.object(BARN).await?.is_none());
    ensure!(running.reconciles("error") == 0);
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn machines_whose_crd_is_installed_during_a_deletion_are_waited_for() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let fixture = minimal(&env).await?;
    let running = fixture.start(env.client()?)?;
    fixture
        .create(
            BARN,
            json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        )
        .await?;
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
    env.install(cluster_api::definitions()).await?;
    let machine = json!({
        "metadata": {"name": "worker", "labels": {"cluster.x-k8s.io/cluster-name": NAME}},
        "spec": {"clusterName": NAME},
    });
    fixture
        .client
        .create::<Machine>(&serde_json::from_value(machine)?)
        .await?;
    fixture
        .until_reason("Deleting", "WaitingForWorkersDeletion")
        .await?;
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_while_a_cluster_refers_to_it() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let fixture = Fixture::new(&env).await?;
    let running = fixture.start(env.client()?)?;
    let watched = |kind: Kind| {
        let watches = running.controller.watches();
        watches.iter().any(|watch| watch.name().contains(kind.name))
    };
    fixture.create(BARN, json!({"spec": {}})).await?;
    fixture
        .create_cluster(json!({"infrastructureRef": BARN.reference()}))
        .await?;
    fixture
        .until_reason("InfrastructureReady", "NotReady")
        .await?;
    ensure!(watched(BARN) && !watched(LATE));
    env.install([LATE.definition()]).await?;
    fixture
        .patch_cluster(json!({"spec": {"infrastructureRef": LATE.reference()}}))
        .await?;
    fixture
        .until_reason("InfrastructureReady", "ObjectDoesNotExist")
        .await?;
    ensure!(watched(LATE) && !watched(BARN));
    fixture.client.delete::<Cluster>(&fixture.key()).await?;
    fixture.until_gone().await?;
    sleep(AT_ONCE).await;
    ensure!(!watched(LATE));
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn changes_of_machines_do_not_cause_reconciles_of_active_clusters() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let fixture = Fixture::new(&env).await?;
    let running = fixture.start(env.client()?)?;
    fixture
        .create_cluster(json!({"infrastructureRef": BARN.reference()}))
        .await?;
    fixture.create(BARN, json!({"spec": {}})).await?;
    fixture
        .until_reason("InfrastructureReady", "NotReady")
        .await?;
    sleep(AT_ONCE).await;
    let before = running.reconciles("success");
    let machine: Value = json!({
        "metadata": {"name": "worker", "labels": {"cluster.x-k8s.io/cluster-name": NAME}},
        "spec": {"clusterName": NAME},
    });
    fixture
        .client
        .create::<Machine>(&serde_json::from_value(machine)?)
        .await?;
    sleep(AT_ONCE).await;
    assert_eq!(running.reconciles("success"), before);
    running.stop().await
}
