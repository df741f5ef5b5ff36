//! Tests of the requests that handlers create from events.

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
        Enqueue, Funcs, Handler, in_cluster, map, map_async, map_with_cache, object, owner,
        owner_of, requests, wrap,
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

/// Creates a pod with these owners: `apiVersion`, kind, name, and `controller`.
fn owned(owners: &[(&str, &str, &str, bool)]) -> Pod {
    let reference = |&(api_version, kind, name, controller): &(&str, &str, &str, bool)| json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": controller});
    let owners: Vec<_> = owners.iter().map(reference).collect();
    pod(&json!({"namespace": "shop", "name": "web-0", "ownerReferences": owners}))
}

fn key(name: &str) -> Request {
    Request::new("shop", name)
}

/// Returns one event of each type.
fn one_of_each_type(pod: &Pod) -> [Event<Pod>; 4] {
    let pod = || pod.clone();
    [
        Event::create(pod()),
        Event::update(pod(), pod()),
        Event::delete(pod()),
        Event::generic(pod()),
    ]
}

/// Corresponds to controller-runtime's `EnqueueRequestForObject`.
#[tokio::test]
async fn object_enqueues_the_object_for_every_type_of_event() {
    let web = pod(&json!({"namespace": "shop", "name": "web"}));
    for event in one_of_each_type(&web) {
        assert_eq!(requests(&object(), event).await, [key("web")]);
    }
    let node = Event::<Node>::create(
        serde_json::from_value::<Node>(json!({"metadata": {"name": "n"}})).expect("a node"),
    );
    assert_eq!(
        requests(&object(), node).await,
        [Request::cluster_scoped("n")]
    );
    let named: Event<AnyKind> = Event::generic(Object::named(key("web")));
    assert_eq!(
        requests(&object(), named).await,
        [key("web")],
        "an object without a type"
    );
}

/// Corresponds to controller-runtime's `EnqueueRequestForOwner` with `OnlyControllerOwner`.
#[tokio::test]
async fn owner_enqueues_the_controller_owner_of_the_group_and_kind() {
    let sets = owner::<ReplicaSet>();
    for event in one_of_each_type(&owned(&[("apps/v1", "ReplicaSet", "web", true)])) {
        assert_eq!(requests(&sets, event).await, [key("web")]);
    }
    for (owners, wanted) in [
        (
            &[("apps/v1beta7", "ReplicaSet", "web", true)][..],
            &[key("web")][..],
        ),
        (&[], &[]),
        (&[("apps/v1", "ReplicaSet", "web", false)], &[]),
        (&[("extensions/v1", "ReplicaSet", "web", true)], &[]),
        (&[("v1", "ReplicaSet", "web", true)], &[]),
        (&[("apps/v1", "Deployment", "web", true)], &[]),
        (
            &[
                ("apps/v1", "ReplicaSet", "a", false),
                ("apps/v1", "ReplicaSet", "b", true),
            ],
            &[key("b")],
        ),
        // The first reference with `controller` set counts, as in controller-runtime.
        (
            &[
                ("apps/v1", "Deployment", "a", true),
                ("apps/v1", "ReplicaSet", "b", true),
            ],
            &[],
        ),
    ] {
        assert_eq!(
            requests(&sets, Event::create(owned(owners))).await,
            wanted,
            "{owners:?}"
        );
    }
}

#[tokio::test]
async fn owner_any_enqueues_every_owner_of_the_kind() {
    let web = owned(&[
        ("apps/v1", "ReplicaSet", "b", false),
        ("apps/v1", "Deployment", "c", true),
        ("apps/v2", "ReplicaSet", "a", true),
        ("apps/v1", "ReplicaSet", "b", false),
    ]);
    assert_eq!(
        requests(&owner::<ReplicaSet>().any(), Event::create(web)).await,
        [key("b"), key("a")]
    );
}

