//! Tests of resync.
//!
//! It repeats every object once per period of each subscription. All tests use the virtual time of
//! the embedded server.

use super::support::{Running, create_map};
use k8s_openapi::api::core::v1::ConfigMap;
use std::{collections::BTreeMap, time::Duration};
use steersman::{
    cache::{Cache, CacheOptions, Events, InformerEvent, NamespaceScope, Namespaces, Select},
    event::Event,
    testing::{Embedded, TestServer},
};
use tokio::time::{Instant, timeout_at};

const MINUTE: Duration = Duration::from_mins(1);

/// Counts the resync events per object during `long`. Panics on any other event.
async fn resyncs(events: &mut Events<ConfigMap>, long: Duration) -> BTreeMap<String, u32> {
    let (end, mut counts) = (Instant::now() + long, BTreeMap::new());
    while let Ok(next) = timeout_at(end, events.next()).await {
        match next.expect("the cache runs") {
            InformerEvent::Event(Event::Update { old, new }) => {
                assert_eq!(old.meta().resource_version(), new.meta().resource_version());
                *counts.entry(new.name().to_owned()).or_default() += 1;
            }
            InformerEvent::Event(Event::Create { initial: true, .. }) | InformerEvent::Synced => {}
            other @ InformerEvent::Event(_) => panic!("{other:?}"),
        }
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn each_subscription_has_its_own_resync_period_without_requests() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    for name in ["a", "b", "c"] {
        create_map(&client, "default", name, "blue").await;
    }
    let options = CacheOptions {
        resync: Some(10 * MINUTE),
        ..CacheOptions::default()
    };
    let cache = Running::new(Cache::new(client, options).expect("a ready client"));
    let select = Select::<ConfigMap>::new;
    let declared = [
        select(),
        select().resync(MINUTE),
        select().resync(Duration::ZERO),
    ];
    let informers =
        declared.map(|select| cache.informer_of(select).expect("the informer is shared"));
    cache.await_synced().await.expect("synced");
    assert_eq!(
        cache.informers().len(),
        1,
        "the period is not part of the scope"
    );
    let mut events = informers
        .each_ref()
        .map(|informer| informer.clone().events());
    let requests_before = server.server().journal().count("* configmaps");
    let [a, b, c] = &mut events;
    let (slow, quick, never) = tokio::join!(
        resyncs(a, 60 * MINUTE),
        resyncs(b, 60 * MINUTE),
        resyncs(c, 60 * MINUTE)
    );
    assert_eq!((slow.len(), quick.len(), never.len()), (3, 3, 0));
    assert!(
        slow.values().all(|times| (5..=6).contains(times)),
        "{slow:?}"
    );
    assert!(
        quick.values().all(|times| (54..=66).contains(times)),
        "{quick:?}"
    );
    // A watch is reopened every five to ten minutes, without a list.
    assert!(server.server().journal().count("* configmaps") - requests_before <= 12);
    assert_eq!(informers[0].stats().relists, 0);
    cache.stop().await;
}

/// The `SyncPeriod` of a namespace overrides that of the kind, as in controller-runtime.
#[tokio::test(start_paused = true)]
async fn each_namespace_has_its_own_resync_period() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    for (namespace, name) in [
        ("default", "quick"),
        ("kube-system", "slow"),
        ("kube-public", "never"),
    ] {
        create_map(&client, namespace, name, "blue").await;
    }
    let never = NamespaceScope::from("kube-public").resync(Duration::ZERO);
    let namespaces = Namespaces::List(vec![
        NamespaceScope::from("default").resync(MINUTE),
        "kube-system".into(),
        never,
    ]);
    let select = Select::<ConfigMap>::new()
        .namespaces(namespaces)
        .resync(10 * MINUTE);
    let cache = Running::new(Cache::new(client, CacheOptions::default()).expect("a ready client"));
    let maps = cache
        .informer_of(select.labels("app=blue"))
        .expect("the informer is declared");
    cache.await_synced().await.expect("synced");
    let mut events = maps.events();
    let counts = resyncs(&mut events, 60 * MINUTE).await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["quick", "slow"]);
    assert!(
        (54..=66).contains(&counts["quick"]) && (5..=6).contains(&counts["slow"]),
        "{counts:?}"
    );
    // A late handler receives both, although both were due at once.
    tokio::time::sleep(60 * MINUTE).await;
    let counts = resyncs(&mut events, MINUTE / 2).await;
    assert_eq!(
        counts,
        BTreeMap::from([("quick".to_owned(), 1), ("slow".to_owned(), 1)])
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_resync_period_beyond_the_range_of_the_clock_never_elapses() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    create_map(&client, "default", "a", "blue").await;
    let cache = Running::new(Cache::new(client, CacheOptions::default()).expect("a ready client"));
    for period in [
        Duration::MAX,
        Duration::MAX / 2,
        Duration::from_secs(1 << 40),
    ] {
        // Each subscription has its own random delay.
        for _ in 0..20 {
            let maps = cache
                .informer_of(Select::<ConfigMap>::new().resync(period))
                .expect("the informer is shared");
            let mut events = maps.events();
            assert!(matches!(
                events.next().await,
                Some(InformerEvent::Event(Event::Create { initial: true, .. }))
            ));
            assert!(resyncs(&mut events, 60 * MINUTE).await.is_empty());
        }
    }
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_resync_is_opt_in_and_starts_after_the_initial_events() {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    create_map(&client, "default", "a", "blue").await;
    let cache = Cache::new(client, CacheOptions::default()).expect("a ready client");
    let plain = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    let resynced = cache
        .informer_of(Select::<ConfigMap>::new().resync(MINUTE))
        .expect("the informer is shared");
    let (mut plain, mut resynced) = (plain.events(), resynced.events());
    assert!(
        resyncs(&mut resynced, 10 * MINUTE).await.is_empty(),
        "the cache does not run yet"
    );
    let cache = Running::new(cache);
    cache.await_synced().await.expect("synced");
    assert!(matches!(
        resynced.next().await,
        Some(InformerEvent::Event(Event::Create { initial: true, .. }))
    ));
    assert!(matches!(resynced.next().await, Some(InformerEvent::Synced)));
    assert!(!resyncs(&mut resynced, 2 * MINUTE).await.is_empty());
    // A handler that has not polled for several periods receives one resync.
    tokio::time::sleep(60 * MINUTE).await;
    assert_eq!(
        resyncs(&mut resynced, MINUTE / 2).await,
        BTreeMap::from([("a".to_owned(), 1)])
    );
    assert!(resyncs(&mut plain, 60 * MINUTE).await.is_empty());
    cache.stop().await;
}
