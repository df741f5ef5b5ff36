//! Kinds that are not there yet, or not any more.

use super::support::{Running, make, running, until};
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
    cache::{Cache, CacheOptions, Events, Informer, InformerState, Notice, Query, Select},
    event::Event,
    testing::{Embedded, Env, TestServer},
};
use steersman_apiserver::Fault;
use steersman_testkit::{Seeds, this_test};
use tokio::time::{Instant, sleep};

const DEFINITIONS: &str = "* customresourcedefinitions";
const HOUR: Duration = Duration::from_hours(1);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "typed.example.com", version = "v1", kind = "Later", namespaced)]
struct LaterSpec {}

pub(crate) fn kind(group: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", "Later")
}

pub(crate) fn definition(group: &str, plural: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope, "names": {"plural": plural, "kind": "Later"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

async fn try_uninstall(client: &Client, group: &str, plural: &str) -> kube_client::Result<()> {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions = ApiResource::from_gvk_with_plural(&gvk, "customresourcedefinitions");
    let definitions = Api::<DynamicObject>::all_with(client.clone(), &definitions);
    definitions.delete(&format!("{plural}.{group}"), &DeleteParams::default()).await.map(drop)
}

pub(crate) async fn uninstall(client: &Client, group: &str, plural: &str) {
    try_uninstall(client, group, plural).await.expect("it is there");
}

fn resource(group: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&kind(group), plural)
}

/// In a namespace, or without one.
fn api(client: &Client, group: &str, plural: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource(group, plural)),
        None => Api::all_with(client.clone(), &resource(group, plural)),
    }
}

