//! Start and end of watches: streaming lists, bookmarks, timeouts and expired resource versions.

use crate::support::*;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const END_OF_INITIAL: &str = "k8s.io/initial-events-end";
const STREAMING: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

fn config_map_path(name: &str) -> String {
    format!("{CONFIG_MAPS}/{name}")
}

fn watch_from(rv: u64) -> String {
    format!("{CONFIG_MAPS}?watch=1&resourceVersion={rv}")
}

fn added(name: &str) -> (String, String) {
    ("ADDED".into(), name.into())
}

/// Asserts that no event arrives. `seconds` is less than the timeout of [`Watch::next`].
async fn assert_silent(watch: &mut Watch, seconds: u64) {
    let event = timeout(Duration::from_secs(seconds), watch.next()).await;
    assert!(event.is_err(), "{event:?}");
}

#[tokio::test]
async fn a_streaming_list_sends_all_objects_and_then_a_bookmark() {
    let server = Server::with_widgets().await;
    for n in 0..600 {
        server
            .post(WIDGETS, widget(&format!("w{n:03}")))
            .await
            .expect(201);
    }
    let touched = server
        .merge(
            &format!("{WIDGETS}/w000"),
            json!({"spec": {"color": "blue"}}),
        )
        .await
        .expect(200);
    server
        .post(CONFIG_MAPS, config_map("other"))
        .await
        .expect(201);
    let mut watch = server
        .watch(&format!("{WIDGETS}?{STREAMING}&allowWatchBookmarks=true"))
        .await;
    let initial = watch.take(600).await;
    assert!(initial.iter().all(|(kind, _)| kind == "ADDED"));
    let names: Vec<_> = initial
        .iter()
        .map(|(_, object)| object["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        (0..600).map(|n| format!("w{n:03}")).collect::<Vec<_>>()
    );
    assert_eq!(initial[0].1, touched.json);
    let (kind, bookmark) = watch.next().await.unwrap();
    assert_eq!(kind, "BOOKMARK");
    let revision = server.server.revision();
    assert!(revision > touched.rv());
    let meta =
        json!({"resourceVersion": revision.to_string(), "annotations": {END_OF_INITIAL: "true"}});
    assert_eq!(
        bookmark,
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta})
    );
    let live = server.post(WIDGETS, widget("live")).await.expect(201);
    assert_eq!(watch.next().await.unwrap(), ("ADDED".into(), live.json));
}

#[tokio::test]
async fn an_empty_streaming_list_is_a_bookmark() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let query = "allowWatchBookmarks=true&labelSelector=app";
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?{STREAMING}&{query}"))
        .await;
    let (kind, bookmark) = watch.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), rv(&bookmark)),
        ("BOOKMARK", server.server.revision())
    );
    assert_eq!(bookmark["metadata"]["annotations"][END_OF_INITIAL], "true");
}

#[tokio::test]
async fn invalid_options_of_a_streaming_list_are_rejected() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    for (query, field) in [
        ("watch=1&sendInitialEvents=true", "resourceVersionMatch"),
        (
            "watch=1&sendInitialEvents=true&resourceVersion=1",
            "resourceVersionMatch",
        ),
        ("watch=1&sendInitialEvents=false", "resourceVersionMatch"),
        (
            "watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "resourceVersionMatch",
        ),
        ("sendInitialEvents=true", "sendInitialEvents"),
        (
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "sendInitialEvents",
        ),
    ] {
        let rejected = server
            .get(&format!("{CONFIG_MAPS}?{query}"))
            .await
            .expect(422);
        assert_eq!(
            (rejected.reason(), rejected.cause_fields()),
            ("Invalid", vec![field]),
            "{query}"
        );
        assert_eq!(
            rejected.json["details"]["causes"][0]["reason"],
            "FieldValueForbidden"
        );
        assert_eq!(rejected.json["details"]["kind"], "ListOptions");
    }
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{STREAMING}")).await;
    assert_eq!(watch.next_name().await, added("a"));
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    assert_eq!(
        watch.next_name().await,
        added("b"),
        "bookmarks are sent only if requested"
    );
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_waits_for_its_resource_version() {
    let server = Server::start();
    let next = server.server.revision() + 1;
    let path = format!("{CONFIG_MAPS}?{STREAMING}&resourceVersion={next}");
    let (mut watch, _) = tokio::join!(server.watch(&path), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.post(CONFIG_MAPS, config_map("a")).await.expect(201)
    });
    assert_eq!(watch.next_name().await, added("a"));

    let started = Instant::now();
    let future = next + 1000;
    let mut watch = server
        .watch(&format!(
            "{CONFIG_MAPS}?{STREAMING}&resourceVersion={future}"
        ))
        .await;
    let (kind, status) = watch.next().await.unwrap();
    assert_eq!(kind, "ERROR");
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(504), &json!("Timeout"))
    );
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
    assert_eq!(started.elapsed().as_secs(), 3);
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_is_sent_shortly_before_the_timeout() {
    let server = Server::with_widgets().await;
    let opened = Instant::now();
    let query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=8";
    let mut watch = server.watch(&format!("{WIDGETS}?{query}")).await;
    server
        .post(CONFIG_MAPS, config_map("other"))
        .await
        .expect(201);
    let (kind, bookmark) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), opened.elapsed().as_secs()), ("BOOKMARK", 6));
    let meta = json!({"resourceVersion": server.server.revision().to_string()});
    assert_eq!(
        bookmark,
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta})
    );
    assert!(watch.next().await.is_none());
    assert_eq!(opened.elapsed().as_secs(), 8);

    let opened = Instant::now();
    let mut watch = server
        .watch(&format!("{WIDGETS}?watch=1&timeoutSeconds=8"))
        .await;
    assert!(
        watch.next().await.is_none(),
        "bookmarks are sent only if requested"
    );
    assert_eq!(opened.elapsed().as_secs(), 8);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_sent_every_minute() {
    let server = Server::start();
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=1"))
        .await;
    let mut silent = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=1"))
        .await;
    for _ in 0..3 {
        for _ in 0..4 {
            assert_silent(&mut watch, 14).await;
        }
        let (kind, bookmark) = watch.next().await.unwrap();
        assert_eq!(
            (kind.as_str(), rv(&bookmark)),
            ("BOOKMARK", server.server.revision())
        );
        server
            .post(
                "/api/v1/namespaces/default/secrets",
                json!({"metadata": {"generateName": "s-"}}),
            )
            .await
            .expect(201);
    }
    assert_silent(&mut silent, 19).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_watch_ends_at_its_timeout() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=10";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    let opened = Instant::now();
    let mut kinds = Vec::new();
    while let Some((kind, _)) = watch.next().await {
        kinds.push(kind);
        tokio::time::advance(Duration::from_millis(400)).await;
        server
            .merge(
                &config_map_path("a"),
                json!({"data": {"n": kinds.len().to_string()}}),
            )
            .await
            .expect(200);
        assert!(opened.elapsed().as_secs() <= 11);
    }
    assert_eq!(kinds.iter().filter(|kind| *kind == "BOOKMARK").count(), 1);
}

