//! How watches begin and end: streaming lists, bookmarks, time, and history that is gone.

use crate::support::*;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const END_OF_INITIAL: &str = "k8s.io/initial-events-end";
const STREAMING: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

fn map(name: &str) -> String {
    format!("{CONFIG_MAPS}/{name}")
}

fn watch_from(rv: u64) -> String {
    format!("{CONFIG_MAPS}?watch=1&resourceVersion={rv}")
}

fn added(name: &str) -> (String, String) {
    ("ADDED".into(), name.into())
}

/// Nothing comes for so long; less than the patience of a watch.
async fn is_silent(watch: &mut Watch, seconds: u64) {
    let event = timeout(Duration::from_secs(seconds), watch.next()).await;
    assert!(event.is_err(), "{event:?}");
}

/// Case 13.
#[tokio::test]
async fn a_streaming_list_is_everything_once_and_then_a_bookmark() {
    let server = Server::with_widgets().await;
    for n in 0..600 {
        server.post(WIDGETS, widget(&format!("w{n:03}"))).await.expect(201);
    }
    let touched = server.merge(&format!("{WIDGETS}/w000"), json!({"spec": {"color": "blue"}})).await.expect(200);
    server.post(CONFIG_MAPS, config_map("other")).await.expect(201);
    let mut watch = server.watch(&format!("{WIDGETS}?{STREAMING}&allowWatchBookmarks=true")).await;
    let initial = watch.take(600).await;
    assert!(initial.iter().all(|(kind, _)| kind == "ADDED"));
    let names: Vec<_> = initial.iter().map(|(_, object)| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, (0..600).map(|n| format!("w{n:03}")).collect::<Vec<_>>());
    assert_eq!(initial[0].1, touched.json);
    let (kind, bookmark) = watch.next().await.unwrap();
    assert_eq!(kind, "BOOKMARK");
    let revision = server.server.revision();
    assert!(revision > touched.rv());
    let meta = json!({"resourceVersion": revision.to_string(), "annotations": {END_OF_INITIAL: "true"}});
    assert_eq!(bookmark, json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta}));
    let live = server.post(WIDGETS, widget("live")).await.expect(201);
    assert_eq!(watch.next().await.unwrap(), ("ADDED".into(), live.json));
}

/// Case 13.
#[tokio::test]
async fn a_streaming_list_of_nothing_is_a_bookmark() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let query = "allowWatchBookmarks=true&labelSelector=app";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{STREAMING}&{query}")).await;
    let (kind, bookmark) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), rv(&bookmark)), ("BOOKMARK", server.server.revision()));
    assert_eq!(bookmark["metadata"]["annotations"][END_OF_INITIAL], "true");
}

/// Case 14.
#[tokio::test]
async fn a_streaming_list_has_to_be_asked_for_rightly() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    for (query, field) in [
        ("watch=1&sendInitialEvents=true", "resourceVersionMatch"),
        ("watch=1&sendInitialEvents=true&resourceVersion=1", "resourceVersionMatch"),
        ("watch=1&sendInitialEvents=false", "resourceVersionMatch"),
        ("watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1", "resourceVersionMatch"),
        ("sendInitialEvents=true", "sendInitialEvents"),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1", "sendInitialEvents"),
    ] {
        let refused = server.get(&format!("{CONFIG_MAPS}?{query}")).await.expect(422);
        assert_eq!((refused.reason(), refused.cause_fields()), ("Invalid", vec![field]), "{query}");
        assert_eq!(refused.json["details"]["causes"][0]["reason"], "FieldValueForbidden");
        assert_eq!(refused.json["details"]["kind"], "ListOptions");
    }
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{STREAMING}")).await;
    assert_eq!(watch.next_name().await, added("a"));
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    assert_eq!(watch.next_name().await, added("b"), "no bookmark without asking for bookmarks");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_waits_for_its_revision() {
    let server = Server::start();
    let next = server.server.revision() + 1;
    let path = format!("{CONFIG_MAPS}?{STREAMING}&resourceVersion={next}");
    let (mut watch, _) = tokio::join!(server.watch(&path), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.post(CONFIG_MAPS, config_map("a")).await.expect(201)
    });
    assert_eq!(watch.next_name().await, added("a"));

    let (asked, future) = (Instant::now(), next + 1000);
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{STREAMING}&resourceVersion={future}")).await;
    let (kind, status) = watch.next().await.unwrap();
    assert_eq!(kind, "ERROR");
    assert_eq!((&status["code"], &status["reason"]), (&json!(504), &json!("Timeout")));
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(asked.elapsed().as_secs(), 3);
    assert!(watch.next().await.is_none());
}

