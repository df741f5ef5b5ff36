//! Deletion in order.

use super::fixture::{BARN, BARN_PLANE, Fixture, NAME, Running, condition};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use steersman::{
    prelude::*,
    testing::{Env, TestServer, eventually},
};
use steersman_controllers::cluster_api::{Cluster, Machine, MachineDeployment};

/// Starts the controller with a Cluster, its infrastructure and its control plane.
///
/// The objects of the providers have a finalizer.
async fn complete(env: &Env) -> anyhow::Result<(Fixture, Running)> {
    let fixture = Fixture::new(env).await?;
    let running = fixture.start(env.client()?)?;
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    fixture.create(BARN, held.clone()).await?;
    fixture.create(BARN_PLANE, held).await?;
    fixture
        .create_cluster(json!({
            "infrastructureRef": BARN.reference(), "controlPlaneRef": BARN_PLANE.reference(),
        }))
        .await?;
    fixture
        .until_reason("ControlPlaneAvailable", "NotAvailable")
        .await?;
    Ok((fixture, running))
}

fn is_deleting(object: Option<&DynamicObject>) -> bool {
    object.is_some_and(|object| object.metadata.deletion_timestamp.is_some())
}

fn machine(name: &str, labels: Value, owner: Option<&Cluster>) -> Machine {
    let owners = owner.map(|cluster| {
        json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": NAME,
            "uid": cluster.metadata.uid,
        }])
    });
    let machine = json!({
        "metadata": {
            "name": name, "labels": labels, "ownerReferences": owners,
            "finalizers": ["example.com/hold"],
        },
        "spec": {"clusterName": NAME},
    });
    serde_json::from_value(machine).expect("a Machine")
}

fn worker() -> Value {
    json!({"cluster.x-k8s.io/cluster-name": NAME})
}

async fn release<K: steersman::object::StaticKind>(
    fixture: &Fixture,
    name: &str,
) -> anyhow::Result<()> {
    let patch = steersman::client::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let key = ObjectKey::new(&fixture.namespace, name);
    fixture.client.patch::<K>(&key, &patch).await?;
    Ok(())
}

steersman::env_test! {
    /// 24
    async fn workers_are_deleted_before_the_control_plane(env: Env) -> anyhow::Result<()> {
        let (fixture, running) = complete(&env).await?;
        let cluster = fixture.cluster().await?;
        for number in 1..=8 {
            let machine = machine(&format!("m{number}"), worker(), Some(&cluster));
            fixture.client.create(&machine).await?;
        }
        let mut labels = worker();
        labels["cluster.x-k8s.io/control-plane"] = json!("");
        fixture.client.create(&machine("plane", labels, Some(&cluster))).await?;
        let deployment = json!({
            "metadata": {"name": "md1", "labels": worker(), "finalizers": ["example.com/hold"]},
            "spec": {"clusterName": NAME},
        });
        fixture.client.create::<MachineDeployment>(&serde_json::from_value(deployment)?).await?;

        fixture.client.delete::<Cluster>(&fixture.key()).await?;
        let expected = "* MachineDeployments: md1\n* Worker Machines: m1, m2, m3, m4, m5, ... (3 more)";
        fixture.until(|cluster| {
            condition(cluster, "Deleting").is_some_and(|(_, reason, message)| {
                reason == "WaitingForWorkersDeletion" && message == expected
            })
        }).await?;
        eventually(async || {
            let machines = fixture.client.list(&Query::<Machine>::default()).await?;
            let deleted = machines.iter().filter(|it| it.metadata.deletion_timestamp.is_some());
            Ok::<_, anyhow::Error>((deleted.count() == 8).then_some(()))
        }).await?;
        let deployment = fixture.client.get::<MachineDeployment>(&ObjectKey::new(&fixture.namespace, "md1")).await?;
        let is_kept = deployment.expect("created above").metadata.deletion_timestamp.is_none();
        assert!(is_kept, "the Cluster is not its owner");
        let plane = fixture.client.get::<Machine>(&ObjectKey::new(&fixture.namespace, "plane")).await?;
        assert!(plane.expect("created above").metadata.deletion_timestamp.is_none());
        assert!(!is_deleting(fixture.object(BARN_PLANE).await?.as_ref()), "the control plane is kept");

        for number in 1..=8 {
            release::<Machine>(&fixture, &format!("m{number}")).await?;
        }
        fixture.until(|cluster| {
            condition(cluster, "Deleting").is_some_and(|(_, _, message)| message == "* MachineDeployments: md1")
        }).await?;
        release::<MachineDeployment>(&fixture, "md1").await?;
        fixture.client.delete::<MachineDeployment>(&ObjectKey::new(&fixture.namespace, "md1")).await?;
        fixture.until_reason("Deleting", "WaitingForControlPlaneDeletion").await?;
        running.stop().await
    }

    /// 25
    async fn the_control_plane_is_deleted_before_the_infrastructure(env: Env) -> anyhow::Result<()> {
        let (fixture, running) = complete(&env).await?;
        fixture.client.delete::<Cluster>(&fixture.key()).await?;
        let (status, message) = fixture.until_reason("Deleting", "WaitingForControlPlaneDeletion").await?;
        assert_eq!((&*status, &*message), ("True", "Waiting for BarnControlPlane to be deleted"));
        assert!(is_deleting(fixture.object(BARN_PLANE).await?.as_ref()));
        assert!(!is_deleting(fixture.object(BARN).await?.as_ref()));
        // The phase is written after the conditions.
        let is_phase = |cluster: &Cluster| cluster.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Deleting");
        fixture.until(is_phase).await?;

        fixture.patch(BARN_PLANE, json!({"metadata": {"finalizers": null}})).await?;
        let (_, message) = fixture.until_reason("Deleting", "WaitingForInfrastructureDeletion").await?;
        assert_eq!(message, "Waiting for BarnCluster to be deleted");
        assert!(is_deleting(fixture.object(BARN).await?.as_ref()));

        fixture.patch(BARN, json!({"metadata": {"finalizers": null}})).await?;
        fixture.until_gone().await?;
        assert_eq!(running.reconciles("error"), 0);
        running.stop().await
    }

    async fn stand_alone_machines_of_the_control_plane_are_deleted_with_the_workers(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"paused": false})).await?;
        let cluster = fixture.until(|cluster| condition(cluster, "Deleting").is_some()).await?;
        let mut labels = worker();
        labels["cluster.x-k8s.io/control-plane"] = json!("");
        fixture.client.create(&machine("plane", labels, Some(&cluster))).await?;
        fixture.client.create(&machine("worker", worker(), Some(&cluster))).await?;
        fixture.client.delete::<Cluster>(&fixture.key()).await?;
        let expected = "* Control plane Machines: plane\n* Worker Machines: worker";
        fixture.until(|cluster| condition(cluster, "Deleting").is_some_and(|(_, _, it)| it == expected)).await?;
        eventually(async || {
            let machines = fixture.client.list(&Query::<Machine>::default()).await?;
            let deleted = machines.iter().filter(|it| it.metadata.deletion_timestamp.is_some());
            Ok::<_, anyhow::Error>((deleted.count() == 2).then_some(()))
        }).await?;
        for name in ["plane", "worker"] {
            release::<Machine>(&fixture, name).await?;
        }
        fixture.until_gone().await?;
        running.stop().await
    }
}
