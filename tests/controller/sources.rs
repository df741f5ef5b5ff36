//! Kinds and informers as sources.

use super::{
    rig::{Rig, builder},
    support::{Running, Told, delete, embedded, make, paint, ready, running, until},
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_core::GroupVersionKind;
use serde_json::json;
use std::time::Duration;
use steersman::{
    cache::{CacheError, CacheOptions, InformerState},
    event::Event,
    handler::Enqueue,
    predicate::{GenerationChanged, LabelsChanged, Predicate},
    prelude::*,
    source::{Kind, WatchError, WatchState},
    testing::{Env, TestServer},
};
use steersman_apiserver::Fault;
use tokio::time::{Instant, sleep};

fn later() -> GroupVersionKind {
    GroupVersionKind::gvk("sources.example.com", "v1", "Later")
}

steersman::env_test! {
    /// Upstream: "should process all initial objects before starting workers".
    async fn all_that_is_there_goes_through_the_handler_before_the_watch_is_synced(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("sources").await?);
        for number in 0..20 {
            make(&client, &namespace, &format!("map-{number}"), "blue").await;
        }
        let cache = running(client.clone(), &namespace);
        let (told, queue) = (Told::default(), WorkQueue::default());
        let ours = Select::<ConfigMap>::new().labels("door");
        let watch = Kind::with_cache(&cache, ours, told.handler()).start(&queue)?;
        watch.await_synced().await?;
        let mut names: Vec<_> = (0..20).map(|number| format!("map-{number}")).collect();
        names.sort();
        assert_eq!(ready(&queue), names);
        assert!(told.all().iter().all(|told| told.starts_with("listed")), "{:?}", told.all());
        assert_eq!(watch.stats().events, 20);

        make(&client, &namespace, "new", "blue").await;
        paint(&client, &namespace, "new", "red").await;
        delete(&client, &namespace, "new").await;
        until(|| told.len() == 23).await;
        assert_eq!(told.all()[20..], ["created new", "updated new", "deleted new"]);
        cache.stop().await;
        Ok(())
    }

    async fn after_a_stop_no_handler_is_called_and_the_informer_has_none_left(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("sources").await?);
        let cache = running(client.clone(), &namespace);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("door"))?;
        let source = |told: &Told| Kind::with_cache(&cache, Select::<ConfigMap>::new().labels("door"), told.handler());
        let (one, other, queue) = (Told::default(), Told::default(), WorkQueue::default());
        let (watch, stays) = (source(&one).start(&queue)?, source(&other).start(&queue)?);
        watch.await_synced().await?;
        stays.await_synced().await?;
        make(&client, &namespace, "a", "blue").await;
        until(|| one.len() == 1 && other.len() == 1).await;
        assert_eq!(maps.stats().handlers.len(), 2);
        watch.stop().await;
        assert_eq!(maps.stats().handlers.len(), 1);
        make(&client, &namespace, "b", "blue").await;
        until(|| other.len() == 2).await;
        assert_eq!((one.len(), other.all()), (1, vec!["created a".into(), "created b".into()]));
        assert!(matches!((watch.state(), stays.state()), (WatchState::Stopped, WatchState::Synced)));
        cache.stop().await;
        Ok(())
    }

    async fn a_kind_that_is_installed_later_is_waited_for(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("sources").await?);
        let cache = running(client, &namespace);
        let (told, queue) = (Told::default(), WorkQueue::default());
        let kind = GroupVersionKind::gvk("later.sources.example.com", "v1", "Later");
        let watch = Kind::with_cache(&cache, Select::dynamic(kind.clone()).optional(), told.handler()).start(&queue)?;
        assert_eq!(watch.name(), "kind source: later.sources.example.com/v1, Later");
        assert!(watch.is_optional());
        let informer = cache.informer_of(Select::dynamic(kind.clone()))?;
        until(|| matches!(informer.state(), InformerState::Absent { .. })).await;
        assert!(matches!(watch.state(), WatchState::Starting));
        env.install([definition(&kind)]).await?;
        watch.await_synced().await?;
        assert!(matches!(watch.state(), WatchState::Synced));
        cache.stop().await;
        Ok(())
    }
}

