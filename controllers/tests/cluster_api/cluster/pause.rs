//! Finalizer and pause.

use super::fixture::{BARN, Fixture, condition, has_finalizer};
use serde_json::json;
use steersman::testing::{Env, TestServer};
use steersman_controllers::cluster_api::Cluster;

steersman::env_test! {
    /// 22
    async fn a_paused_cluster_is_not_deleted(env: Env) -> anyhow::Result<()> {
        for paused in [
            json!({"spec": {"paused": true}}),
            json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": "false"}}}),
        ] {
            let fixture = Fixture::new(&env).await?;
            let running = fixture.start(env.client()?)?;
            fixture.create(BARN, json!({"spec": {}})).await?;
            fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
            fixture.until_reason("InfrastructureReady", "NotReady").await?;
            fixture.patch_cluster(paused.clone()).await?;
            let (status, message) = fixture.until_reason("Paused", "Paused").await?;
            let expected = if paused["spec"].is_null() {
                "Cluster has the cluster.x-k8s.io/paused annotation"
            } else {
                "Cluster spec.paused is set to true"
            };
            assert_eq!((&*status, &*message), ("True", expected));

            fixture.client.delete::<Cluster>(&fixture.key()).await?;
            // The condition follows the generation, which the deletion changes.
            let cluster = fixture.until(|cluster| {
                let status = cluster.status.as_ref().expect("a status");
                let paused = status.conditions.iter().find(|it| it.type_ == "Paused").expect("a condition");
                paused.observed_generation == cluster.metadata.generation
            }).await?;
            assert!(has_finalizer(&cluster) && fixture.object(BARN).await?.is_some());
            assert_eq!(condition(&cluster, "Deleting").expect("a condition").1, "NotDeleting");

            let unpaused = json!({
                "spec": {"paused": null}, "metadata": {"annotations": {"cluster.x-k8s.io/paused": null}},
            });
            fixture.patch_cluster(unpaused).await?;
            fixture.until_gone().await?;
            assert!(fixture.object(BARN).await?.is_none());
            running.stop().await?;
        }
        Ok(())
    }

    /// 23
    async fn a_removed_finalizer_is_added_again(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"paused": false})).await?;
        fixture.until(has_finalizer).await?;
        fixture.patch_cluster(json!({"metadata": {"finalizers": null}})).await?;
        fixture.until(has_finalizer).await?;
        running.stop().await
    }

    async fn a_cluster_that_is_created_paused_gets_its_finalizer(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create(BARN, json!({"spec": {}})).await?;
        fixture.create_cluster(json!({"paused": true, "infrastructureRef": BARN.reference()})).await?;
        fixture.until_reason("Paused", "Paused").await?;
        let cluster = fixture.cluster().await?;
        assert!(has_finalizer(&cluster));
        assert_eq!(condition(&cluster, "InfrastructureReady"), None);
        assert_eq!(fixture.object(BARN).await?.expect("created above").metadata.owner_references, None);
        running.stop().await
    }
}
