//! From the workspace to the cluster.

use crate::world::{World, until};
use anyhow::Context as _;
use serde_json::json;
use steersman::{client::Patch, testing::Env};
use steersman_apiserver::Fault;
use steersman_controllers::endpoint::{CAPTControlPlane, Cluster, Phase};

const EKS: &str = "https://ABC123.gr7.eu-west-1.eks.amazonaws.com";

/// How often something was read that was not known.
fn misses(world: &World) -> u64 {
    let page = world.manager.metrics_page();
    let number = page.lines().find_map(|line| line.strip_prefix("capt_endpoint_cache_total{result=\"miss\"} "));
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

steersman::env_test! {
    async fn an_output_reaches_control_plane_and_cluster(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        world.until_reason("WorkspaceNotReady").await?;
        assert_eq!(world.plane().await?.status.expect("it is said").phase, Some(Phase::Creating));
        world.make_workspace(Some(json!({"cluster_endpoint": EKS}))).await?;
        world.until_propagated("ABC123.gr7.eu-west-1.eks.amazonaws.com:443").await?;
        let status = world.plane().await?.status.expect("it is said");
        assert_eq!((status.ready, status.initialized, status.phase), (true, true, Some(Phase::Ready)));
        world.stop().await
    }

    async fn a_secret_stands_in_for_an_output_that_is_absent_and_its_rotation_is_followed(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        world.make_workspace(Some(json!({"cluster_endpoint": ""}))).await?;
        world.until_reason("EndpointNotReady").await?;
        world.set_secret("https://one.example.com:6443").await?;
        world.until_propagated("one.example.com:6443").await?;
        world.set_secret("two.example.com").await?;
        world.until_propagated("two.example.com:443").await?;
        world.set_outputs(json!({"cluster_endpoint": "three.example.com"})).await?;
        world.until_propagated("three.example.com:443").await?;
        world.stop().await
    }

    async fn what_is_no_endpoint_is_said_and_the_secret_does_not_hide_it(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        world.make_workspace(Some(json!({"cluster_endpoint": "http://hunter2.example.com"}))).await?;
        world.until_reason("InvalidEndpoint").await?;
        let plane = world.plane().await?;
        let status = plane.status.clone().expect("it is said");
        assert_eq!((status.ready, status.phase, status.failure_reason), (false, Some(Phase::Failed), None));
        assert!(!serde_json::to_string(&plane)?.contains("hunter2"), "{plane:?}");
        world.set_secret("https://good.example.com").await?;
        world.set_outputs(json!({"cluster_endpoint": "not good"})).await?;
        until(async || {
            let status = world.plane().await?.status.unwrap_or_default();
            Ok(status.conditions.iter().any(|condition| condition.message.contains("spaces")))
        })
        .await?;
        assert_eq!(world.endpoints().await?, (None, None));
        world.set_outputs(json!({"cluster_endpoint": EKS})).await?;
        world.until_propagated("ABC123.gr7.eu-west-1.eks.amazonaws.com:443").await?;
        assert_eq!(world.plane().await?.status.expect("it is said").phase, Some(Phase::Ready));
        world.stop().await
    }

    async fn what_was_known_is_kept_when_its_source_goes_and_the_cluster_is_made_good(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        world.until_propagated("one.example.com:443").await?;
        world.set_outputs(json!(null)).await?;
        world.until_reason("EndpointKept").await?;
        // As if a pass had been cut off in between.
        let none = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": null}}));
        world.client.patch::<Cluster>(&world.key("plane"), &none).await?;
        world.until_propagated("one.example.com:443").await?;
        world.stop().await
    }

    async fn a_whole_url_as_the_host_is_made_a_host(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        for (host, port, endpoint) in [
            ("https://old.example.com", 443, "old.example.com:443"),
            ("https://old.example.com", 6443, "old.example.com:6443"),
            ("https://old.example.com:8443", 443, "old.example.com:8443"),
        ] {
            let patch = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": {"host": host, "port": port}}}));
            world.client.patch::<CAPTControlPlane>(&world.key("plane"), &patch).await?;
            world.until_propagated(endpoint).await?;
        }
        world.stop().await
    }

    async fn a_deletion_takes_our_endpoint_off_the_cluster_and_no_other(env: Env) -> anyhow::Result<()> {
        for (theirs, left) in [(None, None), (Some("other.example.com"), Some("other.example.com:443".to_owned()))] {
            let world = World::new(&env).await?;
            world.make_workspace(Some(json!({"cluster_endpoint": "ours.example.com"}))).await?;
            world.until_propagated("ours.example.com:443").await?;
            // Nobody looks until it is deleted.
            let World { client, namespace, .. } = &world;
            let (client, namespace) = (client.clone(), namespace.clone());
            let key = world.key("plane");
            if let Some(theirs) = theirs {
                world.stop().await?;
                let patch = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": {"host": theirs, "port": 443}}}));
                client.patch::<Cluster>(&key, &patch).await?;
                client.delete::<CAPTControlPlane>(&key).await?;
                let again = World::again(&env, &namespace)?;
                until(async || Ok(client.get::<CAPTControlPlane>(&key).await?.is_none())).await?;
                again.stop().await?;
            } else {
                client.delete::<CAPTControlPlane>(&key).await?;
                until(async || Ok(client.get::<CAPTControlPlane>(&key).await?.is_none())).await?;
                world.stop().await?;
            }
            let cluster = client.get::<Cluster>(&key).await?.expect("it stays");
            let endpoint = cluster.spec.control_plane_endpoint.as_ref().map(|it| format!("{}:{}", it.host, it.port));
            assert_eq!(endpoint, left);
        }
        Ok(())
    }

    async fn where_nothing_has_changed_nothing_is_written(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        world.make_workspace(Some(json!({"cluster_endpoint": EKS, "vpc_id": "one"}))).await?;
        world.until_propagated("ABC123.gr7.eu-west-1.eks.amazonaws.com:443").await?;
        let versions = async || {
            let cluster = world.client.get::<Cluster>(&world.key("plane")).await?.context("it stays")?;
            anyhow::Ok((world.plane().await?.metadata.resource_version, cluster.metadata.resource_version.clone()))
        };
        let before = versions().await?;
        // When the second is looked at, whoever looked at the first is through.
        for vpc in ["two", "three"] {
            let known = misses(&world);
            world.set_outputs(json!({"cluster_endpoint": EKS, "vpc_id": vpc})).await?;
            until(async || Ok(misses(&world) > known)).await?;
        }
        assert_eq!(versions().await?, before);
        world.stop().await
    }
}

/// Of whichever write: none of them costs a pass.
#[tokio::test]
async fn a_conflict_of_finalizer_or_status_is_tried_again_in_the_same_pass() -> anyhow::Result<()> {
    for write in ["patch captcontrolplanes", "patch captcontrolplanes/status"] {
        let env = Env::embedded()?;
        let Env::Embedded(embedded) = &env else { unreachable!("it is one") };
        let conflict = embedded.server().faults().add(Fault::on(write).status(409).times(1));
        let world = World::new(&env).await?;
        world.until_reason("WorkspaceNotReady").await?;
        assert_eq!(conflict.hits(), 1, "{write}");
        let page = world.manager.metrics_page();
        for line in [
            "capt_endpoint_retries_total 1",
            r#"controller_runtime_reconcile_total{controller="endpoint",result="error"} 0"#,
            r#"controller_runtime_reconcile_errors_total{controller="endpoint"} 0"#,
        ] {
            assert!(page.lines().any(|it| it == line), "{write}: {line} in\n{page}");
        }
        world.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_conflict_is_looked_at_and_tried_again_in_the_same_pass() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let Env::Embedded(embedded) = &env else { unreachable!("it is one") };
    let conflict = embedded.server().faults().add(Fault::on("patch clusters").status(409).times(2));
    let world = World::new(&env).await?;
    world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
    world.until_propagated("one.example.com:443").await?;
    assert_eq!(conflict.hits(), 2);
    let page = world.manager.metrics_page();
    for line in [
        "capt_endpoint_retries_total 2",
        r#"capt_endpoint_propagation_total{target="cluster",result="error"} 2"#,
        r#"capt_endpoint_propagation_total{target="cluster",result="success"} 1"#,
        r#"capt_endpoint_propagation_total{target="controlplane",result="success"} 1"#,
        r#"controller_runtime_reconcile_errors_total{controller="endpoint"} 0"#,
    ] {
        assert!(page.lines().any(|it| it == line), "{line} in\n{page}");
    }
    assert_eq!(page.matches("capt_endpoint_last_change_timestamp_seconds{").count(), 1, "of the control plane alone");
    world.stop().await
}
