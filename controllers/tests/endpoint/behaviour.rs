//! Tests of the controller's behaviour.
//!
//! The table lists each behaviour with the tests that cover it.
//!
//! | behaviour | tests |
//! |---|---|
//! | endpoints flow from the workspace to the Cluster, never back | `the_endpoint_of_the_cluster_is_not_copied_to_the_plane`, `propagation::an_output_is_propagated_to_control_plane_and_cluster` |
//! | a secret is the fallback for missing or empty outputs | `propagation::a_secret_is_the_fallback_…` |
//! | a secret's value is used as it is, then as base64 | `a_secret_value_is_read_as_plain_text_then_as_base64` |
//! | a secret is read once per version | `a_secret_is_read_once_per_resource_version` |
//! | a secret reference needs name and namespace | `an_incomplete_secret_reference_is_invalid` |
//! | secrets of other namespaces are not read | `a_secret_outside_of_the_namespaces_is_rejected_and_not_read` |
//! | outputs take precedence over a different secret | `outputs_take_precedence_over_a_secret_with_one_log_line` |
//! | outputs that are null or not text count as missing | `an_output_that_is_not_a_string_counts_as_missing_with_one_warning` |
//! | invalid outputs are reported | `propagation::an_invalid_output_is_reported_…` |
//! | a URL in the host is replaced by host and port | `propagation::a_url_in_the_host_field_is_replaced_by_its_host` |
//! | missing objects and kinds are awaited, without an error | `missing_objects_are_awaited_without_a_failure`, `missing_kinds` |
//! | workspaces may be namespaced or cluster-scoped | `scope` |
//! | the Cluster is selected by reference or owner | `claims`, the unit tests of `claims` |
//! | one merge patch per object, control plane first | `writes::an_endpoint_is_one_merge_patch_per_object_control_plane_first` |
//! | writes are verified | `writes::a_write_without_the_expected_result_is_repeated` |
//! | a partial endpoint counts as missing | `writes::a_partial_endpoint_counts_as_missing` |
//! | a replaced endpoint is reported by an event | `writes::a_replaced_endpoint_is_reported_by_one_event` |
//! | a known endpoint is kept and repaired | `propagation::a_known_endpoint_is_kept_…` |
//! | deletion clears only own endpoints | `propagation::a_deletion_clears_only_our_endpoint`, `writes::clearing_an_endpoint_patches_null`, `writes::clearing_compares_with_the_live_cluster` |
//! | an error stops the reconcile and is reported | `writes::only_repeated_failures_are_reported`, `writes::an_invalid_value_changes_only_the_status` |
//! | conflicts and errors are retried | `propagation::a_conflict_of_…`, `writes::a_conflict_with_retry_after_is_retried_after_that_time`, `writes::failures_are_retried_after_1_second_to_5_minutes` |
//! | requeue intervals, watches | `requeues_take_30_5_or_10_seconds`, `watch_latency` |
//! | only control planes and Clusters declare an endpoint | `only_the_crds_of_control_plane_and_cluster_declare_an_endpoint`, `the_shipped_crd_has_an_endpoint_only_in_its_spec` |
//! | logs contain source and host, nothing else | `each_step_is_logged_once_with_its_source_and_no_invalid_value`, `secrecy` |
//! | metrics, health checks, RBAC | `metrics_count_retrievals_and_propagations`, `health`, `minimal_roles`, the unit tests of `roles` |

use crate::{
    fixture::{Fixture, until},
    log_recorder::LogRecorder,
    recording_proxy::RecordingProxy,
};
use anyhow::{Context, Result};
use http::Method;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use steersman::{
    client::{Patch, Validation},
    prelude::*,
    testing::{Env, TestServer},
    workqueue::EntryState,
};
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{self, Phase, WorkspaceTemplateApply, workspace_kind},
};

impl Fixture {
    async fn message(&self) -> Result<String> {
        let conditions = self.plane().await?.status.unwrap_or_default().conditions;
        Ok(conditions
            .into_iter()
            .map(|condition| condition.message)
            .collect())
    }
}

