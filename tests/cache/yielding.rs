//! Tests of large lists: other tasks of the runtime run while the list is decoded.

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

/// Returns how many objects are decoded at most before another task runs.
async fn max_decoded_without_yielding(streamed: bool, objects: usize, bytes: usize) -> usize {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    let client = Client::new(server.service(), "default");
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    for number in 0..objects {
        let map = json!({"metadata": {"name": format!("map-{number}")}, "data": {"text": "x".repeat(bytes)}});
        let map = serde_json::from_value(map).expect("a config map");
        maps.create(&PostParams::default(), &map)
            .await
            .expect("the object is created");
    }
    if !streamed {
        server
            .faults()
            .add(Fault::on("watch configmaps").status(400).times(1));
    }
    let polls = Arc::new(AtomicUsize::new(0));
    let other = tokio::spawn({
        let polls = polls.clone();
        async move {
            loop {
                polls.fetch_add(1, Relaxed);
                yield_now().await;
            }
        }
    });
    // The turn in which each object was decoded.
    let decoded = Arc::new(Mutex::new(Vec::new()));
    let record_poll = {
        let decoded = decoded.clone();
        move |_: &mut ConfigMap| decoded.lock().push(polls.load(Relaxed))
    };
    let cache = cache(&client, CacheOptions::default());
    let maps = cache
        .informer_of(Select::new().page_size(0).transform(record_poll))
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    other.abort();
    assert_eq!(
        server.journal().count("list configmaps"),
        usize::from(!streamed)
    );
    let decoded = std::mem::take(&mut *decoded.lock());
    assert!(decoded.len() >= objects, "{}", decoded.len());
    cache.stop().await;
    // The runtime may poll the last of two yielding tasks first, so each may have two turns in a
    // row.
    decoded
        .chunk_by(|one, next| one == next)
        .map(<[usize]>::len)
        .max()
        .unwrap_or_default()
        .div_ceil(2)
}

#[tokio::test]
async fn decoding_a_list_of_many_objects_yields_to_other_tasks() {
    for streamed in [false, true] {
        let objects = max_decoded_without_yielding(streamed, 500, 10).await;
        assert!(objects <= 16, "{objects} in one go, streamed: {streamed}");
    }
}

#[tokio::test]
async fn decoding_a_list_of_large_objects_yields_to_other_tasks() {
    for streamed in [false, true] {
        let objects = max_decoded_without_yielding(streamed, 15, 100_000).await;
        assert!(objects <= 2, "{objects} in one go, streamed: {streamed}");
    }
}