#[tokio::test]
async fn a_watch_from_a_compacted_resource_version_gets_an_error_event() {
    let server = Server::start();
    let created = server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server
        .merge(&config_map_path("a"), json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    server.server.compact();
    let mut watch = server.watch(&watch_from(created.rv())).await;
    let (kind, status) = watch.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), &status["kind"]),
        ("ERROR", &json!("Status"))
    );
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(410), &json!("Expired"))
    );
    let revision = server.server.revision();
    assert_eq!(
        status["message"],
        format!("too old resource version: {} ({revision})", created.rv())
    );
    assert!(watch.next().await.is_none());
    // A watch from the current resource version works.
    let mut watch = server.watch(&watch_from(revision)).await;
    server.delete(&config_map_path("a")).await.expect(200);
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
}

#[tokio::test]
async fn old_resource_versions_expire_when_the_history_is_full() {
    let server = Server::with_options(steersman_apiserver::Options {
        history: 3,
        ..Default::default()
    });
    let from = server.server.revision();
    let mut slow = server.watch(&watch_from(from)).await;
    for n in 0..4 {
        server
            .post(CONFIG_MAPS, config_map(&format!("a{n}")))
            .await
            .expect(201);
    }
    for watch in [&mut slow, &mut server.watch(&watch_from(from)).await] {
        let (kind, status) = watch.next().await.unwrap();
        assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(410)));
        assert!(watch.next().await.is_none());
    }
    let mut watch = server.watch(&watch_from(from + 1)).await;
    assert_eq!(watch.take(3).await.len(), 3);
    // Each kind has its own history.
    let path = format!("/api/v1/secrets?watch=1&resourceVersion={from}&timeoutSeconds=1");
    assert!(server.watch(&path).await.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_future_resource_version_sends_no_bookmark_before_it() {
    let server = Server::start();
    let future = server.server.revision() + 2;
    let query = "timeoutSeconds=8&allowWatchBookmarks=true";
    let mut watch = server
        .watch(&format!("{}&{query}", watch_from(future)))
        .await;
    assert_eq!(watch.next().await, None);
    let mut watch = server
        .watch(&format!("{}&{query}", watch_from(future)))
        .await;
    for name in ["a", "b"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    let (kind, bookmark) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), rv(&bookmark)), ("BOOKMARK", future));
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_future_resource_version_is_silent_until_then() {
    let server = Server::start();
    let future = server.server.revision() + 2;
    let opened = Instant::now();
    let mut watch = server
        .watch(&format!("{}&timeoutSeconds=15", watch_from(future)))
        .await;
    assert!(opened.elapsed().is_zero());
    assert_silent(&mut watch, 10).await;
    for name in ["a", "b", "c"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    assert_eq!(
        watch.next_name().await,
        added("c"),
        "only events after the resource version"
    );
    assert!(watch.next().await.is_none());
    assert_eq!(opened.elapsed().as_secs(), 15);
}

#[tokio::test]
async fn watch_history_does_not_survive_a_restart() {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("watch_history_does_not_survive_a_restart");
    _ = std::fs::remove_dir_all(&dir);
    let options = steersman_apiserver::Options {
        data_dir: Some(dir.clone()),
        ..Default::default()
    };
    let server = Server::with_options(options.clone());
    let created = server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let last = server
        .merge(&config_map_path("a"), json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    drop(server);
    let server = Server::with_options(options);
    assert_eq!(
        server.get(&config_map_path("a")).await.expect(200).json,
        last.json
    );
    let mut watch = server.watch(&watch_from(created.rv())).await;
    let (kind, status) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(410)));
    let mut watch = server.watch(&watch_from(last.rv())).await;
    let next = server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    assert!(next.rv() > last.rv());
    assert_eq!(watch.next().await.unwrap(), ("ADDED".into(), next.json));
    let rejected = server
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersionMatch=Exact&resourceVersion={}",
            created.rv()
        ))
        .await;
    assert_eq!(rejected.expect(410).reason(), "Expired");
    drop(server);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn dropping_the_server_ends_watches_after_their_last_event() {
    let server = Server::start();
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    drop(server);
    assert_eq!(watch.next_name().await, added("a"));
    assert!(watch.next().await.is_none());
}
