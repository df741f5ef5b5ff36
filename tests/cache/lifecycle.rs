//! Tests of the lifecycle of informers: start, sharing and stop.
//!
//! Most use the embedded server, its journal of requests and its virtual time.

use super::support::{Running, create_map, namespace_list, options, running, until};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use std::{future::pending, time::Duration};
use steersman::{
    cache::{Cache, CacheError, CacheOptions, InformerEvent, InformerState, Query, Select},
    object::ObjectKey,
    testing::{Embedded, Env, TestServer},
};
use steersman_apiserver::Fault;
use tokio::time::timeout;

const WATCHES: &str = "watch configmaps";

fn embedded() -> Embedded {
    Embedded::start().expect("the server starts")
}

fn cache(server: &Embedded) -> Cache {
    Cache::new(server.client().expect("a client"), CacheOptions::default()).expect("a cache")
}

#[tokio::test(start_paused = true)]
async fn two_declarations_of_one_kind_open_one_watch() {
    let server = embedded();
    let cache = Running::new(cache(&server));
    let select = || {
        Select::<ConfigMap>::new()
            .compact()
            .labels("app, tier notin (x,y)")
    };
    let one = cache
        .informer_of(select())
        .expect("the informer is declared");
    let two = cache
        .informer_of(select().labels("tier notin (y, x),app"))
        .expect("the informer is shared");
    one.await_synced().await.expect("synced");
    two.await_synced().await.expect("synced");
    assert_eq!(
        (
            cache.informers().len(),
            server.server().journal().count(WATCHES)
        ),
        (1, 1)
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_sends_no_request_before_it_runs() {
    let server = embedded();
    let cache = cache(&server);
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    drop(
        cache
            .informer::<Secret>()
            .expect("the informer is declared"),
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        (maps.state(), server.server().journal().count("* *")),
        (InformerState::Idle, 0)
    );
    let error = maps
        .list(&Query::default())
        .expect_err("nothing is known")
        .to_string();
    assert!(error.contains("run_until"), "{error}");
    let cache = Running::new(cache);
    cache.await_synced().await.expect("synced");
    assert_eq!(
        server.server().journal().count("* secrets"),
        0,
        "the informer was dropped"
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_informer_is_removed_after_the_grace_period() {
    let server = embedded();
    let cache = Running::new(cache(&server));
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    let index = maps.index(|map: &ConfigMap| vec![map.metadata.name.clone()]);
    let events = maps.events();
    drop(maps);
    tokio::time::sleep(Duration::from_secs(100)).await;
    drop(events);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(
        cache.informers().len(),
        1,
        "an index keeps the informer alive"
    );
    drop(index);

    tokio::time::sleep(Duration::from_secs(29)).await;
    let maps = cache.informer::<ConfigMap>().expect("exists");
    assert_eq!(
        maps.state(),
        InformerState::Synced,
        "the idle informer is reused"
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(server.server().journal().count(WATCHES), 1);
    drop(maps);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(cache.informers().is_empty());
    let open = server.server().journal().count(WATCHES);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(
        server.server().journal().count(WATCHES),
        open,
        "no watch is left"
    );

    let maps = cache
        .informer::<ConfigMap>()
        .expect("the kind can be declared again");
    maps.await_synced().await.expect("synced again");
    assert_eq!(server.server().journal().count(WATCHES), open + 1);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_several_namespaces_is_synced_when_all_are() {
    let server = embedded();
    let client = server.client().expect("a client");
    let (one, two) = (
        server.namespace("one").await.expect("one"),
        server.namespace("two").await.expect("another"),
    );
    for namespace in [&one, &two, &"default".to_owned()] {
        create_map(&client, namespace, "a", "blue").await;
    }
    let fault = Fault::on(&format!("watch configmaps {two}/*")).status(403);
    let rule = server.server().faults().add(fault);
    let cache = running(client.clone(), &[&one, &two]);
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(
        matches!(maps.state(), InformerState::Degraded { .. }),
        "{:?}",
        maps.state()
    );
    assert!(
        maps.list(&Query::default()).is_err(),
        "one namespace is not synced"
    );
    rule.remove();
    maps.await_synced().await.expect("synced");
    assert_eq!(
        maps.list(&Query::default()).expect("a list").len(),
        2,
        "one object per namespace"
    );

    // A gap in one namespace does not affect the other.
    let read = maps
        .get(&ObjectKey::new(&one, "a"))
        .expect("synced")
        .expect("exists");
    server.restart().await.expect("the server restarts");
    let last = create_map(&client, &two, "b", "red").await;
    until(|| maps.list(&Query::default()).expect("a list").len() == 3).await;
    assert_eq!(
        maps.get(&ObjectKey::new(&one, "a")).expect("synced"),
        Some(read)
    );
    let written = last
        .metadata
        .resource_version
        .and_then(|version| version.parse::<u64>().ok());
    until(|| maps.resource_version() >= written).await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_runs_once_and_serves_its_last_objects_after_the_end() {
    let server = embedded();
    create_map(&server.client().expect("a client"), "default", "a", "blue").await;
    let cache = Running::new(cache(&server));
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    let handle = Cache::clone(&cache);
    assert!(matches!(
        handle.clone().run_until(pending()).await,
        Err(CacheError::AlreadyRun)
    ));
    cache.stop().await;
    assert!(matches!(
        handle.clone().run_until(pending()).await,
        Err(CacheError::AlreadyRun)
    ));
    assert!(matches!(
        handle.informer::<Secret>(),
        Err(CacheError::Closed)
    ));
    assert_eq!(maps.state(), InformerState::Removed);
    assert!(
        maps.get(&ObjectKey::new("default", "a"))
            .expect("the last objects")
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn dropping_run_until_stops_all_informers() {
    let server = embedded();
    let cache = cache(&server);
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    let mut events = maps.events();
    let run =
        tokio::time::timeout(Duration::from_secs(5), cache.clone().run_until(pending())).await;
    assert!(run.is_err(), "the cache runs until it is stopped");
    while events.next().await.is_some() {}
    let requests = server.server().journal().count(WATCHES);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(
        (maps.state(), server.server().journal().count(WATCHES)),
        (InformerState::Removed, requests)
    );
}

/// `Events` has the adapters of `StreamExt`.
#[tokio::test(start_paused = true)]
async fn events_are_a_stream_that_ends_with_the_cache() {
    let server = embedded();
    let client = server.client().expect("a client");
    let cache = Running::new(cache(&server));
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    let created = maps.events().filter_map(async |item| match item {
        InformerEvent::Event(event) => Some(event.object().name().to_owned()),
        InformerEvent::Synced => None,
    });
    let created = tokio::spawn(created.collect::<Vec<_>>());
    maps.await_synced().await.expect("synced");
    create_map(&client, "default", "a", "web").await;
    create_map(&client, "default", "b", "web").await;
    until(|| maps.stats().objects == 2).await;
    cache.stop().await;
    let created = created.await.expect("no panic");
    assert_eq!(created, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_cache_that_never_ran_ends_its_waiters() {
    let cache = cache(&embedded());
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    let mut events = maps.events();
    drop(cache);
    let synced = timeout(Duration::from_hours(1), maps.await_synced())
        .await
        .expect("the task ends");
    assert!(matches!(synced, Err(CacheError::Closed)), "{synced:?}");
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_of_namespaces_is_rejected() {
    let server = embedded();
    let cache = Cache::new(server.client().expect("a client"), options(&[])).expect("a cache");
    assert!(matches!(
        cache.informer::<ConfigMap>(),
        Err(CacheError::NoNamespace { .. })
    ));
    let some = Select::<ConfigMap>::new().namespaces(namespace_list(&["default"]));
    assert!(cache.informer_of(some).is_ok());
}

#[tokio::test(start_paused = true)]
async fn invalid_namespace_names_are_rejected() {
    let server = embedded();
    let long = "x".repeat(64);
    for name in [
        "",
        "a b",
        "a/b",
        "a?b",
        "../secrets",
        "%2e",
        "a#b",
        "A",
        "ä",
        "a.b",
        "-a",
        "a-",
        &long,
    ] {
        let is_named = |error: &CacheError| matches!(error, CacheError::InvalidNamespace { namespace, .. } if namespace == name);
        let rejected = Cache::new(
            server.client().expect("a client"),
            options(&["default", name]),
        );
        assert!(
            rejected.as_ref().is_err_and(is_named),
            "{name}: {rejected:?}"
        );
        let select = Select::<ConfigMap>::new().namespaces(namespace_list(&["default", name]));
        let rejected = cache(&server).informer_of(select);
        assert!(
            rejected.as_ref().is_err_and(is_named),
            "{name}: {rejected:?}"
        );
    }
    let cache =
        Cache::new(server.client().expect("a client"), CacheOptions::default()).expect("a cache");
    for name in ["a", "7-of-9", &long[1..]] {
        let select = Select::<ConfigMap>::new().namespaces(namespace_list(&[name]));
        assert!(cache.informer_of(select).is_ok(), "{name}");
    }
}

steersman::env_test! {
    /// controller-runtime's `RemoveInformer` does the same: the next read starts a new informer.
    async fn a_removed_kind_can_be_declared_again(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("removed").await?);
        create_map(&client, &namespace, "a", "blue").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        maps.await_synced().await?;
        let mut events = maps.events();
        cache.remove(&maps.gvk().clone()).await;
        while events.next().await.is_some() {}
        assert_eq!((maps.state(), cache.informers().len()), (InformerState::Removed, 0));

        create_map(&client, &namespace, "b", "red").await;
        let again = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        again.await_synced().await?;
        assert_eq!(again.list(&Query::default())?.len(), 2);
        create_map(&client, &namespace, "c", "red").await;
        until(|| again.get(&ObjectKey::new(&namespace, "c")).unwrap().is_some()).await;
        assert_eq!(maps.list(&Query::default())?.len(), 1, "the old handle serves its last objects");
        cache.stop().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn removing_a_kind_stops_all_its_informers() {
    let server = embedded();
    let client = server.client().expect("a client");
    create_map(&client, "default", "a", "blue").await;
    let cache = Running::new(cache(&server));
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    let labelled = cache
        .informer_of(Select::<ConfigMap>::new().labels("app"))
        .expect("the informer is declared");
    let secrets = cache
        .informer::<Secret>()
        .expect("the informer is declared");
    cache.await_synced().await.expect("synced");
    let rejected = server
        .server()
        .faults()
        .add(Fault::on("watch configmaps one/*").status(403));
    let one = cache
        .informer_of(Select::<ConfigMap>::new().namespaces(namespace_list(&["one"])))
        .expect("the informer is declared");
    let waiter = tokio::spawn({
        let one = one.clone();
        async move { one.await_synced().await }
    });
    until(|| matches!(one.state(), InformerState::Degraded { .. })).await;
    let mut events = maps.events();

    cache.remove(&maps.gvk().clone()).await;
    while events.next().await.is_some() {}
    assert_eq!(
        [maps.state(), labelled.state(), one.state()],
        [(); 3].map(|()| InformerState::Removed)
    );
    let error = waiter
        .await
        .expect("the task ends")
        .expect_err("the informer never synced");
    assert!(
        matches!(&error, CacheError::Removed { kind } if kind == "ConfigMap"),
        "{error}"
    );
    assert!(matches!(
        one.list(&Query::default()),
        Err(CacheError::Removed { .. })
    ));
    assert_eq!(
        maps.list(&Query::default())
            .expect("the last objects")
            .len(),
        1
    );
    rejected.remove();
    create_map(&client, "default", "b", "red").await;
    let watches = server.server().journal().count(WATCHES);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(
        server.server().journal().count(WATCHES),
        watches,
        "no watch is left"
    );
    assert_eq!(
        maps.list(&Query::default())
            .expect("the last objects")
            .len(),
        1
    );
    assert_eq!(
        (cache.informers().len(), secrets.state()),
        (1, InformerState::Synced),
        "other informers continue"
    );

    let again = cache
        .informer::<ConfigMap>()
        .expect("the kind can be declared again");
    drop((maps, labelled, one, events));
    again.await_synced().await.expect("synced");
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(again.list(&Query::default()).expect("a list").len(), 2);
    assert_eq!(
        cache.informers().len(),
        2,
        "dropping the old handles does not affect the new informer"
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_can_be_removed_before_and_after_the_cache_runs() {
    let server = embedded();
    let cache = cache(&server);
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    cache.remove(maps.gvk()).await;
    assert!(matches!(
        maps.await_synced().await,
        Err(CacheError::Removed { .. })
    ));
    let secrets = cache
        .informer::<Secret>()
        .expect("the informer is declared");
    let running = Running::new(cache.clone());
    cache.await_synced().await.expect("synced");
    assert_eq!(server.server().journal().count(WATCHES), 0);
    running.stop().await;
    cache.remove(secrets.gvk()).await;
    assert_eq!(
        (secrets.state(), cache.informers().len()),
        (InformerState::Removed, 0)
    );
}

/// Threads remove, drop and declare concurrently.
///
/// Each handle either serves or returns the error for a removed informer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handles_declared_while_a_kind_is_removed_serve_or_return_an_error() {
    let server = embedded();
    create_map(&server.client().expect("a client"), "default", "a", "blue").await;
    let options = CacheOptions {
        idle: Duration::ZERO,
        ..CacheOptions::default()
    };
    let cache = Running::new(
        Cache::new(server.client().expect("a client"), options).expect("a ready client"),
    );
    let gvk = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared")
        .gvk()
        .clone();
    let users = (0..8).map(|_| {
        let cache = Cache::clone(&cache);
        tokio::spawn(async move {
            for _ in 0..50 {
                let maps = cache.informer::<ConfigMap>().expect("the cache runs");
                match maps.await_synced().await {
                    Ok(()) => assert_eq!(
                        maps.list(&Query::default())
                            .expect("the informer serves reads")
                            .len(),
                        1
                    ),
                    Err(error) => assert!(matches!(error, CacheError::Removed { .. }), "{error}"),
                }
            }
        })
    });
    let users: Vec<_> = users.collect();
    while !users.iter().all(tokio::task::JoinHandle::is_finished) {
        cache.remove(&gvk).await;
        tokio::task::yield_now().await;
    }
    for user in users {
        user.await.expect("the task does not panic");
    }
    let last = cache.informer::<ConfigMap>().expect("the cache runs");
    last.await_synced().await.expect("synced");
    cache.stop().await;
}
