//! Every object told again, once in a period of each handler's own. In the embedded server's time.

use super::support::{Running, make};
use k8s_openapi::api::core::v1::ConfigMap;
use std::{collections::BTreeMap, time::Duration};
use steersman::{
    cache::{Cache, CacheOptions, Events, InNamespace, Namespaces, Notice, Select},
    event::Event,
    testing::{Embedded, TestServer},
};
use tokio::time::{Instant, timeout_at};

const MINUTE: Duration = Duration::from_mins(1);

/// How often each object is told again in so long; anything else that is told is no resync.
async fn resyncs(events: &mut Events<ConfigMap>, long: Duration) -> BTreeMap<String, u32> {
    let (end, mut told) = (Instant::now() + long, BTreeMap::new());
    while let Ok(next) = timeout_at(end, events.next()).await {
        match next.expect("it goes on") {
            Notice::Event(Event::Update { old, new }) => {
                assert_eq!(old.meta().resource_version(), new.meta().resource_version());
                *told.entry(new.name().to_owned()).or_default() += 1;
            }
            Notice::Event(Event::Create { initial: true, .. }) | Notice::InitialDone => {}
            other @ Notice::Event(_) => panic!("{other:?}"),
        }
    }
    told
}

#[tokio::test(start_paused = true)]
async fn each_user_has_the_period_it_asked_for_and_the_server_none() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    for name in ["a", "b", "c"] {
        make(&client, "default", name, "blue").await;
    }
    let options = CacheOptions { resync: Some(10 * MINUTE), ..CacheOptions::default() };
    let cache = Running::new(Cache::new(client, options).expect("a ready client"));
    let select = Select::<ConfigMap>::new;
    let declared = [select(), select().resync(MINUTE), select().resync(Duration::ZERO)];
    let informers = declared.map(|select| cache.informer_of(select).expect("it is the same"));
    cache.await_synced().await.expect("it syncs");
    assert_eq!(cache.informers().len(), 1, "a period is no scope");
    let mut events = informers.each_ref().map(|informer| informer.clone().events());
    let asked = server.server().journal().count("* configmaps");
    let [a, b, c] = &mut events;
    let (slow, quick, never) = tokio::join!(resyncs(a, 60 * MINUTE), resyncs(b, 60 * MINUTE), resyncs(c, 60 * MINUTE));
    assert_eq!((slow.len(), quick.len(), never.len()), (3, 3, 0));
    assert!(slow.values().all(|times| (5..=6).contains(times)), "{slow:?}");
    assert!(quick.values().all(|times| (54..=66).contains(times)), "{quick:?}");
    // A watch is opened anew after five to ten minutes, and nothing is listed.
    assert!(server.server().journal().count("* configmaps") - asked <= 12);
    assert_eq!(informers[0].stats().relists, 0);
    cache.stop().await;
}

/// controller-runtime: `SyncPeriod` of a namespace, before that of the kind.
#[tokio::test(start_paused = true)]
async fn each_namespace_has_the_period_that_is_said_of_it_and_none_is_lost_to_another() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    for (namespace, name) in [("default", "quick"), ("kube-system", "slow"), ("kube-public", "never")] {
        make(&client, namespace, name, "blue").await;
    }
    let never = InNamespace::from("kube-public").resync(Duration::ZERO);
    let namespaces = Namespaces::These(vec![InNamespace::from("default").resync(MINUTE), "kube-system".into(), never]);
    let select = Select::<ConfigMap>::new().namespaces(namespaces).resync(10 * MINUTE);
    let cache = Running::new(Cache::new(client, CacheOptions::default()).expect("a ready client"));
    let maps = cache.informer_of(select.labels("app=blue")).expect("it is new");
    cache.await_synced().await.expect("it syncs");
    let mut events = maps.events();
    let told = resyncs(&mut events, 60 * MINUTE).await;
    assert_eq!(told.keys().collect::<Vec<_>>(), ["quick", "slow"]);
    assert!((54..=66).contains(&told["quick"]) && (5..=6).contains(&told["slow"]), "{told:?}");
    // Who comes back late is told of both, though both were due at once.
    tokio::time::sleep(60 * MINUTE).await;
    let told = resyncs(&mut events, MINUTE / 2).await;
    assert_eq!(told, BTreeMap::from([("quick".to_owned(), 1), ("slow".to_owned(), 1)]));
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_period_that_is_longer_than_the_clock_can_count_is_never() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    make(&client, "default", "a", "blue").await;
    let cache = Running::new(Cache::new(client, CacheOptions::default()).expect("a ready client"));
    for period in [Duration::MAX, Duration::MAX / 2, Duration::from_secs(1 << 40)] {
        // Each user has a wait of its own, which is random.
        for _ in 0..20 {
            let maps = cache.informer_of(Select::<ConfigMap>::new().resync(period)).expect("it is the same");
            let mut events = maps.events();
            assert!(matches!(events.next().await, Some(Notice::Event(Event::Create { initial: true, .. }))));
            assert!(resyncs(&mut events, 60 * MINUTE).await.is_empty());
        }
    }
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_again_unless_it_is_asked_for_nor_before_the_beginning_is_done() {
    let server = Embedded::start().expect("it starts");
    let client = server.client().expect("a client");
    make(&client, "default", "a", "blue").await;
    let cache = Cache::new(client, CacheOptions::default()).expect("a ready client");
    let plain = cache.informer::<ConfigMap>().expect("it is new");
    let resynced = cache.informer_of(Select::<ConfigMap>::new().resync(MINUTE)).expect("it is the same");
    let (mut plain, mut resynced) = (plain.events(), resynced.events());
    assert!(resyncs(&mut resynced, 10 * MINUTE).await.is_empty(), "it does not run yet");
    let cache = Running::new(cache);
    cache.await_synced().await.expect("it syncs");
    assert!(matches!(resynced.next().await, Some(Notice::Event(Event::Create { initial: true, .. }))));
    assert!(matches!(resynced.next().await, Some(Notice::InitialDone)));
    assert!(!resyncs(&mut resynced, 2 * MINUTE).await.is_empty());
    // Who has not looked for long is told once, not as often as it would have been.
    tokio::time::sleep(60 * MINUTE).await;
    assert_eq!(resyncs(&mut resynced, MINUTE / 2).await, BTreeMap::from([("a".to_owned(), 1)]));
    assert!(resyncs(&mut plain, 60 * MINUTE).await.is_empty());
    cache.stop().await;
}
