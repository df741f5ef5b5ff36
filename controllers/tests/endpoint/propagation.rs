//! Tests of the propagation from the workspace to the Cluster.

use crate::fixture::{Fixture, until};
use anyhow::Context as _;
use serde_json::json;
use steersman::{client::Patch, testing::Env};
use steersman_apiserver::Fault;
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{CAPTControlPlane, Phase},
};

const EKS: &str = "https://ABC123.gr7.eu-west-1.eks.amazonaws.com";

/// Returns the number of cache misses.
fn misses(fixture: &Fixture) -> u64 {
    let page = fixture.manager.metrics_page();
    let number = page
        .lines()
        .find_map(|line| line.strip_prefix("capt_endpoint_cache_total{result=\"miss\"} "));
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

steersman::env_test! {
    async fn an_output_is_propagated_to_control_plane_and_cluster(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.until_reason("WorkspaceNotReady").await?;
        assert_eq!(fixture.plane().await?.status.expect("a status").phase, Some(Phase::Creating));
        fixture.make_workspace(Some(json!({"cluster_endpoint": EKS}))).await?;
        fixture.until_propagated("ABC123.gr7.eu-west-1.eks.amazonaws.com:443").await?;
        let status = fixture.plane().await?.status.expect("a status");
        assert_eq!((status.ready, status.initialized, status.phase), (true, true, Some(Phase::Ready)));
        fixture.stop().await
    }

    async fn a_secret_is_the_fallback_for_a_missing_output_and_its_rotation_is_propagated(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": ""}))).await?;
        fixture.until_reason("EndpointNotReady").await?;
        fixture.set_secret("https://one.example.com:6443").await?;
        fixture.until_propagated("one.example.com:6443").await?;
        fixture.set_secret("two.example.com").await?;
        fixture.until_propagated("two.example.com:443").await?;
        fixture.set_outputs(json!({"cluster_endpoint": "three.example.com"})).await?;
        fixture.until_propagated("three.example.com:443").await?;
        fixture.stop().await
    }

    async fn an_invalid_output_is_reported_even_with_a_valid_secret(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "http://hunter2.example.com"}))).await?;
        fixture.until_reason("InvalidEndpoint").await?;
        let plane = fixture.plane().await?;
        let status = plane.status.clone().expect("a status");
        assert_eq!((status.ready, status.phase, status.failure_reason), (false, Some(Phase::Failed), None));
        assert!(!serde_json::to_string(&plane)?.contains("hunter2"), "{plane:?}");
        fixture.set_secret("https://good.example.com").await?;
        fixture.set_outputs(json!({"cluster_endpoint": "not good"})).await?;
        until(async || {
            let status = fixture.plane().await?.status.unwrap_or_default();
            Ok(status.conditions.iter().any(|condition| condition.message.contains("spaces")))
        })
        .await?;
        assert_eq!(fixture.endpoints().await?, (None, None));
        fixture.set_outputs(json!({"cluster_endpoint": EKS})).await?;
        fixture.until_propagated("ABC123.gr7.eu-west-1.eks.amazonaws.com:443").await?;
        assert_eq!(fixture.plane().await?.status.expect("a status").phase, Some(Phase::Ready));
        fixture.stop().await
    }

    async fn a_known_endpoint_is_kept_and_restored_without_its_source(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        fixture.until_propagated("one.example.com:443").await?;
        fixture.set_outputs(json!(null)).await?;
        fixture.until_reason("EndpointKept").await?;
        // As if a reconcile had been interrupted between the two writes.
        let none = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": null}}));
        fixture.client.patch::<Cluster>(&fixture.key("plane"), &none).await?;
        fixture.until_propagated("one.example.com:443").await?;
        fixture.stop().await
    }

    async fn a_url_in_the_host_field_is_replaced_by_its_host(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        for (host, port, endpoint) in [
            ("https://old.example.com", 443, "old.example.com:443"),
            ("https://old.example.com", 6443, "old.example.com:6443"),
            ("https://old.example.com:8443", 443, "old.example.com:8443"),
        ] {
            let patch = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": {"host": host, "port": port}}}));
            fixture.client.patch::<CAPTControlPlane>(&fixture.key("plane"), &patch).await?;
            fixture.until_propagated(endpoint).await?;
        }
        fixture.stop().await
    }

    async fn a_deletion_clears_only_our_endpoint(env: Env) -> anyhow::Result<()> {
        for (theirs, left) in [(None, None), (Some("other.example.com"), Some("other.example.com:443".to_owned()))] {
            let fixture = Fixture::new(&env).await?;
            fixture.make_workspace(Some(json!({"cluster_endpoint": "ours.example.com"}))).await?;
            fixture.until_propagated("ours.example.com:443").await?;
            // The controller is stopped until the deletion.
            let Fixture { client, namespace, .. } = &fixture;
            let (client, namespace) = (client.clone(), namespace.clone());
            let key = fixture.key("plane");
            if let Some(theirs) = theirs {
                fixture.stop().await?;
                let patch = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": {"host": theirs, "port": 443}}}));
                client.patch::<Cluster>(&key, &patch).await?;
                client.delete::<CAPTControlPlane>(&key).await?;
                let scenario_runner = Fixture::scenario_runner(&env, &namespace)?;
                until(async || Ok(client.get::<CAPTControlPlane>(&key).await?.is_none())).await?;
                scenario_runner.stop().await?;
            } else {
                client.delete::<CAPTControlPlane>(&key).await?;
                until(async || Ok(client.get::<CAPTControlPlane>(&key).await?.is_none())).await?;
                fixture.stop().await?;
            }
            let cluster = client.get::<Cluster>(&key).await?.expect("the Cluster is not deleted");
            let endpoint = cluster.spec.control_plane_endpoint.as_ref().map(ToString::to_string);
            assert_eq!(endpoint, left);
        }
        Ok(())
    }

    async fn an_unchanged_endpoint_is_not_written(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": EKS, "vpc_id": "one"}))).await?;
        fixture.until_propagated("ABC123.gr7.eu-west-1.eks.amazonaws.com:443").await?;
        let versions = async || {
            let cluster = fixture.client.get::<Cluster>(&fixture.key("plane")).await?.context("the Cluster is not deleted")?;
            anyhow::Ok((fixture.plane().await?.metadata.resource_version, cluster.metadata.resource_version.clone()))
        };
        let before = versions().await?;
        // A cache miss for the second value shows that the reconcile of the first has ended.
        for vpc in ["two", "three"] {
            let known = misses(&fixture);
            fixture.set_outputs(json!({"cluster_endpoint": EKS, "vpc_id": vpc})).await?;
            until(async || Ok(misses(&fixture) > known)).await?;
        }
        assert_eq!(versions().await?, before);
        fixture.stop().await
    }
}

