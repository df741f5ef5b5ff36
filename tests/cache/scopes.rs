//! Tests of dynamic kinds, whose scope is known only from discovery.

use super::{
    missing_kinds::{create_gizmo, definition, is_missing, kind, objects, uninstall},
    support::{cache, namespace_list, running, until},
};
use kube_client::{api::DynamicObject, core::GroupVersionKind};
use steersman::{
    cache::{CacheError, CacheOptions, Informer, InformerState, Namespaces, Query, Select},
    object::ObjectKey,
    testing::{Embedded, Env, TestServer},
};

/// Returns whether the informer is degraded because the kind is cluster-scoped.
fn rejects_namespaces(all: &Informer<DynamicObject>) -> bool {
    let words = format!(
        "cannot select namespaces of {}: it is cluster-scoped; remove `.namespaces(…)`",
        all.gvk().kind
    );
    matches!(all.state(), InformerState::Degraded { error, .. } if error == words)
}

steersman::env_test! {
    async fn namespaces_of_a_dynamic_kind_are_rejected_if_discovery_finds_it_cluster_scoped(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("scopes").await?);
        let all = || Select::dynamic(GroupVersionKind::gvk("", "v1", "Namespace"));
        for wrong in [namespace_list(&[&namespace]), Namespaces::Labelled("tenant".into())] {
            let cache = running(client.clone(), &[&namespace]);
            let some = cache.informer_of(all().namespaces(wrong.clone()))?;
            until(|| rejects_namespaces(&some)).await;
            let read = some.list(&Query::default()).expect_err("no objects are stored");
            assert!(
                matches!(&read, CacheError::NotSynced { .. }) && read.to_string().contains("it is cluster-scoped"), "{read}"
            );
            let again = cache.informer_of(all().namespaces(wrong)).expect_err("discovery knows the scope");
            assert!(matches!(again, CacheError::NotNamespaced { .. }), "{again}");
            // The cache's default namespaces do not apply to this kind, and the invalid declaration
            // has another informer.
            let right = cache.informer_of(all())?;
            right.await_synced().await?;
            assert!(right.get(&ObjectKey::cluster_scoped("default"))?.is_some());
            assert!(rejects_namespaces(&some) && right.state() == InformerState::Synced);
            cache.stop().await;
        }
        Ok(())
    }

    async fn namespaces_from_the_options_are_rejected_for_a_cluster_scoped_kind(env: Env) -> anyhow::Result<()> {
        let all = || Select::dynamic(GroupVersionKind::gvk("", "v1", "Namespace"));
        let kinds = vec![all().namespaces(namespace_list(&["default"])).into()];
        let cache = cache(&env.client()?, CacheOptions { kinds, ..CacheOptions::default() });
        let some = cache.informer_of(all())?;
        until(|| rejects_namespaces(&some)).await;
        cache.stop().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn declarations_with_and_without_namespaces_are_not_shared_before_discovery() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    let all = || Select::dynamic(GroupVersionKind::gvk("", "v1", "Namespace"));
    let cache = running(client, &["default"]);
    let some = cache
        .informer_of(all().namespaces(namespace_list(&["default"])))
        .expect("a new informer");
    let right = cache.informer_of(all()).expect("a new informer");
    right.await_synced().await.expect("synced");
    until(|| rejects_namespaces(&some)).await;
    assert_eq!(right.state(), InformerState::Synced);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_reinstalled_as_namespaced_uses_the_declared_namespaces() {
    const GROUP: &str = "scopes.example.com";
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    let cache = cache(&client, CacheOptions::default());
    let gizmos = Select::dynamic(kind(GROUP)).namespaces(namespace_list(&["default"]));
    let gizmos = cache.informer_of(gizmos).expect("a new informer");
    for _ in 0..2 {
        server
            .install([definition(GROUP, "widgets", "Cluster")])
            .await
            .expect("the CRD is installed");
        create_gizmo(&client, GROUP, "widgets", None).await;
        until(|| rejects_namespaces(&gizmos)).await;
        assert_eq!(gizmos.stats().objects, 0, "no objects are stored");
        uninstall(&client, GROUP, "widgets").await;
        until(|| is_missing(&gizmos)).await;

        server
            .install([definition(GROUP, "gizmos", "Namespaced")])
            .await
            .expect("the CRD is installed");
        for namespace in ["default", "kube-public"] {
            create_gizmo(&client, GROUP, "gizmos", Some(namespace)).await;
        }
        gizmos.await_synced().await.expect("synced");
        until(|| gizmos.state() == InformerState::Synced && objects(&gizmos) == 1).await;
        uninstall(&client, GROUP, "gizmos").await;
        until(|| is_missing(&gizmos)).await;
    }
    cache.stop().await;
}
