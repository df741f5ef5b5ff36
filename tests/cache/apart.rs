//! Namespaces of one informer, each with a list and a watch of its own: where one has nothing to say, the others go on.

use super::{
    absent::{definition, is_absent, kind, make_later, objects, uninstall},
    support::{cache, make, these, until},
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

/// Both by name, and as they come and go.
fn default_and_public() -> [Namespaces; 2] {
    let labelled = "kubernetes.io/metadata.name in (default, kube-public)";
    [these(&["default", "kube-public"]), Namespaces::Labelled(labelled.into())]
}

async fn shows(maps: &Informer<ConfigMap>, namespace: &str, name: &str) {
    let shown = until(|| maps.get(&ObjectKey::new(namespace, name)).expect("it is synced").is_some());
    timeout(Duration::from_secs(10), shown).await.expect("in time");
}

/// As by an aggregated server, or a proxy, that does not know the one. The other takes longer to answer than it takes to say no.
#[tokio::test(start_paused = true)]
async fn a_namespace_in_which_nothing_is_found_leaves_the_others_alone() {
    for namespaces in default_and_public() {
        let server = ApiServer::new(Options::default()).expect("a server without data starts");
        let client = Client::new(server.service(), "default");
        let cache = cache(&client, CacheOptions::default());
        let maps = cache.informer_of(Select::<ConfigMap>::new().namespaces(namespaces)).expect("it is new");
        maps.await_synced().await.expect("it syncs");
        let slow = Duration::from_millis(20);
        let rules = [
            Fault::on("watch configmaps kube-public/*").delay(slow).status(404),
            Fault::on("list configmaps kube-public/*").delay(slow).status(404),
            Fault::on("watch configmaps default/*").delay(2 * slow),
        ];
        let rules = rules.map(|rule| server.faults().add(rule));
        until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
        server.journal().clear();
        sleep(Duration::from_mins(30)).await;
        assert!(matches!(maps.state(), InformerState::Degraded { .. }), "{:?}", maps.state());
        let asked = |namespace: &str| server.journal().count(&format!("watch configmaps {namespace}/*"));
        assert!((2..8).contains(&asked("default")), "{}: each watch lasts as long as it should", asked("default"));
        assert!((20..100).contains(&asked("kube-public")), "{}: at a pace", asked("kube-public"));
        make(&client, "default", "o", "blue").await;
        shows(&maps, "default", "o").await;

        for rule in rules {
            rule.remove();
        }
        timeout(Duration::from_mins(2), until(|| maps.state() == InformerState::Synced)).await.expect("it comes back");
        make(&client, "kube-public", "o", "blue").await;
        shows(&maps, "kube-public", "o").await;
        cache.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_in_which_nothing_is_found_from_the_beginning_is_said_and_the_others_are_watched() {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    let client = Client::new(server.service(), "default");
    let rule = server.faults().add(Fault::on("* configmaps kube-public/*").status(404));
    let [namespaces, _] = default_and_public();
    let cache = cache(&client, CacheOptions { namespaces, ..CacheOptions::default() });
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    let mut events = maps.events();
    until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
    let read = maps.get(&ObjectKey::new("default", "o")).expect_err("half of it would be a lie").to_string();
    assert!(read.contains("not synced") && !read.contains("first list"), "{read}");
    make(&client, "default", "o", "blue").await;
    timeout(Duration::from_secs(10), events.next()).await.expect("handlers hear of the other one");
    rule.remove();
    timeout(Duration::from_mins(2), maps.await_synced()).await.expect("in time").expect("it syncs");
    shows(&maps, "default", "o").await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_goes_is_gone_from_all_namespaces_and_comes_back_in_all() {
    const GROUP: &str = "apart.example.com";
    for namespaces in default_and_public() {
        let server = Embedded::start().expect("it starts");
        let client = server.client().expect("a client");
        let cache = cache(&client, CacheOptions { namespaces, ..CacheOptions::default() });
        let later = cache.informer_of(Select::dynamic(kind(GROUP))).expect("it is new");
        for _ in 0..3 {
            server.install([definition(GROUP, "laters", "Namespaced")]).await.expect("it is installed");
            for namespace in ["default", "kube-public"] {
                make_later(&client, GROUP, "laters", Some(namespace)).await;
            }
            later.await_synced().await.expect("it syncs");
            until(|| later.state() == InformerState::Synced && objects(&later) == 2).await;
            uninstall(&client, GROUP, "laters").await;
            timeout(Duration::from_mins(15), until(|| is_absent(&later))).await.expect("it is told");
            assert_eq!(objects(&later), 0);
        }
        cache.stop().await;
    }
}
