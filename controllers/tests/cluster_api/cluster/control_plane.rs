//! Reconciliation of `spec.controlPlaneRef`.

use super::fixture::{BARN, BARN_PLANE, Fixture, OLD_BARN_PLANE, condition, deprecated, endpoint};
use serde_json::json;
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::cluster_api::{Cluster, ClusterStatus, Machine};

const INITIALIZED: &str = "ControlPlaneInitialized";

fn is_initialized(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(ClusterStatus::is_control_plane_initialized)
}

steersman::env_test! {
    /// 15
    async fn an_initialized_control_plane_initializes_the_cluster(env: Env) -> anyhow::Result<()> {
        for (kind, status) in [
            (BARN_PLANE, json!({"initialization": {"controlPlaneInitialized": true}})),
            (OLD_BARN_PLANE, json!({"initialized": true})),
        ] {
            let fixture = Fixture::new(&env).await?;
            let running = fixture.start(env.client()?)?;
            fixture.create_cluster(json!({"controlPlaneRef": kind.reference()})).await?;
            let endpoint_spec = json!({"host": "one.example.com", "port": 6443});
            fixture.create(kind, json!({"spec": {"controlPlaneEndpoint": endpoint_spec}})).await?;
            fixture.until_reason(INITIALIZED, "NotInitialized").await?;
            let waiting = json!({
                "status": "False", "severity": "Info", "reason": "WaitingForControlPlaneProviderInitialized",
                "message": "Waiting for control plane provider to indicate the control plane has been initialized",
            });
            assert_eq!(deprecated(&fixture.cluster().await?, INITIALIZED), waiting);

            fixture.set_status(kind, status).await?;
            let cluster = fixture.until(is_initialized).await?;
            assert_eq!(endpoint(&cluster).as_deref(), Some("one.example.com:6443"));
            assert_eq!(deprecated(&cluster, INITIALIZED), json!({"status": "True"}));
            assert_eq!(deprecated(&cluster, "ControlPlaneReady"), json!({"status": "True"}));
            let (status, reason, _) = condition(&cluster, INITIALIZED).expect("a condition");
            assert_eq!((&*status, &*reason), ("True", "Initialized"));
            let (status, reason, _) = condition(&cluster, "ControlPlaneAvailable").expect("a condition");
            assert_eq!((&*status, &*reason), ("True", "Available"));
            running.stop().await?;
        }
        Ok(())
    }

    /// 16
    async fn a_paused_control_plane_is_copied_without_an_error(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.create(BARN_PLANE, json!({
            "metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}},
            "status": {"initialization": {"controlPlaneInitialized": true}},
        })).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"controlPlaneRef": BARN_PLANE.reference()})).await?;
        fixture.until(is_initialized).await?;
        assert_eq!(running.reconciles("error"), 0);
        running.stop().await
    }

    /// 17
    async fn a_missing_control_plane_is_reported_although_the_infrastructure_exists(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.create(BARN, json!({"spec": {}})).await?;
        let running = fixture.start(env.client()?)?;
        let spec = json!({"infrastructureRef": BARN.reference(), "controlPlaneRef": BARN_PLANE.reference()});
        fixture.create_cluster(spec).await?;
        let (status, message) = fixture.until_reason(INITIALIZED, "ObjectDoesNotExist").await?;
        assert_eq!((&*status, &*message), ("Unknown", "BarnControlPlane does not exist"));
        running.stop().await
    }

    /// 18
    async fn an_initialized_control_plane_stays_initialized(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"controlPlaneRef": BARN_PLANE.reference()})).await?;
        fixture.create(BARN_PLANE, json!({"status": {"initialization": {"controlPlaneInitialized": true}}})).await?;
        fixture.until_reason(INITIALIZED, "Initialized").await?;
        let status = json!({
            "initialization": {"controlPlaneInitialized": false},
            "conditions": [{"type": "Available", "status": "False", "reason": "Broken"}],
        });
        fixture.set_status(BARN_PLANE, status).await?;
        fixture.until_reason("ControlPlaneAvailable", "Broken").await?;
        let cluster = fixture.cluster().await?;
        let (status, reason, _) = condition(&cluster, INITIALIZED).expect("a condition");
        assert_eq!((&*status, &*reason), ("True", "Initialized"));
        assert_eq!(deprecated(&cluster, INITIALIZED), json!({"status": "True"}));
        assert!(is_initialized(&cluster));
        running.stop().await
    }

    async fn a_machine_with_a_node_initializes_a_cluster_without_a_control_plane(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        let (_, message) = fixture.until_reason(INITIALIZED, "NotInitialized").await?;
        assert_eq!(message, "Waiting for the first control plane machine to have status.nodeRef set");
        let machine = json!({
            "metadata": {"name": "first", "labels": {
                "cluster.x-k8s.io/cluster-name": "shop", "cluster.x-k8s.io/control-plane": "",
            }},
            "spec": {"clusterName": "shop"},
        });
        fixture.client.create::<Machine>(&serde_json::from_value(machine)?).await?;
        let node = Patch::Merge(json!({"status": {"nodeRef": {"name": "node-1"}}}));
        let key = ObjectKey::new(&fixture.namespace, "first");
        fixture.client.status().patch::<Machine>(&key, &node).await?;
        fixture.until_reason(INITIALIZED, "Initialized").await?;
        let cluster = fixture.until(|cluster| deprecated(cluster, INITIALIZED) == json!({"status": "True"})).await?;
        assert!(!is_initialized(&cluster), "the flag is about a control plane object");
        running.stop().await
    }

    async fn a_machine_that_is_being_deleted_does_not_set_the_deprecated_condition(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let machine = json!({
            "metadata": {"name": "first", "finalizers": ["example.com/wait"], "labels": {
                "cluster.x-k8s.io/cluster-name": "shop", "cluster.x-k8s.io/control-plane": "",
            }},
            "spec": {"clusterName": "shop"},
        });
        fixture.client.create::<Machine>(&serde_json::from_value(machine)?).await?;
        let node = Patch::Merge(json!({"status": {"nodeRef": {"name": "node-1"}}}));
        let key = ObjectKey::new(&fixture.namespace, "first");
        fixture.client.status().patch::<Machine>(&key, &node).await?;
        fixture.client.delete::<Machine>(&key).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        let cluster = fixture.until(|cluster| {
            condition(cluster, INITIALIZED).is_some_and(|(_, reason, _)| reason == "Initialized")
        }).await?;
        assert_eq!(deprecated(&cluster, INITIALIZED)["reason"], "MissingNodeRef");
        running.stop().await
    }
}