fn definition(kind: &GroupVersionKind) -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("laters.{}", kind.group)},
        "spec": {
            "group": kind.group, "scope": "Namespaced", "names": {"plural": "laters", "kind": kind.kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn requests_have_their_priority_and_their_reason() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    make(&client, "default", "old", "blue").await;
    let queue = WorkQueue::default();
    let select = Select::<ConfigMap>::new().labels("door").resync(Duration::from_mins(10));
    let watch = Kind::with_cache(&cache, select, handler::object()).start(&queue).expect("it starts");
    watch.await_synced().await.expect("it syncs");
    let next = async || {
        let item = queue.get().await.expect("it is open");
        let told = (item.key().name().to_owned(), item.priority(), item.reasons()[0].to_string());
        item.finish(Outcome::done());
        told
    };
    assert_eq!(next().await, ("old".into(), Priority::LOW, "ConfigMap listed".into()));
    make(&client, "default", "new", "blue").await;
    assert_eq!(next().await, ("new".into(), Priority::NORMAL, "ConfigMap created".into()));
    delete(&client, "default", "new").await;
    assert_eq!(next().await, ("new".into(), Priority::NORMAL, "ConfigMap deleted".into()));
    assert_eq!(next().await, ("old".into(), Priority::LOW, "ConfigMap resynced".into()));
    cache.stop().await;
}

// Catalogue 45
/// Upstream says "timed out waiting for cache to be synced", and no more.
#[tokio::test(start_paused = true)]
async fn who_waits_for_what_is_refused_is_told_in_the_servers_words() {
    let (server, cache) = embedded();
    let rule = server.server().faults().add(Fault::on("watch secrets").status(403));
    let (queue, begun) = (WorkQueue::default(), Instant::now());
    let watch = Kind::with_cache(&cache, Select::<Secret>::new(), handler::object()).start(&queue).expect("it starts");
    let healthy =
        Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object()).start(&queue).expect("it starts");
    healthy.await_synced().await.expect("it is not disturbed");
    assert!(begun.elapsed() < Duration::from_secs(1));

    let error = watch.await_synced().await.expect_err("it is refused");
    assert!(matches!(error, WatchError::Timeout { .. }), "{error:?}");
    let error = error.to_string();
    assert!(
        error.starts_with("kind source: Secret: not synced within 120 s: ") && error.contains("forbidden"),
        "{error}"
    );
    let WatchState::Degraded { error, .. } = watch.state() else { panic!("{:?}", watch.state()) };
    assert!(error.contains("forbidden"), "{error}");
    rule.remove();
    until(|| matches!(watch.state(), WatchState::Synced)).await;
    watch.await_synced().await.expect("it did in the end");
    cache.stop().await;
}

// Catalogue 45
#[tokio::test(start_paused = true)]
async fn who_waits_for_what_does_not_exist_is_told_what_is_missing() {
    let (_server, cache) = embedded();
    let source = Kind::with_cache(&cache, Select::dynamic(later()), handler::object());
    let watch = source.start(&WorkQueue::default()).expect("it starts");
    let error = watch.await_synced().await.expect_err("it is not there").to_string();
    assert!(error.contains("sources.example.com/v1, Later") && error.contains("the server has no Later"), "{error}");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_cache_that_does_not_run_is_told_so() {
    let server = steersman::testing::Embedded::start().expect("it starts");
    let cache = Cache::new(server.client().expect("a client"), CacheOptions::default()).expect("a ready client");
    let source = Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object());
    let watch = source.start(&WorkQueue::default()).expect("it starts");
    let error = watch.await_synced().await.expect_err("nobody asks the server").to_string();
    assert!(error.contains("run_until"), "{error}");
    let cache = Running::new(cache);
    watch.await_synced().await.expect_err("its time is over all the same, until it is synced");
    until(|| matches!(watch.state(), WatchState::Synced)).await;
    cache.stop().await;
}

