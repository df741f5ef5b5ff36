//! Tests of lists that repeat themselves, never end or lack fields.
//!
//! Retries back off, and the cache stays correct.

use super::{
    response_proxy::{ResponseAction, is_request_for, proxy_client},
    support::{cache, create_map, until},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    cache::{CacheError, CacheOptions, InformerEvent, InformerState, Query},
    event::Event,
    object::ObjectKey,
};
use steersman_apiserver::{ApiServer, Fault, Options};
use tokio::time::{Instant, sleep, timeout};

/// Creates a server that does not stream lists.
///
/// `list` returns the response to a list of config maps by query and number of earlier lists,
/// `watch` the response to a watch by number of lists.
fn server(
    list: impl Fn(&str, usize) -> ResponseAction + Send + Sync + 'static,
    watch: impl Fn(usize) -> ResponseAction + Send + Sync + 'static,
) -> (ApiServer, Client) {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    server
        .faults()
        .add(Fault::on("watch configmaps").status(400).times(1));
    let lists = AtomicUsize::new(0);
    let client = proxy_client(&server, move |request| {
        let query = request.uri().query().unwrap_or_default();
        if is_request_for(request, "configmaps", "&resourceVersion=") {
            watch(lists.load(Relaxed))
        } else if request.uri().path().ends_with("/configmaps") && !query.contains("watch=true") {
            list(query, lists.fetch_add(1, Relaxed))
        } else {
            ResponseAction::Pass
        }
    });
    (server, client)
}

fn object(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": version}})
}

/// Returns one page of a list, with `token` for the next page.
fn page(token: &str, names: &[&str]) -> ResponseAction {
    let items: Vec<_> = names.iter().map(|name| object(name, "1")).collect();
    ResponseAction::Replace(
        json!({"metadata": {"resourceVersion": "1", "continue": token}, "items": items})
            .to_string(),
    )
}

/// Returns a complete list without resource version.
fn list_without_version(names: &[&str]) -> ResponseAction {
    let items: Vec<_> = names.iter().map(|name| object(name, "")).collect();
    ResponseAction::Replace(json!({"metadata": {}, "items": items}).to_string())
}

