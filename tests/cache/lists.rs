//! Lists that repeat themselves, do not end, or say less than they should: the server is not hammered, and the cache shows what is there.

use super::{
    between::{Turn, asks, between},
    support::{cache, make, until},
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
    cache::{CacheError, CacheOptions, InformerState, Notice, Query},
    event::Event,
    object::ObjectKey,
};
use steersman_apiserver::{ApiServer, Fault, Options};
use tokio::time::{Instant, sleep, timeout};

/// A server that streams no lists. What it says to a list of config maps depends on the query, and on how many there were before; what it says to a watch, on how many
/// lists there were.
fn server(
    list: impl Fn(&str, usize) -> Turn + Send + Sync + 'static,
    watch: impl Fn(usize) -> Turn + Send + Sync + 'static,
) -> (ApiServer, Client) {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    server.faults().add(Fault::on("watch configmaps").status(400).times(1));
    let lists = AtomicUsize::new(0);
    let client = between(&server, move |request| {
        let query = request.uri().query().unwrap_or_default();
        if asks(request, "configmaps", "&resourceVersion=") {
            watch(lists.load(Relaxed))
        } else if request.uri().path().ends_with("/configmaps") && !query.contains("watch=true") {
            list(query, lists.fetch_add(1, Relaxed))
        } else {
            Turn::Pass
        }
    });
    (server, client)
}

fn object(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": version}})
}

/// With what asks for the next one.
fn page(token: &str, names: &[&str]) -> Turn {
    let items: Vec<_> = names.iter().map(|name| object(name, "1")).collect();
    Turn::Say(json!({"metadata": {"resourceVersion": "1", "continue": token}, "items": items}).to_string())
}

/// Of all objects, at no version.
fn unversioned(names: &[&str]) -> Turn {
    let items: Vec<_> = names.iter().map(|name| object(name, "")).collect();
    Turn::Say(json!({"metadata": {}, "items": items}).to_string())
}

