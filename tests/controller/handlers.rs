//! What handlers make of events.

use super::support::{Running, ready, running, until};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ConfigMap, Node, Pod, ServiceAccount},
};
use kube_client::{Api, api::PostParams};
use kube_core::GroupVersionKind;
use serde_json::{Value, json};
use std::sync::Arc;
use steersman::{
    event::Event,
    handler::{
        Enqueue, Funcs, Handler, in_cluster, map, map_async, map_with_cache, object, owner, owner_of, requests, wrap,
    },
    object::AnyKind,
    prelude::*,
    reconcile::{ClusterRequest, Request},
    source::Kind,
    testing::{Env, TestServer},
};

fn pod(metadata: &Value) -> Pod {
    serde_json::from_value(json!({ "metadata": metadata })).expect("a pod")
}

/// A pod in a shop that is owned so: version, kind, name, and whether that manages it.
fn owned(owners: &[(&str, &str, &str, bool)]) -> Pod {
    let reference = |&(api_version, kind, name, controller): &(&str, &str, &str, bool)| json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": controller});
    let owners: Vec<_> = owners.iter().map(reference).collect();
    pod(&json!({"namespace": "shop", "name": "web-0", "ownerReferences": owners}))
}

fn key(name: &str) -> Request {
    Request::new("shop", name)
}

/// One of each kind of event.
fn each(pod: &Pod) -> [Event<Pod>; 4] {
    let pod = || pod.clone();
    [Event::create(pod()), Event::update(pod(), pod()), Event::delete(pod()), Event::generic(pod())]
}

// Catalogue 43
/// Upstream: `EnqueueRequestForObject`.
#[tokio::test]
async fn the_object_itself_is_one_request_whatever_happened() {
    let web = pod(&json!({"namespace": "shop", "name": "web"}));
    for event in each(&web) {
        assert_eq!(requests(&object(), event).await, [key("web")]);
    }
    let node =
        Event::<Node>::create(serde_json::from_value::<Node>(json!({"metadata": {"name": "n"}})).expect("a node"));
    assert_eq!(requests(&object(), node).await, [Request::cluster_scoped("n")]);
    let named: Event<AnyKind> = Event::generic(Object::named(key("web")));
    assert_eq!(requests(&object(), named).await, [key("web")], "of any kind");
}

// Catalogue 40
/// Upstream: `EnqueueRequestForOwner` with `OnlyControllerOwner`.
#[tokio::test]
async fn the_owner_that_manages_it_is_found_by_group_and_kind_whatever_the_version() {
    let sets = owner::<ReplicaSet>();
    for event in each(&owned(&[("apps/v1", "ReplicaSet", "web", true)])) {
        assert_eq!(requests(&sets, event).await, [key("web")]);
    }
    for (owners, wanted) in [
        (&[("apps/v1beta7", "ReplicaSet", "web", true)][..], &[key("web")][..]),
        (&[], &[]),
        (&[("apps/v1", "ReplicaSet", "web", false)], &[]),
        (&[("extensions/v1", "ReplicaSet", "web", true)], &[]),
        (&[("v1", "ReplicaSet", "web", true)], &[]),
        (&[("apps/v1", "Deployment", "web", true)], &[]),
        (&[("apps/v1", "ReplicaSet", "a", false), ("apps/v1", "ReplicaSet", "b", true)], &[key("b")]),
        // The first that says so counts, as upstream.
        (&[("apps/v1", "Deployment", "a", true), ("apps/v1", "ReplicaSet", "b", true)], &[]),
    ] {
        assert_eq!(requests(&sets, Event::create(owned(owners))).await, wanted, "{owners:?}");
    }
}

// Catalogue 40
#[tokio::test]
async fn every_owner_of_the_kind_is_found_if_asked_for() {
    let web = owned(&[
        ("apps/v1", "ReplicaSet", "b", false),
        ("apps/v1", "Deployment", "c", true),
        ("apps/v2", "ReplicaSet", "a", true),
        ("apps/v1", "ReplicaSet", "b", false),
    ]);
    assert_eq!(requests(&owner::<ReplicaSet>().any(), Event::create(web)).await, [key("b"), key("a")]);
}

