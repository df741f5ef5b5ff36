//! Tests of kinds that are not served yet, or not any more.

use super::support::{Running, create_map, running, until};
use k8s_openapi::api::{apiserverinternal::v1alpha1::StorageVersion, core::v1::ConfigMap};
use kube::CustomResource;
use kube_client::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams},
    core::{GroupVersionKind, ResourceExt},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use steersman::{
    cache::{Cache, CacheOptions, Events, Informer, InformerEvent, InformerState, Query, Select},
    event::Event,
    testing::{Embedded, Env, TestServer, seed_jitter},
};
use steersman_apiserver::Fault;
use steersman_testkit::{Seeds, this_test};
use tokio::time::{Instant, sleep};

const DEFINITIONS: &str = "* customresourcedefinitions";
const HOUR: Duration = Duration::from_hours(1);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "typed.example.com",
    version = "v1",
    kind = "Gizmo",
    namespaced
)]
struct GizmoSpec {}

pub(crate) fn kind(group: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", "Gizmo")
}

pub(crate) fn definition(group: &str, plural: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope, "names": {"plural": plural, "kind": "Gizmo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

async fn try_uninstall(client: &Client, group: &str, plural: &str) -> kube_client::Result<()> {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions = ApiResource::from_gvk_with_plural(&gvk, "customresourcedefinitions");
    let definitions = Api::<DynamicObject>::all_with(client.clone(), &definitions);
    definitions
        .delete(&format!("{plural}.{group}"), &DeleteParams::default())
        .await
        .map(drop)
}

pub(crate) async fn uninstall(client: &Client, group: &str, plural: &str) {
    try_uninstall(client, group, plural).await.expect("exists");
}

fn resource(group: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&kind(group), plural)
}

/// Returns the API of one namespace, or of the cluster scope.
fn api(client: &Client, group: &str, plural: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => {
            Api::namespaced_with(client.clone(), namespace, &resource(group, plural))
        }
        None => Api::all_with(client.clone(), &resource(group, plural)),
    }
}

