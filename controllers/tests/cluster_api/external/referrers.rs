//! Watches that end with their last referrer.

use super::{CURRENT, Provider, fixture::Fixture};
use serde_json::json;
use steersman::{
    controller::{WatchHandle, WatchState},
    prelude::*,
    testing::{Env, eventually},
};
use steersman_controllers::external::GroupKind;

fn track(fixture: &Fixture, owner: &str, provider: &Provider) -> anyhow::Result<WatchHandle> {
    let (owner, kind) = (Request::new("shop", owner), provider.kind("v1"));
    Ok(fixture
        .tracker
        .track_for(&owner, &kind, handler::object(), ())?)
}

async fn until_stopped(handle: &WatchHandle) -> anyhow::Result<()> {
    eventually(async || Ok(matches!(handle.state(), WatchState::Stopped).then_some(()))).await
}

steersman::env_test! {
    async fn a_kind_is_unwatched_when_its_last_referrer_is_released(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "last").await?;
        let fixture = Fixture::start(&env)?;
        let (one, two) = (Request::new("shop", "one"), Request::new("shop", "two"));
        let handle = track(&fixture, "one", &provider)?;
        track(&fixture, "one", &provider)?;
        track(&fixture, "two", &provider)?;
        handle.await_synced().await?;
        fixture.until_requested(&[one.clone(), two.clone()]).await;
        fixture.tracker.release(&one);
        fixture.tracker.release(&one);
        fixture.tracker.release(&Request::new("shop", "three"));
        assert_eq!(fixture.tracker.tracked(), [provider.kind("v1")]);
        provider.create("a", json!({})).await?;
        fixture.until_reconciled(&provider, &["a"]).await;

        fixture.tracker.release(&two);
        assert!(fixture.tracker.tracked().is_empty());
        until_stopped(&handle).await?;
        // A new referrer starts a new watch, which delivers the existing objects.
        track(&fixture, "two", &provider)?;
        fixture.until_requested(&[provider.key("a"), two]).await;
        fixture.stop().await
    }

    /// The owner may have read an object that was deleted before the kind was listed.
    async fn an_owner_is_enqueued_whenever_the_kind_becomes_synced(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "enqueued").await?;
        let fixture = Fixture::start(&env)?;
        let one = Request::new("shop", "one");
        track(&fixture, "one", &provider)?;
        provider.install(&env, &["v1"], &[CURRENT]).await?;
        fixture.until_requested(std::slice::from_ref(&one)).await;
        provider.uninstall().await?;
        provider.install(&env, &["v1"], &[CURRENT]).await?;
        fixture.until_requested(&[one]).await;
        fixture.stop().await
    }

    async fn an_owner_is_released_from_the_kinds_that_it_does_not_refer_to_any_more(env: Env) -> anyhow::Result<()> {
        let old = Provider::new(&env, "retained-old").await?;
        let new = Provider::new(&env, "retained-new").await?;
        let fixture = Fixture::start(&env)?;
        let owner = Request::new("shop", "one");
        let handle = track(&fixture, "one", &old)?;
        fixture.tracker.retain(&owner, &[old.group_kind()]);
        assert_eq!(fixture.tracker.tracked(), [old.kind("v1")]);
        track(&fixture, "one", &new)?;
        fixture.tracker.retain(&owner, &[new.group_kind(), GroupKind::new("", "Pod")]);
        assert_eq!(fixture.tracker.tracked(), [new.kind("v1")]);
        until_stopped(&handle).await?;
        fixture.stop().await
    }

    async fn a_watch_without_an_owner_stays_when_all_owners_are_released(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "permanent").await?;
        let fixture = Fixture::start(&env)?;
        let handle = track(&fixture, "one", &provider)?;
        fixture.watch(&provider, "v1")?;
        fixture.tracker.release(&Request::new("shop", "one"));
        assert_eq!(fixture.tracker.tracked(), [provider.kind("v1")]);
        handle.await_synced().await?;
        fixture.stop().await
    }

    async fn a_watch_that_is_added_again_keeps_its_referrers(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "kept").await?;
        let fixture = Fixture::start(&env)?;
        track(&fixture, "one", &provider)?.stop().await;
        let handle = track(&fixture, "two", &provider)?;
        fixture.tracker.release(&Request::new("shop", "two"));
        assert_eq!(fixture.tracker.tracked(), [provider.kind("v1")]);
        fixture.tracker.release(&Request::new("shop", "one"));
        until_stopped(&handle).await?;
        fixture.stop().await
    }

    async fn an_informer_of_an_unwatched_kind_stops(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "informer").await?;
        let fixture = Fixture::start(&env)?;
        track(&fixture, "one", &provider)?.await_synced().await?;
        assert_eq!(fixture.informers(&provider).len(), 1);
        fixture.tracker.release(&Request::new("shop", "one"));
        if let Env::Embedded(_) = env {
            // An unused informer stays for 30 s.
            let limit = std::time::Duration::from_mins(1);
            let stopped = async {
                while !fixture.informers(&provider).is_empty() {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            };
            tokio::time::timeout(limit, stopped).await?;
        }
        fixture.stop().await
    }
}