// Catalogue 41
/// Upstream an `apiVersion` that is none loses all that follow.
#[tokio::test]
async fn a_bad_reference_costs_nobody_else() {
    let web = owned(&[
        ("apps/v1/v2", "ReplicaSet", "bad", false),
        ("", "ReplicaSet", "worse", false),
        ("/", "ReplicaSet", "no", false),
        ("apps/v1", "ReplicaSet", "good", true),
    ]);
    assert_eq!(requests(&owner::<ReplicaSet>().any(), Event::create(web)).await, [key("good")]);
}

// Catalogue 41
#[tokio::test]
async fn an_update_is_for_the_old_owners_and_for_the_new_ones_each_once() {
    let before = owned(&[("apps/v1", "ReplicaSet", "a", false), ("apps/v1", "ReplicaSet", "b", true)]);
    let after = owned(&[("apps/v1", "ReplicaSet", "b", false), ("apps/v1", "ReplicaSet", "c", true)]);
    let update = Event::update(before, after);
    assert_eq!(requests(&owner::<ReplicaSet>(), update.clone()).await, ["b", "c"].map(key));
    assert_eq!(requests(&owner::<ReplicaSet>().any(), update).await, ["a", "b", "c"].map(key));
}

// Catalogue 40
#[tokio::test]
async fn an_owner_without_a_namespace_is_asked_for_without_one() {
    let web = owned(&[("v1", "Node", "n", true)]);
    assert_eq!(requests(&owner::<Node>(), Event::create(web)).await, [Request::cluster_scoped("n")]);
}

#[tokio::test]
#[should_panic(expected = "whether apps/v1, Deployment has namespaces is not known, and there is no cache to ask")]
async fn an_owner_that_nobody_can_be_asked_about_is_said() {
    let web = owned(&[("apps/v1", "Deployment", "web", true)]);
    requests(&owner_of(GroupVersionKind::gvk("apps", "v1", "Deployment")), Event::create(web)).await;
}

// Catalogue 42
/// Upstream: `EnqueueRequestsFromMapFunc`.
#[tokio::test]
async fn a_mapping_is_made_of_the_old_object_and_of_the_new_one_each_request_once_and_in_order() {
    let names = |object: &Object<Pod>| -> Vec<Request> {
        object.meta().labels().get("for").unwrap_or_default().split('.').map(key).collect()
    };
    let told = |names: &str| pod(&json!({"name": "a", "labels": {"for": names}}));
    let update = || Event::update(told("c.a"), told("b.a.d.b"));
    assert_eq!(requests(&map(names), update()).await, ["c", "a", "b", "d"].map(key));
    assert_eq!(requests(&map(names), Event::delete(told("b.a"))).await, ["b", "a"].map(key));
    let later = map_async(move |object: Object<Pod>| async move { names(&object) });
    assert_eq!(requests(&later, update()).await, ["c", "a", "b", "d"].map(key));
    assert_eq!(requests(&later, Event::generic(told("b"))).await, [key("b")]);
}

#[tokio::test]
async fn a_mapping_yields_what_it_likes() {
    let event = || Event::<Pod>::create(Pod::default());
    assert_eq!(requests(&map(|_: &Object<Pod>| [1, 2]), event()).await, [1, 2]);
    assert!(requests(&map(|_: &Object<Pod>| None::<u32>), event()).await.is_empty());
    assert_eq!(requests(&map(|_: &Object<Pod>| anyhow::Ok(Some("it"))), event()).await, ["it"]);
    let decoded = map(|pod: &Object<Pod>| pod.decode().map(|pod| vec![pod.metadata.name.clone()]));
    assert_eq!(requests(&decoded, event()).await, [None]);
}

