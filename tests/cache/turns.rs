//! Lists that are large: the other tasks of the runtime get their turns while they are read.

use super::support::cache;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use steersman::cache::{CacheOptions, Select};
use steersman_apiserver::{ApiServer, Fault, Options};
use tokio::task::yield_now;

/// How many of these objects are decoded, at most, without another task having its turn.
async fn in_one_go(streamed: bool, objects: usize, bytes: usize) -> usize {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    let client = Client::new(server.service(), "default");
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    for number in 0..objects {
        let map = json!({"metadata": {"name": format!("map-{number}")}, "data": {"text": "x".repeat(bytes)}});
        let map = serde_json::from_value(map).expect("a config map");
        maps.create(&PostParams::default(), &map).await.expect("it is new");
    }
    if !streamed {
        server.faults().add(Fault::on("watch configmaps").status(400).times(1));
    }
    let turns = Arc::new(AtomicUsize::new(0));
    let other = tokio::spawn({
        let turns = turns.clone();
        async move {
            loop {
                turns.fetch_add(1, Relaxed);
                yield_now().await;
            }
        }
    });
    // In which turn each was decoded.
    let decoded = Arc::new(Mutex::new(Vec::new()));
    let note = {
        let decoded = decoded.clone();
        move |_: &mut ConfigMap| decoded.lock().push(turns.load(Relaxed))
    };
    let cache = cache(&client, CacheOptions::default());
    let maps = cache.informer_of(Select::new().page_size(0).transform(note)).expect("it is new");
    maps.await_synced().await.expect("it syncs");
    other.abort();
    assert_eq!(server.journal().count("list configmaps"), usize::from(!streamed));
    let decoded = std::mem::take(&mut *decoded.lock());
    assert!(decoded.len() >= objects, "{}", decoded.len());
    cache.stop().await;
    // Of two tasks that pause the runtime may take first the one that was last, so that each has two turns in a row.
    decoded.chunk_by(|one, next| one == next).map(<[usize]>::len).max().unwrap_or_default().div_ceil(2)
}

#[tokio::test]
async fn other_tasks_get_their_turn_while_a_list_of_many_objects_is_read() {
    for streamed in [false, true] {
        let objects = in_one_go(streamed, 500, 10).await;
        assert!(objects <= 16, "{objects} in one go, streamed: {streamed}");
    }
}

#[tokio::test]
async fn other_tasks_get_their_turn_while_a_list_of_large_objects_is_read() {
    for streamed in [false, true] {
        let objects = in_one_go(streamed, 15, 100_000).await;
        assert!(objects <= 2, "{objects} in one go, streamed: {streamed}");
    }
}
