//! Tests of kinds and informers as sources.

use super::{
    support::{RecordedEvents, Running, delete, embedded, make, ready, running, set_color, until},
    test_controller::{TestController, builder},
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

fn gizmo() -> GroupVersionKind {
    GroupVersionKind::gvk("sources.example.com", "v1", "Gizmo")
}

steersman::env_test! {
    /// Port of controller-runtime's "should process all initial objects before starting workers".
    async fn a_watch_is_synced_after_all_initial_objects_were_handled(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("sources").await?);
        for number in 0..20 {
            make(&client, &namespace, &format!("map-{number}"), "blue").await;
        }
        let cache = running(client.clone(), &namespace);
        let (recorded, queue) = (RecordedEvents::default(), WorkQueue::default());
        let ours = Select::<ConfigMap>::new().labels("color");
        let watch = Kind::with_cache(&cache, ours, recorded.handler()).start(&queue)?;
        watch.await_synced().await?;
        let mut names: Vec<_> = (0..20).map(|number| format!("map-{number}")).collect();
        names.sort();
        assert_eq!(ready(&queue), names);
        assert!(recorded.all().iter().all(|recorded| recorded.starts_with("listed")), "{:?}", recorded.all());
        assert_eq!(watch.stats().events, 20);

        make(&client, &namespace, "new", "blue").await;
        set_color(&client, &namespace, "new", "red").await;
        delete(&client, &namespace, "new").await;
        until(|| recorded.len() == 23).await;
        assert_eq!(recorded.all()[20..], ["created new", "updated new", "deleted new"]);
        cache.stop().await;
        Ok(())
    }

    async fn a_stop_removes_the_handler_from_the_informer(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("sources").await?);
        let cache = running(client.clone(), &namespace);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("color"))?;
        let source = |recorded: &RecordedEvents| Kind::with_cache(&cache, Select::<ConfigMap>::new().labels("color"), recorded.handler());
        let (one, other, queue) = (RecordedEvents::default(), RecordedEvents::default(), WorkQueue::default());
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

    async fn an_optional_watch_syncs_once_its_kind_is_installed(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("sources").await?);
        let cache = running(client, &namespace);
        let (recorded, queue) = (RecordedEvents::default(), WorkQueue::default());
        let kind = GroupVersionKind::gvk("later.sources.example.com", "v1", "Gizmo");
        let watch = Kind::with_cache(&cache, Select::dynamic(kind.clone()).optional(), recorded.handler()).start(&queue)?;
        assert_eq!(watch.name(), "kind source: later.sources.example.com/v1, Gizmo");
        assert!(watch.is_optional());
        let informer = cache.informer_of(Select::dynamic(kind.clone()))?;
        until(|| matches!(informer.state(), InformerState::KindNotFound { .. })).await;
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
        "metadata": {"name": format!("gizmos.{}", kind.group)},
        "spec": {
            "group": kind.group, "scope": "Namespaced", "names": {"plural": "gizmos", "kind": kind.kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_kind_source_have_priority_and_reason() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    make(&client, "default", "old", "blue").await;
    let queue = WorkQueue::default();
    let select = Select::<ConfigMap>::new()
        .labels("color")
        .resync(Duration::from_mins(10));
    let watch = Kind::with_cache(&cache, select, handler::object())
        .start(&queue)
        .expect("the source starts");
    watch.await_synced().await.expect("synced");
    let next = async || {
        let item = queue.get().await.expect("the queue is open");
        let recorded = (
            item.key().name().to_owned(),
            item.priority(),
            item.reasons()[0].to_string(),
        );
        item.finish(Outcome::done());
        recorded
    };
    assert_eq!(
        next().await,
        ("old".into(), Priority::LOW, "ConfigMap listed".into())
    );
    make(&client, "default", "new", "blue").await;
    assert_eq!(
        next().await,
        ("new".into(), Priority::NORMAL, "ConfigMap created".into())
    );
    delete(&client, "default", "new").await;
    assert_eq!(
        next().await,
        ("new".into(), Priority::NORMAL, "ConfigMap deleted".into())
    );
    assert_eq!(
        next().await,
        ("old".into(), Priority::LOW, "ConfigMap resynced".into())
    );
    cache.stop().await;
}

/// controller-runtime only reports "timed out waiting for cache to be synced".
#[tokio::test(start_paused = true)]
async fn await_synced_of_a_forbidden_kind_returns_the_error_of_the_server() {
    let (server, cache) = embedded();
    let rule = server
        .server()
        .faults()
        .add(Fault::on("watch secrets").status(403));
    let (queue, started) = (WorkQueue::default(), Instant::now());
    let watch = Kind::with_cache(&cache, Select::<Secret>::new(), handler::object())
        .start(&queue)
        .expect("the source starts");
    let healthy = Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object())
        .start(&queue)
        .expect("the source starts");
    healthy
        .await_synced()
        .await
        .expect("a forbidden kind does not affect it");
    assert!(started.elapsed() < Duration::from_secs(1));

    let error = watch.await_synced().await.expect_err("forbidden");
    assert!(matches!(error, WatchError::Timeout { .. }), "{error:?}");
    let error = error.to_string();
    assert!(
        error.starts_with("kind source: Secret not synced after 120 s: ")
            && error.contains("forbidden"),
        "{error}"
    );
    let WatchState::Degraded { error, .. } = watch.state() else {
        panic!("{:?}", watch.state())
    };
    assert!(error.contains("forbidden"), "{error}");
    rule.remove();
    until(|| matches!(watch.state(), WatchState::Synced)).await;
    watch.await_synced().await.expect("synced");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn await_synced_of_a_missing_kind_names_it() {
    let (_server, cache) = embedded();
    let source = Kind::with_cache(&cache, Select::dynamic(gizmo()), handler::object());
    let watch = source
        .start(&WorkQueue::default())
        .expect("the source starts");
    let error = watch
        .await_synced()
        .await
        .expect_err("the kind is missing")
        .to_string();
    assert!(
        error.contains("sources.example.com/v1, Gizmo")
            && error.contains("the API server does not serve Gizmo"),
        "{error}"
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn await_synced_names_a_cache_that_does_not_run() {
    let server = steersman::testing::Embedded::start().expect("the server starts");
    let cache = Cache::new(server.client().expect("a client"), CacheOptions::default())
        .expect("a ready client");
    let source = Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object());
    let watch = source
        .start(&WorkQueue::default())
        .expect("the source starts");
    let error = watch
        .await_synced()
        .await
        .expect_err("the cache does not run")
        .to_string();
    assert!(error.contains("run_until"), "{error}");
    let cache = Running::new(cache);
    watch
        .await_synced()
        .await
        .expect_err("the timeout has passed");
    until(|| matches!(watch.state(), WatchState::Synced)).await;
    cache.stop().await;
}

/// controller-runtime returns such errors on start: "must create Kind with a non-nil cache".
#[tokio::test]
async fn an_invalid_watch_fails_at_once() {
    let (_server, cache) = embedded();
    let start =
        |select| Kind::with_cache(&cache, select, handler::object()).start(&WorkQueue::default());
    let error = start(Select::<Secret>::new().labels("= =")).expect_err("no selector");
    assert!(
        matches!(&error, WatchError::Cache { error, .. } if matches!(**error, CacheError::InvalidLabelSelector(_))),
        "{error}"
    );
    let _watch = start(Select::<Secret>::new()).expect("the source starts");
    let metadata = Kind::with_cache(
        &cache,
        Select::<Metadata<ConfigMap>>::new(),
        handler::object(),
    );
    let _watch = metadata
        .start(&WorkQueue::default())
        .expect("the source starts");
    let typed = Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object());
    let error = typed
        .start(&WorkQueue::default())
        .expect_err("the informer is metadata-only")
        .to_string();
    assert!(
        error.starts_with("kind source: ConfigMap: ") && error.contains("compact"),
        "{error}"
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn removing_a_kind_fails_its_watches() {
    let (_server, cache) = embedded();
    let watch = Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object());
    let watch = watch
        .start(&WorkQueue::default())
        .expect("the source starts");
    watch.await_synced().await.expect("synced");
    cache
        .remove(&GroupVersionKind::gvk("", "v1", "ConfigMap"))
        .await;
    until(|| matches!(watch.state(), WatchState::Failed(_))).await;
    let error = watch
        .await_synced()
        .await
        .expect_err("the source failed")
        .to_string();
    assert!(error.contains("was removed by `Cache::remove`"), "{error}");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_stops_with_its_cache_and_fails_only_if_it_was_not_synced() {
    let (server, cache) = embedded();
    let _rule = server
        .server()
        .faults()
        .add(Fault::on("watch secrets").status(403));
    let synced = Kind::with_cache(&cache, Select::<ConfigMap>::new(), handler::object());
    let synced = synced
        .start(&WorkQueue::default())
        .expect("the source starts");
    let rejected = Kind::with_cache(&cache, Select::<Secret>::new(), handler::object());
    let rejected = rejected
        .start(&WorkQueue::default())
        .expect("the source starts");
    synced.await_synced().await.expect("synced");
    cache.stop().await;
    until(|| matches!(synced.state(), WatchState::Stopped)).await;
    let error = rejected
        .await_synced()
        .await
        .expect_err("the cache stopped")
        .to_string();
    assert!(error.contains("cache is closed"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn events_that_a_predicate_rejects_are_counted_and_not_handled() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    let (recorded, asked) = (RecordedEvents::default(), RecordedEvents::default());
    let watch = Select::<ConfigMap>::new()
        .filter(predicate::object(|map| map.name() != "secret"))
        .filter({
            let asked = asked.clone();
            predicate::from_fn(move |event: &Event<ConfigMap>| {
                asked.record(event.object().name());
                LabelsChanged.accepts(event)
            })
        });
    let watch = Kind::with_cache(&cache, watch, recorded.handler())
        .start(&WorkQueue::default())
        .expect("the source starts");
    watch.await_synced().await.expect("synced");
    let before = watch.stats();
    for name in ["secret", "open"] {
        make(&client, "default", name, "blue").await;
        set_color(&client, "default", name, "blue").await;
        set_color(&client, "default", name, "red").await;
        delete(&client, "default", name).await;
    }
    until(|| {
        recorded
            .all()
            .last()
            .is_some_and(|last| last == "deleted open")
    })
    .await;
    let ours: Vec<_> = recorded
        .all()
        .into_iter()
        .filter(|recorded| recorded.ends_with("open"))
        .collect();
    assert_eq!(ours, ["created open", "updated open", "deleted open"]);
    assert!(
        asked.all().iter().all(|name| name != "secret"),
        "later predicates are skipped"
    );
    let stats = watch.stats();
    // The server decides whether an update without changes is an event.
    let events = stats.events - before.events;
    assert!((6..=8).contains(&events), "{stats:?}");
    assert_eq!(stats.dropped - before.dropped, events - 3, "{stats:?}");
    cache.stop().await;
}

/// In controller-runtime the process exits.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_handler_or_predicate_drops_one_event() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    let (recorded, queue) = (RecordedEvents::default(), WorkQueue::<String>::default());
    let handler = {
        let recorded = recorded.clone();
        handler::from_fn(move |event: &Event<ConfigMap>, _| {
            assert_ne!(event.object().name(), "bad-handled", "handler panicked");
            recorded.record(event.object().name());
        })
    };
    let watch = Select::<ConfigMap>::new()
        .labels("color")
        .filter(predicate::object(|map| {
            assert_ne!(map.name(), "bad-asked", "handler panicked");
            true
        }));
    let watch = Kind::with_cache(&cache, watch, handler)
        .start(&queue)
        .expect("the source starts");
    for name in ["a", "bad-asked", "b", "bad-handled", "c"] {
        make(&client, "default", name, "blue").await;
    }
    until(|| recorded.all() == ["a", "b", "c"]).await;
    let stats = watch.stats();
    assert_eq!((stats.events, stats.panics, stats.dropped), (5, 2, 0));
    assert!(matches!(watch.state(), WatchState::Synced));
    cache.stop().await;
}

/// controller-runtime reports tombstones as `DeleteStateUnknown`.
#[tokio::test(start_paused = true)]
async fn a_missed_deletion_is_reported_with_unknown_state() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    make(&client, "default", "a", "blue").await;
    let recorded = RecordedEvents::default();
    let source = Kind::with_cache(
        &cache,
        Select::<ConfigMap>::new().labels("color"),
        recorded.handler(),
    );
    let watch = source
        .start(&WorkQueue::default())
        .expect("the source starts");
    watch.await_synced().await.expect("synced");
    let rule = server
        .server()
        .faults()
        .add(Fault::on("watch configmaps").status(503));
    server.restart().await.expect("the server restarts");
    delete(&client, "default", "a").await;
    server.server().compact();
    rule.remove();
    until(|| recorded.len() == 2).await;
    assert_eq!(recorded.all(), ["listed a", "missed a"]);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_can_be_an_optional_source() {
    let (server, cache) = embedded();
    let client = server.client().expect("a client");
    make(&client, "default", "a", "blue").await;
    let maps = cache
        .informer_of(Select::<ConfigMap>::new().labels("color"))
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    let (recorded, queue) = (RecordedEvents::default(), WorkQueue::default());
    let source = source::informer(&maps, recorded.handler()).filter(GenerationChanged);
    let watch = source.start(&queue).expect("the source starts");
    assert_eq!(
        (watch.name(), watch.is_optional()),
        ("informer source: ConfigMap", true)
    );
    watch.await_synced().await.expect("synced");
    assert_eq!(ready(&queue), ["a"]);
    let rule = server
        .server()
        .faults()
        .add(Fault::on("watch configmaps").status(403));
    server.restart().await.expect("the server restarts");
    until(|| matches!(watch.state(), WatchState::Degraded { .. })).await;
    rule.remove();
    until(|| matches!(watch.state(), WatchState::Synced)).await;
    drop(maps);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(cache.informers().len(), 1, "the watch keeps the informer");
    watch.stop().await;
    until(|| cache.informers().is_empty()).await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_starts_before_the_informer_of_a_source_is_synced() {
    let (server, cache) = embedded();
    make(&server.client().expect("a client"), "default", "a", "blue").await;
    let rule = server
        .server()
        .faults()
        .add(Fault::on("* configmaps").status(403));
    let maps = cache
        .informer_of(Select::<ConfigMap>::new().labels("color"))
        .expect("the informer is declared");
    until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;

    let (recorded, reconciled) = (RecordedEvents::default(), RecordedEvents::default());
    let direct = source::from_fn("direct", async |queue: Enqueue<String>, _| {
        queue.add("direct".to_owned());
        Ok(())
    });
    let reconciler = {
        let reconciled = reconciled.clone();
        reconcile::from_fn(move |name: String, _| {
            reconciled.record(name);
            std::future::ready(Ok(Outcome::done()))
        })
    };
    let builder = builder()
        .watches_source(source::informer(&maps, recorded.handler()))
        .watches_source(direct);
    let test = TestController::run(builder, reconciler);
    // Longer than the sync timeout.
    sleep(Duration::from_hours(1)).await;
    assert_eq!(
        (reconciled.all(), recorded.len()),
        (vec!["direct".to_owned()], 0)
    );
    assert!(
        !matches!(maps.state(), InformerState::Synced),
        "{:?}",
        maps.state()
    );

    rule.remove();
    until(|| reconciled.len() == 2).await;
    assert_eq!(
        (recorded.all(), reconciled.all()),
        (
            vec!["listed a".to_owned()],
            vec!["direct".to_owned(), "a".to_owned()]
        )
    );
    test.end().await;
    cache.stop().await;
}
