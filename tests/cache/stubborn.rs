//! Servers, and what is between them and us, that go on giving the same bad answer, or say less than they should: all the same the cache shows what is there.

use super::{
    between::{Turn, asks, between},
    support::{Running, cache, make, until},
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
    format!("{}\n", json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version.to_string()}}}))
}

fn streamed_lists(server: &ApiServer) -> usize {
    let asked = server.journal().matching("watch configmaps");
    asked.iter().filter(|entry| entry.query.contains("sendInitialEvents=true")).count()
}

fn declare(client: &Client) -> (Running, Informer<ConfigMap>) {
    let cache = cache(client, CacheOptions::default());
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    (cache, maps)
}

async fn shows(maps: &Informer<ConfigMap>, name: &str) {
    until(|| maps.get(&ObjectKey::new("default", name)).expect("it is synced").is_some()).await;
}

/// Streamed lists are answered like this, always. It syncs all the same, in less than this time, with two of them; and lives.
async fn pages_come_instead(turn: impl Fn() -> Turn + Send + Sync + 'static, most: Duration) {
    let (server, inside) = server();
    make(&inside, "default", "a", "blue").await;
    let client = between(&server, move |request| match request {
        list if asks(list, "configmaps", "sendInitialEvents=true") => turn(),
        _ => Turn::Pass,
    });
    let (cache, maps) = declare(&client);
    timeout(most, maps.await_synced()).await.expect("in time").expect("it syncs");
    assert_eq!((streamed_lists(&server), server.journal().count("list configmaps")), (2, 1));
    assert_eq!(maps.list(&Query::default()).expect("synced").len(), 1);
    make(&inside, "default", "b", "blue").await;
    shows(&maps, "b").await;
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_that_ends_before_it_is_whole_twice_is_followed_by_pages() {
    pages_come_instead(|| Turn::Say(String::new()), Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_of_which_nothing_comes_twice_is_followed_by_pages() {
    pages_come_instead(|| Turn::Silence, Duration::from_secs(130)).await;
}

/// As by a proxy that does not pass on what it does not know.
#[tokio::test(start_paused = true)]
async fn a_streamed_list_that_is_answered_by_an_ordinary_watch_is_followed_by_pages() {
    let minutes = || (1..30).map(|minute| (Duration::from_secs(50), bookmark(minute))).collect();
    pages_come_instead(move || Turn::Tell(minutes()), Duration::from_secs(130)).await;
}

/// Its kind changes more often than once a minute, and it sends no bookmarks.
#[tokio::test(start_paused = true)]
async fn a_streamed_list_that_goes_on_and_on_is_followed_by_pages() {
    let event = |version: u64| {
        let meta = json!({"name": "a", "namespace": "default", "uid": "1", "resourceVersion": version.to_string()});
        format!("{}\n", json!({"type": "MODIFIED", "object": {"metadata": meta}}))
    };
    let changes = move || (1..100).map(|version| (Duration::from_secs(30), event(version))).collect();
    pages_come_instead(move || Turn::Tell(changes()), Duration::from_mins(21)).await;
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_that_is_refused_as_servers_in_trouble_do_twice_is_followed_by_pages() {
    for code in [500, 502, 503, 504] {
        let (server, client) = server();
        make(&client, "default", "a", "blue").await;
        let failure = Failure::new(code, Reason::InternalError, "no streamed lists here");
        server.faults().add(Fault::on("watch configmaps").failure(failure).times(2));
        let (cache, maps) = declare(&client);
        timeout(Duration::from_secs(10), maps.await_synced()).await.expect("in time").expect("it syncs");
        assert_eq!((streamed_lists(&server), server.journal().count("list configmaps")), (2, 1), "{code}");
        cache.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_may_not_be_asked_for_is_not_asked_for_by_pages_either() {
    for code in [401, 403, 429] {
        let (server, client) = server();
        server.faults().add(Fault::on("watch configmaps").status(code).times(5));
        let (cache, maps) = declare(&client);
        maps.await_synced().await.expect("it syncs");
        assert_eq!((streamed_lists(&server), server.journal().count("list configmaps")), (6, 0), "{code}");
        cache.stop().await;
    }
}

/// Nothing is held against the server for ever.
#[tokio::test(start_paused = true)]
async fn a_list_after_one_by_pages_is_streamed_again() {
    let (server, client) = server();
    server.faults().add(Fault::on("watch configmaps").status(503).times(2));
    let (cache, maps) = declare(&client);
    maps.await_synced().await.expect("it syncs");
    assert_eq!((streamed_lists(&server), server.journal().count("list configmaps")), (2, 1));
    server.faults().add(Fault::on("watch configmaps").status(410).times(1));
    until(|| maps.stats().relists == 1).await;
    assert_eq!((streamed_lists(&server), server.journal().count("list configmaps")), (3, 1));
    cache.stop().await;
}

/// As by a proxy that says no in the tone of a yes.
#[tokio::test(start_paused = true)]
async fn a_watch_that_says_what_is_no_event_again_and_again_is_followed_by_a_list() {
    let (server, inside) = server();
    server.faults().add(Fault::on("watch configmaps").status(400).times(1));
    let client = between(&server, |request| match request {
        watch if asks(watch, "configmaps", "&resourceVersion=") => {
            Turn::Say(format!("{}\n", json!({"kind": "Status", "status": "Failure", "code": 410})))
        }
        _ => Turn::Pass,
    });
    let (cache, maps) = declare(&client);
    maps.await_synced().await.expect("it syncs");
    make(&inside, "default", "a", "blue").await;
    timeout(Duration::from_mins(10), shows(&maps, "a")).await.expect("in time");
    cache.stop().await;
}

/// How long it takes until a watch that says this, and then nothing for ever, is known to be dead.
async fn noticed_after(words: Vec<(Duration, String)>) -> Duration {
    let (server, inside) = server();
    server.faults().add(Fault::on("watch configmaps").status(400).times(1));
    let words = Mutex::new(Some(words));
    let client = between(&server, move |request| match request {
        watch if asks(watch, "configmaps", "&resourceVersion=") => words.lock().take().map_or(Turn::Pass, Turn::Tell),
        _ => Turn::Pass,
    });
    let (cache, maps) = declare(&client);
    maps.await_synced().await.expect("it syncs");
    let begun = Instant::now();
    make(&inside, "default", "b", "blue").await;
    until(|| matches!(maps.state(), InformerState::Degraded { .. })).await;
    let noticed = begun.elapsed();
    timeout(Duration::from_secs(10), shows(&maps, "b")).await.expect("another watch says it");
    cache.stop().await;
    noticed
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_dies_is_noticed_three_minutes_after_the_last_bookmark() {
    let minute = Duration::from_mins(1);
    let noticed = noticed_after(vec![(minute, bookmark(1)), (minute, bookmark(1))]).await;
    assert!((300..301).contains(&noticed.as_secs()), "{noticed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_no_bookmarks_may_be_silent_for_as_long_as_the_watch() {
    let noticed = noticed_after(Vec::new()).await;
    assert!((330..631).contains(&noticed.as_secs()), "{noticed:?}");
}

/// An event of `default/NAME`, with or without what it should have.
fn event(what: &str, name: &str, version: Option<&str>, body: Value) -> String {
    let mut object = body;
    object["metadata"] = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": version});
    format!("{}\n", json!({"type": what, "object": object}))
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_objects_without_a_version_is_shown() {
    for version in [None, Some(""), Some("none")] {
        let (server, inside) = server();
        for name in ["changed", "deleted", "unreadable"] {
            make(&inside, "default", name, "blue").await;
        }
        server.faults().add(Fault::on("watch configmaps").status(400).times(1));
        let words = [
            event("DELETED", "deleted", version, json!({})),
            event("DELETED", "unreadable", version, json!({"data": 13})),
            event("ADDED", "added", version, json!({})),
            event("MODIFIED", "changed", version, json!({"data": {"door": "red"}})),
            format!("{}\n", json!({"type": "DELETED", "object": {"data": 13}})),
        ];
        let said = Mutex::new(vec![(Duration::ZERO, words.concat())]);
        let client = between(&server, move |request| match request {
            watch if asks(watch, "configmaps", "&resourceVersion=") => Turn::Tell(mem::take(&mut *said.lock())),
            _ => Turn::Pass,
        });
        let (cache, maps) = declare(&client);
        maps.await_synced().await.expect("it syncs");
        until(|| maps.stats().decode_errors == 2).await;
        let all = maps.list(&Query::default()).expect("synced");
        let door = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("door").cloned());
        let all: BTreeMap<_, _> =
            all.iter().map(|map| (map.metadata.name.clone().unwrap_or_default(), door(map))).collect();
        assert_eq!(all, [("added".into(), None), ("changed".into(), Some("red".into()))].into(), "{version:?}");
        assert_eq!(maps.resource_version(), Some(server.revision()), "{version:?}: it is where the list was");
        cache.stop().await;
    }
}

/// How many lists there are after watches were refused with these codes, one after the other.
async fn relists_after(codes: &[u16]) -> u64 {
    let (server, client) = server();
    let refuse = |code: &u16| {
        let failure = Failure::new(*code, Reason::Timeout, "the gateway has waited");
        // The first request is the list.
        server.faults().add(Fault::on("watch configmaps").failure(failure).after(1).times(1))
    };
    let refused: Vec<_> = codes.iter().map(refuse).collect();
    let (cache, maps) = declare(&client);
    maps.await_synced().await.expect("it syncs");
    until(|| refused.iter().all(|rule| rule.hits() == 1)).await;
    make(&client, "default", "b", "blue").await;
    shows(&maps, "b").await;
    assert_eq!(maps.state(), InformerState::Synced);
    let relists = maps.stats().relists;
    cache.stop().await;
    relists
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_with_504_twice_in_a_row_is_followed_by_a_list() {
    assert_eq!(relists_after(&[504]).await, 0);
    assert_eq!(relists_after(&[504, 503, 504]).await, 0);
    assert_eq!(relists_after(&[504, 504]).await, 1);
}

/// Every watch, or only the first one, says after so long that its version is gone.
fn forgetful(server: &ApiServer, time: Duration, always: bool) -> Client {
    server.faults().add(Fault::on("watch configmaps").status(400).times(1));
    let expired = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"});
    let expired = format!("{}\n", json!({"type": "ERROR", "object": expired}));
    let said = AtomicBool::new(false);
    between(server, move |request| match request {
        watch if asks(watch, "configmaps", "&resourceVersion=") && (always || !said.swap(true, Relaxed)) => {
            Turn::Tell(vec![(time, expired.clone())])
        }
        _ => Turn::Pass,
    })
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_its_time_to_forget_each_version_is_listed_later_and_later() {
    let (server, _) = server();
    let (cache, maps) = declare(&forgetful(&server, Duration::from_millis(1100), true));
    maps.await_synced().await.expect("it syncs");
    server.journal().clear();
    sleep(Duration::from_mins(10)).await;
    let lists = server.journal().count("list configmaps");
    assert!((10..40).contains(&lists), "{lists}");
    let state = maps.state();
    assert!(matches!(&state, InformerState::Degraded { error, .. } if error.contains("too old")), "{state:?}");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_gone_once_is_no_trouble_and_the_list_comes_at_once() {
    let (server, _) = server();
    let (cache, maps) = declare(&forgetful(&server, Duration::from_mins(4), false));
    maps.await_synced().await.expect("it syncs");
    let begun = Instant::now();
    let relisted = || {
        assert_eq!(maps.state(), InformerState::Synced);
        maps.stats().relists == 1
    };
    until(relisted).await;
    assert_eq!(begun.elapsed().as_secs(), 240);
    cache.stop().await;
}

/// It gives a token with whatever it is asked for, and knows none of them.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_its_own_tokens_is_asked_for_all_at_once_and_then_later_and_later() {
    for page_size in [500, 0] {
        let (server, _) = server();
        server.faults().add(Fault::on("watch configmaps").status(400).times(1));
        server.faults().add(Fault::on("list configmaps").status(410));
        let (begun, asked) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let client = between(&server, {
            let asked = asked.clone();
            move |request| {
                let query = request.uri().query().unwrap_or_default();
                if !request.uri().path().ends_with("/configmaps") || query.contains("watch=true") {
                    return Turn::Pass;
                }
                asked.lock().push((begun.elapsed(), query.to_owned()));
                match query {
                    // Who hammers would do so for ever, since no time passes.
                    _ if asked.lock().len() > 1000 => Turn::Silence,
                    next if next.contains("continue=") => Turn::Pass,
                    _ => Turn::Say(
                        json!({"metadata": {"resourceVersion": "1", "continue": "x"}, "items": []}).to_string(),
                    ),
                }
            }
        });
        let cache = cache(&client, CacheOptions { page_size, ..CacheOptions::default() });
        let maps = cache.informer::<ConfigMap>().expect("it is new");
        sleep(Duration::from_mins(10)).await;
        let asked = mem::take(&mut *asked.lock());
        let at_once: Vec<_> =
            asked.iter().take_while(|(when, _)| when.is_zero()).map(|(_, query)| query.as_str()).collect();
        let paged = ["limit=500", "limit=500&continue=x", "", "continue=x"];
        assert_eq!(at_once, if page_size == 0 { &paged[2..] } else { &paged }, "{page_size}");
        let next = asked[at_once.len()].0.as_secs_f64();
        assert!((0.8..1.6).contains(&next), "{next}");
        assert!((8..40).contains(&(asked.len() / at_once.len())), "{} in ten minutes", asked.len());
        let state = maps.state();
        assert!(matches!(&state, InformerState::Degraded { error, .. } if error.contains("tokens")), "{state:?}");
        cache.stop().await;
    }
}
