//! Every paragraph of the requirement and every decision about it, with the tests that show it, on both servers each.
//!
//! The requirement:
//!
//! | paragraph | shown by |
//! |---|---|
//! | single responsibility, information flow | `nothing_flows_back_from_the_cluster`, 12 |
//! | components and their interaction, retrieval strategy | `propagation::an_output_reaches_…`, `propagation::a_secret_stands_in_…` |
//! | resource access | `scope`: whether workspaces have namespaces is found out |
//! | error handling: resources, data, processing | `what_is_missing_is_waited_for_and_no_failure`, `a_secret_is_read_as_it_stands_and_then_as_base64`, 4, b, c, d |
//! | RBAC | `rights`, `a_secret_outside_of_the_namespaces_is_refused_and_not_read`, the unit tests of `roles` |
//! | status updates, best practices: patches, verification | 1, 6 |
//! | logging | `each_step_is_logged_once_with_its_source_and_no_invalid_value`, 10, c, k |
//! | caching | `a_secret_is_read_once_for_each_version` |
//! | retry | `propagation::a_conflict_is_…`, `propagation::a_conflict_of_…`, `writes::who_says_when_to_come_back_is_left_alone_until_then`, `writes::failures_are_retried_after_1_second_to_5_minutes`, 11 |
//! | metrics | `everything_is_counted` |
//! | validation, health checks | 2, l, the unit tests of `Address`; `health` |
//!
//! The decisions:
//!
//! | | shown by |
//! |---|---|
//! | 1 merge patch of the endpoint alone | `writes::an_endpoint_is_one_merge_patch_to_each_and_the_control_plane_is_first` |
//! | 2 raw, then base64 | `a_secret_is_read_as_it_stands_and_then_as_base64` |
//! | 3 bare host and port, old ones rewritten | `propagation::a_whole_url_as_the_host_is_made_a_host` |
//! | 4 missing is waiting | `what_is_missing_is_waited_for_and_no_failure`, `alone`: also of a kind that is absent |
//! | 5 a failure stops the pass, and is said | `writes::a_failure_is_said_and_one_that_is_over_at_once_does_not_unready`, `writes::what_becomes_invalid_is_said_and_nothing_else_is_touched` |
//! | 6 what was written is verified | `writes::an_endpoint_that_is_not_there_after_it_was_written_is_written_again` |
//! | 7 rules | `rights` |
//! | 8 overwritten if different, with an event | `writes::who_replaces_an_endpoint_says_so_once` |
//! | 9 deletion clears ours | `propagation::a_deletion_takes_…`, `writes::an_endpoint_is_cleared_by_null`, `writes::what_is_cleared_is_decided_by_the_server_and_not_from_memory` |
//! | 10 source and host are logged, nothing else | `secrecy` |
//! | 11 intervals, watches | `it_is_looked_again_after_30_or_5_or_10_seconds`, `watched`: a change of each kind |
//! | 12 `CAPTCluster` has none | `no_shipped_definition_but_that_of_the_control_plane_declares_an_endpoint`, `the_shipped_definition_takes_an_endpoint_only_in_its_spec` |
//! | 13 host and port may be absent | `writes::an_endpoint_that_is_there_in_part_is_none` |
//! | a which cluster | `claims`, the unit tests of `claims` |
//! | b empty output | `propagation::a_secret_stands_in_…` |
//! | c, d no text, null | `an_output_that_is_no_text_is_absent_and_warned_of_once` |
//! | e kept, g repaired | `propagation::what_was_known_is_kept_…` |
//! | f both follow, control plane first | `writes::an_endpoint_is_one_merge_patch_to_each_and_the_control_plane_is_first`, 6 |
//! | h not ready without one | `propagation::an_output_reaches_…` |
//! | i scope | `scope` |
//! | j a secret without namespace | `a_secret_that_is_not_named_whole_has_to_be_mended` |
//! | k both and different | `outputs_win_over_a_secret_and_it_is_said_once` |
//! | l invalid outputs are not hidden | `propagation::what_is_no_endpoint_…` |

