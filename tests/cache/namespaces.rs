//! Tests of informers with a list and watch per namespace.
//!
//! A failing namespace does not affect the others.

use super::{
    missing_kinds::{create_gizmo, definition, is_missing, kind, objects, uninstall},
    support::{cache, create_map, namespace_list, until},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use std::time::Duration;
use steersman::{
    cache::{CacheOptions, Informer, InformerState, Namespaces, Select},
    object::ObjectKey,
    testing::{Embedded, TestServer},
};
use steersman_apiserver::{ApiServer, Fault, Options};
use tokio::time::{sleep, timeout};

/// Returns the two namespaces, selected by name and by label.
fn default_and_public() -> [Namespaces; 2] {
    let labelled = "kubernetes.io/metadata.name in (default, kube-public)";
    [
        namespace_list(&["default", "kube-public"]),
        Namespaces::Labelled(labelled.into()),
    ]
}

async fn shows(maps: &Informer<ConfigMap>, namespace: &str, name: &str) {
    let shown = until(|| {
        maps.get(&ObjectKey::new(namespace, name))
            .expect("the informer is synced")
            .is_some()
    });
    timeout(Duration::from_secs(10), shown)
        .await
        .expect("in time");
}

/// An aggregated server or a proxy may not know one of them.
///
/// The other namespace answers after the first has failed.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_returns_404_does_not_affect_the_others() {
    for namespaces in default_and_public() {
        let server = ApiServer::new(Options::default()).expect("a server without data starts");
        let client = Client::new(server.service(), "default");
        let cache = cache(&client, CacheOptions::default());
        let maps = cache
            .informer_of(Select::<ConfigMap>::new().namespaces(namespaces))
            .expect("the informer is declared");
        maps.await_synced().await.expect("synced");
        let slow = Duration::from_millis(20);
        let rules = [
            Fault::on("watch configmaps kube-public/*")
                .delay(slow)
                .status(404),
            Fault::on("list configmaps kube-public/*")
                .delay(slow)
                .status(404),
            Fault::on("watch configmaps default/*").delay(2 * slow),
        ];
        let rules = rules.map(|rule| server.faults().add(rule));
        until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
        server.journal().clear();
        sleep(Duration::from_mins(30)).await;
        assert!(
            matches!(maps.state(), InformerState::Degraded { .. }),
            "{:?}",
            maps.state()
        );
        let asked = |namespace: &str| {
            server
                .journal()
                .count(&format!("watch configmaps {namespace}/*"))
        };
        assert!(
            (2..8).contains(&asked("default")),
            "{}: a watch lasts for five to ten minutes",
            asked("default")
        );
        assert!(
            (20..100).contains(&asked("kube-public")),
            "{}: retried with backoff",
            asked("kube-public")
        );
        create_map(&client, "default", "o", "blue").await;
        shows(&maps, "default", "o").await;

        for rule in rules {
            rule.remove();
        }
        timeout(
            Duration::from_mins(2),
            until(|| maps.state() == InformerState::Synced),
        )
        .await
        .expect("the namespace recovers");
        create_map(&client, "kube-public", "o", "blue").await;
        shows(&maps, "kube-public", "o").await;
        cache.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_returns_404_from_the_start_is_reported_and_the_others_are_watched() {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    let client = Client::new(server.service(), "default");
    let rule = server
        .faults()
        .add(Fault::on("* configmaps kube-public/*").status(404));
    let [namespaces, _] = default_and_public();
    let cache = cache(
        &client,
        CacheOptions {
            namespaces,
            ..CacheOptions::default()
        },
    );
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    let mut events = maps.events();
    until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
    let read = maps
        .get(&ObjectKey::new("default", "o"))
        .expect_err("the other namespace is not synced")
        .to_string();
    assert!(
        read.contains("not synced") && !read.contains("first list"),
        "{read}"
    );
    create_map(&client, "default", "o", "blue").await;
    timeout(Duration::from_secs(10), events.next())
        .await
        .expect("an event of the other namespace");
    rule.remove();
    timeout(Duration::from_mins(2), maps.await_synced())
        .await
        .expect("in time")
        .expect("synced");
    shows(&maps, "default", "o").await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_and_reinstalled_kind_is_synced_in_all_namespaces() {
    const GROUP: &str = "apart.example.com";
    for namespaces in default_and_public() {
        let server = Embedded::start().expect("the server starts");
        let client = server.client().expect("a client");
        let cache = cache(
            &client,
            CacheOptions {
                namespaces,
                ..CacheOptions::default()
            },
        );
        let gizmos = cache
            .informer_of(Select::dynamic(kind(GROUP)))
            .expect("the informer is declared");
        for _ in 0..3 {
            server
                .install([definition(GROUP, "gizmos", "Namespaced")])
                .await
                .expect("the CRD is installed");
            for namespace in ["default", "kube-public"] {
                create_gizmo(&client, GROUP, "gizmos", Some(namespace)).await;
            }
            gizmos.await_synced().await.expect("synced");
            until(|| gizmos.state() == InformerState::Synced && objects(&gizmos) == 2).await;
            uninstall(&client, GROUP, "gizmos").await;
            timeout(Duration::from_mins(15), until(|| is_missing(&gizmos)))
                .await
                .expect("the CRD was removed");
            assert_eq!(objects(&gizmos), 0);
        }
        cache.stop().await;
    }
}
