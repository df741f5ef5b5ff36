//! The CRDs of Cluster API v1.14.2 instead of those of this project.
//!
//! `crds-v1.14.2.jsonl` has one CRD per line: the 13 files in `core/config/crd/bases` of the Go module
//! `sigs.k8s.io/cluster-api@v1.14.2` (Apache-2.0), as JSON and without descriptions. They have no
//! conversion. `webhook-conversion.json` is a CRD with a conversion like that in `core/config/crd/patches`.

use super::{
    fixture::{BARN, BARN_PLANE, Fixture, Kind},
    restarts::lifecycle,
};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    prelude::*,
    testing::{self, Env, Environment, Real, TestServer},
};
use tokio::time::timeout;

/// Limit of the test on a server of its own.
const LIMIT: Duration = Duration::from_mins(2);

fn definitions() -> Vec<Value> {
    let lines = include_str!("crds-v1.14.2.jsonl").lines();
    lines
        .map(|line| serde_json::from_str(line).expect("a CRD per line"))
        .collect()
}

#[tokio::test]
async fn the_crds_of_cluster_api_install_in_the_embedded_server() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let definitions = definitions();
    assert_eq!(definitions.len(), 13);
    env.install(&definitions).await?;
    let client = Client::new(env.client()?)?;
    let mut served = 0;
    for definition in &definitions {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for version in spec["versions"].as_array().into_iter().flatten() {
            let version_name = text(&version["name"]);
            let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
            let gvk = GroupVersionKind::gvk(&group, &version_name, &kind);
            let is_served = client.discover(&gvk).await?.is_some();
            assert_eq!(json!(is_served), version["served"], "{gvk:?}");
            served += usize::from(is_served);
        }
    }
    assert!(served > 13, "most kinds have two versions: {served}");
    Ok(())
}

#[tokio::test]
async fn the_rules_of_cluster_api_are_evaluated() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    env.install(definitions()).await?;
    let client = env.client()?;
    let create = async |kind: &str, spec: Value| -> anyhow::Result<String> {
        let body = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "metadata": {"generateName": "a-"}, "spec": spec});
        let path = format!(
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/{}s",
            kind.to_lowercase()
        );
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())?;
        Ok(match client.request::<Value>(request).await {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        })
    };
    let machines = |names: [&str; 2]| {
        let selector = |name| json!({"selector": {"matchLabels": {"name": name}}});
        json!({"drain": {"behavior": "Skip"}, "machines": names.map(selector)})
    };
    assert_eq!(create("MachineDrainRule", machines(["a", "b"])).await?, "");
    let rejected = create("MachineDrainRule", machines(["a", "a"])).await?;
    let expected = "spec.machines: Invalid value: entries in machines must be unique";
    assert!(rejected.contains(expected), "{rejected}");
    let check = |condition: &str| {
        json!({"clusterName": "a", "selector": {"matchLabels": {"a": "b"}}, "checks": {"unhealthyMachineConditions": [
            {"type": condition, "status": "False", "timeoutSeconds": 60},
        ]}})
    };
    assert_eq!(create("MachineHealthCheck", check("Custom")).await?, "");
    let rejected = create("MachineHealthCheck", check("Ready")).await?;
    let expected = "spec.checks.unhealthyMachineConditions[0].type: Invalid value: \"Ready\": type must not be one of";
    assert!(rejected.contains(expected), "{rejected}");
    Ok(())
}

#[tokio::test]
async fn a_crd_with_webhook_conversion_is_rejected_by_the_embedded_server() -> anyhow::Result<()> {
    let env = Env::embedded()?;
    let definition: Value = serde_json::from_str(include_str!("webhook-conversion.json"))?;
    let rejected = env.install([definition]).await;
    let text = format!("{:#}", anyhow::Error::new(rejected.expect_err("a webhook")));
    let expected = "spec.conversion.strategy: Forbidden: the embedded API server has no conversion \
                    webhooks; use the strategy None, or a real kube-apiserver";
    assert!(text.contains(expected), "{text}");
    Ok(())
}

/// Creates and deletes a Cluster. Every write has to follow the schemas of Cluster API.
async fn provision_and_delete(env: &Env) -> anyhow::Result<()> {
    let providers = [BARN, BARN_PLANE].map(Kind::definition);
    env.install(definitions().into_iter().chain(providers))
        .await?;
    let fixture = Fixture::in_namespace(env).await?;
    let running = fixture.start(env.client()?)?;
    lifecycle(&fixture).await?;
    assert_eq!(running.reconciles("error"), 0);
    running.stop().await
}

#[tokio::test]
async fn a_cluster_of_the_crds_of_cluster_api_is_provisioned_and_deleted() -> anyhow::Result<()> {
    provision_and_delete(&Env::embedded()?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_the_crds_of_cluster_api_is_provisioned_and_deleted_on_the_real_server()
-> anyhow::Result<()> {
    // Not the shared server, whose CRDs other tests use.
    let started = Environment::start(testing::Options::default()).await;
    let Some(environment) = testing::started_or_skipped(started) else {
        return Ok(());
    };
    let env = Env::Real(Real::new(environment));
    timeout(LIMIT, provision_and_delete(&env)).await?
}