use crate::{
    between::Between,
    heard::Heard,
    world::{World, until},
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
use steersman_controllers::endpoint::{self, Cluster, Phase, WorkspaceTemplateApply, workspace_kind};

impl World {
    async fn message(&self) -> Result<String> {
        let conditions = self.plane().await?.status.unwrap_or_default().conditions;
        Ok(conditions.into_iter().map(|condition| condition.message).collect())
    }
}

steersman::env_test! {
    async fn what_is_missing_is_waited_for_and_no_failure(env: Env) -> Result<()> {
        World::install(&env).await?;
        let namespace = env.namespace("endpoint").await?;
        let world = World::again(&env, &namespace)?;
        world.make_plane().await?;
        let apply = world.key("plane-eks-controlplane-apply");
        let clear = Patch::Merge(json!({"status": {"workspaceName": null}}));
        let missing = async |reason: &str, words: &str| {
            until(async || Ok(world.message().await?.contains(words))).await.context(words.to_owned())?;
            assert_eq!(world.condition().await?, (reason.into(), "False".into()), "{words}");
            let status = world.plane().await?.status.context("it is said")?;
            assert_eq!(
                (status.ready, status.phase, status.failure_reason, status.failure_message),
                (false, Some(Phase::Creating), None, None),
                "{words}"
            );
            assert_eq!(world.endpoints().await?, (None, None), "{words}");
            anyhow::Ok(())
        };
        missing("WorkspaceNotReady", "is not there yet").await?;
        world.client.status().patch::<WorkspaceTemplateApply>(&apply, &clear).await?;
        missing("WorkspaceNotReady", "has no workspace yet").await?;
        world.client.delete::<WorkspaceTemplateApply>(&apply).await?;
        missing("WorkspaceNotReady", "WorkspaceTemplateApply").await?;
        world.make_apply().await?;
        world.make_workspace(None).await?;
        missing("EndpointNotReady", "connection is not there yet").await?;
        world.set_secret("").await?;
        missing("EndpointNotReady", "has no cluster_endpoint yet").await?;
        let unnamed = Patch::Merge(json!({"spec": {"writeConnectionSecretToRef": null}}));
        world.client.dynamic(&workspace_kind()).patch(&world.workspace_key(), &unnamed).await?;
        missing("EndpointNotReady", "names no secret").await?;

        world.client.delete::<Cluster>(&world.key("plane")).await?;
        world.set_outputs(json!({"cluster_endpoint": "one.example.com"})).await?;
        world.until_reason("WaitingForCluster").await?;
        assert_eq!(world.endpoints().await?, (Some("one.example.com:443".into()), None), "the control plane has it");
        world.stop().await
    }

    async fn a_secret_is_read_as_it_stands_and_then_as_base64(env: Env) -> Result<()> {
        let world = World::new(&env).await?;
        world.make_workspace(None).await?;
        for (bytes, endpoint) in [
            ("https://raw.example.com", "raw.example.com:443"),
            // It could be decoded.
            ("apiserver123", "apiserver123:443"),
            ("aHR0cHM6Ly9lbmNvZGVkLmV4YW1wbGUuY29tOjY0NDM=", "encoded.example.com:6443"),
            ("aHR0cHM6Ly9saW5l\ncy5leGFtcGxlLmNvbQ==\n", "lines.example.com:443"),
        ] {
            world.set_secret(bytes).await?;
            world.until_propagated(endpoint).await.context(endpoint)?;
        }
        world.set_secret("hunter2/aHVudGVyMg").await?;
        world.until_reason("InvalidEndpoint").await?;
        assert!(!world.message().await?.contains("hunter2"));
        world.stop().await
    }

    async fn nothing_flows_back_from_the_cluster(env: Env) -> Result<()> {
        let world = World::new(&env).await?;
        world.set_cluster(json!({"host": "theirs.example.com", "port": 443})).await?;
        world.make_workspace(None).await?;
        world.until_reason("EndpointNotReady").await?;
        assert_eq!(world.endpoints().await?, (None, Some("theirs.example.com:443".into())));
        world.stop().await
    }

    async fn a_secret_that_is_not_named_whole_has_to_be_mended(env: Env) -> Result<()> {
        let world = World::new(&env).await?;
        world.make_workspace(None).await?;
        world.set_secret("one.example.com").await?;
        world.until_propagated("one.example.com:443").await?;
        for (part, words) in [("namespace", "has no namespace"), ("name", "has no name")] {
            let whole = json!({"namespace": world.namespace, "name": "connection"});
            for (reference, reason) in [(json!({part: null}), "InvalidEndpoint"), (whole, "EndpointPropagated")] {
                let patch = Patch::Merge(json!({"spec": {"writeConnectionSecretToRef": reference}}));
                world.client.dynamic(&workspace_kind()).patch(&world.workspace_key(), &patch).await?;
                world.until_reason(reason).await?;
                let message = world.message().await?;
                assert_eq!(message.contains(words), reason == "InvalidEndpoint", "{message}");
            }
        }
        world.stop().await
    }

    async fn a_secret_outside_of_the_namespaces_is_refused_and_not_read(env: Env) -> Result<()> {
        let between = Between::seeing();
        let world = World::between(&env, &between).await?;
        let elsewhere = env.namespace("elsewhere").await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "connection.crossplane.io/v1alpha1",
            "metadata": {"name": "outside", "namespace": elsewhere},
            "stringData": {"cluster_endpoint": "elsewhere.example.com"},
        });
        Client::new(env.client()?)?.create::<DynamicObject>(&serde_json::from_value(secret)?).await?;
        world.make_workspace(None).await?;
        let refer = async |namespace: &str, name: &str| {
            let reference = json!({"namespace": namespace, "name": name});
            let patch = Patch::Merge(json!({"spec": {"writeConnectionSecretToRef": reference}}));
            world.client.dynamic(&workspace_kind()).patch(&world.workspace_key(), &patch).await
        };
        refer(&elsewhere, "outside").await?;
        world.until_reason("SecretOutOfScope").await?;
        let message = world.message().await?;
        assert!(message.starts_with(&format!("Secret {elsewhere}/outside is not in a namespace")), "{message}");
        let status = world.plane().await?.status.context("missing status")?;
        assert_eq!((status.ready, status.phase), (false, Some(Phase::Failed)));
        assert_eq!(world.endpoints().await?, (None, None));

        world.set_secret("one.example.com").await?;
        refer(&world.namespace, "connection").await?;
        world.until_propagated("one.example.com:443").await?;
        assert_eq!(between.count(&Method::GET, "secrets/outside"), 0);
        world.stop().await
    }

    async fn a_secret_is_read_once_for_each_version(env: Env) -> Result<()> {
        let between = Between::seeing();
        let world = World::between(&env, &between).await?;
        world.make_workspace(None).await?;
        world.set_secret("one.example.com").await?;
        world.until_propagated("one.example.com:443").await?;
        let reads = || between.count(&Method::GET, "secrets/connection");
        let hits = || {
            let page = world.manager.metrics_page();
            page.lines().find_map(|line| line.strip_prefix("capt_endpoint_cache_total{result=\"hit\"} ")?.parse::<u64>().ok())
        };
        let (read, hit) = (reads(), hits());
        // Passes that need it, and it has not changed.
        for _ in 0..3 {
            world.set_cluster(Value::Null).await?;
            world.until_propagated("one.example.com:443").await?;
        }
        assert_eq!(reads(), read);
        assert!(hits() > hit, "{:?}", hits());
        world.set_secret("two.example.com").await?;
        world.until_propagated("two.example.com:443").await?;
        assert_eq!(reads(), read + 1);
        world.stop().await
    }

    async fn it_is_looked_again_after_30_or_5_or_10_seconds(env: Env) -> Result<()> {
        let world = World::new(&env).await?;
        let again_within = async |most: u64| {
            until(async || {
                let queue = world.manager.queue("endpoint", 10).context("its queue")?;
                let waits = queue.entries.iter().find_map(|entry| match entry.state {
                    EntryState::Delayed { ready_in } => Some(ready_in.as_secs_f64()),
                    _ => None,
                });
                // Half of it may be over before anybody looks.
                let most = most as f64;
                Ok(waits.is_some_and(|waits| waits > most / 2.0 && waits <= most * 1.1))
            })
            .await
        };
        world.until_reason("WorkspaceNotReady").await?;
        again_within(5).await.context("something is missing")?;
        world.make_workspace(Some(json!({"cluster_endpoint": "one.example.com"}))).await?;
        world.until_propagated("one.example.com:443").await?;
        again_within(30).await.context("all is well")?;
        world.set_outputs(json!({"cluster_endpoint": "no endpoint"})).await?;
        world.until_reason("InvalidEndpoint").await?;
        again_within(10).await.context("something is wrong")?;
        world.stop().await
    }

    async fn the_shipped_definition_takes_an_endpoint_only_in_its_spec(env: Env) -> Result<()> {
        World::install(&env).await?;
        let client = Client::new(env.client()?)?.namespace(&env.namespace("endpoint").await?);
        let endpoint = json!({"host": "mine.example.com", "port": 443});
        let mut plane = serde_json::to_value(crate::world::plane())?;
        (plane["apiVersion"], plane["kind"]) = ("controlplane.cluster.x-k8s.io/v1beta1".into(), "CAPTControlPlane".into());
        plane["spec"]["controlPlaneEndpoint"] = endpoint.clone();
        plane["spec"]["controlPlaneConfig"] = json!({"region": "eu-west-1", "controlPlaneEndpoint": endpoint});
        let plane: DynamicObject = serde_json::from_value(plane)?;
        let refused = client.validation(Validation::Strict).create(&plane).await.map(drop);
        let error = refused.expect_err("unknown field").to_string();
        assert!(error.contains("controlPlaneConfig.controlPlaneEndpoint"), "{error}");
        let created = client.validation(Validation::Ignore).create(&plane).await?;
        assert_eq!(created.data["spec"]["controlPlaneEndpoint"], endpoint);
        assert_eq!(created.data["spec"]["controlPlaneConfig"], json!({"region": "eu-west-1"}), "pruned");
        Ok(())
    }

    async fn everything_is_counted(env: Env) -> Result<()> {
        let world = World::new(&env).await?;
        world.until_reason("WorkspaceNotReady").await?;
        world.make_workspace(Some(json!({"cluster_endpoint": "no endpoint"}))).await?;
        world.until_reason("InvalidEndpoint").await?;
        world.set_outputs(json!({"cluster_endpoint": "one.example.com"})).await?;
        world.until_propagated("one.example.com:443").await?;
        world.set_outputs(json!(null)).await?;
        world.set_secret("two.example.com").await?;
        world.until_propagated("two.example.com:443").await?;
        let page = world.manager.metrics_page();
        let plane = format!("capt_endpoint_last_change_timestamp_seconds{{namespace=\"{}\",name=\"plane\"}} ", world.namespace);
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
        assert!(!page.contains("example.com"), "no label has anything of an endpoint in it");
        world.stop().await
    }
}

