//! What starts, what is shared, and what ends. Mostly on the embedded server, whose journal shows it, in its time.

use super::support::{Running, make, options, running, these, until};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use std::{future::pending, time::Duration};
use steersman::{
    cache::{Cache, CacheError, CacheOptions, InformerState, Query, Select},
    object::ObjectKey,
    testing::{Embedded, Env, TestServer},
};
use steersman_apiserver::Fault;
use tokio::time::timeout;

const WATCHES: &str = "watch configmaps";

fn embedded() -> Embedded {
    Embedded::start().expect("it starts")
}

fn cache(server: &Embedded) -> Cache {
    Cache::new(server.client().expect("a client"), CacheOptions::default()).expect("it is ready")
}

#[tokio::test(start_paused = true)]
async fn two_declarations_of_one_kind_open_one_watch() {
    let server = embedded();
    let cache = Running::new(cache(&server));
    let select = || Select::<ConfigMap>::new().compact().labels("app, tier notin (x,y)");
    let one = cache.informer_of(select()).expect("it is new");
    let two = cache.informer_of(select().labels("tier notin (y, x),app")).expect("it is the same");
    one.await_synced().await.expect("it syncs");
    two.await_synced().await.expect("it syncs");
    assert_eq!((cache.informers().len(), server.server().journal().count(WATCHES)), (1, 1));
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_before_the_cache_runs_and_reads_say_so() {
    let server = embedded();
    let cache = cache(&server);
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    drop(cache.informer::<Secret>().expect("it is new"));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((maps.state(), server.server().journal().count("* *")), (InformerState::Idle, 0));
    let error = maps.list(&Query::default()).expect_err("nothing is known").to_string();
    assert!(error.contains("run_until"), "{error}");
    let cache = Running::new(cache);
    cache.await_synced().await.expect("it syncs");
    assert_eq!(server.server().journal().count("* secrets"), 0, "nobody uses them any more");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_informer_is_removed_when_nobody_has_used_it_for_a_while() {
    let server = embedded();
    let cache = Running::new(cache(&server));
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    maps.await_synced().await.expect("it syncs");
    let index = maps.index(|map: &ConfigMap| vec![map.metadata.name.clone()]);
    let events = maps.events();
    drop(maps);
    tokio::time::sleep(Duration::from_secs(100)).await;
    drop(events);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(cache.informers().len(), 1, "an index uses it, as events do");
    drop(index);

    tokio::time::sleep(Duration::from_secs(29)).await;
    let maps = cache.informer::<ConfigMap>().expect("it is there");
    assert_eq!(maps.state(), InformerState::Synced, "who comes back soon finds it as it was");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(server.server().journal().count(WATCHES), 1);
    drop(maps);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(cache.informers().is_empty());
    let open = server.server().journal().count(WATCHES);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(server.server().journal().count(WATCHES), open, "and no watch is left");

    let maps = cache.informer::<ConfigMap>().expect("it is new again");
    maps.await_synced().await.expect("it syncs again");
    assert_eq!(server.server().journal().count(WATCHES), open + 1);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn several_namespaces_are_one_informer_that_is_synced_when_all_are() {
    let server = embedded();
    let client = server.client().expect("a client");
    let (one, two) = (server.namespace("one").await.expect("one"), server.namespace("two").await.expect("another"));
    for namespace in [&one, &two, &"default".to_owned()] {
        make(&client, namespace, "a", "blue").await;
    }
    let fault = Fault::on(&format!("watch configmaps {two}/*")).status(403);
    let rule = server.server().faults().add(fault);
    let cache = running(client.clone(), &[&one, &two]);
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(matches!(maps.state(), InformerState::Degraded { .. }), "{:?}", maps.state());
    assert!(maps.list(&Query::default()).is_err(), "half of it would be a lie");
    rule.remove();
    maps.await_synced().await.expect("it syncs");
    assert_eq!(maps.list(&Query::default()).expect("a list").len(), 2, "one in each, and none from elsewhere");

    // A gap in one namespace leaves the other alone.
    let read = maps.get(&ObjectKey::new(&one, "a")).expect("synced").expect("it is there");
    server.restart().await.expect("it restarts");
    let last = make(&client, &two, "b", "red").await;
    until(|| maps.list(&Query::default()).expect("a list").len() == 3).await;
    assert_eq!(maps.get(&ObjectKey::new(&one, "a")).expect("synced"), Some(read));
    let written = last.metadata.resource_version.and_then(|version| version.parse::<u64>().ok());
    until(|| maps.resource_version() >= written).await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_runs_once_and_serves_what_it_had_when_it_has_ended() {
    let server = embedded();
    make(&server.client().expect("a client"), "default", "a", "blue").await;
    let cache = Running::new(cache(&server));
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    maps.await_synced().await.expect("it syncs");
    let handle = Cache::clone(&cache);
    assert!(matches!(handle.clone().run_until(pending()).await, Err(CacheError::AlreadyRun)));
    cache.stop().await;
    assert!(matches!(handle.clone().run_until(pending()).await, Err(CacheError::AlreadyRun)));
    assert!(matches!(handle.informer::<Secret>(), Err(CacheError::Ended)));
    assert_eq!(maps.state(), InformerState::Removed);
    assert!(maps.get(&ObjectKey::new("default", "a")).expect("it serves what it had").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_ends_everything() {
    let server = embedded();
    let cache = cache(&server);
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    let mut events = maps.events();
    let run = tokio::time::timeout(Duration::from_secs(5), cache.clone().run_until(pending())).await;
    assert!(run.is_err(), "it runs for ever");
    while events.next().await.is_some() {}
    let asked = server.server().journal().count(WATCHES);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((maps.state(), server.server().journal().count(WATCHES)), (InformerState::Removed, asked));
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_dropped_before_it_ran_is_not_waited_for() {
    let cache = cache(&embedded());
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    let mut events = maps.events();
    drop(cache);
    let synced = timeout(Duration::from_hours(1), maps.await_synced()).await.expect("it ends");
    assert!(matches!(synced, Err(CacheError::Ended)), "{synced:?}");
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_selection_of_no_namespace_is_refused_when_it_is_declared() {
    let server = embedded();
    let cache = Cache::new(server.client().expect("a client"), options(&[])).expect("it is ready");
    assert!(matches!(cache.informer::<ConfigMap>(), Err(CacheError::NoNamespace { .. })));
    let some = Select::<ConfigMap>::new().namespaces(these(&["default"]));
    assert!(cache.informer_of(some).is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_can_be_no_namespace_is_refused_when_it_is_said() {
    let server = embedded();
    let long = "x".repeat(64);
    for name in ["", "a b", "a/b", "a?b", "../secrets", "%2e", "a#b", "A", "ä", "a.b", "-a", "a-", &long] {
        let is_named =
            |error: &CacheError| matches!(error, CacheError::NamespaceName { namespace, .. } if namespace == name);
        let refused = Cache::new(server.client().expect("a client"), options(&["default", name]));
        assert!(refused.as_ref().is_err_and(is_named), "{name}: {refused:?}");
        let select = Select::<ConfigMap>::new().namespaces(these(&["default", name]));
        let refused = cache(&server).informer_of(select);
        assert!(refused.as_ref().is_err_and(is_named), "{name}: {refused:?}");
    }
    let cache = Cache::new(server.client().expect("a client"), CacheOptions::default()).expect("it is ready");
    for name in ["a", "7-of-9", &long[1..]] {
        let select = Select::<ConfigMap>::new().namespaces(these(&[name]));
        assert!(cache.informer_of(select).is_ok(), "{name}");
    }
}

steersman::env_test! {
    /// controller-runtime: `RemoveInformer` stops an informer, and the next read builds a new one.
    async fn a_kind_that_is_removed_is_followed_anew_once_it_is_declared_again(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("removed").await?);
        make(&client, &namespace, "a", "blue").await;
        let cache = running(client.clone(), &[&namespace]);
        let maps = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        maps.await_synced().await?;
        let mut events = maps.events();
        cache.remove(&maps.gvk().clone()).await;
        while events.next().await.is_some() {}
        assert_eq!((maps.state(), cache.informers().len()), (InformerState::Removed, 0));

        make(&client, &namespace, "b", "red").await;
        let again = cache.informer_of(Select::<ConfigMap>::new().labels("app"))?;
        again.await_synced().await?;
        assert_eq!(again.list(&Query::default())?.len(), 2);
        make(&client, &namespace, "c", "red").await;
        until(|| again.get(&ObjectKey::new(&namespace, "c")).unwrap().is_some()).await;
        assert_eq!(maps.list(&Query::default())?.len(), 1, "the old one serves what it had");
        cache.stop().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_removed_ends_for_everybody_and_can_be_declared_anew() {
    let server = embedded();
    let client = server.client().expect("a client");
    make(&client, "default", "a", "blue").await;
    let cache = Running::new(cache(&server));
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    let labelled = cache.informer_of(Select::<ConfigMap>::new().labels("app")).expect("it is new");
    let secrets = cache.informer::<Secret>().expect("it is new");
    cache.await_synced().await.expect("they sync");
    let refused = server.server().faults().add(Fault::on("watch configmaps one/*").status(403));
    let one = cache.informer_of(Select::<ConfigMap>::new().namespaces(these(&["one"]))).expect("it is new");
    let waiter = tokio::spawn({
        let one = one.clone();
        async move { one.await_synced().await }
    });
    until(|| matches!(one.state(), InformerState::Degraded { .. })).await;
    let mut events = maps.events();

    cache.remove(&maps.gvk().clone()).await;
    while events.next().await.is_some() {}
    assert_eq!([maps.state(), labelled.state(), one.state()], [(); 3].map(|()| InformerState::Removed));
    let told = waiter.await.expect("it ends").expect_err("it never synced");
    assert!(matches!(&told, CacheError::Removed { kind } if kind == "ConfigMap"), "{told}");
    assert!(matches!(one.list(&Query::default()), Err(CacheError::Removed { .. })));
    assert_eq!(maps.list(&Query::default()).expect("what it had").len(), 1);
    refused.remove();
    make(&client, "default", "b", "red").await;
    let watches = server.server().journal().count(WATCHES);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(server.server().journal().count(WATCHES), watches, "no watch is left");
    assert_eq!(maps.list(&Query::default()).expect("what it had").len(), 1);
    assert_eq!((cache.informers().len(), secrets.state()), (1, InformerState::Synced), "others go on");

    let again = cache.informer::<ConfigMap>().expect("it is new again");
    drop((maps, labelled, one, events));
    again.await_synced().await.expect("it syncs");
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(again.list(&Query::default()).expect("a list").len(), 2);
    assert_eq!(cache.informers().len(), 2, "the old ones' end does not touch the new one");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_removed_before_the_cache_runs_and_after_too() {
    let server = embedded();
    let cache = cache(&server);
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    cache.remove(maps.gvk()).await;
    assert!(matches!(maps.await_synced().await, Err(CacheError::Removed { .. })));
    let secrets = cache.informer::<Secret>().expect("it is new");
    let running = Running::new(cache.clone());
    cache.await_synced().await.expect("it syncs");
    assert_eq!(server.server().journal().count(WATCHES), 0);
    running.stop().await;
    cache.remove(secrets.gvk()).await;
    assert_eq!((secrets.state(), cache.informers().len()), (InformerState::Removed, 0));
}

/// Removed, dropped and declared at once, on several threads: each handle ends up with an informer that serves, or says that it was removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handles_declared_while_a_kind_is_removed_serve_or_say_so() {
    let server = embedded();
    make(&server.client().expect("a client"), "default", "a", "blue").await;
    let options = CacheOptions { idle: Duration::ZERO, ..CacheOptions::default() };
    let cache = Running::new(Cache::new(server.client().expect("a client"), options).expect("a ready client"));
    let gvk = cache.informer::<ConfigMap>().expect("it is new").gvk().clone();
    let users = (0..8).map(|_| {
        let cache = Cache::clone(&cache);
        tokio::spawn(async move {
            for _ in 0..50 {
                let maps = cache.informer::<ConfigMap>().expect("the cache runs");
                match maps.await_synced().await {
                    Ok(()) => assert_eq!(maps.list(&Query::default()).expect("it serves").len(), 1),
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
        user.await.expect("it found what it should");
    }
    let last = cache.informer::<ConfigMap>().expect("the cache runs");
    last.await_synced().await.expect("it syncs");
    cache.stop().await;
}
