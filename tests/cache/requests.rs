//! Tests of the number and kind of requests to the API server.

use super::{
    response_proxy::{ResponseAction, is_request_for, proxy_client},
    support::{Running, cache, create_map, until},
};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::{Api, Client, api::PostParams, client::Body};
use kube_core::GroupVersionKind;
use serde_json::json;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use steersman::{
    cache::{
        CacheOptions, Informer, InformerEvent, InformerState, NamespaceScope, Namespaces, Query,
        Select,
    },
    event::Event,
};
use steersman_apiserver::{ApiServer, Cause, Details, Failure, Fault, Journal, Options, Reason};
use tokio::time::{Instant, sleep, timeout};

const MAPS: &str = "* configmaps";

fn server() -> (ApiServer, Client) {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    let client = Client::new(server.service(), "default");
    (server, client)
}

async fn synced(client: &Client, page_size: u32) -> (Running, Informer<ConfigMap>) {
    let cache = cache(
        client,
        CacheOptions {
            page_size,
            ..CacheOptions::default()
        },
    );
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    (cache, maps)
}

fn streaming_lists(journal: &Journal) -> usize {
    journal
        .matching(MAPS)
        .iter()
        .filter(|entry| entry.query.contains("sendInitialEvents=true"))
        .count()
}

/// Counts the requests of ten minutes if each watch sends `message` and ends.
///
/// Lists are paged.
async fn requests_in_ten_minutes(
    message: impl Fn() -> String + Send + Sync + 'static,
) -> (usize, InformerState) {
    let (server, _) = server();
    server
        .faults()
        .add(Fault::on("watch configmaps").status(400).times(1));
    let client = proxy_client(&server, move |request| match request {
        watch if is_request_for(watch, "configmaps", "&resourceVersion=") => {
            ResponseAction::Replace(message())
        }
        _ => ResponseAction::Pass,
    });
    let (cache, maps) = synced(&client, 0).await;
    server.journal().clear();
    sleep(Duration::from_mins(10)).await;
    let requests = (server.journal().count(MAPS), maps.state());
    cache.stop().await;
    requests
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_back_off() {
    let (requests, state) = requests_in_ten_minutes(String::new).await;
    assert!((10..40).contains(&requests), "{requests}");
    assert!(
        matches!(&state, InformerState::Degraded { error, .. } if error.contains("closed the watch")),
        "{state:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_after_a_bookmark_backs_off() {
    let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1000"}}});
    let (requests, _) = requests_in_ten_minutes(move || format!("{bookmark}\n")).await;
    assert!((10..40).contains(&requests), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_after_each_event_is_reopened_within_a_second() {
    let version = AtomicU64::new(1000);
    let event = move || {
        let meta = json!({
            "name": "a", "namespace": "default", "uid": "1", "resourceVersion": version.fetch_add(1, Relaxed).to_string(),
        });
        format!(
            "{}\n",
            json!({"type": "MODIFIED", "object": {"metadata": meta}})
        )
    };
    let (requests, state) = requests_in_ten_minutes(event).await;
    assert!(
        (1000..1500).contains(&requests),
        "{requests}: twice a second on average"
    );
    assert_eq!(state, InformerState::Synced);
}

/// Returns the time until a handler has received a burst of `count` events.
///
/// The watch ends right after the burst.
async fn time_to_deliver(count: u64) -> Duration {
    let (server, _) = server();
    server
        .faults()
        .add(Fault::on("watch configmaps").status(400).times(1));
    let was_sent = AtomicBool::new(false);
    let client = proxy_client(&server, move |request| match request {
        watch
            if is_request_for(watch, "configmaps", "&resourceVersion=")
                && !was_sent.swap(true, Relaxed) =>
        {
            let event = |number: u64| {
                let (name, version) = (number.to_string(), (1000 + number).to_string());
                let meta = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": version});
                format!(
                    "{}\n",
                    json!({"type": "ADDED", "object": {"metadata": meta}})
                )
            };
            ResponseAction::Replace((0..count).map(event).collect())
        }
        watch if is_request_for(watch, "configmaps", "&resourceVersion=") => ResponseAction::NoData,
        _ => ResponseAction::Pass,
    });
    let cache = cache(
        &client,
        CacheOptions {
            page_size: 0,
            ..CacheOptions::default()
        },
    );
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    let (mut events, started, mut received) = (maps.events(), Instant::now(), 0);
    while received < count {
        received += u64::from(matches!(events.next().await, Some(InformerEvent::Event(_))));
    }
    let elapsed = started.elapsed();
    cache.stop().await;
    elapsed
}

/// Handlers are woken once per batch, which must not delay the events.
#[tokio::test(start_paused = true)]
async fn a_burst_of_events_reaches_handlers_without_delay_if_the_watch_ends() {
    for count in [1, 5, 40] {
        assert_eq!(time_to_deliver(count).await, Duration::ZERO, "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_back_off_if_every_watch_expires_at_once() {
    let happened = json!({"type": "ADDED", "object": {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "1000"}}});
    let expired = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}});
    let (requests, _) = requests_in_ten_minutes(move || format!("{happened}\n{expired}\n")).await;
    assert!((20..80).contains(&requests), "{requests}");
}

/// Asserts that one failed watch leads to one list and one lasting watch.
async fn assert_one_list_follows(failure: Box<Failure>) {
    let (server, client) = server();
    create_map(&client, "default", "a", "blue").await;
    let rule = server.faults().add(
        Fault::on("watch configmaps")
            .failure(failure)
            .after(1)
            .times(1),
    );
    let (cache, maps) = synced(&client, 0).await;
    assert_eq!((streaming_lists(server.journal()), rule.hits()), (1, 0));
    sleep(Duration::from_mins(30)).await;
    assert_eq!((streaming_lists(server.journal()), rule.hits()), (2, 1));
    assert_eq!(
        (maps.state(), maps.stats().relists),
        (InformerState::Synced, 1)
    );
    create_map(&client, "default", "b", "blue").await;
    until(|| {
        maps.list(&Query::default())
            .expect("synced")
            .iter()
            .any(|map| map.metadata.name.as_deref() == Some("b"))
    })
    .await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_is_followed_by_one_list() {
    assert_one_list_follows(Failure::new(
        410,
        Reason::Expired,
        "too old resource version",
    ))
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_future_resource_version_is_followed_by_one_list() {
    let (reason, message) = (
        "ResourceVersionTooLarge",
        "Too large resource version".into(),
    );
    let cause = Cause {
        reason,
        message,
        field: String::new(),
    };
    let details = Details {
        causes: vec![cause],
        ..Details::default()
    };
    assert_one_list_follows(
        Failure::new(504, Reason::Timeout, "Too large resource version").about(details),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed_in_pages() {
    for code in [400, 422] {
        let (server, client) = server();
        for name in ["a", "b", "c", "d", "e", "f", "g"] {
            create_map(&client, "default", name, "blue").await;
        }
        server
            .faults()
            .add(Fault::on("watch configmaps").status(code).times(1));
        let (cache, maps) = synced(&client, 3).await;
        let all = maps.list(&Query::default()).expect("synced").len();
        let pages = server.journal().matching("list configmaps");
        assert_eq!(pages.len(), all.div_ceil(3));
        assert!(
            pages.iter().all(|page| page.query.contains("limit=3")),
            "{pages:?}"
        );
        assert_eq!(
            pages
                .iter()
                .filter(|page| page.query.contains("continue="))
                .count(),
            pages.len() - 1
        );
        create_map(&client, "default", "h", "blue").await;
        until(|| maps.list(&Query::default()).expect("synced").len() == all + 1).await;
        assert_eq!(
            streaming_lists(server.journal()),
            1,
            "streaming lists are not retried"
        );
        cache.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_overrides_the_page_size() {
    let (server, client) = server();
    server
        .faults()
        .add(Fault::on("watch configmaps").status(400).times(2));
    let namespaces = Namespaces::List(vec![
        NamespaceScope::from("default").page_size(3),
        "kube-system".into(),
    ]);
    let cache = cache(
        &client,
        CacheOptions {
            namespaces,
            page_size: 7,
            ..CacheOptions::default()
        },
    );
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    for (namespace, limit) in [("default", "limit=3"), ("kube-system", "limit=7")] {
        let pages = server.journal().matching("list configmaps");
        let mut pages = pages
            .iter()
            .filter(|page| page.path.contains(namespace))
            .peekable();
        assert!(
            pages.peek().is_some() && pages.all(|page| page.query.contains(limit)),
            "{namespace}"
        );
    }
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_list_that_makes_progress_completes() {
    let (server, _) = server();
    server
        .faults()
        .add(Fault::on("watch configmaps").status(400).times(1));
    let client = proxy_client(&server, |request| match request {
        list if is_request_for(list, "configmaps", "limit=") => {
            ResponseAction::TenChunks(Duration::from_secs(29))
        }
        _ => ResponseAction::Pass,
    });
    let (cache, _) = timeout(Duration::from_mins(6), synced(&client, 10))
        .await
        .expect("in less than five minutes");
    assert_eq!(server.journal().count("list configmaps"), 1);
    cache.stop().await;
}

/// Stalls the first request that `stalls` selects.
///
/// Asserts that the informer is degraded after `limit` with `error`, and synced soon after that.
/// `streams` is whether the server streams lists.
async fn assert_recovers_from_a_stall(
    streams: bool,
    stalls: impl Fn(&Request<Body>) -> Option<ResponseAction> + Send + Sync + 'static,
    (limit, error): (u64, &str),
) {
    let (server, direct) = server();
    for name in ["a", "b", "c"] {
        create_map(&direct, "default", name, "blue").await;
    }
    if !streams {
        server
            .faults()
            .add(Fault::on("watch configmaps").status(400).times(1));
    }
    let first = AtomicBool::new(true);
    let client = proxy_client(&server, move |request| match stalls(request) {
        Some(turn) if first.swap(false, Relaxed) => turn,
        _ => ResponseAction::Pass,
    });
    let options = CacheOptions {
        page_size: 2,
        ..CacheOptions::default()
    };
    let cache = cache(&client, options);
    let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let maps = cache
        .informer_of(Select::dynamic(kind))
        .expect("a new informer");
    let started = Instant::now();
    timeout(
        Duration::from_hours(24),
        until(|| matches!(maps.state(), InformerState::Degraded { .. })),
    )
    .await
    .expect("the informer does not wait for ever");
    assert!(
        (limit..limit + 3).contains(&started.elapsed().as_secs()),
        "{:?}",
        started.elapsed()
    );
    let state = maps.state();
    assert!(
        matches!(&state, InformerState::Degraded { error: message, .. } if message.contains(error)),
        "{state:?}"
    );
    maps.await_synced().await.expect("synced");
    assert!(
        started.elapsed() < Duration::from_secs(limit + 5),
        "{:?}",
        started.elapsed()
    );
    // A quiet watch has no such limit.
    sleep(Duration::from_mins(4)).await;
    assert_eq!(
        (maps.state(), maps.stats().watch_restarts),
        (InformerState::Synced, 0)
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_body_stops_is_reported_and_requested_again() {
    let streamed =
        |request: &Request<Body>| is_request_for(request, "configmaps", "sendInitialEvents=true");
    assert_recovers_from_a_stall(
        true,
        move |list| streamed(list).then_some(ResponseAction::NoData),
        (60, "60 s"),
    )
    .await;
    let paged = |request: &Request<Body>| is_request_for(request, "configmaps", "limit=");
    assert_recovers_from_a_stall(
        false,
        move |list| paged(list).then_some(ResponseAction::NoData),
        (30, "no further part of the response within 30s"),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_response_is_reported_and_requested_again() {
    for (streams, query) in [(true, "sendInitialEvents=true"), (false, "limit=")] {
        let stalls = move |list: &Request<Body>| {
            is_request_for(list, "configmaps", query).then_some(ResponseAction::NoResponse)
        };
        assert_recovers_from_a_stall(streams, stalls, (65, "no response within 65s")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_page_of_a_list_that_stalls_is_reported_and_the_list_requested_again() {
    let later = |request: &Request<Body>| is_request_for(request, "configmaps", "continue=");
    let never = move |list: &Request<Body>| later(list).then_some(ResponseAction::NoResponse);
    assert_recovers_from_a_stall(false, never, (65, "no response within 65s")).await;
    let silent = move |list: &Request<Body>| later(list).then_some(ResponseAction::NoData);
    assert_recovers_from_a_stall(
        false,
        silent,
        (30, "no further part of the response within 30s"),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn discovery_without_a_response_is_reported_and_requested_again() {
    let discovers = |request: &Request<Body>| request.uri().path() == "/api/v1";
    let never =
        move |request: &Request<Body>| discovers(request).then_some(ResponseAction::NoResponse);
    assert_recovers_from_a_stall(true, never, (65, "no response within 65s")).await;
    let silent =
        move |request: &Request<Body>| discovers(request).then_some(ResponseAction::NoData);
    assert_recovers_from_a_stall(
        true,
        silent,
        (30, "no further part of the response within 30s"),
    )
    .await;
}

/// The kind has no events, so only bookmarks advance the revision.
#[tokio::test(start_paused = true)]
async fn bookmarks_advance_the_published_revision() {
    let (server, client) = server();
    let (cache, maps) = synced(&client, 0).await;
    let before = maps.resource_version();
    let secret = serde_json::from_value(json!({"metadata": {"name": "other"}})).expect("a secret");
    Api::<Secret>::default_namespaced(client)
        .create(&PostParams::default(), &secret)
        .await
        .expect("the object is created");
    assert!(before < Some(server.revision()));
    timeout(
        Duration::from_mins(4),
        until(|| maps.resource_version() == Some(server.revision())),
    )
    .await
    .expect("a bookmark arrives");
    let stats = maps.stats();
    assert_eq!(
        (stats.events, stats.relists, stats.watch_restarts),
        (0, 0, 0)
    );
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_of_a_year_is_capped_at_five_minutes() {
    let (server, client) = server();
    server.faults().add(
        Fault::on("watch configmaps")
            .too_many(Duration::from_hours(365 * 24))
            .times(1),
    );
    let started = Instant::now();
    let (cache, _) = synced(&client, 0).await;
    assert_eq!(started.elapsed().as_secs(), 300);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_or_slow_kind_does_not_delay_another() {
    let faults = [
        Fault::on("* secrets").status(403),
        Fault::on("* secrets").delay(Duration::from_secs(50)),
        Fault::on("* secrets").too_many(Duration::from_mins(5)),
    ];
    for fault in faults {
        let (server, client) = server();
        server.faults().add(fault);
        let cache = cache(&client, CacheOptions::default());
        let secrets = cache
            .informer::<Secret>()
            .expect("the informer is declared");
        let maps = cache
            .informer::<ConfigMap>()
            .expect("the informer is declared");
        let started = Instant::now();
        maps.await_synced().await.expect("synced");
        let mut events = maps.events();
        while !matches!(events.next().await, Some(InformerEvent::Synced)) {}
        for name in ["a", "b", "c"] {
            create_map(&client, "default", name, "blue").await;
            let Some(InformerEvent::Event(Event::Create { object, .. })) = events.next().await
            else {
                panic!("{name}")
            };
            assert_eq!(object.name(), name);
        }
        // No time has passed except for rounding of the clock.
        assert!(
            started.elapsed() < Duration::from_millis(100),
            "{:?}",
            started.elapsed()
        );
        assert_ne!(secrets.state(), InformerState::Synced);
        cache.stop().await;
    }
}