#[test]
fn no_shipped_definition_but_that_of_the_control_plane_declares_an_endpoint() {
    fn declares(schema: &Value) -> bool {
        match schema {
            Value::Object(fields) => {
                fields.iter().any(|(name, value)| name == "controlPlaneEndpoint" || declares(value))
            }
            Value::Array(items) => items.iter().any(declares),
            _ => false,
        }
    }
    let shipped: Vec<_> = endpoint::definitions().into_iter().chain(endpoint::dependencies()).collect();
    let declaring = shipped.iter().filter(|definition| declares(definition)).map(|it| &it["spec"]["names"]["kind"]);
    assert_eq!(declaring.collect::<Vec<_>>(), ["CAPTControlPlane"]);
    let is_infrastructure = |it: &&Value| it["spec"]["names"]["kind"] == "CAPTCluster";
    assert_eq!(shipped.iter().find(is_infrastructure), None, "its provider ships it, and it has no endpoint");
    let roles = serde_json::to_string(&endpoint::roles(&[])).expect("valid JSON");
    assert!(!roles.contains("captclusters"), "{roles}");
}

/// What is said on this thread, where everything but the server runs.
#[tokio::test]
async fn an_output_that_is_no_text_is_absent_and_warned_of_once() -> Result<()> {
    let (heard, _guard) = Heard::start();
    let world = World::new(&Env::embedded()?).await?;
    world.set_secret("one.example.com").await?;
    world.make_workspace(Some(json!({"cluster_endpoint": 7}))).await?;
    world.until_propagated("one.example.com:443").await?;
    // Passes that find the same.
    for _ in 0..3 {
        world.set_cluster(Value::Null).await?;
        world.until_propagated("one.example.com:443").await?;
    }
    assert_eq!(heard.count("the output cluster_endpoint is no text, and is taken for absent"), 1);
    world.stop().await
}

