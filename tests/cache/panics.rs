//! Tests of user code that panics during a watch.
//!
//! The informer retries and loses no event.

use super::{
    response_proxy::{ResponseAction, is_request_for, proxy_client},
    support::{cache, create_map, namespace_list, options, running, until},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{CustomResource, CustomResourceExt};
use kube_client::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    cache::{InformerState, Namespaces, Query, Select},
    object::ObjectKey,
};
use steersman_apiserver::{ApiServer, Options};
use tokio::time::sleep;

fn server() -> ApiServer {
    ApiServer::new(Options::default()).expect("a server without data starts")
}

async fn namespace(client: &Client, name: &str) {
    let made = json!({"metadata": {"name": name, "labels": {"tenant": ""}}});
    let made = serde_json::from_value(made).expect("a namespace");
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &made)
        .await
        .expect("the object is created");
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn serialize_unless_13<S: Serializer>(count: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    assert!(*count != 13, "13 cannot be written");
    serializer.serialize_i64(*count)
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "faulty.example.com",
    version = "v1",
    kind = "Faulty",
    namespaced
)]
struct FaultySpec {
    #[serde(serialize_with = "serialize_unless_13")]
    count: i64,
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_serializer_panics_is_stored_and_its_watch_continues() {
    let server = server();
    let client = Client::new(server.service(), "default");
    server
        .install(serde_json::to_value(Faulty::crd()).expect("JSON"))
        .await
        .expect("a definition");
    let cache = running(client.clone(), &["default"]);
    let all = cache
        .informer::<Faulty>()
        .expect("the informer is declared");
    all.await_synced().await.expect("synced");
    let api = Api::<DynamicObject>::namespaced_with(
        client,
        "default",
        &ApiResource::erase::<Faulty>(&()),
    );
    for (name, count) in [("bad", 13), ("good", 1)] {
        let object = DynamicObject::new(name, &ApiResource::erase::<Faulty>(&()))
            .data(json!({"spec": {"count": count}}));
        api.create(&PostParams::default(), &object)
            .await
            .expect("the object is created");
    }
    until(|| all.list(&Query::default()).expect("synced").len() == 2).await;
    assert_eq!(all.state(), InformerState::Synced);
    assert_eq!((all.stats().relists, all.stats().decode_errors), (0, 0));
    assert!(all.stats().approximate_bytes > 0);
    assert_eq!(all.largest().len(), 2, "the size is estimated");
    cache.stop().await;
}

/// Creates a client that panics in the watch of namespace `one`, `left` times.
fn panics_in_one(server: &ApiServer, left: &Arc<AtomicUsize>) -> Client {
    let left = left.clone();
    proxy_client(server, move |request| {
        let panics = request.uri().path().contains("/one/")
            && is_request_for(request, "configmaps", "watch=true")
            && left
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                .is_ok();
        if panics {
            ResponseAction::Panic
        } else {
            ResponseAction::Pass
        }
    })
}

/// Asserts that a panicking watch degrades its namespace and recovers.
///
/// It is retried with backoff.
async fn assert_recovers_from_panics(namespaces: Namespaces) {
    let (server, left) = (server(), Arc::new(AtomicUsize::new(0)));
    let direct_client = Client::new(server.service(), "default");
    for name in ["one", "two"] {
        namespace(&direct_client, name).await;
    }
    let cache = cache(&panics_in_one(&server, &left), options(&["one", "two"]));
    let maps = cache
        .informer_of(Select::<ConfigMap>::new().namespaces(namespaces))
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    left.store(usize::MAX, Relaxed);
    // The open watches end, and the next ones panic.
    sleep(Duration::from_mins(11)).await;
    create_map(&direct_client, "one", "a", "blue").await;
    create_map(&direct_client, "two", "a", "blue").await;
    for _ in 0..10 {
        sleep(Duration::from_mins(1)).await;
        let state = maps.state();
        let words = |error: &str| error.contains("a body that panics");
        assert!(
            matches!(&state, InformerState::Degraded { error, .. } if words(error)),
            "{state:?}"
        );
    }
    let tried = usize::MAX - left.swap(0, Relaxed);
    assert!(
        (10..60).contains(&tried),
        "{tried} requests in about 15 minutes"
    );
    assert!(
        maps.get(&ObjectKey::new("two", "a"))
            .expect("synced")
            .is_some(),
        "the other namespace is not affected"
    );
    until(|| maps.state() == InformerState::Synced).await;
    assert!(
        maps.get(&ObjectKey::new("one", "a"))
            .expect("synced")
            .is_some()
    );
    create_map(&direct_client, "one", "b", "blue").await;
    until(|| {
        maps.get(&ObjectKey::new("one", "b"))
            .expect("synced")
            .is_some()
    })
    .await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_watch_panics_is_retried_with_backoff() {
    assert_recovers_from_panics(namespace_list(&["one", "two"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_labelled_namespace_whose_watch_panics_is_retried_with_backoff() {
    assert_recovers_from_panics(Namespaces::Labelled("tenant".into())).await;
}