/// Case 15.
#[tokio::test(start_paused = true)]
async fn a_bookmark_comes_shortly_before_the_end() {
    let server = Server::with_widgets().await;
    let opened = Instant::now();
    let query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=8";
    let mut watch = server.watch(&format!("{WIDGETS}?{query}")).await;
    server.post(CONFIG_MAPS, config_map("other")).await.expect(201);
    let (kind, bookmark) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), opened.elapsed().as_secs()), ("BOOKMARK", 6));
    let meta = json!({"resourceVersion": server.server.revision().to_string()});
    assert_eq!(bookmark, json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta}));
    assert!(watch.next().await.is_none());
    assert_eq!(opened.elapsed().as_secs(), 8);

    let opened = Instant::now();
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1&timeoutSeconds=8")).await;
    assert!(watch.next().await.is_none(), "no bookmarks without asking for them");
    assert_eq!(opened.elapsed().as_secs(), 8);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute() {
    let server = Server::start();
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=1")).await;
    let mut silent = server.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=1")).await;
    for _ in 0..3 {
        for _ in 0..4 {
            is_silent(&mut watch, 14).await;
        }
        let (kind, bookmark) = watch.next().await.unwrap();
        assert_eq!((kind.as_str(), rv(&bookmark)), ("BOOKMARK", server.server.revision()));
        server
            .post("/api/v1/namespaces/default/secrets", json!({"metadata": {"generateName": "s-"}}))
            .await
            .expect(201);
    }
    is_silent(&mut silent, 19).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_watch_ends_in_time_too() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=10";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    let opened = Instant::now();
    let mut kinds = Vec::new();
    while let Some((kind, _)) = watch.next().await {
        kinds.push(kind);
        tokio::time::advance(Duration::from_millis(400)).await;
        server.merge(&map("a"), json!({"data": {"n": kinds.len().to_string()}})).await.expect(200);
        assert!(opened.elapsed().as_secs() <= 11);
    }
    assert_eq!(kinds.iter().filter(|kind| *kind == "BOOKMARK").count(), 1);
}

/// Case 16.
#[tokio::test]
async fn a_watch_from_before_history_is_told_so_inside_the_stream() {
    let server = Server::start();
    let made = server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server.merge(&map("a"), json!({"data": {"k": "w"}})).await.expect(200);
    server.server.compact();
    let mut watch = server.watch(&watch_from(made.rv())).await;
    let (kind, status) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), &status["kind"]), ("ERROR", &json!("Status")));
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")));
    let revision = server.server.revision();
    assert_eq!(status["message"], format!("too old resource version: {} ({revision})", made.rv()));
    assert!(watch.next().await.is_none());
    // What is there now can be watched from.
    let mut watch = server.watch(&watch_from(revision)).await;
    server.delete(&map("a")).await.expect(200);
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
}

/// Case 16.
#[tokio::test]
async fn a_short_history_expires_by_itself() {
    let server = Server::with(steersman_apiserver::Options { history: 3, ..Default::default() });
    let from = server.server.revision();
    let mut slow = server.watch(&watch_from(from)).await;
    for n in 0..4 {
        server.post(CONFIG_MAPS, config_map(&format!("a{n}"))).await.expect(201);
    }
    for watch in [&mut slow, &mut server.watch(&watch_from(from)).await] {
        let (kind, status) = watch.next().await.unwrap();
        assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(410)));
        assert!(watch.next().await.is_none());
    }
    let mut watch = server.watch(&watch_from(from + 1)).await;
    assert_eq!(watch.take(3).await.len(), 3);
    // Other kinds have a history of their own.
    let path = format!("/api/v1/secrets?watch=1&resourceVersion={from}&timeoutSeconds=1");
    assert!(server.watch(&path).await.next().await.is_none());
}

/// Case 18.
#[tokio::test(start_paused = true)]
async fn a_watch_from_the_future_has_no_bookmarks() {
    let server = Server::start();
    let future = server.server.revision() + 2;
    let query = "timeoutSeconds=8&allowWatchBookmarks=true";
    let mut watch = server.watch(&format!("{}&{query}", watch_from(future))).await;
    assert_eq!(watch.next().await, None);
    let mut watch = server.watch(&format!("{}&{query}", watch_from(future))).await;
    for name in ["a", "b"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    let (kind, bookmark) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), rv(&bookmark)), ("BOOKMARK", future));
}

/// Case 18.
#[tokio::test(start_paused = true)]
async fn a_watch_from_the_future_is_silent() {
    let server = Server::start();
    let future = server.server.revision() + 2;
    let opened = Instant::now();
    let mut watch = server.watch(&format!("{}&timeoutSeconds=15", watch_from(future))).await;
    assert!(opened.elapsed().is_zero());
    is_silent(&mut watch, 10).await;
    for name in ["a", "b", "c"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    assert_eq!(watch.next_name().await, added("c"), "only what is after the revision");
    assert!(watch.next().await.is_none());
    assert_eq!(opened.elapsed().as_secs(), 15);
}

#[tokio::test]
async fn history_does_not_survive_a_restart() {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("history_does_not_survive_a_restart");
    _ = std::fs::remove_dir_all(&dir);
    let options = steersman_apiserver::Options { data_dir: Some(dir.clone()), ..Default::default() };
    let server = Server::with(options.clone());
    let made = server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let last = server.merge(&map("a"), json!({"data": {"k": "w"}})).await.expect(200);
    drop(server);
    let server = Server::with(options);
    assert_eq!(server.get(&map("a")).await.expect(200).json, last.json);
    let mut watch = server.watch(&watch_from(made.rv())).await;
    let (kind, status) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(410)));
    let mut watch = server.watch(&watch_from(last.rv())).await;
    let next = server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    assert!(next.rv() > last.rv());
    assert_eq!(watch.next().await.unwrap(), ("ADDED".into(), next.json));
    let refused = server.get(&format!("{CONFIG_MAPS}?resourceVersionMatch=Exact&resourceVersion={}", made.rv())).await;
    assert_eq!(refused.expect(410).reason(), "Expired");
    drop(server);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn a_watch_ends_with_its_server() {
    let server = Server::start();
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    drop(server);
    assert_eq!(watch.next_name().await, added("a"));
    assert!(watch.next().await.is_none());
}
