//! Convergence tests of the cache under faults.
//!
//! Afterwards, the cache equals the server, and so do the objects that handlers know from events.
//!
//! The seed of a [`Schedule`] determines its writes, its faults and the jitter of retries.

use super::{
    event_checker::{CheckedHandler, EventChecker, Versions, version_of, versions},
    faulty_network::FaultyNetwork,
    schedule::{Reach, Schedule},
    support::{Running, create_map, namespace_list, until},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use std::time::Duration;
use steersman::{
    cache::{Cache, CacheOptions, InformerState, Query, Select},
    object::ObjectKey,
    testing::{self, Environment, seed_jitter, started_or_skipped},
};
use steersman_apiserver::{ApiServer, Options};
use steersman_testkit::{Seeds, Test, this_test};
use tokio::time::timeout;

/// kube-apiserver, too, lets a watch wait silently for a resource version that it has not reached.
#[tokio::test(start_paused = true)]
async fn the_cache_converges_on_a_server_restored_to_an_older_state() {
    let network = FaultyNetwork::new(
        ApiServer::new(Options::default()).expect("the server starts"),
        0,
    );
    network.set_reliable(true);
    let cache = Running::new(
        Cache::new(network.client(), CacheOptions::default()).expect("a ready client"),
    );
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    create_map(&network.direct_client(), "default", "kept", "blue").await;
    let backup = network.server().fork();
    create_map(&network.direct_client(), "default", "lost", "red").await;
    maps.await_synced().await.expect("synced");
    until(|| maps.list(&Query::default()).expect("synced").len() == 2).await;
    network.replace(backup);
    until(|| maps.resource_version() == Some(network.server().revision())).await;
    let left = maps.list(&Query::default()).expect("synced");
    assert_eq!(
        left.iter()
            .map(|map| map.metadata.name.as_deref())
            .collect::<Vec<_>>(),
        [Some("kept")]
    );
    cache.stop().await;
}

/// Covers the faults that kube-apiserver supports: a pause, and a restart, which loses its watch
/// cache.
#[tokio::test]
async fn the_cache_converges_on_a_kube_apiserver_that_was_paused_and_restarted()
-> anyhow::Result<()> {
    let started = Environment::start(testing::Options::default()).await;
    let Some(environment) = started_or_skipped(started) else {
        return Ok(());
    };
    // Created from a configuration, so that watches drive their own connections.
    let (client, cache) = (
        environment.client()?,
        Cache::new(environment.config(), CacheOptions::default())?,
    );
    let maps = cache.informer_of(
        Select::<ConfigMap>::new()
            .labels("app")
            .namespaces(namespace_list(&["default", "kube-public"])),
    )?;
    let checker = CheckedHandler::new(maps.events(), EventChecker::default(), |_| None);
    let cache = Running::new(cache);
    for name in ["a", "b", "c"] {
        create_map(&client, "default", name, "blue").await;
    }
    maps.await_synced().await?;
    let api = Api::<ConfigMap>::namespaced(client.clone(), "default");

    let paused = environment.pause_apiserver()?;
    // The pause takes effect with a delay.
    while timeout(Duration::from_millis(200), api.get("a"))
        .await
        .is_ok()
    {}
    let written = tokio::spawn({
        let api = api.clone();
        async move { api.delete("a", &DeleteParams::default()).await }
    });
    tokio::task::yield_now().await;
    assert!(!written.is_finished(), "the server is paused");
    drop(paused);
    written.await??;
    create_map(&client, "kube-public", "d", "red").await;

    environment.restart_apiserver().await?;
    let client = environment.client()?;
    let api = Api::<ConfigMap>::namespaced(client.clone(), "default");
    api.delete("b", &DeleteParams::default()).await?;
    let patch = Patch::Merge(json!({"data": {"color": "green"}}));
    let last = api.patch("c", &PatchParams::default(), &patch).await?;
    let wanted = Api::<ConfigMap>::all(client)
        .list(&ListParams::default().labels("app"))
        .await?;
    let wanted: Versions = wanted
        .iter()
        .map(|map| (ObjectKey::of(map), version_of(map)))
        .collect();
    assert_eq!(
        (wanted.len(), wanted[&ObjectKey::of(&last)].clone()),
        (2, version_of(&last))
    );
    let same = || versions(&maps) == wanted && checker.checker.lock().differs(&wanted).is_none();
    let converged = timeout(
        Duration::from_mins(1),
        until(|| same() && maps.state() == InformerState::Synced),
    )
    .await;
    assert!(
        converged.is_ok(),
        "{maps:?} has {:?}, the server {wanted:?}",
        versions(&maps)
    );
    cache.stop().await;
    environment.stop().await?;
    Ok(())
}

/// Runs the schedule of each seed of `test`, by default `count` of them.
fn run_schedules(test: Test, reach: Reach, count: u64) {
    for seed in Seeds::new(test, count) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        let _seeded = seed_jitter(seed);
        runtime
            .expect("a runtime")
            .block_on(Schedule::run(seed, reach))
            .expect("a valid schedule");
    }
}

#[test]
fn soak_the_cache_converges_after_random_schedules() {
    run_schedules(this_test!(), Reach::Client, 15);
}

/// The cache creates its client from a configuration, as in production.
///
/// The kernel schedules the sockets, so a seed may need several runs to reproduce a failure.
#[test]
fn soak_the_cache_converges_after_random_schedules_over_sockets() {
    run_schedules(this_test!(), Reach::Sockets, 9);
}