/// Upstream: "must create Kind with a non-nil cache" and the like, when it starts.
#[tokio::test]
async fn what_the_cache_cannot_keep_is_said_at_once() {
    let (_server, cache) = embedded();
    let start = |select| Kind::with_cache(&cache, select, handler::object()).start(&WorkQueue::default());
    let error = start(Select::<Secret>::new().labels("= =")).expect_err("no selector");
    assert!(matches!(&error, WatchError::Cache { error, .. } if matches!(**error, CacheError::Selector(_))), "{error}");
    let _kept = start(Select::<Secret>::new()).expect("it starts");
    let metadata = Kind::with_cache(&cache, Select::<Metadata<ConfigMap>>::new(), handler::object());
    let _kept = metadata.start(&WorkQueue::default()).expect("it starts");
    let typed = Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object());
    let error = typed.start(&WorkQueue::default()).expect_err("it is kept as metadata").to_string();
    assert!(error.starts_with("kind source: ConfigMap: ") && error.contains("compact"), "{error}");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_kind_that_is_removed_has_failed_and_says_so() {
    let (_server, cache) = embedded();
    let watch = Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object());
    let watch = watch.start(&WorkQueue::default()).expect("it starts");
    watch.await_synced().await.expect("it syncs");
    cache.remove(&GroupVersionKind::gvk("", "v1", "ConfigMap")).await;
    until(|| matches!(watch.state(), WatchState::Failed(_))).await;
    let error = watch.await_synced().await.expect_err("it failed").to_string();
    assert!(error.contains("was removed from the cache"), "{error}");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_cache_and_fails_only_if_it_was_not_synced() {
    let (server, cache) = embedded();
    let _rule = server.server().faults().add(Fault::on("watch secrets").status(403));
    let synced = Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object());
    let synced = synced.start(&WorkQueue::default()).expect("it starts");
    let refused = Kind::with_cache(&cache, Select::<Secret>::new(), handler::object());
    let refused = refused.start(&WorkQueue::default()).expect("it starts");
    synced.await_synced().await.expect("it syncs");
    cache.stop().await;
    until(|| matches!(synced.state(), WatchState::Stopped)).await;
    let error = refused.await_synced().await.expect_err("it never will").to_string();
    assert!(error.contains("the cache has ended"), "{error}");
}

// Catalogue 46
#[tokio::test(start_paused = true)]
async fn events_that_a_predicate_rejects_are_counted_and_not_handled() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    let (told, asked) = (Told::default(), Told::default());
    let watch = Select::<ConfigMap>::new().filter(predicate::object(|map| map.name() != "secret")).filter({
        let asked = asked.clone();
        predicate::from_fn(move |event: &Event<ConfigMap>| {
            asked.say(event.object().name());
            LabelsChanged.accepts(event)
        })
    });
    let watch = Kind::with_cache(&cache, watch, told.handler()).start(&WorkQueue::default()).expect("it starts");
    watch.await_synced().await.expect("it syncs");
    let before = watch.stats();
    for name in ["secret", "open"] {
        make(&client, "default", name, "blue").await;
        paint(&client, "default", name, "blue").await;
        paint(&client, "default", name, "red").await;
        delete(&client, "default", name).await;
    }
    until(|| told.all().last().is_some_and(|last| last == "deleted open")).await;
    let ours: Vec<_> = told.all().into_iter().filter(|told| told.ends_with("open")).collect();
    assert_eq!(ours, ["created open", "updated open", "deleted open"]);
    assert!(asked.all().iter().all(|name| name != "secret"), "who need not be asked is not");
    let stats = watch.stats();
    // Whether painting it the same is a change is the server's to say.
    let events = stats.events - before.events;
    assert!((6..=8).contains(&events), "{stats:?}");
    assert_eq!(stats.dropped - before.dropped, events - 3, "{stats:?}");
    cache.stop().await;
}

