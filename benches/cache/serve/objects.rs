//! Creates pods on a server. A server drops the status on create, so an annotation of the same size
//! replaces it.

use crate::{
    pick,
    pods::{FIRST_REVISION, NAMESPACES, Pods, key},
};
use kube::Client;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};
use tokio::task::JoinSet;

/// Number of concurrent requests.
const PARALLEL: usize = 32;

pub(crate) fn count(quick: bool) -> usize {
    pick(quick, 10_000, 100_000)
}

pub(crate) async fn fill(client: &Client, count: usize) {
    for number in 0..NAMESPACES {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": key(number).0}});
        create(client, "/api/v1/namespaces", namespace.to_string()).await;
    }
    let (start, next, pods) = (
        Instant::now(),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(Pods::new()),
    );
    let mut tasks = JoinSet::new();
    for _ in 0..PARALLEL {
        let (client, next, pods) = (client.clone(), next.clone(), pods.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= count {
                    return;
                }
                let path = format!("/api/v1/namespaces/{}/pods", key(number).0);
                create(
                    &client,
                    &path,
                    to_creatable(&pods.json(number, FIRST_REVISION)),
                )
                .await;
                if number > 0 && number % (count / 10) == 0 {
                    eprintln!(
                        "     {number} of {count} pods created in {} s",
                        start.elapsed().as_secs()
                    );
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("every pod can be created");
    }
    eprintln!(
        "     {count} pods created in {} s",
        start.elapsed().as_secs()
    );
}

/// Removes the fields that the server sets, and replaces the status by an annotation.
fn to_creatable(json: &str) -> String {
    let mut pod: Value = serde_json::from_str(json).expect("a pod");
    let status = pod["status"].take().to_string();
    pod.as_object_mut().expect("an object").remove("status");
    let metadata = pod["metadata"].as_object_mut().expect("an object");
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "generateName",
    ] {
        metadata.remove(field);
    }
    metadata["annotations"]["in-place-of-status"] = "x".repeat(status.len()).into();
    pod.to_string()
}

async fn create(client: &Client, path: &str, body: String) {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.into_bytes());
    client
        .request_text(request.expect("a request"))
        .await
        .expect("the object is created");
}
