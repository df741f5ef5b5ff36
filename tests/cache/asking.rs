//! How often, and for what, the server is asked.

use super::{
    between::{Turn, asks, between},
    support::{Running, cache, make, until},
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
    cache::{CacheOptions, InNamespace, Informer, InformerState, Namespaces, Notice, Query, Select},
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
    let cache = cache(client, CacheOptions { page_size, ..CacheOptions::default() });
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    maps.await_synced().await.expect("it syncs");
    (cache, maps)
}

fn streamed_lists(journal: &Journal) -> usize {
    journal.matching(MAPS).iter().filter(|entry| entry.query.contains("sendInitialEvents=true")).count()
}

/// How many requests there are in ten minutes, if each watch says this and ends at once. Lists are told by pages.
async fn asked_in_ten_minutes(words: impl Fn() -> String + Send + Sync + 'static) -> (usize, InformerState) {
    let (server, _) = server();
    server.faults().add(Fault::on("watch configmaps").status(400).times(1));
    let client = between(&server, move |request| match request {
        watch if asks(watch, "configmaps", "&resourceVersion=") => Turn::Say(words()),
        _ => Turn::Pass,
    });
    let (cache, maps) = synced(&client, 0).await;
    server.journal().clear();
    sleep(Duration::from_mins(10)).await;
    let asked = (server.journal().count(MAPS), maps.state());
    cache.stop().await;
    asked
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_each_watch_at_once_is_asked_later_and_later() {
    let (asked, state) = asked_in_ten_minutes(String::new).await;
    assert!((10..40).contains(&asked), "{asked}");
    assert!(matches!(&state, InformerState::Degraded { error, .. } if error.contains("closed the watch")), "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_does_not_make_a_watch_that_ends_at_once_a_good_one() {
    let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1000"}}});
    let (asked, _) = asked_in_ten_minutes(move || format!("{bookmark}\n")).await;
    assert!((10..40).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_after_each_event_is_reopened_within_a_second() {
    let version = AtomicU64::new(1000);
    let event = move || {
        let meta = json!({
            "name": "a", "namespace": "default", "uid": "1", "resourceVersion": version.fetch_add(1, Relaxed).to_string(),
        });
        format!("{}\n", json!({"type": "MODIFIED", "object": {"metadata": meta}}))
    };
    let (asked, state) = asked_in_ten_minutes(event).await;
    assert!((1000..1500).contains(&asked), "{asked}: twice a second on average");
    assert_eq!(state, InformerState::Synced);
}

/// How long it takes until a handler has heard of all events that come in one go, and end the watch.
async fn heard_of(count: u64) -> Duration {
    let (server, _) = server();
    server.faults().add(Fault::on("watch configmaps").status(400).times(1));
    let said = AtomicBool::new(false);
    let client = between(&server, move |request| match request {
        watch if asks(watch, "configmaps", "&resourceVersion=") && !said.swap(true, Relaxed) => {
            let event = |number: u64| {
                let (name, version) = (number.to_string(), (1000 + number).to_string());
                let meta = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": version});
                format!("{}\n", json!({"type": "ADDED", "object": {"metadata": meta}}))
            };
            Turn::Say((0..count).map(event).collect())
        }
        watch if asks(watch, "configmaps", "&resourceVersion=") => Turn::Silence,
        _ => Turn::Pass,
    });
    let cache = cache(&client, CacheOptions { page_size: 0, ..CacheOptions::default() });
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    let (mut events, begun, mut told) = (maps.events(), Instant::now(), 0);
    while told < count {
        told += u64::from(matches!(events.next().await, Some(Notice::Event(_))));
    }
    let heard = begun.elapsed();
    cache.stop().await;
    heard
}

/// They are woken once for many, which must not become later.
#[tokio::test(start_paused = true)]
async fn of_events_that_come_in_one_go_and_end_the_watch_handlers_hear_before_any_time_passes() {
    for count in [1, 5, 40] {
        assert_eq!(heard_of(count).await, Duration::ZERO, "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgets_each_version_at_once_is_listed_later_and_later() {
    let happened = json!({"type": "ADDED", "object": {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "1000"}}});
    let expired =
        json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}});
    let (asked, _) = asked_in_ten_minutes(move || format!("{happened}\n{expired}\n")).await;
    assert!((20..80).contains(&asked), "{asked}");
}

/// A watch is refused like this once: it is followed by one list, and that by a watch that goes on.
async fn one_list_follows(failure: Box<Failure>) {
    let (server, client) = server();
    make(&client, "default", "a", "blue").await;
    let rule = server.faults().add(Fault::on("watch configmaps").failure(failure).after(1).times(1));
    let (cache, maps) = synced(&client, 0).await;
    assert_eq!((streamed_lists(server.journal()), rule.hits()), (1, 0));
    sleep(Duration::from_mins(30)).await;
    assert_eq!((streamed_lists(server.journal()), rule.hits()), (2, 1));
    assert_eq!((maps.state(), maps.stats().relists), (InformerState::Synced, 1));
    make(&client, "default", "b", "blue").await;
    until(|| maps.list(&Query::default()).expect("synced").iter().any(|map| map.metadata.name.as_deref() == Some("b")))
        .await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_is_gone_is_followed_by_one_list() {
    one_list_follows(Failure::new(410, Reason::Expired, "too old resource version")).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_is_yet_to_come_is_followed_by_one_list() {
    let (reason, message) = ("ResourceVersionTooLarge", "Too large resource version".into());
    let cause = Cause { reason, message, field: String::new() };
    let details = Details { causes: vec![cause], ..Details::default() };
    one_list_follows(Failure::new(504, Reason::Timeout, "Too large resource version").about(details)).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streamed_lists_is_listed_by_pages() {
    for code in [400, 422] {
        let (server, client) = server();
        for name in ["a", "b", "c", "d", "e", "f", "g"] {
            make(&client, "default", name, "blue").await;
        }
        server.faults().add(Fault::on("watch configmaps").status(code).times(1));
        let (cache, maps) = synced(&client, 3).await;
        let all = maps.list(&Query::default()).expect("synced").len();
        let pages = server.journal().matching("list configmaps");
        assert_eq!(pages.len(), all.div_ceil(3));
        assert!(pages.iter().all(|page| page.query.contains("limit=3")), "{pages:?}");
        assert_eq!(pages.iter().filter(|page| page.query.contains("continue=")).count(), pages.len() - 1);
        make(&client, "default", "h", "blue").await;
        until(|| maps.list(&Query::default()).expect("synced").len() == all + 1).await;
        assert_eq!(streamed_lists(server.journal()), 1, "it is not asked for again");
        cache.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pages_are_as_large_as_is_said_of_their_namespace() {
    let (server, client) = server();
    server.faults().add(Fault::on("watch configmaps").status(400).times(2));
    let namespaces = Namespaces::These(vec![InNamespace::from("default").page_size(3), "kube-system".into()]);
    let cache = cache(&client, CacheOptions { namespaces, page_size: 7, ..CacheOptions::default() });
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    maps.await_synced().await.expect("it syncs");
    for (namespace, limit) in [("default", "limit=3"), ("kube-system", "limit=7")] {
        let pages = server.journal().matching("list configmaps");
        let mut pages = pages.iter().filter(|page| page.path.contains(namespace)).peekable();
        assert!(pages.peek().is_some() && pages.all(|page| page.query.contains(limit)), "{namespace}");
    }
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_slow_and_never_stops_comes_to_its_end() {
    let (server, _) = server();
    server.faults().add(Fault::on("watch configmaps").status(400).times(1));
    let client = between(&server, |request| match request {
        list if asks(list, "configmaps", "limit=") => Turn::TenParts(Duration::from_secs(29)),
        _ => Turn::Pass,
    });
    let (cache, _) = timeout(Duration::from_mins(6), synced(&client, 10)).await.expect("in less than five minutes");
    assert_eq!(server.journal().count("list configmaps"), 1);
    cache.stop().await;
}

/// Stalls the first request that `stalls` selects. Asserts that the informer is degraded after `limit` with
/// `error`, and synced soon after that. `streams` is whether the server streams lists.
async fn assert_recovers_from_a_stall(
    streams: bool,
    stalls: impl Fn(&Request<Body>) -> Option<Turn> + Send + Sync + 'static,
    (limit, error): (u64, &str),
) {
    let (server, _) = server();
    if !streams {
        server.faults().add(Fault::on("watch configmaps").status(400).times(1));
    }
    let first = AtomicBool::new(true);
    let client = between(&server, move |request| match stalls(request) {
        Some(turn) if first.swap(false, Relaxed) => turn,
        _ => Turn::Pass,
    });
    let cache = cache(&client, CacheOptions::default());
    let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let maps = cache.informer_of(Select::dynamic(kind)).expect("a new informer");
    let begun = Instant::now();
    timeout(Duration::from_hours(24), until(|| matches!(maps.state(), InformerState::Degraded { .. })))
        .await
        .expect("the informer does not wait for ever");
    assert!((limit..limit + 3).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    let state = maps.state();
    assert!(matches!(&state, InformerState::Degraded { error: words, .. } if words.contains(error)), "{state:?}");
    maps.await_synced().await.expect("it syncs");
    assert!(begun.elapsed() < Duration::from_secs(limit + 5), "{:?}", begun.elapsed());
    // A quiet watch has no such limit.
    sleep(Duration::from_mins(4)).await;
    assert_eq!((maps.state(), maps.stats().watch_restarts), (InformerState::Synced, 0));
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_body_stops_is_reported_and_requested_again() {
    let streamed = |request: &Request<Body>| asks(request, "configmaps", "sendInitialEvents=true");
    assert_recovers_from_a_stall(true, move |list| streamed(list).then_some(Turn::Silence), (60, "60 s")).await;
    let paged = |request: &Request<Body>| asks(request, "configmaps", "limit=");
    assert_recovers_from_a_stall(false, move |list| paged(list).then_some(Turn::Silence), (30, "stopped for 30s"))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_response_is_reported_and_requested_again() {
    for (streams, query) in [(true, "sendInitialEvents=true"), (false, "limit=")] {
        let stalls = move |list: &Request<Body>| asks(list, "configmaps", query).then_some(Turn::Never);
        assert_recovers_from_a_stall(streams, stalls, (65, "no response within 65s")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_without_a_response_is_reported_and_requested_again() {
    let discovers = |request: &Request<Body>| request.uri().path() == "/api/v1";
    let never = move |request: &Request<Body>| discovers(request).then_some(Turn::Never);
    assert_recovers_from_a_stall(true, never, (65, "no response within 65s")).await;
    let silent = move |request: &Request<Body>| discovers(request).then_some(Turn::Silence);
    assert_recovers_from_a_stall(true, silent, (30, "stopped for 30s")).await;
}

/// Of its own kind nothing happens: only a bookmark says how far the server is.
#[tokio::test(start_paused = true)]
async fn bookmarks_move_the_revision_that_is_published() {
    let (server, client) = server();
    let (cache, maps) = synced(&client, 0).await;
    let before = maps.resource_version();
    let secret = serde_json::from_value(json!({"metadata": {"name": "other"}})).expect("a secret");
    Api::<Secret>::default_namespaced(client).create(&PostParams::default(), &secret).await.expect("it is new");
    assert!(before < Some(server.revision()));
    timeout(Duration::from_mins(4), until(|| maps.resource_version() == Some(server.revision())))
        .await
        .expect("it is told");
    let stats = maps.stats();
    assert_eq!((stats.events, stats.relists, stats.watch_restarts), (0, 0, 0));
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_to_be_left_alone_for_a_year_is_for_five_minutes() {
    let (server, client) = server();
    server.faults().add(Fault::on("watch configmaps").too_many(Duration::from_hours(365 * 24)).times(1));
    let begun = Instant::now();
    let (cache, _) = synced(&client, 0).await;
    assert_eq!(begun.elapsed().as_secs(), 300);
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_refused_or_slow_does_not_slow_another() {
    let faults = [
        Fault::on("* secrets").status(403),
        Fault::on("* secrets").delay(Duration::from_secs(50)),
        Fault::on("* secrets").too_many(Duration::from_mins(5)),
    ];
    for fault in faults {
        let (server, client) = server();
        server.faults().add(fault);
        let cache = cache(&client, CacheOptions::default());
        let secrets = cache.informer::<Secret>().expect("it is new");
        let maps = cache.informer::<ConfigMap>().expect("it is new");
        let begun = Instant::now();
        maps.await_synced().await.expect("it syncs");
        let mut events = maps.events();
        while !matches!(events.next().await, Some(Notice::InitialDone)) {}
        for name in ["a", "b", "c"] {
            make(&client, "default", name, "blue").await;
            let Some(Notice::Event(Event::Create { object, .. })) = events.next().await else { panic!("{name}") };
            assert_eq!(object.name(), name);
        }
        // No time has passed but what the clock itself rounds to.
        assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
        assert_ne!(secrets.state(), InformerState::Synced);
        cache.stop().await;
    }
}