/// Upstream the process dies.
#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_event() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    let (told, queue) = (Told::default(), WorkQueue::<String>::default());
    let handler = {
        let told = told.clone();
        handler::from_fn(move |event: &Event<ConfigMap>, _| {
            assert_ne!(event.object().name(), "bad-handled", "a bad day");
            told.say(event.object().name());
        })
    };
    let watch = Select::<ConfigMap>::new().labels("door").filter(predicate::object(|map| {
        assert_ne!(map.name(), "bad-asked", "a bad day");
        true
    }));
    let watch = Kind::with_cache(&cache, watch, handler).start(&queue).expect("it starts");
    for name in ["a", "bad-asked", "b", "bad-handled", "c"] {
        make(&client, "default", name, "blue").await;
    }
    until(|| told.all() == ["a", "b", "c"]).await;
    let stats = watch.stats();
    assert_eq!((stats.events, stats.panics, stats.dropped), (5, 2, 0));
    assert!(matches!(watch.state(), WatchState::Synced));
    cache.stop().await;
}

// Catalogue 46
/// Upstream: tombstones become `DeleteStateUnknown`.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_missed_is_told_as_such() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    make(&client, "default", "a", "blue").await;
    let told = Told::default();
    let source = Kind::with_cache(&cache, Select::<ConfigMap>::new().labels("door"), told.handler());
    let watch = source.start(&WorkQueue::default()).expect("it starts");
    watch.await_synced().await.expect("it syncs");
    let rule = server.server().faults().add(Fault::on("watch configmaps").status(503));
    server.restart().await.expect("it does");
    delete(&client, "default", "a").await;
    server.server().compact();
    rule.remove();
    until(|| told.len() == 2).await;
    assert_eq!(told.all(), ["listed a", "missed a"]);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_somebody_holds_is_a_source_that_nobody_waits_for() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    make(&client, "default", "a", "blue").await;
    let maps = cache.informer_of(Select::<ConfigMap>::new().labels("door")).expect("it is new");
    maps.await_synced().await.expect("it syncs");
    let (told, queue) = (Told::default(), WorkQueue::default());
    let source = source::informer(&maps, told.handler()).filter(GenerationChanged);
    let watch = source.start(&queue).expect("it starts");
    assert_eq!((watch.name(), watch.is_optional()), ("informer source: ConfigMap", true));
    watch.await_synced().await.expect("who wants to can wait");
    assert_eq!(ready(&queue), ["a"]);
    let rule = server.server().faults().add(Fault::on("watch configmaps").status(403));
    server.restart().await.expect("it does");
    until(|| matches!(watch.state(), WatchState::Degraded { .. })).await;
    rule.remove();
    until(|| matches!(watch.state(), WatchState::Synced)).await;
    drop(maps);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(cache.informers().len(), 1, "the watch holds it");
    watch.stop().await;
    until(|| cache.informers().is_empty()).await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_starts_before_the_informer_of_a_source_is_synced() {
    let (server, cache) = embedded();
    make(&server.client().expect("a client"), "default", "a", "blue").await;
    let rule = server.server().faults().add(Fault::on("* configmaps").status(403));
    let maps = cache.informer_of(Select::<ConfigMap>::new().labels("door")).expect("it is new");
    until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;

    let (told, reconciled) = (Told::default(), Told::default());
    let direct = source::from_fn("direct", async |queue: Enqueue<String>, _| {
        queue.add("direct".to_owned());
        Ok(())
    });
    let reconciler = {
        let reconciled = reconciled.clone();
        reconcile::from_fn(move |name: String, _| {
            reconciled.say(name);
            std::future::ready(Ok(Outcome::done()))
        })
    };
    let builder = builder().watches_source(source::informer(&maps, told.handler())).watches_source(direct);
    let rig = Rig::run(builder, reconciler);
    // Longer than the sync timeout.
    sleep(Duration::from_hours(1)).await;
    assert_eq!((reconciled.all(), told.len()), (vec!["direct".to_owned()], 0));
    assert!(!matches!(maps.state(), InformerState::Synced), "{:?}", maps.state());

    rule.remove();
    until(|| reconciled.len() == 2).await;
    assert_eq!(
        (told.all(), reconciled.all()),
        (vec!["listed a".to_owned()], vec!["direct".to_owned(), "a".to_owned()])
    );
    rig.end().await;
    cache.stop().await;
}