steersman::env_test! {
    async fn missing_objects_are_awaited_without_a_failure(env: Env) -> Result<()> {
        Fixture::install(&env).await?;
        let namespace = env.namespace("endpoint").await?;
        let fixture = Fixture::scenario_runner(&env, &namespace)?;
        fixture.make_plane().await?;
        let apply = fixture.key("plane-eks-controlplane-apply");
        let clear = Patch::Merge(json!({"status": {"workspaceName": null}}));
        let assert_missing = async |reason: &str, message: &str| {
            until(async || Ok(fixture.message().await?.contains(message))).await.context(message.to_owned())?;
            assert_eq!(fixture.condition().await?, (reason.into(), "False".into()), "{message}");
            let status = fixture.plane().await?.status.context("a status")?;
            assert_eq!(
                (status.ready, status.phase, status.failure_reason, status.failure_message),
                (false, Some(Phase::Creating), None, None),
                "{message}"
            );
            assert_eq!(fixture.endpoints().await?, (None, None), "{message}");
            anyhow::Ok(())
        };
        assert_missing("WorkspaceNotReady", "does not exist yet").await?;
        fixture.client.status().patch::<WorkspaceTemplateApply>(&apply, &clear).await?;
        assert_missing("WorkspaceNotReady", "has no workspace yet").await?;
        fixture.client.delete::<WorkspaceTemplateApply>(&apply).await?;
        assert_missing("WorkspaceNotReady", "WorkspaceTemplateApply").await?;
        fixture.make_apply().await?;
        fixture.make_workspace(None).await?;
        assert_missing("EndpointNotReady", "connection does not exist yet").await?;
        fixture.set_secret("").await?;
        assert_missing("EndpointNotReady", "has no cluster_endpoint yet").await?;
        let unnamed = Patch::Merge(json!({"spec": {"writeConnectionSecretToRef": null}}));
        fixture.client.dynamic(&workspace_kind()).patch(&fixture.workspace_key(), &unnamed).await?;
        assert_missing("EndpointNotReady", "names no Secret").await?;

        fixture.client.delete::<Cluster>(&fixture.key("plane")).await?;
        let cached = fixture.manager.client();
        until(async || Ok(cached.get::<Cluster>(&fixture.key("plane")).await?.is_none())).await?;
        fixture.set_outputs(json!({"cluster_endpoint": "one.example.com"})).await?;
        fixture.until_reason("WaitingForCluster").await?;
        assert_eq!(fixture.endpoints().await?, (None, None));
        fixture.stop().await
    }

    async fn a_secret_value_is_read_as_plain_text_then_as_base64(env: Env) -> Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.make_workspace(None).await?;
        for (bytes, endpoint) in [
            ("https://raw.example.com", "raw.example.com:443"),
            // Also valid base64.
            ("apiserver123", "apiserver123:443"),
            ("aHR0cHM6Ly9lbmNvZGVkLmV4YW1wbGUuY29tOjY0NDM=", "encoded.example.com:6443"),
            ("aHR0cHM6Ly9saW5l\ncy5leGFtcGxlLmNvbQ==\n", "lines.example.com:443"),
        ] {
            fixture.set_secret(bytes).await?;
            fixture.until_propagated(endpoint).await.context(endpoint)?;
        }
        fixture.set_secret("hunter2/aHVudGVyMg").await?;
        fixture.until_reason("InvalidEndpoint").await?;
        assert!(!fixture.message().await?.contains("hunter2"));
        fixture.stop().await
    }

    async fn the_endpoint_of_the_cluster_is_not_copied_to_the_plane(env: Env) -> Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.set_cluster(json!({"host": "theirs.example.com", "port": 443})).await?;
        fixture.make_workspace(None).await?;
        fixture.until_reason("EndpointNotReady").await?;
        assert_eq!(fixture.endpoints().await?, (None, Some("theirs.example.com:443".into())));
        fixture.stop().await
    }

    async fn an_incomplete_secret_reference_is_invalid(env: Env) -> Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.make_workspace(None).await?;
        fixture.set_secret("one.example.com").await?;
        fixture.until_propagated("one.example.com:443").await?;
        for (part, expected) in [("namespace", "has no namespace"), ("name", "has no name")] {
            let whole = json!({"namespace": fixture.namespace, "name": "connection"});
            for (reference, reason) in [(json!({part: null}), "InvalidEndpoint"), (whole, "EndpointPropagated")] {
                let patch = Patch::Merge(json!({"spec": {"writeConnectionSecretToRef": reference}}));
                fixture.client.dynamic(&workspace_kind()).patch(&fixture.workspace_key(), &patch).await?;
                fixture.until_reason(reason).await?;
                let message = fixture.message().await?;
                assert_eq!(message.contains(expected), reason == "InvalidEndpoint", "{message}");
            }
        }
        fixture.stop().await
    }

    async fn a_secret_outside_of_the_namespaces_is_rejected_and_not_read(env: Env) -> Result<()> {
        let proxy = RecordingProxy::recording();
        let fixture = Fixture::with_proxy(&env, &proxy).await?;
        let elsewhere = env.namespace("elsewhere").await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "connection.crossplane.io/v1alpha1",
            "metadata": {"name": "outside", "namespace": elsewhere},
            "stringData": {"cluster_endpoint": "elsewhere.example.com"},
        });
        Client::new(env.client()?)?.create::<DynamicObject>(&serde_json::from_value(secret)?).await?;
        fixture.make_workspace(None).await?;
        let refer = async |namespace: &str, name: &str| {
            let reference = json!({"namespace": namespace, "name": name});
            let patch = Patch::Merge(json!({"spec": {"writeConnectionSecretToRef": reference}}));
            fixture.client.dynamic(&workspace_kind()).patch(&fixture.workspace_key(), &patch).await
        };
        refer(&elsewhere, "outside").await?;
        fixture.until_reason("SecretOutOfScope").await?;
        let message = fixture.message().await?;
        assert!(message.starts_with(&format!("Secret {elsewhere}/outside is not in a namespace")), "{message}");
        let status = fixture.plane().await?.status.context("missing status")?;
        assert_eq!((status.ready, status.phase), (false, Some(Phase::Failed)));
        assert_eq!(fixture.endpoints().await?, (None, None));

        fixture.set_secret("one.example.com").await?;
        refer(&fixture.namespace, "connection").await?;
        fixture.until_propagated("one.example.com:443").await?;
        assert_eq!(proxy.count(&Method::GET, "secrets/outside"), 0);
        fixture.stop().await
    }

    async fn a_secret_is_read_once_per_resource_version(env: Env) -> Result<()> {
        let proxy = RecordingProxy::recording();
        let fixture = Fixture::with_proxy(&env, &proxy).await?;
        fixture.make_workspace(None).await?;
        fixture.set_secret("one.example.com").await?;
        fixture.until_propagated("one.example.com:443").await?;
        let reads = || proxy.count(&Method::GET, "secrets/connection");
        let hits = || {
            let page = fixture.manager.metrics_page();
            page.lines().find_map(|line| line.strip_prefix("capt_endpoint_cache_total{result=\"hit\"} ")?.parse::<u64>().ok())
        };
        let (read, hit) = (reads(), hits());
        // Reconciles that need the secret, which has not changed.
        for _ in 0..3 {
            fixture.set_cluster(Value::Null).await?;
            fixture.until_propagated("one.example.com:443").await?;
        }
        assert_eq!(reads(), read);
        assert!(hits() > hit, "{:?}", hits());
        fixture.set_secret("two.example.com").await?;
        fixture.until_propagated("two.example.com:443").await?;
        assert_eq!(reads(), read + 1);
        fixture.stop().await
    }

    async fn requeues_take_30_5_or_10_seconds(env: Env) -> Result<()> {
        let fixture = Fixture::new(&env).await?;
        let assert_requeue_within = async |most: u64| {
            until(async || {
                let queue = fixture.manager.queue("endpoint", 10, None).context("a queue")?;
                let waits = queue.entries.iter().find_map(|entry| match entry.state {
                    EntryState::Delayed { ready_in } => Some(ready_in.as_secs_f64()),
                    _ => None,
                });
                // Half of the delay may have passed before the check.
                let most = most as f64;
                Ok(waits.is_some_and(|waits| waits > most / 2.0 && waits <= most * 1.1))
            })
            .await
        };
        fixture.until_reason("WorkspaceNotReady").await?;
        assert_requeue_within(5).await.context("missing object")?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        fixture.until_propagated("one.example.com:443").await?;
        assert_requeue_within(30).await.context("ready")?;
        fixture.set_outputs(json!({"cluster_endpoint": "no endpoint"})).await?;
        fixture.until_reason("InvalidEndpoint").await?;
        assert_requeue_within(10).await.context("invalid endpoint")?;
        fixture.stop().await
    }

    async fn the_shipped_crd_has_an_endpoint_only_in_its_spec(env: Env) -> Result<()> {
        Fixture::install(&env).await?;
        let client = Client::new(env.client()?)?.namespace(&env.namespace("endpoint").await?);
        let endpoint = json!({"host": "mine.example.com", "port": 443});
        let mut plane = serde_json::to_value(crate::fixture::plane())?;
        (plane["apiVersion"], plane["kind"]) = ("controlplane.cluster.x-k8s.io/v1beta1".into(), "CAPTControlPlane".into());
        plane["spec"]["controlPlaneEndpoint"] = endpoint.clone();
        plane["spec"]["controlPlaneConfig"] = json!({"region": "eu-west-1", "controlPlaneEndpoint": endpoint});
        let plane: DynamicObject = serde_json::from_value(plane)?;
        let rejected = client.validation(Validation::Strict).create(&plane).await.map(drop);
        let error = rejected.expect_err("unknown field").to_string();
        assert!(error.contains("controlPlaneConfig.controlPlaneEndpoint"), "{error}");
        let created = client.validation(Validation::Ignore).create(&plane).await?;
        assert_eq!(created.data["spec"]["controlPlaneEndpoint"], endpoint);
        assert_eq!(created.data["spec"]["controlPlaneConfig"], json!({"region": "eu-west-1"}), "pruned");
        Ok(())
    }

    async fn metrics_count_retrievals_and_propagations(env: Env) -> Result<()> {
        let fixture = Fixture::new(&env).await?;
        fixture.until_reason("WorkspaceNotReady").await?;
        fixture.make_workspace(Some(json!({"cluster_endpoint": "no endpoint"}))).await?;
        fixture.until_reason("InvalidEndpoint").await?;
        fixture.set_outputs(json!({"cluster_endpoint": "one.example.com"})).await?;
        fixture.until_propagated("one.example.com:443").await?;
        fixture.set_outputs(json!(null)).await?;
        fixture.set_secret("two.example.com").await?;
        fixture.until_propagated("two.example.com:443").await?;
        let page = fixture.manager.metrics_page();
        let plane = format!("capt_endpoint_last_change_timestamp_seconds{{namespace=\"{}\",name=\"plane\"}} ", fixture.namespace);
        for start in [
            r#"capt_endpoint_retrieval_total{source="outputs",result="success"} "#,
            r#"capt_endpoint_retrieval_total{source="outputs",result="invalid"} "#,
            r#"capt_endpoint_retrieval_total{source="secret",result="success"} "#,
            r#"capt_endpoint_retrieval_total{source="none",result="missing"} "#,
            r#"capt_endpoint_retrieval_duration_seconds_count{source="outputs"} "#,
            r#"capt_endpoint_propagation_total{target="controlplane",result="success"} 2"#,
            r#"capt_endpoint_propagation_total{target="cluster",result="success"} 2"#,
            r#"capt_endpoint_cache_total{result="miss"} "#,
            "capt_endpoint_retries_total ",
            &plane,
        ] {
            assert!(page.lines().any(|line| line.starts_with(start)), "{start} in\n{page}");
        }
        assert!(!page.contains("example.com"), "no label contains a part of an endpoint");
        fixture.stop().await
    }
}

