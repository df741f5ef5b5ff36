//! Owner reference and label of the referenced objects.

use super::fixture::{BARN, BARN_PLANE, Fixture, NAME};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use steersman::testing::{Env, TestServer, eventually};
use steersman_controllers::cluster_api::Cluster;

fn topology() -> Value {
    json!({"classRef": {"name": "c"}, "version": "v1.33.0"})
}

/// Returns whether the object has the label of the Cluster.
fn is_labelled(object: &DynamicObject) -> bool {
    let labels = object.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get("cluster.x-k8s.io/cluster-name"))
        .is_some_and(|it| it == NAME)
}

fn owners(object: &DynamicObject) -> Value {
    json!(object.metadata.owner_references)
}

async fn until_labelled(fixture: &Fixture) -> anyhow::Result<DynamicObject> {
    eventually(async || Ok(fixture.object(BARN).await?.filter(is_labelled))).await
}

/// Returns the expected reference to the Cluster.
fn reference(cluster: &Cluster) -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": NAME, "uid": cluster.metadata.uid})
}

/// Creates a `ConfigMap`, and returns a reference to it as the controller.
///
/// The garbage collector deletes objects whose owners do not exist.
async fn foreign(fixture: &Fixture) -> anyhow::Result<Value> {
    let owner = json!({"metadata": {"name": "other"}});
    let owner = fixture
        .client
        .create::<ConfigMap>(&serde_json::from_value(owner)?)
        .await?;
    let uid = owner.metadata.uid;
    Ok(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid, "controller": true}),
    )
}

steersman::env_test! {
    /// 11
    async fn a_cluster_without_a_topology_is_a_plain_owner(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        fixture.create(BARN, json!({"spec": {}})).await?;
        let object = until_labelled(&fixture).await?;
        assert_eq!(owners(&object), json!([reference(&fixture.cluster().await?)]));
        running.stop().await
    }

    /// 11
    async fn a_cluster_with_a_topology_is_the_controller(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        let spec = json!({
            "infrastructureRef": BARN.reference(), "controlPlaneRef": BARN_PLANE.reference(),
            "topology": topology(),
        });
        fixture.create_cluster(spec).await?;
        fixture.create(BARN, json!({"spec": {}})).await?;
        let object = until_labelled(&fixture).await?;
        let mut expected = reference(&fixture.cluster().await?);
        expected["controller"] = json!(true);
        expected["blockOwnerDeletion"] = json!(true);
        assert_eq!(owners(&object), json!([expected]));
        running.stop().await
    }

    /// 13
    async fn an_outdated_reference_is_replaced_and_a_foreign_owner_kept(env: Env) -> anyhow::Result<()> {
        for (api_version, controller) in [("v1beta1", json!(null)), ("v1beta2", json!(true))] {
            let fixture = Fixture::new(&env).await?;
            let outdated = json!({
                "apiVersion": format!("cluster.x-k8s.io/{api_version}"), "kind": "Cluster", "name": NAME,
                "uid": "6", "controller": controller,
            });
            let mut other = foreign(&fixture).await?;
            other.as_object_mut().expect("an object").remove("controller");
            let owners_before = json!([outdated, other]);
            fixture.create(BARN, json!({"metadata": {"ownerReferences": owners_before}})).await?;
            fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
            let running = fixture.start(env.client()?)?;
            let object = until_labelled(&fixture).await?;
            let expected = reference(&fixture.cluster().await?);
            let found = object.metadata.owner_references.unwrap_or_default();
            let found: Vec<_> = found.iter().map(|it| json!(it)).collect();
            // The garbage collector may have removed the outdated one, which changes the order.
            assert!(found.len() == 2 && found.contains(&expected) && found.contains(&other), "{found:?}");
            running.stop().await?;
        }
        Ok(())
    }

    /// 13
    async fn a_foreign_controller_is_kept_without_a_topology(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let foreign = foreign(&fixture).await?;
        fixture.create(BARN, json!({"metadata": {"ownerReferences": [foreign]}})).await?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        let running = fixture.start(env.client()?)?;
        let object = until_labelled(&fixture).await?;
        assert_eq!(owners(&object), json!([foreign, reference(&fixture.cluster().await?)]));
        running.stop().await
    }

    /// 14
    async fn a_foreign_controller_is_an_error_with_a_topology(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let foreign = foreign(&fixture).await?;
        fixture.create(BARN, json!({"metadata": {"ownerReferences": [foreign]}})).await?;
        let running = fixture.start(env.client()?)?;
        let spec = json!({
            "infrastructureRef": BARN.reference(), "controlPlaneRef": BARN_PLANE.reference(),
            "topology": topology(),
        });
        fixture.create_cluster(spec).await?;
        let (_, message) = fixture.until_reason("InfrastructureReady", "InternalError").await?;
        assert_eq!(message, "Please check controller logs for errors");
        let object = fixture.object(BARN).await?.expect("created above");
        assert_eq!((owners(&object), is_labelled(&object)), (json!([foreign]), false));
        eventually(async || anyhow::Ok((running.reconciles("error") > 0).then_some(()))).await?;
        running.stop().await
    }

    async fn a_reference_of_a_topology_loses_its_controller_with_the_topology(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let running = fixture.start(env.client()?)?;
        let spec = json!({
            "infrastructureRef": BARN.reference(), "controlPlaneRef": BARN_PLANE.reference(),
            "topology": topology(),
        });
        fixture.create_cluster(spec).await?;
        fixture.create(BARN, json!({"spec": {}})).await?;
        until_labelled(&fixture).await?;
        fixture.patch_cluster(json!({"spec": {"topology": null}})).await?;
        let expected = json!([reference(&fixture.cluster().await?)]);
        eventually(async || {
            let object = fixture.object(BARN).await?;
            Ok::<_, anyhow::Error>(object.filter(|object| owners(object) == expected))
        }).await?;
        running.stop().await
    }
}
