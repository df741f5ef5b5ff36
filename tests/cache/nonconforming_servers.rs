//! Tests of servers and proxies that repeat invalid responses or omit fields.
//!
//! The cache still converges.

use super::{
    response_proxy::{ResponseAction, is_request_for, proxy_client},
    support::{Running, cache, create_map, until},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    cache::{CacheOptions, Informer, InformerState, Query},
    object::ObjectKey,
};
use steersman_apiserver::{ApiServer, Failure, Fault, Options, Reason};
use tokio::time::{Instant, sleep, timeout};

fn server() -> (ApiServer, Client) {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    let client = Client::new(server.service(), "default");
    (server, client)
}

fn bookmark(version: u64) -> String {
    format!(
        "{}\n",
        json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version.to_string()}}})
    )
}

fn streaming_lists(server: &ApiServer) -> usize {
    let requests = server.journal().matching("watch configmaps");
    requests
        .iter()
        .filter(|entry| entry.query.contains("sendInitialEvents=true"))
        .count()
}

fn declare(client: &Client) -> (Running, Informer<ConfigMap>) {
    let cache = cache(client, CacheOptions::default());
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    (cache, maps)
}

async fn shows(maps: &Informer<ConfigMap>, name: &str) {
    until(|| {
        maps.get(&ObjectKey::new("default", name))
            .expect("the informer is synced")
            .is_some()
    })
    .await;
}

