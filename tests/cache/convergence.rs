//! Whatever the server and the network do: in the end the cache is what the server has, and handlers know it from events alone.
//!
//! The seed of a [`Schedule`] determines its writes and faults. It does not determine the jitter of the informers' retries,
//! so a seed may need several runs to reproduce a failure: add `STEERSMAN_SOAK=60` to the command that a failure prints.

use super::{
    chaos::Door,
    ledger::{Handler, Ledger, Versions, version_of, versions},
    schedule::{Reach, Schedule},
    support::{Running, make, these, until},
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
    testing::{self, Environment, or_left_out},
};
use steersman_apiserver::{ApiServer, Options};
use steersman_testkit::{Seeds, Test, this_test};
use tokio::time::timeout;

/// The real server, too, lets a watch wait for a version that it has not reached, and says nothing.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_restored_to_an_older_state_is_believed_once_nothing_is_heard_of_the_newer_one() {
    let door = Door::new(ApiServer::new(Options::default()).expect("it starts"), 0);
    door.set_calm(true);
    let cache = Running::new(Cache::new(door.client(), CacheOptions::default()).expect("a ready client"));
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    make(&door.inside(), "default", "kept", "blue").await;
    let backup = door.server().fork();
    make(&door.inside(), "default", "lost", "red").await;
    maps.await_synced().await.expect("it syncs");
    until(|| maps.list(&Query::default()).expect("synced").len() == 2).await;
    door.replace(backup);
    until(|| maps.resource_version() == Some(door.server().revision())).await;
    let left = maps.list(&Query::default()).expect("synced");
    assert_eq!(left.iter().map(|map| map.metadata.name.as_deref()).collect::<Vec<_>>(), [Some("kept")]);
    cache.stop().await;
}

/// What the real server can be made to do: not to answer, and to start again, which forgets what happened.
#[tokio::test]
async fn after_the_real_server_was_paused_and_restarted_the_cache_is_what_it_has() -> anyhow::Result<()> {
    let started = Environment::start(testing::Options::default()).await;
    let Some(environment) = or_left_out(started) else { return Ok(()) };
    // From a configuration, so that watches drive their own connections.
    let (client, cache) = (environment.client()?, Cache::new(environment.config(), CacheOptions::default())?);
    let maps =
        cache.informer_of(Select::<ConfigMap>::new().labels("app").namespaces(these(&["default", "kube-public"])))?;
    let ledger = Handler::new(maps.events(), Ledger::default(), |_| None);
    let cache = Running::new(cache);
    for name in ["a", "b", "c"] {
        make(&client, "default", name, "blue").await;
    }
    maps.await_synced().await?;
    let api = Api::<ConfigMap>::namespaced(client.clone(), "default");

    let paused = environment.pause_apiserver()?;
    // It is not paused at once.
    while timeout(Duration::from_millis(200), api.get("a")).await.is_ok() {}
    let written = tokio::spawn({
        let api = api.clone();
        async move { api.delete("a", &DeleteParams::default()).await }
    });
    tokio::task::yield_now().await;
    assert!(!written.is_finished(), "nobody answers");
    drop(paused);
    written.await??;
    make(&client, "kube-public", "d", "red").await;

    environment.restart_apiserver().await?;
    let client = environment.client()?;
    let api = Api::<ConfigMap>::namespaced(client.clone(), "default");
    api.delete("b", &DeleteParams::default()).await?;
    let patch = Patch::Merge(json!({"data": {"door": "green"}}));
    let last = api.patch("c", &PatchParams::default(), &patch).await?;
    let wanted = Api::<ConfigMap>::all(client).list(&ListParams::default().labels("app")).await?;
    let wanted: Versions = wanted.iter().map(|map| (ObjectKey::of(map), version_of(map))).collect();
    assert_eq!((wanted.len(), wanted[&ObjectKey::of(&last)].clone()), (2, version_of(&last)));
    let same = || versions(&maps) == wanted && ledger.ledger.lock().differs(&wanted).is_none();
    let converged = timeout(Duration::from_mins(1), until(|| same() && maps.state() == InformerState::Synced)).await;
    assert!(converged.is_ok(), "{maps:?} has {:?}, the server {wanted:?}", versions(&maps));
    cache.stop().await;
    environment.stop().await?;
    Ok(())
}

/// Runs the schedule of each seed of `test`. The gate runs `count` of them.
fn run_schedules(test: Test, reach: Reach, count: u64) {
    for seed in Seeds::new(test, count) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(Schedule::run(seed, reach)).expect("the server does what it is told");
    }
}

#[test]
fn soak_schedules_end_with_a_cache_that_is_what_the_server_has() {
    run_schedules(this_test!(), Reach::Client, 15);
}

/// As in production, the cache creates its client from a configuration. The kernel schedules the sockets, so a seed may
/// need several runs to reproduce a failure.
#[test]
fn soak_schedules_over_sockets_end_with_a_cache_that_is_what_the_server_has() {
    run_schedules(this_test!(), Reach::Sockets, 9);
}
