//! Writes of the Cluster: their order, and reconciles that write nothing.

use super::{
    fixture::{BARN, BARN_PLANE, Fixture, Running},
    recording_proxy::{Call, Proxy},
};
use serde_json::{Value, json};
use steersman::testing::{Env, TestServer, eventually};
use steersman_controllers::cluster_api::ClusterStatus;

/// Starts the controller behind a proxy, with a Cluster whose objects are ready.
async fn ready(env: &Env, proxy: &Proxy) -> anyhow::Result<(Fixture, Running)> {
    let fixture = Fixture::new(env).await?;
    let running = fixture.start(proxy.client(env.client()?))?;
    fixture.create(BARN, json!({
        "spec": {"controlPlaneEndpoint": {"host": "one.example.com", "port": 6443}},
        "status": {"initialization": {"provisioned": true}, "failureDomains": [{"name": "a"}]},
    }))
    .await?;
    let initialized = json!({"initialization": {"controlPlaneInitialized": true}});
    fixture
        .create(BARN_PLANE, json!({"status": initialized}))
        .await?;
    fixture
        .create_cluster(json!({
            "infrastructureRef": BARN.reference(), "controlPlaneRef": BARN_PLANE.reference(),
        }))
        .await?;
    until_complete(&fixture).await?;
    Ok((fixture, running))
}

/// Waits until the last write of a reconcile is done.
async fn until_complete(fixture: &Fixture) -> anyhow::Result<()> {
    let complete = fixture.until(|cluster| {
        let status = cluster.status.as_ref();
        status.is_some_and(|it| it.observed_generation == cluster.metadata.generation)
            && status.is_some_and(ClusterStatus::is_control_plane_initialized)
    });
    complete.await.map(drop)
}

/// Waits until `reconciles` more reconciles have succeeded.
async fn until_reconciled(running: &Running, before: u64) -> anyhow::Result<()> {
    eventually(async || anyhow::Ok((running.reconciles("success") > before).then_some(()))).await
}

fn texts(calls: &[Call]) -> Vec<String> {
    calls.iter().map(Call::text).collect()
}

steersman::env_test! {
    /// 12
    async fn a_reconcile_without_a_change_writes_nothing(env: Env) -> anyhow::Result<()> {
        let proxy = Proxy::recording();
        let (fixture, running) = ready(&env, &proxy).await?;
        running.manager.wait_queues_empty().await;
        let (start, before) = (proxy.len(), running.reconciles("success"));
        let annotations = json!({"metadata": {"annotations": {"example.com/touched": "yes"}}});
        fixture.patch_cluster(annotations.clone()).await?;
        until_reconciled(&running, before).await?;
        let before = running.reconciles("success");
        fixture.patch(BARN, annotations).await?;
        until_reconciled(&running, before).await?;
        running.manager.wait_queues_empty().await;
        running.stop().await?;
        assert_eq!(texts(&proxy.writes(start)), [""; 0]);

        let proxy = Proxy::recording();
        let running = fixture.start(proxy.client(env.client()?))?;
        until_reconciled(&running, 0).await?;
        running.manager.wait_queues_empty().await;
        running.stop().await?;
        assert_eq!(texts(&proxy.writes(0)), [""; 0], "a second start");
        Ok(())
    }

    async fn a_new_cluster_takes_few_writes_in_order(env: Env) -> anyhow::Result<()> {
        let proxy = Proxy::recording();
        let (_, running) = ready(&env, &proxy).await?;
        running.stop().await?;
        let writes = proxy.writes(0);
        let expected = [
            "PATCH clusters/shop", // the finalizer
            "PATCH clusters/shop/status", // the condition Paused
            "PATCH barnclusters/shop",
            "PATCH barncontrolplanes/shop",
            "PATCH clusters/shop/status", // conditions
            "PATCH clusters/shop", // the endpoint
            "PATCH clusters/shop/status",
        ];
        assert_eq!(texts(&writes)[..7], expected);
        let (endpoint, flags) = (&writes[5].body, &writes[6].body);
        let expected = json!({"spec": {"controlPlaneEndpoint": {"host": "one.example.com", "port": 6443}}});
        assert_eq!(*endpoint, expected);
        let expected = json!({"infrastructureProvisioned": true, "controlPlaneInitialized": true});
        assert_eq!(flags["status"]["initialization"], expected);
        assert_eq!(flags["status"]["phase"], "Provisioned");
        // The endpoint changes the generation, which the next reconcile reports.
        let rest = texts(&writes[7..]);
        assert!(rest.iter().all(|it| it == "PATCH clusters/shop/status") && rest.len() <= 2, "{rest:?}");
        Ok(())
    }

    async fn an_object_is_adopted_by_one_patch_without_a_resource_version(env: Env) -> anyhow::Result<()> {
        let proxy = Proxy::recording();
        let (fixture, running) = ready(&env, &proxy).await?;
        running.stop().await?;
        let uid = fixture.cluster().await?.metadata.uid;
        let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "shop", "uid": uid});
        let expected = json!({"metadata": {
            "labels": {"cluster.x-k8s.io/cluster-name": "shop"}, "ownerReferences": [owner],
        }});
        for plural in ["barnclusters", "barncontrolplanes"] {
            let writes = proxy.writes(0);
            let bodies: Vec<&Value> = writes
                .iter()
                .filter(|call| call.path == format!("{plural}/shop"))
                .map(|call| &call.body)
                .collect();
            assert_eq!(bodies, [&expected]);
        }
        Ok(())
    }
}
