//! Kinds named at run time, of which only the server knows whether they have namespaces.

use super::{
    absent::{definition, is_absent, kind, make_later, objects, uninstall},
    support::{cache, running, these, until},
};
use kube_client::{api::DynamicObject, core::GroupVersionKind};
use steersman::{
    cache::{CacheError, CacheOptions, Informer, InformerState, Namespaces, Query, Select},
    object::ObjectKey,
    testing::{Embedded, Env, TestServer},
};

/// Whether it is degraded because the kind has no namespaces.
fn is_told(all: &Informer<DynamicObject>) -> bool {
    let words = format!("{} has no namespaces: leave `.namespaces(…)` out of its selection", all.gvk().kind);
    matches!(all.state(), InformerState::Degraded { error, .. } if error == words)
}

steersman::env_test! {
    async fn namespaces_of_a_kind_that_turns_out_to_have_none_are_told_and_nothing_is_kept(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("scopes").await?);
        let all = || Select::dynamic(GroupVersionKind::gvk("", "v1", "Namespace"));
        for wrong in [these(&[&namespace]), Namespaces::Labelled("tenant".into())] {
            let cache = running(client.clone(), &[&namespace]);
            let some = cache.informer_of(all().namespaces(wrong.clone()))?;
            until(|| is_told(&some)).await;
            let read = some.list(&Query::default()).expect_err("nothing is kept");
            assert!(
                matches!(&read, CacheError::NotSynced { .. }) && read.to_string().contains("has no namespaces"), "{read}"
            );
            let again = cache.informer_of(all().namespaces(wrong)).expect_err("it is known by now");
            assert!(matches!(again, CacheError::NotNamespaced { .. }), "{again}");
            // What the cache says of all kinds is not meant for this one; nor does it share with who is wrong.
            let right = cache.informer_of(all())?;
            right.await_synced().await?;
            assert!(right.get(&ObjectKey::cluster_scoped("default"))?.is_some());
            assert!(is_told(&some) && right.state() == InformerState::Synced);
            cache.stop().await;
        }
        Ok(())
    }

    async fn namespaces_that_the_options_say_for_a_kind_that_has_none_are_told_as_well(env: Env) -> anyhow::Result<()> {
        let all = || Select::dynamic(GroupVersionKind::gvk("", "v1", "Namespace"));
        let kinds = vec![all().namespaces(these(&["default"])).into()];
        let cache = cache(&env.client()?, CacheOptions { kinds, ..CacheOptions::default() });
        let some = cache.informer_of(all())?;
        until(|| is_told(&some)).await;
        cache.stop().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn who_names_namespaces_before_anybody_knows_does_not_share_with_who_names_none() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    let all = || Select::dynamic(GroupVersionKind::gvk("", "v1", "Namespace"));
    let cache = running(client, &["default"]);
    let some = cache.informer_of(all().namespaces(these(&["default"]))).expect("nobody knows");
    let right = cache.informer_of(all()).expect("nobody knows");
    right.await_synced().await.expect("it syncs");
    until(|| is_told(&some)).await;
    assert_eq!(right.state(), InformerState::Synced);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_comes_back_with_namespaces_is_kept_in_those_that_were_named() {
    const GROUP: &str = "scopes.example.com";
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    let cache = cache(&client, CacheOptions::default());
    let later = Select::dynamic(kind(GROUP)).namespaces(these(&["default"]));
    let later = cache.informer_of(later).expect("nobody knows");
    for _ in 0..2 {
        server.install([definition(GROUP, "latecomers", "Cluster")]).await.expect("it is installed");
        make_later(&client, GROUP, "latecomers", None).await;
        until(|| is_told(&later)).await;
        assert_eq!(later.stats().objects, 0, "nothing is kept");
        uninstall(&client, GROUP, "latecomers").await;
        until(|| is_absent(&later)).await;

        server.install([definition(GROUP, "laters", "Namespaced")]).await.expect("it is installed");
        for namespace in ["default", "kube-public"] {
            make_later(&client, GROUP, "laters", Some(namespace)).await;
        }
        later.await_synced().await.expect("it syncs");
        until(|| later.state() == InformerState::Synced && objects(&later) == 1).await;
        uninstall(&client, GROUP, "laters").await;
        until(|| is_absent(&later)).await;
    }
    cache.stop().await;
}