/// In controller-runtime an invalid `apiVersion` drops all references after it.
#[tokio::test]
async fn an_invalid_owner_reference_does_not_affect_the_others() {
    let web = owned(&[
        ("apps/v1/v2", "ReplicaSet", "bad", false),
        ("", "ReplicaSet", "worse", false),
        ("/", "ReplicaSet", "no", false),
        ("apps/v1", "ReplicaSet", "good", true),
    ]);
    assert_eq!(
        requests(&owner::<ReplicaSet>().any(), Event::create(web)).await,
        [key("good")]
    );
}

#[tokio::test]
async fn an_update_enqueues_old_and_new_owners_once() {
    let before = owned(&[
        ("apps/v1", "ReplicaSet", "a", false),
        ("apps/v1", "ReplicaSet", "b", true),
    ]);
    let after = owned(&[
        ("apps/v1", "ReplicaSet", "b", false),
        ("apps/v1", "ReplicaSet", "c", true),
    ]);
    let update = Event::update(before, after);
    assert_eq!(
        requests(&owner::<ReplicaSet>(), update.clone()).await,
        ["b", "c"].map(key)
    );
    assert_eq!(
        requests(&owner::<ReplicaSet>().any(), update).await,
        ["a", "b", "c"].map(key)
    );
}

#[tokio::test]
async fn a_cluster_scoped_owner_is_enqueued_without_a_namespace() {
    let web = owned(&[("v1", "Node", "n", true)]);
    assert_eq!(
        requests(&owner::<Node>(), Event::create(web)).await,
        [Request::cluster_scoped("n")]
    );
}

#[tokio::test]
#[should_panic(
    expected = "cannot determine the scope of apps/v1, Deployment: the controller has no cache"
)]
async fn owner_of_a_dynamic_kind_requires_a_cache() {
    let web = owned(&[("apps/v1", "Deployment", "web", true)]);
    requests(
        &owner_of(GroupVersionKind::gvk("apps", "v1", "Deployment")),
        Event::create(web),
    )
    .await;
}

/// Corresponds to controller-runtime's `EnqueueRequestsFromMapFunc`.
#[tokio::test]
async fn map_is_called_for_the_old_and_the_new_object_and_dedups_requests() {
    let names = |object: &Object<Pod>| -> Vec<Request> {
        object
            .meta()
            .labels()
            .get("for")
            .unwrap_or_default()
            .split('.')
            .map(key)
            .collect()
    };
    let pod_for = |names: &str| pod(&json!({"name": "a", "labels": {"for": names}}));
    let update = || Event::update(pod_for("c.a"), pod_for("b.a.d.b"));
    assert_eq!(
        requests(&map(names), update()).await,
        ["c", "a", "b", "d"].map(key)
    );
    assert_eq!(
        requests(&map(names), Event::delete(pod_for("b.a"))).await,
        ["b", "a"].map(key)
    );
    let asynchronous = map_async(move |object: Object<Pod>| async move { names(&object) });
    assert_eq!(
        requests(&asynchronous, update()).await,
        ["c", "a", "b", "d"].map(key)
    );
    assert_eq!(
        requests(&asynchronous, Event::generic(pod_for("b"))).await,
        [key("b")]
    );
}

#[tokio::test]
async fn a_mapping_can_return_any_iterator_option_or_result() {
    let event = || Event::<Pod>::create(Pod::default());
    assert_eq!(
        requests(&map(|_: &Object<Pod>| [1, 2]), event()).await,
        [1, 2]
    );
    assert!(
        requests(&map(|_: &Object<Pod>| None::<u32>), event())
            .await
            .is_empty()
    );
    assert_eq!(
        requests(&map(|_: &Object<Pod>| anyhow::Ok(Some("it"))), event()).await,
        ["it"]
    );
    let decoded = map(|pod: &Object<Pod>| pod.decode().map(|pod| vec![pod.metadata.name.clone()]));
    assert_eq!(requests(&decoded, event()).await, [None]);
}