/// A conflict of either write is retried within the reconcile.
#[tokio::test]
async fn a_conflict_of_finalizer_or_status_is_retried_in_the_same_reconcile() -> anyhow::Result<()>
{
    for write in ["patch captcontrolplanes", "patch captcontrolplanes/status"] {
        let env = Env::embedded()?;
        let Env::Embedded(embedded) = &env else {
            unreachable!("an embedded server")
        };
        let conflict = embedded
            .server()
            .faults()
            .add(Fault::on(write).status(409).times(1));
        let fixture = Fixture::new(&env).await?;
        fixture
            .make_workspace(Some(json!({"cluster_endpoint": "one.example.com"})))
            .await?;
        fixture.until_propagated("one.example.com:443").await?;
        assert_eq!(conflict.hits(), 1, "{write}");
        let page = fixture.manager.metrics_page();
        for line in [
            "capt_endpoint_retries_total 1",
            r#"controller_runtime_reconcile_total{controller="endpoint",result="error"} 0"#,
            r#"controller_runtime_reconcile_errors_total{controller="endpoint"} 0"#,
        ] {
            assert!(
                page.lines().any(|it| it == line),
                "{write}: {line} in\n{page}"
            );
        }
        fixture.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_conflict_of_the_cluster_is_retried_in_the_same_reconcile() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let Env::Embedded(embedded) = &env else {
        unreachable!("an embedded server")
    };
    let conflict = embedded
        .server()
        .faults()
        .add(Fault::on("patch clusters").status(409).times(2));
    let fixture = Fixture::new(&env).await?;
    fixture
        .make_workspace(Some(json!({"cluster_endpoint": "one.example.com"})))
        .await?;
    fixture.until_propagated("one.example.com:443").await?;
    assert_eq!(conflict.hits(), 2);
    let page = fixture.manager.metrics_page();
    for line in [
        "capt_endpoint_retries_total 2",
        r#"capt_endpoint_propagation_total{target="cluster",result="error"} 2"#,
        r#"capt_endpoint_propagation_total{target="cluster",result="success"} 1"#,
        r#"capt_endpoint_propagation_total{target="controlplane",result="success"} 1"#,
        r#"controller_runtime_reconcile_errors_total{controller="endpoint"} 0"#,
    ] {
        assert!(page.lines().any(|it| it == line), "{line} in\n{page}");
    }
    assert_eq!(
        page.matches("capt_endpoint_last_change_timestamp_seconds{")
            .count(),
        1,
        "only the control plane has this series"
    );
    fixture.stop().await
}
