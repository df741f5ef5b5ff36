//! The controllers `cluster` and `endpoint` on one Cluster.

use super::{
    fixture::{BARN, Fixture, NAME, condition, endpoint},
    recording_proxy::Proxy,
};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer, eventually},
};
use steersman_controllers::{
    cluster_api::{Cluster, ClusterStatus},
    endpoint::{self as publisher, CAPTControlPlane, WorkspaceTemplateApply, workspace_kind},
};
use tokio::time::sleep;

/// Cluster with an infrastructure without an endpoint, and a control plane of Terraform.
struct Both {
    fixture: Fixture,
    proxy: Proxy,
    running: super::fixture::Running,
}

impl Both {
    async fn new(env: &Env) -> anyhow::Result<Self> {
        let fixture = Fixture::new(env).await?;
        let definitions = publisher::definitions().into_iter();
        env.install(definitions.chain(publisher::dependencies()))
            .await?;
        let proxy = Proxy::recording();
        let running = fixture.start_with(proxy.client(env.client()?), |manager| {
            publisher::add_to(manager, &publisher::Options::default())?;
            Ok(())
        })?;
        let reference = json!({
            "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "CAPTControlPlane", "name": NAME,
        });
        let spec = json!({"infrastructureRef": BARN.reference(), "controlPlaneRef": reference});
        fixture.create_cluster(spec).await?;
        fixture
            .create(
                BARN,
                json!({"status": {"initialization": {"provisioned": true}}}),
            )
            .await?;
        let spec = json!({"version": "1.31", "workspaceTemplateRef": {"name": "eks"}});
        let plane = json!({"metadata": {"name": NAME}, "spec": spec});
        fixture
            .client
            .create::<CAPTControlPlane>(&serde_json::from_value(plane)?)
            .await?;
        let name = format!("{NAME}-eks-controlplane-apply");
        let apply = json!({"metadata": {"name": name}, "spec": {}});
        fixture
            .client
            .create::<WorkspaceTemplateApply>(&serde_json::from_value(apply)?)
            .await?;
        // Workspaces are cluster-scoped, so each test names its own after its namespace.
        let status = Patch::Merge(json!({"status": {"workspaceName": fixture.namespace}}));
        let key = ObjectKey::new(&fixture.namespace, name);
        fixture
            .client
            .status()
            .patch::<WorkspaceTemplateApply>(&key, &status)
            .await?;
        let kind = workspace_kind();
        let workspace = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": {"name": fixture.namespace}, "spec": {},
        });
        fixture
            .client
            .create::<DynamicObject>(&serde_json::from_value(workspace)?)
            .await?;
        Ok(Self {
            fixture,
            proxy,
            running,
        })
    }

    /// Sets the endpoint in the outputs of Terraform.
    async fn set_output(&self, host: &str) -> anyhow::Result<()> {
        let outputs = json!({"status": {"atProvider": {"outputs": {"cluster_endpoint": host}}}});
        let key = ObjectKey::cluster_scoped(&self.fixture.namespace);
        let client = self.fixture.client.status();
        client
            .dynamic(&workspace_kind())
            .patch(&key, &Patch::Merge(outputs))
            .await?;
        Ok(())
    }

    /// Waits until the Cluster has this endpoint, and both controllers have nothing left to write.
    async fn until_complete(&self, expected: &str) -> anyhow::Result<Cluster> {
        let cluster = self.fixture.until(|cluster| {
            let status = cluster.status.as_ref();
            endpoint(cluster).as_deref() == Some(expected)
                && status.is_some_and(ClusterStatus::is_control_plane_initialized)
                && status.is_some_and(|it| it.observed_generation == cluster.metadata.generation)
        });
        let cluster = cluster.await?;
        eventually(async || {
            let plane = self
                .fixture
                .client
                .get::<CAPTControlPlane>(&self.fixture.key())
                .await?;
            let status = plane
                .and_then(|plane| plane.status.clone())
                .unwrap_or_default();
            let mut conditions = status.conditions.iter();
            let is_told = conditions.any(|it| it.message.starts_with(expected));
            Ok::<_, anyhow::Error>(is_told.then_some(()))
        })
        .await?;
        self.running.manager.wait_queues_empty().await;
        Ok(cluster)
    }
}

steersman::env_test! {
    async fn the_endpoint_of_a_terraform_control_plane_is_kept_until_the_deletion(env: Env) -> anyhow::Result<()> {
        let both = Both::new(&env).await?;
        both.fixture.until_reason("ControlPlaneInitialized", "NotInitialized").await?;
        both.set_output("one.example.com").await?;
        let cluster = both.until_complete("one.example.com:443").await?;
        assert_eq!(cluster.status.as_ref().and_then(|it| it.phase.as_deref()), Some("Provisioned"));
        let (status, reason, _) = condition(&cluster, "ControlPlaneAvailable").expect("a condition");
        assert_eq!((&*status, &*reason), ("True", "Available"));

        both.set_output("two.example.com").await?;
        both.until_complete("two.example.com:443").await?;

        let Both { fixture, running, .. } = both;
        fixture.client.delete::<Cluster>(&fixture.key()).await?;
        fixture.until_gone().await?;
        assert!(fixture.client.get::<CAPTControlPlane>(&fixture.key()).await?.is_none());
        assert!(fixture.object(BARN).await?.is_none());
        running.stop().await
    }
}

#[tokio::test(start_paused = true)]
async fn both_controllers_write_nothing_when_all_is_done() -> anyhow::Result<()> {
    let both = Both::new(&Env::embedded()?).await?;
    both.set_output("one.example.com").await?;
    both.until_complete("one.example.com:443").await?;
    sleep(Duration::from_mins(1)).await;
    let start = both.proxy.len();
    sleep(Duration::from_hours(1)).await;
    let writes: Vec<Value> = both
        .proxy
        .writes(start)
        .iter()
        .map(|it| json!(it.text()))
        .collect();
    assert_eq!(writes, [json!(null); 0]);
    both.running.stop().await
}