/// Corresponds to controller-runtime's `handler.Funcs`: missing functions do nothing.
#[tokio::test]
async fn each_closure_is_called_for_its_type_of_event() {
    let web = pod(&json!({"name": "web"}));
    let nothing = Funcs::<Pod, String>::new();
    let all = Funcs::new()
        .create(|event, queue: &Enqueue<String>| {
            let initial = if event.initial { " initial" } else { "" };
            queue.add(format!("created{initial} {}", event.object.name()));
        })
        .update(|old, new, queue| queue.add(format!("updated {} {}", old.name(), new.name())))
        .delete(|event, queue| {
            let unknown = if event.state_unknown { " unknown" } else { "" };
            queue.add(format!("deleted{unknown} {}", event.object.name()));
        })
        .generic(|pod, queue| queue.add(format!("generic {}", pod.name())))
        .delete(|_, queue| queue.add("deleted again".into()));
    let mut results = Vec::new();
    for event in one_of_each_type(&web) {
        assert!(requests(&nothing, event.clone()).await.is_empty());
        results.extend(requests(&all, event).await);
    }
    assert_eq!(
        results,
        [
            "created web",
            "updated web web",
            "deleted web",
            "deleted again",
            "generic web"
        ]
    );
    let listed = Event::Create {
        object: web.clone().into(),
        initial: true,
    };
    assert_eq!(requests(&all, listed).await, ["created initial web"]);
    let missed = Event::Delete {
        object: web.into(),
        state_unknown: true,
    };
    assert_eq!(
        requests(&all, missed).await,
        ["deleted unknown web", "deleted again"]
    );
}

#[tokio::test]
async fn handlers_of_plain_requests_can_be_wrapped_for_other_request_types() {
    let web = owned(&[("apps/v1", "ReplicaSet", "web", true)]);
    let all = wrap(owner::<ReplicaSet>(), |request| request.name().len());
    assert_eq!(requests(&all, Event::create(web.clone())).await, [3]);
    let wanted = ClusterRequest {
        cluster: "eu".into(),
        request: key("web-0"),
    };
    assert_eq!(
        requests(&in_cluster("eu", object()), Event::create(web.clone())).await,
        [wanted]
    );
    let shared: Arc<dyn Handler<Pod, Request>> = Arc::new(owner::<ReplicaSet>());
    assert_eq!(
        requests(&shared, Event::create(web.clone())).await,
        [key("web")]
    );
    let waits = wrap(
        map_async(async |pod: Object<Pod>| [pod.key().clone()]),
        |request| request.to_string(),
    );
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
    Api::<ConfigMap>::namespaced(env.client()?, namespace)
        .create(&PostParams::default(), &map)
        .await?;
    Ok(())
}

fn watch(cache: &Running, group: &str) -> (WorkQueue<Request>, steersman::source::WatchHandle) {
    let (queue, owners) = (
        WorkQueue::default(),
        owner_of(GroupVersionKind::gvk(group, "v1", "Owner")),
    );
    let source = Kind::with_cache(cache, Select::<ConfigMap>::new().labels("owned"), owners);
    (
        queue.clone(),
        source.start(&queue).expect("the source starts"),
    )
}

