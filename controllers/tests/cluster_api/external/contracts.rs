//! Contract lookup, live and cached.

use super::{CURRENT, Provider};
use crate::support::{from, provider_crd};
use serde_json::json;
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer, eventually},
};
use steersman_controllers::{
    cluster_api::ObjectReference,
    external::{
        GroupKind,
        contract::{
            CrdMetadata, api_version, contract_version, contract_version_for_version, crd_metadata,
            update_reference,
        },
    },
};

steersman::env_test! {
    async fn the_metadata_of_a_crd_is_read_from_the_server(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "crd-live").await?;
        let metadata = crd_metadata(&provider.client, &provider.group_kind()).await?;
        let name = format!("sheds.{}", provider.group);
        assert_eq!(metadata.metadata.name.as_deref(), Some(&*name));
        let labels = metadata.metadata.labels.as_ref().expect("labels");
        assert_eq!(labels[CURRENT.0], CURRENT.1);
        Ok(())
    }

    /// The informer follows changes of labels.
    async fn the_metadata_of_a_crd_is_read_from_the_cache(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "crd-cached").await?;
        let cache = Cache::new(env.client()?, CacheOptions::default())?;
        tokio::spawn(cache.clone().run_until(std::future::pending()));
        let crds = cache.informer::<CrdMetadata>()?;
        let client = provider.client.with_cache(cache);
        let kind = provider.group_kind();
        assert_eq!(contract_version(&client, &kind).await?, "v1beta2", "not synced yet");
        crds.await_synced().await?;
        assert_eq!(contract_version(&client, &kind).await?, "v1beta2");

        let labels = json!({"cluster.x-k8s.io/v1beta2": null, "cluster.x-k8s.io/v1beta1": "v1"});
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let name = ObjectKey::cluster_scoped(format!("sheds.{}", provider.group));
        let crd = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        provider.client.dynamic(&crd).patch(&name, &patch).await?;
        eventually(async || {
            let contract = contract_version(&client, &kind).await?;
            Ok::<_, anyhow::Error>((contract == "v1beta1").then_some(()))
        })
        .await
    }

    /// The contract requires `sheds`, and the provider does not comply.
    async fn a_crd_with_another_name_is_found_by_discovery(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "crd-name").await?;
        let crd = provider_crd(&provider.group, "Shed", "shedz", &["v1"], &[CURRENT]);
        env.install([crd]).await?;
        let metadata = crd_metadata(&provider.client, &provider.group_kind()).await?;
        let name = format!("shedz.{}", provider.group);
        assert_eq!(metadata.metadata.name, Some(name));
        Ok(())
    }

    async fn a_crd_that_is_created_again_with_another_name_is_found(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "crd-renamed").await?;
        let kind = provider.group_kind();
        contract_version(&provider.client, &kind).await?;
        provider.uninstall().await?;
        let error = crd_metadata(&provider.client, &kind).await.expect_err("no CRD");
        assert!(error.is_not_found(), "{error}");
        let renamed = provider_crd(&provider.group, "Shed", "shedz", &["v1"], &[CURRENT]);
        env.install([renamed]).await?;
        eventually(async || match crd_metadata(&provider.client, &kind).await {
            Ok(metadata) => Ok(metadata.metadata.name.clone()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        })
        .await?;
        Ok(())
    }

    async fn a_kind_that_is_not_served_has_the_name_of_the_contract(env: Env) -> anyhow::Result<()> {
        let client = Client::new(env.client()?)?;
        let kind = GroupKind::new("absent.cluster.x-k8s.io", "Metal3Data");
        let error = crd_metadata(&client, &kind).await.expect_err("no CRD");
        assert!(error.is_not_found());
        assert_eq!(
            error.to_string(),
            "failed to get CustomResourceDefinition metadata: \
             customresourcedefinitions.apiextensions.k8s.io \"metal3data.absent.cluster.x-k8s.io\" not found"
        );
        Ok(())
    }

    async fn siblings_name_the_kind_in_their_errors(env: Env) -> anyhow::Result<()> {
        let client = Client::new(env.client()?)?;
        let kind = GroupKind::new("absent.cluster.x-k8s.io", "Shed");
        let cause = "failed to get CustomResourceDefinition metadata: \
                     customresourcedefinitions.apiextensions.k8s.io \"sheds.absent.cluster.x-k8s.io\" not found";
        let contract = contract_version(&client, &kind).await.expect_err("no CRD");
        assert_eq!(contract.to_string(), format!("failed to get contract version for kind Shed: {cause}"));
        let version = api_version(&client, &kind).await.expect_err("no CRD");
        assert_eq!(version.to_string(), format!("failed to get apiVersion for kind Shed: {cause}"));
        let of_version = contract_version_for_version(&client, &kind, "v1").await.expect_err("no CRD");
        assert_eq!(
            of_version.to_string(),
            format!("failed to get contract version for version v1 for kind Shed: {cause}")
        );
        let mut reference: ObjectReference =
            from(json!({"apiVersion": "absent.cluster.x-k8s.io/v1", "kind": "Shed"}));
        let before = reference.clone();
        let update = update_reference(&client, &mut reference).await.expect_err("no CRD");
        assert_eq!(update.to_string(), format!("failed to update apiVersion in ref: {cause}"));
        assert_eq!(reference, before);
        for error in [contract, version, of_version, update] {
            assert!(error.is_not_found(), "{error}");
        }
        Ok(())
    }

    async fn contract_and_version_of_a_kind_are_looked_up(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "crd-versions").await?;
        let labels = [
            ("cluster.x-k8s.io/v1beta2", ""),
            ("cluster.x-k8s.io/v1beta1", "v1beta2_v1beta10_v1alpha1"),
            ("cluster.x-k8s.io/v1alpha4", "v1alpha4"),
        ];
        provider.install(&env, &["v1"], &labels).await?;
        let (client, kind) = (&provider.client, provider.group_kind());
        assert_eq!(contract_version(client, &kind).await?, "v1beta1");
        let latest = format!("{}/v1beta10", provider.group);
        assert_eq!(api_version(client, &kind).await?, latest);
        let of_version = async |version| contract_version_for_version(client, &kind, version).await;
        assert_eq!(of_version("v1alpha1").await?, "v1beta1");
        assert_eq!(of_version("v1alpha4").await?, "v1alpha4");
        let unknown = of_version("v7").await.expect_err("an unknown version").to_string();
        let expected = format!(
            "cannot find any contract version matching version v7 for CRD sheds.{}", provider.group,
        );
        assert_eq!(unknown, expected);

        let mut reference = provider.reference("a");
        update_reference(client, &mut reference).await?;
        assert_eq!(reference.api_version.as_deref(), Some(&*latest));
        assert_eq!(reference.name.as_deref(), Some("a"));
        let updated = reference.clone();
        update_reference(client, &mut reference).await?;
        assert_eq!(reference, updated);
        Ok(())
    }
}