pub(crate) async fn create_gizmo(
    client: &Client,
    group: &str,
    plural: &str,
    namespace: Option<&str>,
) {
    let api = api(client, group, plural, namespace);
    let gizmo = DynamicObject::new("one", &resource(group, plural));
    // A CRD appears in discovery shortly before its objects can be created.
    while api.create(&PostParams::default(), &gizmo).await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn is_missing<K>(informer: &Informer<K>) -> bool {
    matches!(informer.state(), InformerState::KindNotFound { .. })
}

pub(crate) fn objects(gizmos: &Informer<DynamicObject>) -> usize {
    gizmos
        .list(&Query::default())
        .expect("the informer was synced")
        .len()
}

async fn next<K>(events: &mut Events<K>) -> Event<K> {
    loop {
        if let InformerEvent::Event(event) = events.next().await.expect("the cache runs") {
            return event;
        }
    }
}

fn embedded() -> (Embedded, Running) {
    let server = Embedded::start().expect("the server starts");
    let cache = Running::new(
        Cache::new(server.client().expect("a client"), CacheOptions::default())
            .expect("a ready client"),
    );
    (server, cache)
}

fn discoveries(server: &Embedded) -> usize {
    server
        .server()
        .journal()
        .entries()
        .iter()
        .filter(|entry| entry.path == "/apis/example.com/v1")
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_not_polled_and_syncs_as_soon_as_its_crd_is_installed() {
    let (server, cache) = embedded();
    let gizmos = cache
        .informer_of(Select::dynamic(kind("example.com")))
        .expect("the informer is declared");
    let other = cache
        .informer_of(Select::dynamic(kind("elsewhere.example.com")))
        .expect("the informer is declared");
    until(|| is_missing(&gizmos) && is_missing(&other)).await;
    sleep(Duration::from_secs(1)).await;
    let journal = server.server().journal();
    assert_eq!(
        journal.count("watch customresourcedefinitions"),
        1,
        "one watch of CRDs for both informers"
    );
    journal.clear();
    sleep(HOUR).await;
    assert_eq!(journal.count("* gizmos"), 0);
    assert!(
        discoveries(&server) < 15,
        "discovery continues rarely, because a kind can be served without a CRD"
    );

    let begun = Instant::now();
    server
        .install([definition("example.com", "gizmos", "Namespaced")])
        .await
        .expect("the CRD is installed");
    gizmos.await_synced().await.expect("synced");
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert!(is_missing(&other), "the other group is still missing");
    drop(other);
    sleep(Duration::from_mins(1)).await;
    journal.clear();
    sleep(HOUR).await;
    assert_eq!(journal.count(DEFINITIONS), 0, "no kind is missing");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_reinstalled_kind_syncs_with_its_new_plural_and_scope() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    server
        .install([definition("example.com", "gizmos", "Namespaced")])
        .await
        .expect("the CRD is installed");
    create_gizmo(&client, "example.com", "gizmos", Some("default")).await;
    let gizmos = cache
        .informer_of(Select::dynamic(kind("example.com")))
        .expect("the informer is declared");
    gizmos.await_synced().await.expect("synced");
    assert_eq!(objects(&gizmos), 1);
    let revision = gizmos.resource_version();
    let mut events = gizmos.events();
    next(&mut events).await;
    uninstall(&client, "example.com", "gizmos").await;
    until(|| is_missing(&gizmos)).await;
    assert_eq!(objects(&gizmos), 0, "the informer is synced and empty");
    assert!(gizmos.resource_version() >= revision);
    assert!(matches!(next(&mut events).await, Event::Delete { .. }));
    sleep(Duration::from_mins(1)).await;
    server.server().journal().clear();
    sleep(HOUR).await;
    assert_eq!(
        server.server().journal().count("* gizmos"),
        0,
        "a missing kind is not requested"
    );

    server
        .install([definition("example.com", "widgets", "Cluster")])
        .await
        .expect("the CRD is installed");
    create_gizmo(&client, "example.com", "widgets", None).await;
    until(|| objects(&gizmos) == 1).await;
    assert!(
        matches!(next(&mut events).await, Event::Create { object, initial: false } if object.namespace().is_none())
    );
    assert_eq!(gizmos.state(), InformerState::Synced);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_typed_informer_syncs_once_its_kind_is_installed() {
    let (server, cache) = embedded();
    let versions = cache
        .informer::<StorageVersion>()
        .expect("the informer is declared");
    until(|| is_missing(&versions)).await;
    server.server().journal().clear();
    sleep(HOUR).await;
    assert_eq!(server.server().journal().count("* storageversions"), 0);
    let mut definition = definition("internal.apiserver.k8s.io", "storageversions", "Cluster");
    definition["metadata"]["annotations"] =
        json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    definition["spec"]["names"]["kind"] = "StorageVersion".into();
    definition["spec"]["versions"][0]["name"] = "v1alpha1".into();
    server
        .install([definition])
        .await
        .expect("the CRD is installed");
    versions.await_synced().await.expect("synced");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_whose_type_disagrees_with_the_crd_reports_both() {
    for (plural, scope, has) in [
        ("gadgets", "Namespaced", "`gadgets` in namespaces"),
        ("gizmos", "Cluster", "`gizmos` cluster-scoped"),
    ] {
        let server = Embedded::start().expect("the server starts");
        let cache = running(server.client().expect("a client"), &["default"]);
        let gizmos = cache.informer::<Gizmo>().expect("the informer is declared");
        until(|| is_missing(&gizmos)).await;
        server
            .install([definition("typed.example.com", plural, scope)])
            .await
            .expect("the CRD is installed");
        sleep(HOUR).await;
        let expected_error = format!(
            "the API server serves Gizmo as {has}, but its type declares `gizmos` in namespaces"
        );
        let InformerState::Degraded { error, .. } = gizmos.state() else {
            panic!("{:?}", gizmos.state())
        };
        assert!(error.contains(&expected_error), "{error}");
        cache.stop().await;
    }
}

/// The informers of three kinds converge on the server's state while CRDs and objects are created
/// and deleted and requests fail.
#[tokio::test(start_paused = true)]
async fn soak_informers_converge_while_kinds_are_installed_and_removed_at_random() {
    for seed in Seeds::new(this_test!(), 20) {
        let _seeded = seed_jitter(seed);
        let mut random = StdRng::seed_from_u64(seed);
        let (server, cache) = embedded();
        let client = server.client().expect("a client");
        let groups = ["a.example.com", "b.example.com", "c.example.com"];
        let informers = groups.map(|group| {
            cache
                .informer_of(Select::dynamic(kind(group)))
                .expect("the informer is declared")
        });
        let known = informers.each_ref().map(|informer| {
            let known = Arc::new(Mutex::new(BTreeSet::new()));
            let mut events = informer.events();
            let handler_known = known.clone();
            tokio::spawn(async move {
                while let Some(item) = events.next().await {
                    let InformerEvent::Event(event) = item else {
                        continue;
                    };
                    let mut known = handler_known.lock().expect("not poisoned");
                    let name = event.object().name().to_owned();
                    match event {
                        Event::Create { .. } => assert!(known.insert(name), "it was not there"),
                        Event::Update { .. } | Event::Generic { .. } => {
                            assert!(known.contains(&name), "it was there");
                        }
                        Event::Delete { .. } => assert!(known.remove(&name), "it was there"),
                    }
                }
            });
            known
        });
        let mut is_installed = [false; 3];
        for turn in 0..60 {
            let number = random.random_range(0..3);
            let group = groups[number];
            match random.random_range(0..10) {
                0..3 if !is_installed[number] => {
                    server
                        .install([definition(group, "gizmos", "Namespaced")])
                        .await
                        .expect("the CRD is installed");
                    is_installed[number] = true;
                }
                0..3 if try_uninstall(&client, group, "gizmos").await.is_ok() => {
                    is_installed[number] = false;
                    sleep(Duration::from_millis(10)).await;
                }
                3..7 => {
                    let gizmos = api(&client, group, "gizmos", Some("default"));
                    let gizmo = DynamicObject::new(&format!("o{turn}"), &resource(group, "gizmos"));
                    drop(gizmos.create(&PostParams::default(), &gizmo).await);
                }
                7 => {
                    let what = ["watch customresourcedefinitions", "watch gizmos", "* *"]
                        [random.random_range(0..3)];
                    let code = [403, 404, 410, 500][random.random_range(0..4)];
                    server.server().faults().add(
                        Fault::on(what)
                            .status(code)
                            .times(random.random_range(1..4)),
                    );
                }
                8 => server.restart().await.expect("the server restarts"),
                _ => sleep(Duration::from_secs(random.random_range(0..90))).await,
            }
        }
        server.server().faults().clear();
        let mut expected = Vec::new();
        for group in groups {
            let list = api(&client, group, "gizmos", None)
                .list(&ListParams::default())
                .await;
            expected.push(list.ok().map(|list| {
                list.items
                    .iter()
                    .map(ResourceExt::name_any)
                    .collect::<BTreeSet<_>>()
            }));
        }
        let is_converged = || {
            (0..3).all(|i| {
                let known = known[i].lock().expect("not poisoned");
                *known == expected[i].clone().unwrap_or_default()
                    && is_missing(&informers[i]) == expected[i].is_none()
            })
        };
        let done = tokio::time::timeout(Duration::from_mins(3), until(is_converged)).await;
        let states = informers.each_ref().map(Informer::state);
        assert!(
            done.is_ok(),
            "seed {seed}: known {known:?}, expected {expected:?}, {states:?}"
        );
        cache.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn removing_a_kind_deletes_objects_whose_delete_events_were_missed() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    server
        .install([definition("example.com", "gizmos", "Namespaced")])
        .await
        .expect("the CRD is installed");
    create_gizmo(&client, "example.com", "gizmos", Some("default")).await;
    let gizmos = cache
        .informer_of(Select::dynamic(kind("example.com")))
        .expect("the informer is declared");
    gizmos.await_synced().await.expect("synced");
    let mut events = gizmos.events();
    next(&mut events).await;
    // The informer misses the deletion of the CRD.
    let rule = server
        .server()
        .faults()
        .add(Fault::on("watch gizmos").status(503));
    server.restart().await.expect("the server restarts");
    until(|| matches!(gizmos.state(), InformerState::Degraded { .. })).await;
    uninstall(&client, "example.com", "gizmos").await;
    sleep(Duration::from_mins(2)).await;
    assert_eq!(objects(&gizmos), 1, "the deletion was not reported");
    rule.remove();
    assert!(matches!(
        next(&mut events).await,
        Event::Delete {
            state_unknown: true,
            ..
        }
    ));
    until(|| is_missing(&gizmos)).await;
    assert_eq!(objects(&gizmos), 0);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_returns_404_does_not_empty_the_cache() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    server
        .install([definition("example.com", "gizmos", "Namespaced")])
        .await
        .expect("the CRD is installed");
    create_gizmo(&client, "example.com", "gizmos", Some("default")).await;
    create_map(&client, "default", "a", "blue").await;
    let gizmos = cache
        .informer_of(Select::dynamic(kind("example.com")))
        .expect("the informer is declared");
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    cache.await_synced().await.expect("synced");
    // Fail all requests, or only those for objects.
    for what in ["* *", "watch *.*"] {
        let rule = server.server().faults().add(Fault::on(what).status(404));
        server.restart().await.expect("the server restarts");
        until(|| {
            [gizmos.state(), maps.state()]
                .iter()
                .all(|state| matches!(state, InformerState::Degraded { .. }))
        })
        .await;
        server.server().journal().clear();
        sleep(HOUR).await;
        assert!(
            server.server().journal().count("* *") < 1000,
            "retries back off"
        );
        assert!(
            matches!(gizmos.state(), InformerState::Degraded { .. }),
            "{:?}",
            gizmos.state()
        );
        assert_eq!(
            (
                objects(&gizmos),
                maps.list(&Query::default())
                    .expect("the informer serves reads")
                    .len()
            ),
            (1, 1)
        );
        rule.remove();
        until(|| gizmos.state() == InformerState::Synced && maps.state() == InformerState::Synced)
            .await;
    }
    let mut events = gizmos.events();
    assert!(matches!(
        next(&mut events).await,
        Event::Create { initial: true, .. }
    ));
    cache.stop().await;
}

steersman::env_test! {
    async fn reads_of_a_kind_that_is_not_served_fail_at_once(env: Env) -> anyhow::Result<()> {
        let cache = running(env.client()?, &["default"]);
        // Both servers know the kind, but do not serve it by default.
        let versions = cache.informer::<StorageVersion>()?;
        until(|| is_missing(&versions)).await;
        let error = versions.list(&Query::default()).expect_err("nothing is known").to_string();
        assert!(error.contains("does not serve StorageVersion in internal.apiserver.k8s.io/v1alpha1"), "{error}");
        let late = cache.await_synced_within(Duration::from_millis(1)).await.expect_err("the kind is missing").to_string();
        assert!(late.contains("StorageVersion (the API server does not serve"), "{late}");
        cache.stop().await;
        Ok(())
    }

    async fn the_objects_of_a_kind_are_deleted_and_created_with_its_crd(env: Env) -> anyhow::Result<()> {
        const GROUP: &str = "comes-and-goes.example.com";
        let (client, namespace) = (env.client()?, env.namespace("comes-and-goes").await?);
        env.install([definition(GROUP, "gizmos", "Namespaced")]).await?;
        create_gizmo(&client, GROUP, "gizmos", Some(&namespace)).await;
        let cache = running(client.clone(), &[&namespace]);
        let gizmos = cache.informer_of(Select::dynamic(kind(GROUP)))?;
        let metadata = cache.informer_of(Select::dynamic_metadata(kind(GROUP)).labels("!none"))?;
        cache.await_synced().await?;
        let mut events = gizmos.events();
        assert!(matches!(next(&mut events).await, Event::Create { initial: true, .. }));
        for _ in 0..2 {
            uninstall(&client, GROUP, "gizmos").await;
            assert!(matches!(next(&mut events).await, Event::Delete { .. }));
            gizmos.wait_for(|state| matches!(state, InformerState::KindNotFound { .. })).await;
            until(|| is_missing(&gizmos) && is_missing(&metadata)).await;
            assert_eq!((objects(&gizmos), metadata.list(&Query::default())?.len()), (0, 0));
            env.install([definition(GROUP, "gizmos", "Namespaced")]).await?;
            create_gizmo(&client, GROUP, "gizmos", Some(&namespace)).await;
            assert!(matches!(next(&mut events).await, Event::Create { initial: false, .. }));
            until(|| gizmos.state() == InformerState::Synced && metadata.list(&Query::default()).unwrap().len() == 1).await;
        }
        cache.stop().await;
        Ok(())
    }

    async fn an_informer_without_access_to_crds_reports_it_and_polls_for_the_kind(env: Env) -> anyhow::Result<()> {
        const GROUP: &str = "unwatched.example.com";
        let namespace = env.namespace("unwatched").await?;
        if let Env::Embedded(embedded) = &env {
            embedded.server().faults().add(Fault::on("watch customresourcedefinitions").status(403));
        }
        // A user with list and watch in this namespace only.
        let role = json!({
            "metadata": {"name": "reader"}, "rules": [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["list", "watch"]}],
        });
        let binding = json!({
            "metadata": {"name": "reader"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "unwatcher"}],
        });
        let admin = env.client()?;
        if let Env::Real(_) = &env {
            use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
            let (role, binding): (Role, RoleBinding) = (serde_json::from_value(role)?, serde_json::from_value(binding)?);
            Api::namespaced(admin.clone(), &namespace).create(&PostParams::default(), &role).await?;
            Api::namespaced(admin.clone(), &namespace).create(&PostParams::default(), &binding).await?;
        }
        let cache = running(env.client_as("unwatcher", &[])?, &[&namespace]);
        let gizmos = cache.informer_of(Select::dynamic(kind(GROUP)))?;
        let error_text = || if let InformerState::KindNotFound { error } = gizmos.state() { error } else { String::new() };
        until(|| error_text().contains("forbidden")).await;
        assert!(error_text().starts_with("the API server does not serve Gizmo in unwatched.example.com/v1; "), "{}", error_text());
        assert!(error_text().contains("every 30 s") && error_text().contains("list and watch"), "{}", error_text());
        let read = gizmos.list(&Query::default()).expect_err("nothing is known").to_string();
        assert!(read.contains("the API server does not serve Gizmo"), "{read}");
        env.install([definition(GROUP, "gizmos", "Namespaced")]).await?;
        gizmos.await_synced().await?;
        cache.stop().await;
        Ok(())
    }
}