/// Upstream: handler.Funcs, of which those that are missing do nothing.
#[tokio::test]
async fn each_closure_is_called_for_its_kind_of_event() {
    let web = pod(&json!({"name": "web"}));
    let nothing = Funcs::<Pod, String>::new();
    let all = Funcs::new()
        .create(|pod, queue: &Enqueue<String>| queue.add(format!("created {}", pod.name())))
        .update(|old, new, queue| queue.add(format!("updated {} {}", old.name(), new.name())))
        .delete(|pod, queue| queue.add(format!("deleted {}", pod.name())))
        .generic(|pod, queue| queue.add(format!("told of {}", pod.name())))
        .delete(|_, queue| queue.add("and gone".into()));
    let mut told = Vec::new();
    for event in each(&web) {
        assert!(requests(&nothing, event.clone()).await.is_empty());
        told.extend(requests(&all, event).await);
    }
    assert_eq!(told, ["created web", "updated web web", "deleted web", "and gone", "told of web"]);
}

#[tokio::test]
async fn handlers_of_plain_requests_serve_controllers_with_other_ones() {
    let web = owned(&[("apps/v1", "ReplicaSet", "web", true)]);
    let all = wrap(owner::<ReplicaSet>(), |request| request.name().len());
    assert_eq!(requests(&all, Event::create(web.clone())).await, [3]);
    let wanted = ClusterRequest { cluster: "eu".into(), request: key("web-0") };
    assert_eq!(requests(&in_cluster("eu", object()), Event::create(web.clone())).await, [wanted]);
    let shared: Arc<dyn Handler<Pod, Request>> = Arc::new(owner::<ReplicaSet>());
    assert_eq!(requests(&shared, Event::create(web.clone())).await, [key("web")]);
    let waits = wrap(map_async(async |pod: Object<Pod>| [pod.key().clone()]), |request| request.to_string());
    assert_eq!(requests(&waits, Event::create(web)).await, ["shop/web-0"]);
}