/// Asserts that the informer falls back from streamed to paged lists.
///
/// `turn` answers the streamed lists, of which there are two. The informer syncs within `most`.
async fn assert_falls_back_to_pages(
    turn: impl Fn() -> ResponseAction + Send + Sync + 'static,
    most: Duration,
) {
    let (server, direct_client) = server();
    create_map(&direct_client, "default", "a", "blue").await;
    let client = proxy_client(&server, move |request| match request {
        list if is_request_for(list, "configmaps", "sendInitialEvents=true") => turn(),
        _ => ResponseAction::Pass,
    });
    let (cache, maps) = declare(&client);
    timeout(most, maps.await_synced())
        .await
        .expect("in time")
        .expect("synced");
    assert_eq!(
        (
            streaming_lists(&server),
            server.journal().count("list configmaps")
        ),
        (2, 1)
    );
    assert_eq!(maps.list(&Query::default()).expect("synced").len(), 1);
    create_map(&direct_client, "default", "b", "blue").await;
    shows(&maps, "b").await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_incomplete_streaming_lists_fall_back_to_pages() {
    assert_falls_back_to_pages(
        || ResponseAction::Replace(String::new()),
        Duration::from_secs(10),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn two_silent_streaming_lists_fall_back_to_pages() {
    assert_falls_back_to_pages(|| ResponseAction::NoData, Duration::from_secs(130)).await;
}

/// A proxy may drop unknown query parameters.
#[tokio::test(start_paused = true)]
async fn a_streaming_list_answered_by_a_plain_watch_falls_back_to_pages() {
    let minutes = || {
        (1..30)
            .map(|minute| (Duration::from_secs(50), bookmark(minute)))
            .collect()
    };
    assert_falls_back_to_pages(
        move || ResponseAction::ReplaceTimed(minutes()),
        Duration::from_secs(130),
    )
    .await;
}

/// The kind changes more than once a minute, and the server sends no bookmarks.
#[tokio::test(start_paused = true)]
async fn an_endless_streaming_list_falls_back_to_pages() {
    let event = |version: u64| {
        let meta = json!({"name": "a", "namespace": "default", "uid": "1", "resourceVersion": version.to_string()});
        format!(
            "{}\n",
            json!({"type": "MODIFIED", "object": {"metadata": meta}})
        )
    };
    let changes = move || {
        (1..100)
            .map(|version| (Duration::from_secs(30), event(version)))
            .collect()
    };
    assert_falls_back_to_pages(
        move || ResponseAction::ReplaceTimed(changes()),
        Duration::from_mins(21),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn two_server_errors_for_streaming_lists_fall_back_to_pages() {
    for code in [500, 502, 503, 504] {
        let (server, client) = server();
        create_map(&client, "default", "a", "blue").await;
        let failure = Failure::new(code, Reason::InternalError, "no streamed lists here");
        server
            .faults()
            .add(Fault::on("watch configmaps").failure(failure).times(2));
        let (cache, maps) = declare(&client);
        timeout(Duration::from_secs(10), maps.await_synced())
            .await
            .expect("in time")
            .expect("synced");
        assert_eq!(
            (
                streaming_lists(&server),
                server.journal().count("list configmaps")
            ),
            (2, 1),
            "{code}"
        );
        cache.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_or_throttled_streaming_list_does_not_fall_back_to_pages() {
    for code in [401, 403, 429] {
        let (server, client) = server();
        server
            .faults()
            .add(Fault::on("watch configmaps").status(code).times(5));
        let (cache, maps) = declare(&client);
        maps.await_synced().await.expect("synced");
        assert_eq!(
            (
                streaming_lists(&server),
                server.journal().count("list configmaps")
            ),
            (6, 0),
            "{code}"
        );
        cache.stop().await;
    }
}

/// The fallback to pages is not permanent.
#[tokio::test(start_paused = true)]
async fn a_relist_after_a_paged_list_is_streamed_again() {
    let (server, client) = server();
    server
        .faults()
        .add(Fault::on("watch configmaps").status(503).times(2));
    let (cache, maps) = declare(&client);
    maps.await_synced().await.expect("synced");
    assert_eq!(
        (
            streaming_lists(&server),
            server.journal().count("list configmaps")
        ),
        (2, 1)
    );
    server
        .faults()
        .add(Fault::on("watch configmaps").status(410).times(1));
    until(|| maps.stats().relists == 1).await;
    assert_eq!(
        (
            streaming_lists(&server),
            server.journal().count("list configmaps")
        ),
        (3, 1)
    );
    cache.stop().await;
}

/// A proxy may return an error with status 200.
#[tokio::test(start_paused = true)]
async fn repeated_invalid_watch_events_are_followed_by_a_list() {
    let (server, direct_client) = server();
    server
        .faults()
        .add(Fault::on("watch configmaps").status(400).times(1));
    let client = proxy_client(&server, |request| match request {
        watch if is_request_for(watch, "configmaps", "&resourceVersion=") => {
            ResponseAction::Replace(format!(
                "{}\n",
                json!({"kind": "Status", "status": "Failure", "code": 410})
            ))
        }
        _ => ResponseAction::Pass,
    });
    let (cache, maps) = declare(&client);
    maps.await_synced().await.expect("synced");
    create_map(&direct_client, "default", "a", "blue").await;
    timeout(Duration::from_mins(10), shows(&maps, "a"))
        .await
        .expect("in time");
    cache.stop().await;
}

/// Returns the time until a watch is considered dead after it sent `words`.
async fn time_until_degraded(words: Vec<(Duration, String)>) -> Duration {
    let (server, direct_client) = server();
    server
        .faults()
        .add(Fault::on("watch configmaps").status(400).times(1));
    let words = Mutex::new(Some(words));
    let client = proxy_client(&server, move |request| match request {
        watch if is_request_for(watch, "configmaps", "&resourceVersion=") => words
            .lock()
            .take()
            .map_or(ResponseAction::Pass, ResponseAction::ReplaceTimed),
        _ => ResponseAction::Pass,
    });
    let (cache, maps) = declare(&client);
    maps.await_synced().await.expect("synced");
    let started = Instant::now();
    create_map(&direct_client, "default", "b", "blue").await;
    until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
    let detected = started.elapsed();
    timeout(Duration::from_secs(10), shows(&maps, "b"))
        .await
        .expect("another watch delivers the event");
    cache.stop().await;
    detected
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_detected_three_minutes_after_the_last_bookmark() {
    let minute = Duration::from_mins(1);
    let detected = time_until_degraded(vec![(minute, bookmark(1)), (minute, bookmark(1))]).await;
    assert!((300..301).contains(&detected.as_secs()), "{detected:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_bookmarks_may_be_silent_until_its_timeout() {
    let detected = time_until_degraded(Vec::new()).await;
    assert!((330..631).contains(&detected.as_secs()), "{detected:?}");
}

/// Returns an event of `default/NAME`, optionally without resource version.
fn event(what: &str, name: &str, version: Option<&str>, body: Value) -> String {
    let mut object = body;
    object["metadata"] =
        json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": version});
    format!("{}\n", json!({"type": what, "object": object}))
}

#[tokio::test(start_paused = true)]
async fn events_without_a_resource_version_are_applied() {
    for version in [None, Some(""), Some("none")] {
        let (server, direct_client) = server();
        for name in ["changed", "deleted", "unreadable"] {
            create_map(&direct_client, "default", name, "blue").await;
        }
        server
            .faults()
            .add(Fault::on("watch configmaps").status(400).times(1));
        let words = [
            event("DELETED", "deleted", version, json!({})),
            event("DELETED", "unreadable", version, json!({"data": 13})),
            event("ADDED", "added", version, json!({})),
            event(
                "MODIFIED",
                "changed",
                version,
                json!({"data": {"color": "red"}}),
            ),
            format!("{}\n", json!({"type": "DELETED", "object": {"data": 13}})),
        ];
        let responses = Mutex::new(vec![(Duration::ZERO, words.concat())]);
        let client = proxy_client(&server, move |request| match request {
            watch if is_request_for(watch, "configmaps", "&resourceVersion=") => {
                ResponseAction::ReplaceTimed(mem::take(&mut *responses.lock()))
            }
            _ => ResponseAction::Pass,
        });
        let (cache, maps) = declare(&client);
        maps.await_synced().await.expect("synced");
        until(|| maps.stats().decode_errors == 2).await;
        let all = maps.list(&Query::default()).expect("synced");
        let color = |map: &ConfigMap| {
            map.data
                .as_ref()
                .and_then(|data| data.get("color").cloned())
        };
        let all: BTreeMap<_, _> = all
            .iter()
            .map(|map| (map.metadata.name.clone().unwrap_or_default(), color(map)))
            .collect();
        assert_eq!(
            all,
            [
                ("added".into(), None),
                ("changed".into(), Some("red".into()))
            ]
            .into(),
            "{version:?}"
        );
        assert_eq!(
            maps.resource_version(),
            Some(server.revision()),
            "{version:?}: the revision of the list"
        );
        cache.stop().await;
    }
}

/// Counts the lists after watches failed with these status codes in a row.
async fn relists_after(codes: &[u16]) -> u64 {
    let (server, client) = server();
    let add_fault = |code: &u16| {
        let failure = Failure::new(*code, Reason::Timeout, "the gateway has waited");
        // The first request is the list.
        server.faults().add(
            Fault::on("watch configmaps")
                .failure(failure)
                .after(1)
                .times(1),
        )
    };
    let rules: Vec<_> = codes.iter().map(add_fault).collect();
    let (cache, maps) = declare(&client);
    maps.await_synced().await.expect("synced");
    until(|| rules.iter().all(|rule| rule.hits() == 1)).await;
    create_map(&client, "default", "b", "blue").await;
    shows(&maps, "b").await;
    assert_eq!(maps.state(), InformerState::Synced);
    let relists = maps.stats().relists;
    cache.stop().await;
    relists
}

#[tokio::test(start_paused = true)]
async fn two_consecutive_504_responses_to_watches_are_followed_by_a_list() {
    assert_eq!(relists_after(&[504]).await, 0);
    assert_eq!(relists_after(&[504, 503, 504]).await, 0);
    assert_eq!(relists_after(&[504, 504]).await, 1);
}

/// Creates a client whose watches fail with 410 after `time`.
///
/// Only the first one fails if `always` is not set.
fn expiring_watches(server: &ApiServer, time: Duration, always: bool) -> Client {
    server
        .faults()
        .add(Fault::on("watch configmaps").status(400).times(1));
    let expired = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"});
    let expired = format!("{}\n", json!({"type": "ERROR", "object": expired}));
    let responses = AtomicBool::new(false);
    proxy_client(server, move |request| match request {
        watch
            if is_request_for(watch, "configmaps", "&resourceVersion=")
                && (always || !responses.swap(true, Relaxed)) =>
        {
            ResponseAction::ReplaceTimed(vec![(time, expired.clone())])
        }
        _ => ResponseAction::Pass,
    })
}

#[tokio::test(start_paused = true)]
async fn lists_back_off_if_every_watch_expires_after_a_second() {
    let (server, _) = server();
    let (cache, maps) = declare(&expiring_watches(
        &server,
        Duration::from_millis(1100),
        true,
    ));
    maps.await_synced().await.expect("synced");
    server.journal().clear();
    sleep(Duration::from_mins(10)).await;
    let lists = server.journal().count("list configmaps");
    assert!((10..40).contains(&lists), "{lists}");
    let state = maps.state();
    assert!(
        matches!(&state, InformerState::Degraded { error, .. } if error.contains("too old")),
        "{state:?}"
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_single_expired_watch_relists_at_once_without_degrading() {
    let (server, _) = server();
    let (cache, maps) = declare(&expiring_watches(&server, Duration::from_mins(4), false));
    maps.await_synced().await.expect("synced");
    let started = Instant::now();
    let relisted = || {
        assert_eq!(maps.state(), InformerState::Synced);
        maps.stats().relists == 1
    };
    until(relisted).await;
    assert_eq!(started.elapsed().as_secs(), 240);
    cache.stop().await;
}

/// The server returns a continue token with every list and rejects all of them.
#[tokio::test(start_paused = true)]
async fn rejected_continue_tokens_fall_back_to_an_unpaged_list_with_backoff() {
    for page_size in [500, 0] {
        let (server, _) = server();
        server
            .faults()
            .add(Fault::on("watch configmaps").status(400).times(1));
        server
            .faults()
            .add(Fault::on("list configmaps").status(410));
        let (started, requests) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let client = proxy_client(&server, {
            let requests = requests.clone();
            move |request| {
                let query = request.uri().query().unwrap_or_default();
                if !request.uri().path().ends_with("/configmaps") || query.contains("watch=true") {
                    return ResponseAction::Pass;
                }
                requests.lock().push((started.elapsed(), query.to_owned()));
                match query {
                    // Time is paused, so an informer without backoff would otherwise loop forever.
                    _ if requests.lock().len() > 1000 => ResponseAction::NoData,
                    next if next.contains("continue=") => ResponseAction::Pass,
                    _ => ResponseAction::Replace(
                        json!({"metadata": {"resourceVersion": "1", "continue": "x"}, "items": []})
                            .to_string(),
                    ),
                }
            }
        });
        let cache = cache(
            &client,
            CacheOptions {
                page_size,
                ..CacheOptions::default()
            },
        );
        let maps = cache
            .informer::<ConfigMap>()
            .expect("the informer is declared");
        sleep(Duration::from_mins(10)).await;
        let requests = mem::take(&mut *requests.lock());
        let at_once: Vec<_> = requests
            .iter()
            .take_while(|(when, _)| when.is_zero())
            .map(|(_, query)| query.as_str())
            .collect();
        let paged = ["limit=500", "limit=500&continue=x", "", "continue=x"];
        assert_eq!(
            at_once,
            if page_size == 0 { &paged[2..] } else { &paged },
            "{page_size}"
        );
        let next = requests[at_once.len()].0.as_secs_f64();
        assert!((0.8..1.6).contains(&next), "{next}");
        assert!(
            (8..40).contains(&(requests.len() / at_once.len())),
            "{} in ten minutes",
            requests.len()
        );
        let state = maps.state();
        assert!(
            matches!(&state, InformerState::Degraded { error, .. } if error.contains("continue token")),
            "{state:?}"
        );
        cache.stop().await;
    }
}