/// Asserts backoff and error of an informer whose list has no end.
///
/// It sends `at_once` requests without delay, first paged and then unpaged, and reports `message`.
async fn assert_backs_off(page_of: fn(usize) -> ResponseAction, at_once: usize, message: &str) {
    let (started, requests) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let list = {
        let requests = requests.clone();
        move |query: &str, number: usize| {
            requests
                .lock()
                .push((started.elapsed(), query.contains("limit=")));
            // Time is paused, so an informer without backoff would otherwise loop forever.
            if number > 10_000 {
                ResponseAction::NoData
            } else {
                page_of(number)
            }
        }
    };
    let (_server, client) = server(list, |_| ResponseAction::Pass);
    let cache = cache(&client, CacheOptions::default());
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    sleep(Duration::from_mins(10)).await;
    let requests = mem::take(&mut *requests.lock());
    let first: Vec<_> = requests
        .iter()
        .take_while(|(when, _)| when.is_zero())
        .map(|(_, paged)| *paged)
        .collect();
    assert_eq!(
        first,
        [vec![true; at_once / 2], vec![false; at_once / 2]].concat(),
        "{message}"
    );
    let next = requests[at_once].0.as_secs_f64();
    assert!((0.8..1.6).contains(&next), "{next}: {message}");
    assert!(
        (8..40).contains(&(requests.len() / at_once)),
        "{} in ten minutes: {message}",
        requests.len()
    );
    let state = maps.state();
    assert!(
        matches!(&state, InformerState::Degraded { error, .. } if error.contains(message)),
        "{state:?}"
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_page_falls_back_to_an_unpaged_list_with_backoff() {
    let message = "the API server repeats a page";
    assert_backs_off(|_| page("x", &["a"]), 4, message).await;
    assert_backs_off(|_| page("x", &[]), 4, message).await;
    assert_backs_off(|number| page(&number.to_string(), &["a"]), 4, message).await;
}

#[tokio::test(start_paused = true)]
async fn endless_empty_pages_back_off() {
    assert_backs_off(
        |number| page(&number.to_string(), &[]),
        202,
        "without objects",
    )
    .await;
}

/// A proxy may drop continue tokens.
#[tokio::test(start_paused = true)]
async fn a_lost_continue_token_falls_back_to_an_unpaged_list() {
    let list = |query: &str, _| {
        if query.contains("limit=") {
            page("x", &["a"])
        } else {
            page("", &["a", "b"])
        }
    };
    let (server, client) = server(list, |_| ResponseAction::ReplaceTimed(Vec::new()));
    let cache = cache(&client, CacheOptions::default());
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    timeout(Duration::from_secs(1), maps.await_synced())
        .await
        .expect("at once")
        .expect("synced");
    assert_eq!(maps.list(&Query::default()).expect("synced").len(), 2);
    assert_eq!(server.journal().count("list configmaps"), 3);
    cache.stop().await;
}

/// A server that filters page by page may return empty pages.
///
/// The last page repeats an object that was changed in between.
#[tokio::test(start_paused = true)]
async fn empty_pages_and_a_last_page_without_new_objects_are_valid() {
    let list = |_: &str, number: usize| match number {
        0 | 1 => page(["x", "y"][number], &[]),
        2 => page("z", &["a"]),
        _ => page("", &["a"]),
    };
    let (server, client) = server(list, |_| ResponseAction::ReplaceTimed(Vec::new()));
    let cache = cache(&client, CacheOptions::default());
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    timeout(Duration::from_secs(1), maps.await_synced())
        .await
        .expect("at once")
        .expect("synced");
    assert_eq!(maps.list(&Query::default()).expect("synced").len(), 1);
    assert_eq!(server.journal().count("list configmaps"), 4);
    cache.stop().await;
}

/// A watch without a resource version starts with the present objects, so it misses earlier
/// deletions, even if its events have resource versions.
#[tokio::test(start_paused = true)]
async fn an_object_deleted_after_an_unversioned_list_is_removed_by_the_next_list() {
    for version in ["", "5"] {
        let list = |_: &str, number: usize| {
            list_without_version(if number == 0 { &["a", "b"] } else { &["a"] })
        };
        let (server, client) = server(list, move |_| {
            ResponseAction::Replace(format!(
                "{}\n",
                json!({"type": "ADDED", "object": object("a", version)})
            ))
        });
        let cache = cache(&client, CacheOptions::default());
        let maps = cache
            .informer::<ConfigMap>()
            .expect("the informer is declared");
        maps.await_synced().await.expect("synced");
        assert_eq!(maps.list(&Query::default()).expect("synced").len(), 2);
        let deleted = until(|| maps.list(&Query::default()).expect("synced").len() == 1);
        timeout(Duration::from_secs(10), deleted)
            .await
            .expect("in time");
        assert!(
            maps.get(&ObjectKey::new("default", "a"))
                .expect("synced")
                .is_some(),
            "{version}"
        );

        let is_reported = |state: InformerState| matches!(state, InformerState::Degraded { error, .. } if error.contains("without a resource version"));
        until(|| is_reported(maps.state())).await;
        server.journal().clear();
        sleep(Duration::from_hours(1)).await;
        let lists = server.journal().count("list configmaps");
        assert!(
            (50..150).contains(&lists),
            "{lists} in an hour, though each watch ends after a second"
        );
        cache.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unversioned_list_is_repeated_after_each_watch_without_degrading() {
    let (server, client) = server(
        |_, _| list_without_version(&["a"]),
        |_| ResponseAction::Pass,
    );
    create_map(
        &Client::new(server.service(), "default"),
        "default",
        "a",
        "blue",
    )
    .await;
    let cache = cache(&client, CacheOptions::default());
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    for _ in 0..30 {
        sleep(Duration::from_mins(1)).await;
        assert_eq!(maps.state(), InformerState::Synced);
    }
    let lists = server.journal().count("list configmaps");
    assert!(
        (3..8).contains(&lists),
        "{lists}: a watch lasts for five to ten minutes"
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_recreated_object_that_does_not_decode_is_not_served_as_its_predecessor() {
    for (uid, stays) in [("one", true), ("two", false)] {
        let list = move |_: &str, number: usize| {
            let mut item = json!({"metadata": {"name": "a", "namespace": "default", "uid": "one", "resourceVersion": "1"}});
            if number > 0 {
                item["metadata"]["uid"] = uid.into();
                item["metadata"]["resourceVersion"] = "5".into();
                item["data"] = 13.into();
            }
            let version = (number + 6).to_string();
            ResponseAction::Replace(
                json!({"metadata": {"resourceVersion": version}, "items": [item]}).to_string(),
            )
        };
        let expired =
            json!({"code": 410, "reason": "Expired", "message": "too old resource version"});
        let expired = format!("{}\n", json!({"type": "ERROR", "object": expired}));
        let delay = Duration::from_secs(1);
        let watch = move |lists: usize| {
            ResponseAction::ReplaceTimed(if lists == 1 {
                vec![(delay, expired.clone())]
            } else {
                Vec::new()
            })
        };
        let (_server, client) = server(list, watch);
        let cache = cache(&client, CacheOptions::default());
        let maps = cache
            .informer::<ConfigMap>()
            .expect("the informer is declared");
        let mut events = maps.events();
        maps.await_synced().await.expect("synced");
        let key = ObjectKey::new("default", "a");
        assert!(maps.get(&key).expect("synced").is_some());
        assert!(matches!(
            events.next().await,
            Some(InformerEvent::Event(Event::Create { .. }))
        ));
        assert!(matches!(events.next().await, Some(InformerEvent::Synced)));
        until(|| maps.stats().decode_errors > 0 && maps.stats().relists == 1).await;
        assert!(
            matches!(maps.get(&key), Err(CacheError::Undecodable { .. })),
            "{uid}"
        );
        assert_eq!(
            maps.list(&Query::default()).expect("synced").len(),
            usize::from(stays),
            "{uid}"
        );
        assert!(
            matches!(
                events.next().await,
                Some(InformerEvent::Event(Event::Generic { .. }))
            ),
            "{uid}"
        );
        let next = timeout(Duration::from_secs(1), events.next()).await;
        let is_deleted = matches!(
            next,
            Ok(Some(InformerEvent::Event(Event::Delete {
                state_unknown: true,
                ..
            })))
        );
        assert_eq!(is_deleted, !stays, "{uid}: {next:?}");
        cache.stop().await;
    }
}