#[test]
fn only_the_crds_of_control_plane_and_cluster_declare_an_endpoint() {
    fn declares(schema: &Value) -> bool {
        match schema {
            Value::Object(fields) => fields
                .iter()
                .any(|(name, value)| name == "controlPlaneEndpoint" || declares(value)),
            Value::Array(items) => items.iter().any(declares),
            _ => false,
        }
    }
    let shipped: Vec<_> = endpoint::definitions()
        .into_iter()
        .chain(endpoint::dependencies())
        .collect();
    let declaring = shipped
        .iter()
        .filter(|definition| declares(definition))
        .map(|it| &it["spec"]["names"]["kind"]);
    assert_eq!(
        declaring.collect::<Vec<_>>(),
        ["CAPTControlPlane", "Cluster"]
    );
    let is_infrastructure = |it: &&Value| it["spec"]["names"]["kind"] == "CAPTCluster";
    assert_eq!(
        shipped.iter().find(is_infrastructure),
        None,
        "CAPTCluster is shipped by its provider"
    );
    let roles = serde_json::to_string(&endpoint::roles(&[])).expect("valid JSON");
    assert!(!roles.contains("captclusters"), "{roles}");
}

/// Captures the log of this thread, which runs everything except the server.
#[tokio::test]
async fn an_output_that_is_not_a_string_counts_as_missing_with_one_warning() -> Result<()> {
    let (log, _guard) = LogRecorder::start();
    let fixture = Fixture::new(&Env::embedded()?).await?;
    fixture.set_secret("one.example.com").await?;
    fixture
        .make_workspace(Some(json!({"cluster_endpoint": 7})))
        .await?;
    fixture.until_propagated("one.example.com:443").await?;
    // Reconciles without a change.
    for _ in 0..3 {
        fixture.set_cluster(Value::Null).await?;
        fixture.until_propagated("one.example.com:443").await?;
    }
    assert_eq!(
        log.count("output cluster_endpoint is not a string, ignoring it"),
        1
    );
    fixture.stop().await
}

