//! Kinds whose CRD is installed, changed or removed while they are watched.

use super::{CURRENT, Provider, fixture::Fixture};
use serde_json::json;
use steersman::{
    controller::WatchState,
    prelude::*,
    testing::{Env, eventually},
};
use steersman_controllers::external::get_from_contract_versioned_ref;

impl Fixture {
    /// Waits until a version of the provider's kind is watched and synced.
    async fn until_watched(&self, provider: &Provider, version: &str) -> anyhow::Result<()> {
        eventually(async || {
            let handle = self.tracker.handle(&provider.group_kind());
            let synced = handle.is_some_and(|it| matches!(it.state(), WatchState::Synced));
            let is_version = self.tracker.tracked() == [provider.kind(version)];
            Ok((synced && is_version).then_some(()))
        })
        .await
    }
}

steersman::env_test! {
    async fn a_provider_that_is_installed_after_the_watch_is_found(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "later").await?;
        let fixture = Fixture::start(&env)?;
        let handle = fixture.watch(&provider, "v1")?;
        eventually(async || {
            let informers = fixture.informers(&provider);
            let missing = informers.iter().any(|it| {
                matches!(it.state, steersman::cache::InformerState::KindNotFound { .. })
            });
            Ok::<_, anyhow::Error>(missing.then_some(()))
        })
        .await?;
        provider.install(&env, &["v1"], &[CURRENT]).await?;
        handle.await_synced().await?;
        provider.create("a", json!({})).await?;
        fixture.until_reconciled(&provider, &["a"]).await;
        assert_eq!(fixture.tracker.tracked(), [provider.kind("v1")]);
        fixture.stop().await
    }

    async fn a_provider_that_is_installed_in_another_version_is_watched_in_that_one(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "later-version").await?;
        let fixture = Fixture::start(&env)?;
        fixture.watch(&provider, "v1alpha1")?;
        provider.install(&env, &["v1"], &[CURRENT]).await?;
        fixture.until_watched(&provider, "v1").await?;
        provider.create("a", json!({})).await?;
        fixture.until_reconciled(&provider, &["a"]).await;
        fixture.stop().await
    }

    /// `v3` is the preferred version, and `v2` that of the contract.
    async fn a_version_that_is_not_served_any_more_is_replaced_by_that_of_the_contract(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "replaced").await?;
        let (old, new) = ("cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2");
        provider.install(&env, &["v2", "v1"], &[(old, "v1")]).await?;
        provider.create("a", json!({})).await?;
        let fixture = Fixture::start(&env)?;
        let first = fixture.watch(&provider, "v1")?;
        fixture.until_reconciled(&provider, &["a"]).await;

        provider.install(&env, &["v2", "v3"], &[(old, "v3"), (new, "v2")]).await?;
        fixture.until_watched(&provider, "v2").await?;
        fixture.until_reconciled(&provider, &["a"]).await;
        assert!(matches!(first.state(), WatchState::Stopped));
        let again = fixture.watch(&provider, "v1")?;
        assert!(again.name().contains("v2"), "{}", again.name());

        // The object is in the cache in its new version.
        let reference = provider.contract_reference("a");
        let client = fixture.manager.client();
        let read = get_from_contract_versioned_ref(&client, &reference, &provider.namespace).await?;
        assert!(read.types.as_ref().is_some_and(|types| types.api_version.ends_with("/v2")));
        fixture.stop().await
    }

    async fn a_version_without_a_contract_is_replaced_by_the_preferred_one(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "preferred").await?;
        provider.install(&env, &["v2", "v1"], &[]).await?;
        provider.create("a", json!({})).await?;
        let fixture = Fixture::start(&env)?;
        fixture.watch(&provider, "v1")?;
        fixture.until_reconciled(&provider, &["a"]).await;
        provider.install(&env, &["v2", "v3alpha1", "v3"], &[]).await?;
        fixture.until_watched(&provider, "v3").await?;
        fixture.until_reconciled(&provider, &["a"]).await;
        fixture.stop().await
    }

    /// Also if the referrers do not call the tracker meanwhile.
    async fn referrers_stay_when_a_version_is_replaced(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "replaced-referrers").await?;
        provider.install(&env, &["v2", "v1"], &[]).await?;
        let fixture = Fixture::start(&env)?;
        let owner = Request::new("shop", "one");
        fixture.tracker.track_for(&owner, &provider.kind("v1"), handler::object(), ())?.await_synced().await?;
        provider.install(&env, &["v2"], &[]).await?;
        fixture.until_watched(&provider, "v2").await?;
        fixture.tracker.release(&owner);
        assert!(fixture.tracker.tracked().is_empty());
        fixture.stop().await
    }

    /// While the CRD is missing, the watch waits for it in any version.
    async fn a_crd_that_is_installed_again_in_another_version_is_watched_in_that_one(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "again").await?;
        let fixture = Fixture::start(&env)?;
        fixture.watch(&provider, "v1")?.await_synced().await?;
        provider.uninstall().await?;
        eventually(async || {
            let informers = fixture.informers(&provider);
            let missing = informers.iter().any(|it| {
                matches!(it.state, steersman::cache::InformerState::KindNotFound { .. })
            });
            Ok::<_, anyhow::Error>(missing.then_some(()))
        })
        .await?;
        provider.install(&env, &["v7"], &[("cluster.x-k8s.io/v1beta2", "v7")]).await?;
        fixture.until_watched(&provider, "v7").await?;
        fixture.stop().await
    }
}