#[tokio::test]
async fn outputs_win_over_a_secret_and_it_is_said_once() -> Result<()> {
    let (heard, _guard) = Heard::start();
    let world = World::new(&Env::embedded()?).await?;
    let differ = "outputs and secret have different endpoints: that of the outputs counts";
    world.set_secret("one.example.com").await?;
    world.make_workspace(None).await?;
    world.until_propagated("one.example.com:443").await?;
    world.set_outputs(json!({"cluster_endpoint": "https://one.example.com"})).await?;
    until(async || Ok(world.message().await?.contains("outputs"))).await?;
    assert_eq!(heard.count(differ), 0, "they say the same");
    world.set_outputs(json!({"cluster_endpoint": "two.example.com"})).await?;
    world.until_propagated("two.example.com:443").await?;
    for _ in 0..3 {
        world.set_cluster(Value::Null).await?;
        world.until_propagated("two.example.com:443").await?;
    }
    assert_eq!(heard.count(differ), 1);
    world.stop().await
}

#[tokio::test]
async fn each_step_is_logged_once_with_its_source_and_no_invalid_value() -> Result<()> {
    let (heard, _guard) = Heard::start();
    let world = World::new(&Env::embedded()?).await?;
    let plane = format!("namespace=\"{}\" name=\"plane\"", world.namespace);
    let workspace = world.workspace_key().name().to_owned();
    world.make_workspace(Some(json!({"cluster_endpoint": "https://one.example.com"}))).await?;
    world.until_propagated("one.example.com:443").await?;
    // Reconciles that find the same, and one for a newer version of the workspace.
    world.set_cluster(Value::Null).await?;
    world.until_propagated("one.example.com:443").await?;
    world.set_outputs(json!({"vpc_id": "vpc-1"})).await?;
    world.set_outputs(json!({"cluster_endpoint": ""})).await?;
    world.set_secret("two.example.com:6443").await?;
    world.until_propagated("two.example.com:6443").await?;
    world.set_secret("https://hunter2@two.example.com").await?;
    world.until_reason("InvalidEndpoint").await?;
    world.stop().await?;

    assert_eq!(heard.fields("found workspace"), [format!("{plane} workspace=\"{workspace}\"")]);
    assert_eq!(
        heard.fields("found cluster_endpoint"),
        [
            format!("{plane} source=\"outputs\" host=\"one.example.com\" port=443"),
            format!("{plane} source=\"secret\" host=\"two.example.com\" port=6443"),
        ]
    );
    let invalid = heard.fields("found invalid cluster_endpoint");
    assert!(invalid[0].starts_with(&format!("{plane} source=\"secret\" error=")), "{invalid:?}");
    assert!(invalid.len() == 1 && !invalid[0].contains("hunter2"), "{invalid:?}");
    let patched = |kind: &str, endpoint: &str| format!("kind=\"{kind}\" {plane} {endpoint}");
    let one = "host=\"one.example.com\" port=443";
    let two = "host=\"two.example.com\" port=6443";
    assert_eq!(
        heard.fields("patched endpoint"),
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
