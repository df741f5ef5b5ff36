//! Tests of `external`.
//!
//! Each test has a group of its own, because all tests of the real server share its CRDs.

mod bad_input;
mod contracts;
mod fixture;
mod reads;
mod referrers;
mod templates;
mod tracker;
mod versions;

use crate::support::{dynamic, from, provider_crd};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use steersman::{
    object::StaticKind,
    prelude::*,
    testing::{Env, TestServer, eventually},
};
use steersman_controllers::{
    cluster_api::{ContractVersionedObjectReference, ObjectReference},
    external::{GroupKind, contract::CrdMetadata},
};

/// Label with which a provider in version `v1` implements the current contract.
const CURRENT: (&str, &str) = ("cluster.x-k8s.io/v1beta2", "v1");

/// A provider with the kind `Shed`, and a namespace of the test.
struct Provider {
    group: String,
    /// Reads and writes without a cache.
    client: Client,
    namespace: String,
}

impl Provider {
    /// Installs a provider that implements the current contract in version `v1`.
    async fn new(env: &Env, group: &str) -> anyhow::Result<Self> {
        let this = Self::without_crd(env, group).await?;
        this.install(env, &["v1"], &[CURRENT]).await?;
        Ok(this)
    }

    async fn without_crd(env: &Env, group: &str) -> anyhow::Result<Self> {
        Ok(Self {
            group: format!("{group}.cluster.x-k8s.io"),
            client: Client::new(env.client()?)?,
            namespace: env.namespace("external").await?,
        })
    }

    async fn install(
        &self,
        env: &Env,
        versions: &[&str],
        labels: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let crd = provider_crd(&self.group, "Shed", "sheds", versions, labels);
        Ok(env.install([crd]).await?)
    }

    /// Deletes the CRD, and waits until it is gone.
    async fn uninstall(&self) -> anyhow::Result<()> {
        let crds = self.client.dynamic(&CrdMetadata::static_gvk());
        let name = ObjectKey::cluster_scoped(format!("sheds.{}", self.group));
        crds.delete(&name).await?;
        eventually(async || Ok(crds.get_metadata(&name).await?.is_none().then_some(()))).await
    }

    fn kind(&self, version: &str) -> GroupVersionKind {
        GroupVersionKind::gvk(&self.group, version, "Shed")
    }

    fn group_kind(&self) -> GroupKind {
        GroupKind::new(&self.group, "Shed")
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&self.namespace, name)
    }

    /// Creates a `Shed` in version `v1` with this content.
    async fn create(&self, name: &str, content: Value) -> anyhow::Result<DynamicObject> {
        let mut shed = dynamic(&format!("{}/v1", self.group), "Shed", name, content);
        shed.metadata.namespace = Some(self.namespace.clone());
        Ok(self.client.create(&shed).await?)
    }

    fn reference(&self, name: &str) -> ObjectReference {
        from(json!({
            "apiVersion": format!("{}/v1", self.group),
            "kind": "Shed",
            "namespace": self.namespace,
            "name": name,
        }))
    }

    fn contract_reference(&self, name: &str) -> ContractVersionedObjectReference {
        from(json!({"apiGroup": self.group, "kind": "Shed", "name": name}))
    }

    /// Returns `Shed <namespace>/<name>`, as in texts of errors.
    fn described(&self, name: &str) -> String {
        format!("Shed {}/{name}", self.namespace)
    }
}