pub(crate) async fn make_later(client: &Client, group: &str, plural: &str, namespace: Option<&str>) {
    let (api, later) = (api(client, group, plural, namespace), DynamicObject::new("one", &resource(group, plural)));
    // A definition is in discovery a moment before objects of it can be made.
    while api.create(&PostParams::default(), &later).await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn is_absent<K>(informer: &Informer<K>) -> bool {
    matches!(informer.state(), InformerState::Absent { .. })
}

pub(crate) fn objects(later: &Informer<DynamicObject>) -> usize {
    later.list(&Query::default()).expect("it was synced").len()
}

async fn next<K>(events: &mut Events<K>) -> Event<K> {
    loop {
        if let Notice::Event(event) = events.next().await.expect("it goes on") {
            return event;
        }
    }
}

fn embedded() -> (Embedded, Running) {
    let server = Embedded::start().expect("it starts");
    let cache =
        Running::new(Cache::new(server.client().expect("a client"), CacheOptions::default()).expect("a ready client"));
    (server, cache)
}

fn discoveries(server: &Embedded) -> usize {
    server.server().journal().entries().iter().filter(|entry| entry.path == "/apis/example.com/v1").count()
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_not_polled_while_it_is_absent_and_found_at_once_when_it_comes() {
    let (server, cache) = embedded();
    let later = cache.informer_of(Select::dynamic(kind("example.com"))).expect("it is new");
    let other = cache.informer_of(Select::dynamic(kind("elsewhere.example.com"))).expect("it is new");
    until(|| is_absent(&later) && is_absent(&other)).await;
    sleep(Duration::from_secs(1)).await;
    let journal = server.server().journal();
    assert_eq!(journal.count("watch customresourcedefinitions"), 1, "for both of them");
    journal.clear();
    sleep(HOUR).await;
    assert_eq!(journal.count("* laters"), 0);
    assert!(discoveries(&server) < 15, "once in a long while: it may come without a definition");

    let begun = Instant::now();
    server.install([definition("example.com", "laters", "Namespaced")]).await.expect("it is installed");
    later.await_synced().await.expect("it syncs");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(is_absent(&other), "another group is another matter");
    drop(other);
    sleep(Duration::from_mins(1)).await;
    journal.clear();
    sleep(HOUR).await;
    assert_eq!(journal.count(DEFINITIONS), 0, "nobody is absent any more");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_comes_back_is_found_where_it_is_then() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    server.install([definition("example.com", "laters", "Namespaced")]).await.expect("it is installed");
    make_later(&client, "example.com", "laters", Some("default")).await;
    let later = cache.informer_of(Select::dynamic(kind("example.com"))).expect("it is new");
    later.await_synced().await.expect("it syncs");
    assert_eq!(objects(&later), 1);
    let revision = later.resource_version();
    let mut events = later.events();
    next(&mut events).await;
    uninstall(&client, "example.com", "laters").await;
    until(|| is_absent(&later)).await;
    assert_eq!(objects(&later), 0, "there is nothing, and that is known");
    assert!(later.resource_version() >= revision);
    assert!(matches!(next(&mut events).await, Event::Delete { .. }));
    sleep(Duration::from_mins(1)).await;
    server.server().journal().clear();
    sleep(HOUR).await;
    assert_eq!(server.server().journal().count("* laters"), 0, "it is not asked for what is not there");

    server.install([definition("example.com", "latecomers", "Cluster")]).await.expect("it is installed");
    make_later(&client, "example.com", "latecomers", None).await;
    until(|| objects(&later) == 1).await;
    assert!(
        matches!(next(&mut events).await, Event::Create { object, initial: false } if object.namespace().is_none())
    );
    assert_eq!(later.state(), InformerState::Synced);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_its_type_names_is_waited_for_too() {
    let (server, cache) = embedded();
    let versions = cache.informer::<StorageVersion>().expect("it is new");
    until(|| is_absent(&versions)).await;
    server.server().journal().clear();
    sleep(HOUR).await;
    assert_eq!(server.server().journal().count("* storageversions"), 0);
    let mut definition = definition("internal.apiserver.k8s.io", "storageversions", "Cluster");
    definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    definition["spec"]["names"]["kind"] = "StorageVersion".into();
    definition["spec"]["versions"][0]["name"] = "v1alpha1".into();
    server.install([definition]).await.expect("it is installed");
    versions.await_synced().await.expect("it syncs");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_where_its_type_says_is_told_with_both() {
    for (plural, scope, has) in
        [("lateness", "Namespaced", "`lateness` in namespaces"), ("laters", "Cluster", "`laters` cluster-scoped")]
    {
        let server = Embedded::start().expect("it starts");
        let cache = running(server.client().expect("a client"), &["default"]);
        let later = cache.informer::<Later>().expect("it is new");
        until(|| is_absent(&later)).await;
        server.install([definition("typed.example.com", plural, scope)]).await.expect("it is installed");
        sleep(HOUR).await;
        let said = format!("the server has Later as {has}, its type says `laters` in namespaces");
        let InformerState::Degraded { error, .. } = later.state() else { panic!("{:?}", later.state()) };
        assert!(error.contains(&said), "{error}");
        cache.stop().await;
    }
}

/// What the informers of three kinds tell is what the server has in the end, however kinds and objects come and go, and whatever is refused meanwhile.
#[tokio::test(start_paused = true)]
async fn soak_kinds_that_come_and_go_at_random_end_up_as_the_server_has_them() {
    for seed in Seeds::new(this_test!(), 20) {
        let mut random = StdRng::seed_from_u64(seed);
        let (server, cache) = embedded();
        let client = server.client().expect("a client");
        let groups = ["a.example.com", "b.example.com", "c.example.com"];
        let informers = groups.map(|group| cache.informer_of(Select::dynamic(kind(group))).expect("it is new"));
        let told = informers.each_ref().map(|informer| {
            let (told, mut events) = (Arc::new(Mutex::new(BTreeSet::new())), informer.events());
            let known = told.clone();
            tokio::spawn(async move {
                while let Some(notice) = events.next().await {
                    let Notice::Event(event) = notice else { continue };
                    let (mut known, name) = (known.lock().expect("nobody panics"), event.object().name().to_owned());
                    match event {
                        Event::Create { .. } => assert!(known.insert(name), "it was not there"),
                        Event::Update { .. } | Event::Generic { .. } => assert!(known.contains(&name), "it was there"),
                        Event::Delete { .. } => assert!(known.remove(&name), "it was there"),
                    }
                }
            });
            told
        });
        let mut installed = [false; 3];
        for turn in 0..60 {
            let number = random.random_range(0..3);
            let group = groups[number];
            match random.random_range(0..10) {
                0..3 if !installed[number] => {
                    server.install([definition(group, "laters", "Namespaced")]).await.expect("it is installed");
                    installed[number] = true;
                }
                0..3 if try_uninstall(&client, group, "laters").await.is_ok() => {
                    installed[number] = false;
                    sleep(Duration::from_millis(10)).await;
                }
                3..7 => {
                    let laters = api(&client, group, "laters", Some("default"));
                    let later = DynamicObject::new(&format!("o{turn}"), &resource(group, "laters"));
                    drop(laters.create(&PostParams::default(), &later).await);
                }
                7 => {
                    let what = ["watch customresourcedefinitions", "watch laters", "* *"][random.random_range(0..3)];
                    let code = [403, 404, 410, 500][random.random_range(0..4)];
                    server.server().faults().add(Fault::on(what).status(code).times(random.random_range(1..4)));
                }
                8 => server.restart().await.expect("it restarts"),
                _ => sleep(Duration::from_secs(random.random_range(0..90))).await,
            }
        }
        server.server().faults().clear();
        let mut wanted = Vec::new();
        for group in groups {
            let list = api(&client, group, "laters", None).list(&ListParams::default()).await;
            wanted.push(list.ok().map(|list| list.items.iter().map(ResourceExt::name_any).collect::<BTreeSet<_>>()));
        }
        let alike = || {
            (0..3).all(|i| {
                let told = told[i].lock().expect("nobody panics");
                *told == wanted[i].clone().unwrap_or_default() && is_absent(&informers[i]) == wanted[i].is_none()
            })
        };
        let done = tokio::time::timeout(Duration::from_mins(3), until(alike)).await;
        let states = informers.each_ref().map(Informer::state);
        assert!(done.is_ok(), "seed {seed}: {told:?} is not {wanted:?}, {states:?}");
        cache.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_told_to_be_deleted_is_so_once_the_kind_is_gone() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    server.install([definition("example.com", "laters", "Namespaced")]).await.expect("it is installed");
    make_later(&client, "example.com", "laters", Some("default")).await;
    let later = cache.informer_of(Select::dynamic(kind("example.com"))).expect("it is new");
    later.await_synced().await.expect("it syncs");
    let mut events = later.events();
    next(&mut events).await;
    // It hears nothing of the kind's end.
    let rule = server.server().faults().add(Fault::on("watch laters").status(503));
    server.restart().await.expect("it restarts");
    until(|| matches!(later.state(), InformerState::Degraded { .. })).await;
    uninstall(&client, "example.com", "laters").await;
    sleep(Duration::from_mins(2)).await;
    assert_eq!(objects(&later), 1, "what the server does not say is not known");
    rule.remove();
    assert!(matches!(next(&mut events).await, Event::Delete { state_unknown: true, .. }));
    until(|| is_absent(&later)).await;
    assert_eq!(objects(&later), 0);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_finds_nothing_empties_no_cache() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    server.install([definition("example.com", "laters", "Namespaced")]).await.expect("it is installed");
    make_later(&client, "example.com", "laters", Some("default")).await;
    make(&client, "default", "a", "blue").await;
    let later = cache.informer_of(Select::dynamic(kind("example.com"))).expect("it is new");
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    cache.await_synced().await.expect("they sync");
    // Of everything, or only of the objects.
    for what in ["* *", "watch *.*"] {
        let rule = server.server().faults().add(Fault::on(what).status(404));
        server.restart().await.expect("it restarts");
        until(|| [later.state(), maps.state()].iter().all(|state| matches!(state, InformerState::Degraded { .. })))
            .await;
        server.server().journal().clear();
        sleep(HOUR).await;
        assert!(server.server().journal().count("* *") < 1000, "nor does it hammer the server");
        assert!(matches!(later.state(), InformerState::Degraded { .. }), "{:?}", later.state());
        assert_eq!((objects(&later), maps.list(&Query::default()).expect("it serves").len()), (1, 1));
        rule.remove();
        until(|| later.state() == InformerState::Synced && maps.state() == InformerState::Synced).await;
    }
    let mut events = later.events();
    assert!(matches!(next(&mut events).await, Event::Create { initial: true, .. }));
    cache.stop().await;
}

steersman::env_test! {
    async fn a_kind_that_is_not_served_is_absent_and_reads_say_so_at_once(env: Env) -> anyhow::Result<()> {
        let cache = running(env.client()?, &["default"]);
        // Both servers know it, and serve it only if they are told to.
        let versions = cache.informer::<StorageVersion>()?;
        until(|| is_absent(&versions)).await;
        let error = versions.list(&Query::default()).expect_err("nothing is known").to_string();
        assert!(error.contains("no StorageVersion in internal.apiserver.k8s.io/v1alpha1"), "{error}");
        let late = cache.await_synced_within(Duration::from_millis(1)).await.expect_err("it is absent").to_string();
        assert!(late.contains("StorageVersion (the server has no"), "{late}");
        cache.stop().await;
        Ok(())
    }

    async fn objects_go_with_their_kind_and_come_back_with_it(env: Env) -> anyhow::Result<()> {
        const GROUP: &str = "comes-and-goes.example.com";
        let (client, namespace) = (env.client()?, env.namespace("comes-and-goes").await?);
        env.install([definition(GROUP, "laters", "Namespaced")]).await?;
        make_later(&client, GROUP, "laters", Some(&namespace)).await;
        let cache = running(client.clone(), &[&namespace]);
        let later = cache.informer_of(Select::dynamic(kind(GROUP)))?;
        let metadata = cache.informer_of(Select::dynamic_metadata(kind(GROUP)).labels("!none"))?;
        cache.await_synced().await?;
        let mut events = later.events();
        assert!(matches!(next(&mut events).await, Event::Create { initial: true, .. }));
        for _ in 0..2 {
            uninstall(&client, GROUP, "laters").await;
            assert!(matches!(next(&mut events).await, Event::Delete { .. }));
            until(|| is_absent(&later) && is_absent(&metadata)).await;
            assert_eq!((objects(&later), metadata.list(&Query::default())?.len()), (0, 0));
            env.install([definition(GROUP, "laters", "Namespaced")]).await?;
            make_later(&client, GROUP, "laters", Some(&namespace)).await;
            assert!(matches!(next(&mut events).await, Event::Create { initial: false, .. }));
            until(|| later.state() == InformerState::Synced && metadata.list(&Query::default()).unwrap().len() == 1).await;
        }
        cache.stop().await;
        Ok(())
    }

    async fn who_may_not_watch_definitions_is_told_so_and_finds_the_kind_all_the_same(env: Env) -> anyhow::Result<()> {
        const GROUP: &str = "unwatched.example.com";
        let namespace = env.namespace("unwatched").await?;
        if let Env::Embedded(embedded) = &env {
            embedded.server().faults().add(Fault::on("watch customresourcedefinitions").status(403));
        }
        // Who may read in the namespace, and nothing else.
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
        let later = cache.informer_of(Select::dynamic(kind(GROUP)))?;
        let words = || if let InformerState::Absent { error } = later.state() { error } else { String::new() };
        until(|| words().contains("forbidden")).await;
        assert!(words().starts_with("the server has no Later in unwatched.example.com/v1; "), "{}", words());
        assert!(words().contains("every 30 s") && words().contains("list and watch"), "{}", words());
        let read = later.list(&Query::default()).expect_err("nothing is known").to_string();
        assert!(read.contains("the server has no Later"), "{read}");
        env.install([definition(GROUP, "laters", "Namespaced")]).await?;
        later.await_synced().await?;
        cache.stop().await;
        Ok(())
    }
}
