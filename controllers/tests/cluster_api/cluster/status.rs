//! Conditions, failures and phase.

use super::fixture::{BARN, Fixture, condition};
use serde_json::{Value, json};
use steersman::testing::{Env, TestServer};
use steersman_controllers::cluster_api::Cluster;

const READY: &str = "InfrastructureReady";

fn failures(cluster: &Cluster) -> (Option<String>, Option<String>) {
    let deprecated = cluster
        .status
        .as_ref()
        .and_then(|status| status.deprecated.as_ref()?.v1beta1.clone());
    let deprecated = deprecated.unwrap_or_default();
    (deprecated.failure_reason, deprecated.failure_message)
}

fn phase(cluster: &Cluster) -> Option<&str> {
    cluster.status.as_ref()?.phase.as_deref()
}

/// Starts the controller with an infrastructure of this status.
async fn with_status(
    env: &Env,
    status: Value,
) -> anyhow::Result<(Fixture, super::fixture::Running)> {
    let fixture = Fixture::new(env).await?;
    let running = fixture.start(env.client()?)?;
    // Before the Cluster, so that no reconcile meets the infrastructure without its status.
    fixture.create(BARN, json!({"status": status})).await?;
    fixture
        .create_cluster(json!({"infrastructureRef": BARN.reference()}))
        .await?;
    Ok((fixture, running))
}

steersman::env_test! {
    /// 19
    async fn a_true_condition_without_a_reason_gets_one(env: Env) -> anyhow::Result<()> {
        let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let (fixture, running) = with_status(&env, status).await?;
        let (status, message) = fixture.until_reason(READY, "Ready").await?;
        assert_eq!((&*status, &*message), ("True", ""));
        fixture.set_status(BARN, json!({"conditions": [{"type": "Ready", "status": "False"}]})).await?;
        fixture.until_reason(READY, "NoReasonReported").await?;
        running.stop().await
    }

    /// 20
    async fn a_condition_without_a_status_is_reported_as_invalid(env: Env) -> anyhow::Result<()> {
        let (fixture, running) = with_status(&env, json!({"conditions": [{"type": "Ready"}]})).await?;
        let (status, message) = fixture.until_reason(READY, "InvalidConditionReported").await?;
        assert_eq!((&*status, &*message), (
            "Unknown",
            "failed to convert status.conditions from BarnCluster to []metav1.Condition: \
             status must be set for the Ready condition",
        ));
        running.stop().await
    }

    async fn a_missing_condition_follows_from_the_flag(env: Env) -> anyhow::Result<()> {
        let (fixture, running) = with_status(&env, json!({"other": 1})).await?;
        let (status, message) = fixture.until_reason(READY, "NotReady").await?;
        assert_eq!((&*status, &*message), ("False", "BarnCluster status.initialization.provisioned is false"));
        fixture.set_status(BARN, json!({"initialization": {"provisioned": true}})).await?;
        let (status, _) = fixture.until_reason(READY, "Ready").await?;
        assert_eq!(status, "True");
        running.stop().await
    }

    async fn a_condition_keeps_its_time(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        // Created first: a condition that is False already keeps the time of its last change.
        fixture.create(BARN, json!({"status": {"v1beta2": {"conditions": [{
            "type": "Ready", "status": "False", "reason": "Digging", "message": "2 m left",
            "lastTransitionTime": "2024-05-06T07:08:09Z",
        }]}}})).await?;
        fixture.create_cluster(json!({"infrastructureRef": BARN.reference()})).await?;
        let running = fixture.start(env.client()?)?;
        fixture.until_reason(READY, "Digging").await?;
        let cluster = fixture.cluster().await?;
        let status = cluster.status.as_ref().expect("a status");
        let condition = status.conditions.iter().find(|it| it.type_ == READY).expect("a condition");
        assert_eq!(json!(condition)["lastTransitionTime"], "2024-05-06T07:08:09Z");
        assert_eq!(condition.message, "2 m left");
        assert_eq!(condition.observed_generation, cluster.metadata.generation);
        running.stop().await
    }

    /// 21
    async fn a_failure_is_kept_and_does_not_change_the_phase(env: Env) -> anyhow::Result<()> {
        let (fixture, running) = with_status(&env, json!({
            "failureReason": "Flood", "failureMessage": "The barn is under water",
        })).await?;
        let text = "Failure detected from referenced resource infrastructure.cluster.x-k8s.io/v1beta2, \
                    Kind=BarnCluster with name \"shop\": The barn is under water";
        let expected = (Some("Flood".to_owned()), Some(text.to_owned()));
        let cluster = fixture.until(|cluster| failures(cluster) == expected).await?;
        assert_eq!(phase(&cluster), Some("Provisioning"));
        fixture.patch_cluster(json!({"spec": {"controlPlaneEndpoint": {"host": "a.example.com", "port": 1}}})).await?;
        let status = json!({"failureReason": null, "failureMessage": null, "initialization": {"provisioned": true}});
        fixture.set_status(BARN, status).await?;
        let cluster = fixture.until(|cluster| phase(cluster) == Some("Provisioned")).await?;
        assert_eq!(failures(&cluster), expected);
        running.stop().await
    }

    async fn a_long_failure_message_is_cut(env: Env) -> anyhow::Result<()> {
        let (fixture, running) = with_status(&env, json!({"failureMessage": "ä".repeat(20_000)})).await?;
        let cluster = fixture.until(|cluster| failures(cluster).1.is_some()).await?;
        let message = failures(&cluster).1.expect("a message");
        assert_eq!(message.chars().count(), 10_240);
        assert!(message.ends_with('ä'));
        running.stop().await
    }

    async fn a_ready_field_of_another_type_is_an_error_in_the_conditions(env: Env) -> anyhow::Result<()> {
        let (fixture, running) = with_status(&env, json!({"initialization": {"provisioned": "yes"}})).await?;
        fixture.until_reason(READY, "NotReady").await?;
        running.until_errors_exceed(0).await?;
        // An earlier reconcile may have succeeded, before the infrastructure had a status.
        fixture.patch_cluster(json!({"spec": {"controlPlaneEndpoint": {"host": "a.example.com", "port": 1}}})).await?;
        running.until_errors_exceed(running.reconciles("error") + 1).await?;
        let cluster = fixture.cluster().await?;
        assert!(condition(&cluster, "Paused").is_some());
        assert_ne!(cluster.status.expect("a status").observed_generation, cluster.metadata.generation);
        running.stop().await
    }

    async fn a_successful_reconcile_reports_the_generation(env: Env) -> anyhow::Result<()> {
        let (fixture, running) = with_status(&env, json!({"initialization": {"provisioned": true}})).await?;
        let endpoint = json!({"spec": {"controlPlaneEndpoint": {"host": "a.example.com", "port": 1}}});
        fixture.patch_cluster(endpoint).await?;
        fixture.until(|cluster| {
            let observed = cluster.status.as_ref().and_then(|status| status.observed_generation);
            observed.is_some() && observed == cluster.metadata.generation
        }).await?;
        running.stop().await
    }
}