steersman::env_test! {
    /// controller-runtime drops the event if the server does not know the kind.
    async fn owner_of_resolves_the_scope_of_a_dynamic_kind_by_discovery(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("handlers").await?;
        let (namespaced_group, cluster_group) = ("spaced.handlers.example.com", "whole.handlers.example.com");
        make_owned(&env, &namespace, "one", namespaced_group).await?;
        make_owned(&env, &namespace, "two", cluster_group).await?;
        let cache = running(env.client()?, &namespace);
        let ((namespaced_requests, watch_one), (cluster_requests, watch_two)) = (watch(&cache, namespaced_group), watch(&cache, cluster_group));
        watch_one.await_synced().await?;
        watch_two.await_synced().await?;
        assert!(watch_one.stats().failures > 0 && namespaced_requests.is_empty(), "no request before the scope is known");
        env.install([definition(namespaced_group, "Namespaced"), definition(cluster_group, "Cluster")]).await?;
        until(|| namespaced_requests.len() == 1 && cluster_requests.len() == 1).await;
        make_owned(&env, &namespace, "three", namespaced_group).await?;
        until(|| namespaced_requests.len() == 2).await;
        let owner = |name: &str| Request::new(&namespace, format!("owner-of-{name}"));
        assert_eq!(ready(&namespaced_requests), [owner("one"), owner("three")]);
        assert_eq!(ready(&cluster_requests), [Request::cluster_scoped("owner-of-two")]);
        cache.stop().await;
        Ok(())
    }

    async fn map_with_cache_reads_from_the_cache_of_the_event(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("handlers").await?;
        make_owned(&env, &namespace, "one", "any.example.com").await?;
        let cache = running(env.client()?, &namespace);
        let queue = WorkQueue::default();
        let maps = |account: &Object<ServiceAccount>, cache: &Cache| {
            let maps = cache.informer::<ConfigMap>()?.list(&Query::default().namespace(account.namespace()))?;
            anyhow::Ok(maps.iter().map(|map| ObjectKey::of(&**map)).collect::<Vec<_>>())
        };
        // The mapping is retried while the cache has no informer to read from.
        let watch = Kind::with_cache(&cache, Select::<ServiceAccount>::new(), map_with_cache(maps)).start(&queue)?;
        let account = serde_json::from_value(json!({"metadata": {"name": "account"}}))?;
        Api::<ServiceAccount>::namespaced(env.client()?, &namespace).create(&PostParams::default(), &account).await?;
        let held = cache.informer::<ConfigMap>()?;
        until(|| ready(&queue).contains(&Request::new(&namespace, "one"))).await;
        watch.stop().await;
        drop(held);
        cache.stop().await;
        Ok(())
    }
}

/// The events belong to another cluster than the controller's cache.
///
/// That cluster knows the owner's kind.
#[tokio::test]
async fn owner_of_uses_the_cache_of_an_informer_source() -> anyhow::Result<()> {
    let (local, remote) = (Env::embedded()?, Env::embedded()?);
    let group = "there.handlers.example.com";
    remote.install([definition(group, "Cluster")]).await?;
    let (cache, other) = (
        running(local.client()?, "default"),
        running(remote.client()?, "default"),
    );
    let informer = other.informer::<ConfigMap>()?;
    let owners = owner_of(GroupVersionKind::gvk(group, "v1", "Owner"));
    let (controller, task) = Controller::builder("test")
        .cache(&cache)
        .watches_source(steersman::source::informer(&informer, owners))
        .build(reconcile::from_fn(
            async |_: Request, _| Ok(Outcome::done()),
        ))?;
    let running = tokio::spawn(task.run_until(std::future::pending()));
    informer.await_synced().await?;
    // Its owner does not exist, so it is soon deleted. Its creation is an event nevertheless.
    make_owned(&remote, "default", "one", group).await?;
    until(|| controller.stats().success > 0).await;
    controller.stop().await;
    running.await??;
    other.stop().await;
    cache.stop().await;
    Ok(())
}

#[tokio::test]
async fn map_with_cache_without_a_cache_panics_with_the_fix() {
    let mapping = |_: &Object<Pod>, _: &Cache| Some(key("unused"));
    let task = tokio::spawn(async move {
        requests(&map_with_cache(mapping), Event::create(Pod::default())).await
    });
    let panic = task.await.expect_err("no cache").into_panic();
    let message = panic.downcast_ref::<String>().expect("a text");
    assert!(
        message.contains("no cache") && message.contains("handler::map"),
        "{message}"
    );
}

/// Compiles only if the argument types of closures are inferred.
#[tokio::test]
async fn argument_types_of_handler_closures_are_inferred() {
    fn accept<K: 'static>(handler: impl Handler<K, Request>) -> impl Handler<K, Request> {
        handler
    }
    let inferred = accept::<Deployment>(map(|object| Some(object.key().clone())));
    assert_eq!(
        requests(&inferred, Event::create(Deployment::default()))
            .await
            .len(),
        1
    );
}
