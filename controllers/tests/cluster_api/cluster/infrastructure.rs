//! Reconciliation of `spec.infrastructureRef`.

use super::fixture::{BARN, Fixture, OLD_BARN, condition, deprecated, endpoint};
use serde_json::json;
use steersman::testing::{Env, TestServer, eventually};
use steersman_controllers::cluster_api::{Cluster, ClusterStatus};

const READY: &str = "InfrastructureReady";

fn is_provisioned(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(ClusterStatus::is_infrastructure_provisioned)
}

fn failure_domains(cluster: &Cluster) -> serde_json::Value {
    json!(
        cluster
            .status
            .as_ref()
            .map(|status| &status.failure_domains)
    )
}

/// Waits until a reconcile has failed.
async fn until_error(running: &super::fixture::Running) -> anyhow::Result<()> {
    eventually(async || Ok((running.reconciles("error") > 0).then_some(()))).await
}

steersman::env_test! {
    /// 1
    async fn a_cluster_without_references_is_provisioned(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"paused": false})).await?;
        let cluster = fixture.until(is_provisioned).await?;
        assert_eq!(deprecated(&cluster, READY), json!({"status": "True"}));
        assert_eq!(cluster.status.and_then(|status| status.phase).as_deref(), Some("Pending"));
        running.stop().await
    }

    /// 2
    async fn a_missing_infrastructure_is_looked_up_again_without_an_error(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        let (status, message) = fixture.until_reason(READY, "ObjectDoesNotExist").await?;
        assert_eq!((&*status, &*message), ("False", "BarnCluster does not exist"));
        eventually(async || {
            anyhow::Ok((running.reconciles("requeue_after") > 0).then_some(()))
        }).await?;
        assert_eq!(running.reconciles("error"), 0);
        running.stop().await
    }

    /// 3
    async fn an_infrastructure_that_was_provisioned_and_is_gone_is_an_error(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        fixture.set_cluster_status(json!({"initialization": {"infrastructureProvisioned": true}})).await?;
        let running = fixture.start(env.client()?)?;
        let (status, message) = fixture.until_reason(READY, "ObjectDeleted").await?;
        let expected = "BarnCluster has been deleted while the cluster still exists";
        assert_eq!((&*status, &*message), ("False", expected));
        until_error(&running).await?;
        assert_eq!(running.reconciles("requeue_after"), 0);
        running.stop().await
    }

    /// 4
    async fn a_missing_infrastructure_of_a_deleted_cluster_is_no_error(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        // Another finalizer keeps the Cluster.
        fixture.patch_cluster(json!({"metadata": {"finalizers": ["example.com/hold"]}})).await?;
        fixture.client.delete::<Cluster>(&fixture.key()).await?;
        let running = fixture.start(env.client()?)?;
        let (_, message) = fixture.until_reason("Deleting", "DeletionCompleted").await?;
        assert_eq!(message, "Deletion completed");
        let cluster = fixture.cluster().await?;
        let (status, reason, message) = condition(&cluster, READY).expect("a condition");
        assert_eq!([&*status, &reason, &message], ["False", "ObjectDoesNotExist", "BarnCluster does not exist"]);
        let expected = json!({"status": "False", "severity": "Info", "reason": "Deleted"});
        assert_eq!(deprecated(&cluster, READY), expected);
        assert_eq!((running.reconciles("error"), running.reconciles("requeue_after")), (0, 0));
        running.stop().await
    }

    /// 5
    async fn a_ready_infrastructure_provisions_the_cluster(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        fixture.create(BARN, json!({
            "spec": {"controlPlaneEndpoint": {"host": "one.example.com", "port": 6443}},
            "status": {"initialization": {"provisioned": true}},
        })).await?;
        let cluster = fixture.until(is_provisioned).await?;
        assert_eq!(endpoint(&cluster).as_deref(), Some("one.example.com:6443"));
        assert_eq!(deprecated(&cluster, READY), json!({"status": "True"}));
        assert_eq!(cluster.status.and_then(|status| status.phase).as_deref(), Some("Provisioned"));
        running.stop().await
    }

    /// 6
    async fn an_endpoint_of_the_cluster_is_not_replaced(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({
            "infrastructureRef": BARN.reference(),
            "controlPlaneEndpoint": {"host": "one.example.com", "port": 6443},
        })).await?;
        fixture.create(BARN, json!({
            "spec": {"controlPlaneEndpoint": {"host": "two.example.com", "port": 443}},
            "status": {"initialization": {"provisioned": true}},
        })).await?;
        let cluster = fixture.until(is_provisioned).await?;
        assert_eq!(endpoint(&cluster).as_deref(), Some("one.example.com:6443"));
        assert_eq!(cluster.metadata.generation, Some(1), "no write to the spec");
        running.stop().await
    }

    async fn a_half_set_endpoint_is_replaced_only_by_a_complete_one(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({
            "infrastructureRef": BARN.reference(), "controlPlaneEndpoint": {"host": "one.example.com"},
        })).await?;
        fixture.create(BARN, json!({"status": {"initialization": {"provisioned": true}}})).await?;
        let cluster = fixture.until(is_provisioned).await?;
        assert_eq!(endpoint(&cluster).as_deref(), Some("one.example.com:"), "the provider has none");
        let complete = json!({"spec": {"controlPlaneEndpoint": {"host": "two.example.com", "port": 443}}});
        fixture.patch(BARN, complete).await?;
        fixture.until(|cluster| endpoint(cluster).as_deref() == Some("two.example.com:443")).await?;
        running.stop().await
    }

    /// 7
    async fn a_deleted_infrastructure_that_was_never_ready_is_not_copied(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.create(BARN, json!({
            "metadata": {"finalizers": ["example.com/hold"]},
            "spec": {"controlPlaneEndpoint": {"host": "one.example.com", "port": 6443}},
            "status": {"initialization": {"provisioned": true}},
        })).await?;
        fixture.delete(BARN).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        let cluster = fixture.until(|cluster| deprecated(cluster, READY) == json!({"status": "True"})).await?;
        assert!(!is_provisioned(&cluster) && endpoint(&cluster).is_none());
        fixture.patch(BARN, json!({"metadata": {"finalizers": null}})).await?;
        running.stop().await
    }

    /// 8
    async fn failure_domains_in_a_map_become_a_sorted_list(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"infrastructureRef": OLD_BARN.reference()})).await?;
        fixture.create(OLD_BARN, json!({"status": {"ready": true, "failureDomains": {
            "b": {"controlPlane": true, "attributes": {"door": "blue"}}, "a": {},
        }}})).await?;
        let cluster = fixture.until(is_provisioned).await?;
        assert_eq!(failure_domains(&cluster), json!([
            {"name": "a", "controlPlane": false},
            {"name": "b", "controlPlane": true, "attributes": {"door": "blue"}},
        ]));
        running.stop().await
    }

    /// 9
    async fn failure_domains_of_another_shape_are_an_error(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"infrastructureRef": OLD_BARN.reference()})).await?;
        fixture.create(OLD_BARN, json!({"status": {"ready": true, "failureDomains": [{"name": "a"}]}})).await?;
        until_error(&running).await?;
        let cluster = fixture.cluster().await?;
        assert!(!is_provisioned(&cluster) && failure_domains(&cluster) == json!([]));
        running.stop().await
    }

    /// 10
    async fn failure_domains_are_removed_with_those_of_the_infrastructure(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        fixture.create(BARN, json!({"status": {
            "initialization": {"provisioned": true}, "failureDomains": [{"name": "b"}, {"name": "a"}],
        }})).await?;
        let both = json!([{"name": "a", "controlPlane": false}, {"name": "b", "controlPlane": false}]);
        fixture.until(|cluster| failure_domains(cluster) == both).await?;
        fixture.set_status(BARN, json!({"failureDomains": null})).await?;
        fixture.until(|cluster| failure_domains(cluster) == json!([])).await?;
        running.stop().await
    }
}