#[tokio::test]
async fn outputs_take_precedence_over_a_secret_with_one_log_line() -> Result<()> {
    let (log, _guard) = LogRecorder::start();
    let fixture = Fixture::new(&Env::embedded()?).await?;
    let differ = "outputs and secret have different endpoints, using outputs";
    fixture.set_secret("one.example.com").await?;
    fixture.make_workspace(None).await?;
    fixture.until_propagated("one.example.com:443").await?;
    fixture
        .set_outputs(json!({"cluster_endpoint": "https://one.example.com"}))
        .await?;
    until(async || Ok(fixture.message().await?.contains("outputs"))).await?;
    assert_eq!(log.count(differ), 0, "equal endpoints");
    fixture
        .set_outputs(json!({"cluster_endpoint": "two.example.com"}))
        .await?;
    fixture.until_propagated("two.example.com:443").await?;
    for _ in 0..3 {
        fixture.set_cluster(Value::Null).await?;
        fixture.until_propagated("two.example.com:443").await?;
    }
    assert_eq!(log.count(differ), 1);
    fixture.stop().await
}

#[tokio::test]
async fn each_step_is_logged_once_with_its_source_and_no_invalid_value() -> Result<()> {
    let (log, _guard) = LogRecorder::start();
    let fixture = Fixture::new(&Env::embedded()?).await?;
    let plane = format!("namespace=\"{}\" name=\"plane\"", fixture.namespace);
    let workspace = fixture.workspace_key().name().to_owned();
    fixture
        .make_workspace(Some(json!({"cluster_endpoint": "https://one.example.com"})))
        .await?;
    fixture.until_propagated("one.example.com:443").await?;
    // Reconciles without a change, and one for a newer version of the workspace.
    fixture.set_cluster(Value::Null).await?;
    fixture.until_propagated("one.example.com:443").await?;
    fixture.set_outputs(json!({"vpc_id": "vpc-1"})).await?;
    fixture.set_outputs(json!({"cluster_endpoint": ""})).await?;
    fixture.set_secret("two.example.com:6443").await?;
    fixture.until_propagated("two.example.com:6443").await?;
    fixture
        .set_secret("https://hunter2@two.example.com")
        .await?;
    fixture.until_reason("InvalidEndpoint").await?;
    fixture.stop().await?;

    assert_eq!(
        log.fields("found workspace"),
        [format!("{plane} workspace=\"{workspace}\"")]
    );
    assert_eq!(
        log.fields("found cluster_endpoint"),
        [
            format!("{plane} source=\"outputs\" host=\"one.example.com\" port=443"),
            format!("{plane} source=\"secret\" host=\"two.example.com\" port=6443"),
        ]
    );
    let invalid = log.fields("found invalid cluster_endpoint");
    assert!(
        invalid[0].starts_with(&format!("{plane} source=\"secret\" error=")),
        "{invalid:?}"
    );
    assert!(
        invalid.len() == 1 && !invalid[0].contains("hunter2"),
        "{invalid:?}"
    );
    let patched = |kind: &str, endpoint: &str| format!("kind=\"{kind}\" {plane} {endpoint}");
    let one = "host=\"one.example.com\" port=443";
    let two = "host=\"two.example.com\" port=6443";
    assert_eq!(
        log.fields("patched endpoint"),
        [
            patched("CAPTControlPlane", one),
            patched("Cluster", one),
            patched("Cluster", one),
            patched("CAPTControlPlane", two),
            patched("Cluster", two),
        ]
    );
    Ok(())
}