/// What is said to each of its requests, how many of those come at once, by pages and then for all, and what it is told to be.
async fn no_end_of_pages(says: fn(usize) -> Turn, at_once: usize, words: &str) {
    let (begun, asked) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let list = {
        let asked = asked.clone();
        move |query: &str, number: usize| {
            asked.lock().push((begun.elapsed(), query.contains("limit=")));
            // Who hammers would do so for ever, since no time passes.
            if number > 10_000 { Turn::Silence } else { says(number) }
        }
    };
    let (_server, client) = server(list, |_| Turn::Pass);
    let cache = cache(&client, CacheOptions::default());
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    sleep(Duration::from_mins(10)).await;
    let asked = mem::take(&mut *asked.lock());
    let first: Vec<_> = asked.iter().take_while(|(when, _)| when.is_zero()).map(|(_, paged)| *paged).collect();
    assert_eq!(first, [vec![true; at_once / 2], vec![false; at_once / 2]].concat(), "{words}");
    let next = asked[at_once].0.as_secs_f64();
    assert!((0.8..1.6).contains(&next), "{next}: {words}");
    assert!((8..40).contains(&(asked.len() / at_once)), "{} in ten minutes: {words}", asked.len());
    let state = maps.state();
    assert!(matches!(&state, InformerState::Degraded { error, .. } if error.contains(words)), "{state:?}");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_gives_the_same_page_again_is_asked_for_all_at_once_and_then_later_and_later() {
    let words = "the same one again";
    no_end_of_pages(|_| page("x", &["a"]), 4, words).await;
    no_end_of_pages(|_| page("x", &[]), 4, words).await;
    no_end_of_pages(|number| page(&number.to_string(), &["a"]), 4, words).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_gives_pages_without_objects_for_ever_is_asked_later_and_later() {
    no_end_of_pages(|number| page(&number.to_string(), &[]), 202, "without objects").await;
}

/// As by a proxy that does not pass on what it does not know.
#[tokio::test(start_paused = true)]
async fn where_tokens_are_lost_all_objects_come_at_once() {
    let list = |query: &str, _| if query.contains("limit=") { page("x", &["a"]) } else { page("", &["a", "b"]) };
    let (server, client) = server(list, |_| Turn::Tell(Vec::new()));
    let cache = cache(&client, CacheOptions::default());
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    timeout(Duration::from_secs(1), maps.await_synced()).await.expect("at once").expect("it syncs");
    assert_eq!(maps.list(&Query::default()).expect("synced").len(), 2);
    assert_eq!(server.journal().count("list configmaps"), 3);
    cache.stop().await;
}

/// As by a server that looks for some among many, a page at a time; the last one has an object that was moved meanwhile.
#[tokio::test(start_paused = true)]
async fn pages_without_objects_and_a_last_one_without_a_new_one_are_pages() {
    let list = |_: &str, number: usize| match number {
        0 | 1 => page(["x", "y"][number], &[]),
        2 => page("z", &["a"]),
        _ => page("", &["a"]),
    };
    let (server, client) = server(list, |_| Turn::Tell(Vec::new()));
    let cache = cache(&client, CacheOptions::default());
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    timeout(Duration::from_secs(1), maps.await_synced()).await.expect("at once").expect("it syncs");
    assert_eq!(maps.list(&Query::default()).expect("synced").len(), 1);
    assert_eq!(server.journal().count("list configmaps"), 4);
    cache.stop().await;
}

/// A watch from no version says what there is then, and not what has gone before; also if what it says has versions.
#[tokio::test(start_paused = true)]
async fn what_has_gone_after_a_list_without_a_version_is_gone_after_the_next_one() {
    for version in ["", "5"] {
        let list = |_: &str, number: usize| unversioned(if number == 0 { &["a", "b"] } else { &["a"] });
        let (server, client) =
            server(list, move |_| Turn::Say(format!("{}\n", json!({"type": "ADDED", "object": object("a", version)}))));
        let cache = cache(&client, CacheOptions::default());
        let maps = cache.informer::<ConfigMap>().expect("it is new");
        maps.await_synced().await.expect("it syncs");
        assert_eq!(maps.list(&Query::default()).expect("synced").len(), 2);
        let gone = until(|| maps.list(&Query::default()).expect("synced").len() == 1);
        timeout(Duration::from_secs(10), gone).await.expect("in time");
        assert!(maps.get(&ObjectKey::new("default", "a")).expect("synced").is_some(), "{version}");

        let told = |state: InformerState| matches!(state, InformerState::Degraded { error, .. } if error.contains("no version"));
        until(|| told(maps.state())).await;
        server.journal().clear();
        sleep(Duration::from_hours(1)).await;
        let lists = server.journal().count("list configmaps");
        assert!((50..150).contains(&lists), "{lists} in an hour, though each watch ends after a second");
        cache.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_version_comes_again_after_each_watch_and_is_no_trouble() {
    let (server, client) = server(|_, _| unversioned(&["a"]), |_| Turn::Pass);
    make(&Client::new(server.service(), "default"), "default", "a", "blue").await;
    let cache = cache(&client, CacheOptions::default());
    let maps = cache.informer::<ConfigMap>().expect("it is new");
    maps.await_synced().await.expect("it syncs");
    for _ in 0..30 {
        sleep(Duration::from_mins(1)).await;
        assert_eq!(maps.state(), InformerState::Synced);
    }
    let lists = server.journal().count("list configmaps");
    assert!((3..8).contains(&lists), "{lists}: a watch lasts for five to ten minutes");
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_made_anew_and_cannot_be_read_is_not_shown_as_what_it_was() {
    for (uid, stays) in [("one", true), ("two", false)] {
        let list = move |_: &str, number: usize| {
            let mut item =
                json!({"metadata": {"name": "a", "namespace": "default", "uid": "one", "resourceVersion": "1"}});
            if number > 0 {
                item["metadata"]["uid"] = uid.into();
                item["metadata"]["resourceVersion"] = "5".into();
                item["data"] = 13.into();
            }
            let version = (number + 6).to_string();
            Turn::Say(json!({"metadata": {"resourceVersion": version}, "items": [item]}).to_string())
        };
        let expired = json!({"code": 410, "reason": "Expired", "message": "too old resource version"});
        let expired = format!("{}\n", json!({"type": "ERROR", "object": expired}));
        let told = Duration::from_secs(1);
        let watch = move |lists: usize| Turn::Tell(if lists == 1 { vec![(told, expired.clone())] } else { Vec::new() });
        let (_server, client) = server(list, watch);
        let cache = cache(&client, CacheOptions::default());
        let maps = cache.informer::<ConfigMap>().expect("it is new");
        let mut events = maps.events();
        maps.await_synced().await.expect("it syncs");
        let key = ObjectKey::new("default", "a");
        assert!(maps.get(&key).expect("synced").is_some());
        assert!(matches!(events.next().await, Some(Notice::Event(Event::Create { .. }))));
        assert!(matches!(events.next().await, Some(Notice::InitialDone)));
        until(|| maps.stats().decode_errors > 0 && maps.stats().relists == 1).await;
        assert!(matches!(maps.get(&key), Err(CacheError::Undecodable { .. })), "{uid}");
        assert_eq!(maps.list(&Query::default()).expect("synced").len(), usize::from(stays), "{uid}");
        assert!(matches!(events.next().await, Some(Notice::Event(Event::Generic { .. }))), "{uid}");
        let next = timeout(Duration::from_secs(1), events.next()).await;
        let is_gone = matches!(next, Ok(Some(Notice::Event(Event::Delete { state_unknown: true, .. }))));
        assert_eq!(is_gone, !stays, "{uid}: {next:?}");
        cache.stop().await;
    }
}