fn definition(group: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("owners.{group}")},
        "spec": {
            "group": group, "scope": scope, "names": {"plural": "owners", "kind": "Owner"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

async fn make_owned(env: &Env, namespace: &str, name: &str, group: &str) -> anyhow::Result<()> {
    let map = serde_json::from_value(
        json!({"metadata": {"name": name, "labels": {"owned": "yes"}, "ownerReferences": [
            {"apiVersion": format!("{group}/v1"), "kind": "Owner", "name": format!("owner-of-{name}"), "uid": name, "controller": true},
        ]}}),
    )?;
    Api::<ConfigMap>::namespaced(env.client()?, namespace).create(&PostParams::default(), &map).await?;
    Ok(())
}

fn watch(cache: &Running, group: &str) -> (WorkQueue<Request>, steersman::source::WatchHandle) {
    let (queue, owners) = (WorkQueue::default(), owner_of(GroupVersionKind::gvk(group, "v1", "Owner")));
    let source = Kind::with_cache(cache, Select::<ConfigMap>::new().labels("owned"), owners);
    (queue.clone(), source.start(&queue).expect("it starts"))
}

steersman::env_test! {
    /// Upstream the event is lost if the server does not know the kind.
    async fn owners_of_a_kind_named_at_run_time_are_asked_for_where_the_server_has_them(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("handlers").await?;
        let (spaced, whole) = ("spaced.handlers.example.com", "whole.handlers.example.com");
        make_owned(&env, &namespace, "one", spaced).await?;
        make_owned(&env, &namespace, "two", whole).await?;
        let cache = running(env.client()?, &namespace);
        let ((in_namespace, watch_one), (without, watch_two)) = (watch(&cache, spaced), watch(&cache, whole));
        watch_one.await_synced().await?;
        watch_two.await_synced().await?;
        assert!(watch_one.stats().failures > 0 && in_namespace.is_empty(), "nothing is guessed");
        env.install([definition(spaced, "Namespaced"), definition(whole, "Cluster")]).await?;
        until(|| in_namespace.len() == 1 && without.len() == 1).await;
        make_owned(&env, &namespace, "three", spaced).await?;
        until(|| in_namespace.len() == 2).await;
        let owner = |name: &str| Request::new(&namespace, &format!("owner-of-{name}"));
        assert_eq!(ready(&in_namespace), [owner("one"), owner("three")]);
        assert_eq!(ready(&without), [Request::cluster_scoped("owner-of-two")]);
        cache.stop().await;
        Ok(())
    }

    async fn a_mapping_reads_other_kinds_from_the_cache_that_the_event_is_from(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("handlers").await?;
        make_owned(&env, &namespace, "one", "any.example.com").await?;
        let cache = running(env.client()?, &namespace);
        let queue = WorkQueue::default();
        let maps = |account: &Object<ServiceAccount>, cache: &Cache| {
            let maps = cache.informer::<ConfigMap>()?.list(&Query::default().namespace(account.namespace()))?;
            anyhow::Ok(maps.iter().map(|map| ObjectKey::of(&**map)).collect::<Vec<_>>())
        };
        // Where there is nothing yet to read from, the event is looked at again.
        let watch = Kind::with_cache(&cache, Select::<ServiceAccount>::new(), map_with_cache(maps)).start(&queue)?;
        let account = serde_json::from_value(json!({"metadata": {"name": "somebody"}}))?;
        Api::<ServiceAccount>::namespaced(env.client()?, &namespace).create(&PostParams::default(), &account).await?;
        let held = cache.informer::<ConfigMap>()?;
        until(|| ready(&queue).contains(&Request::new(&namespace, "one"))).await;
        watch.stop().await;
        drop(held);
        cache.stop().await;
        Ok(())
    }
}

/// Its events are of another cluster than the controller's cache: that one knows the owner's kind.
#[tokio::test]
async fn an_informer_that_somebody_holds_is_asked_where_it_is_from() -> anyhow::Result<()> {
    let (here, there) = (Env::embedded()?, Env::embedded()?);
    let group = "there.handlers.example.com";
    there.install([definition(group, "Cluster")]).await?;
    let (cache, other) = (running(here.client()?, "default"), running(there.client()?, "default"));
    let informer = other.informer::<ConfigMap>()?;
    let owners = owner_of(GroupVersionKind::gvk(group, "v1", "Owner"));
    let (controller, task) = Controller::builder("test")
        .cache(&cache)
        .watches_source(steersman::source::informer(&informer, owners))
        .build(reconcile::from_fn(async |_: Request, _| Ok(Outcome::done())))?;
    let running = tokio::spawn(task.run_until(std::future::pending()));
    informer.await_synced().await?;
    // Its owner is not there, so that it is soon deleted: its creation is an event all the same.
    make_owned(&there, "default", "one", group).await?;
    until(|| controller.stats().success > 0).await;
    controller.stop().await;
    running.await??;
    other.stop().await;
    cache.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_mapping_that_wants_a_cache_where_there_is_none_is_told_so() {
    let nobody = |_: &Object<Pod>, _: &Cache| Some(key("nobody"));
    let asked = tokio::spawn(async move { requests(&map_with_cache(nobody), Event::create(Pod::default())).await });
    let panic = asked.await.expect_err("there is none").into_panic();
    let words = panic.downcast_ref::<String>().expect("words");
    assert!(words.contains("no cache") && words.contains("handler::map"), "{words}");
}

/// What does not compile otherwise: closures whose arguments are known by what they are given to.
#[tokio::test]
async fn handlers_can_be_written_briefly() {
    fn takes<K: 'static>(handler: impl Handler<K, Request>) -> impl Handler<K, Request> {
        handler
    }
    let brief = takes::<Deployment>(map(|object| Some(object.key().clone())));
    assert_eq!(requests(&brief, Event::create(Deployment::default())).await.len(), 1);
}
