//! Watches: events since a resource version, without loss or duplicates.

use crate::support::*;
use serde_json::{Value, json};

fn config_map_path(name: &str) -> String {
    format!("{CONFIG_MAPS}/{name}")
}

fn watch_from(rv: u64) -> String {
    format!("{CONFIG_MAPS}?watch=1&resourceVersion={rv}")
}

fn added(name: &str) -> (String, String) {
    ("ADDED".into(), name.into())
}

async fn create_labelled(server: &Server, name: &str, app: &str) -> Reply {
    let mut object = config_map(name);
    object["metadata"]["labels"] = json!({"app": app});
    server.post(CONFIG_MAPS, object).await.expect(201)
}

fn summarize(events: &[(String, Value)]) -> Vec<(&str, &str, u64)> {
    events
        .iter()
        .map(|(kind, object)| {
            (
                kind.as_str(),
                object["metadata"]["name"].as_str().unwrap_or_default(),
                rv(object),
            )
        })
        .collect()
}

#[tokio::test]
async fn a_watch_from_a_list_reports_changes_since_the_list() {
    let server = Server::start();
    server
        .post(CONFIG_MAPS, config_map("before"))
        .await
        .expect(201);
    let list = server.get(CONFIG_MAPS).await;
    let created = server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let changed = server
        .merge(&config_map_path("a"), json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    server.delete(&config_map_path("a")).await.expect(200);
    let deleted = server.server.revision();
    let events = server.watch(&watch_from(list.rv())).await.take(3).await;
    assert_eq!(
        summarize(&events),
        [
            ("ADDED", "a", created.rv()),
            ("MODIFIED", "a", changed.rv()),
            ("DELETED", "a", deleted)
        ]
    );
    assert_eq!((&events[0].1, &events[1].1), (&created.json, &changed.json));
    assert!(deleted > changed.rv());
    let mut last = changed.json;
    last["metadata"]["resourceVersion"] = deleted.to_string().into();
    assert_eq!(events[2].1, last);
}

#[tokio::test]
async fn a_watch_from_a_list_reports_a_deletion_since_the_list() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let list = server.get(CONFIG_MAPS).await;
    assert_eq!(list.names(), ["a"]);
    server.delete(&config_map_path("a")).await.expect(200);
    let mut watch = server.watch(&watch_from(list.rv())).await;
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
}

#[tokio::test]
async fn a_watch_without_a_resource_version_starts_with_existing_objects() {
    let server = Server::start();
    for name in ["b", "a", "gone"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    server.delete(&config_map_path("gone")).await.expect(200);
    let changed = server
        .merge(&config_map_path("b"), json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    for query in [
        "watch=1",
        "watch=true",
        "watch",
        "watch=1&resourceVersion=0",
        "watch=1&resourceVersion=",
    ] {
        let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(watch.next_name().await, added("a"));
        let (kind, object) = watch.next().await.unwrap();
        assert_eq!((kind.as_str(), &object), ("ADDED", &changed.json));
        let name = format!("live-{}", server.server.revision());
        let live = server
            .post(CONFIG_MAPS, config_map(&name))
            .await
            .expect(201);
        assert_eq!(watch.next().await.unwrap(), ("ADDED".into(), live.json));
        server.delete(&config_map_path(&name)).await.expect(200);
        assert_eq!(watch.next_name().await, ("DELETED".into(), name));
    }
}

#[tokio::test]
async fn a_watch_without_initial_events_reports_only_new_changes() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    assert_eq!(watch.next_name().await, added("b"));
}

#[tokio::test]
async fn objects_that_leave_or_enter_the_selector_are_deleted_or_added() {
    let server = Server::start();
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&labelSelector=app%3Da"))
        .await;
    let created = create_labelled(&server, "x", "a").await;
    let away = json!({"metadata": {"labels": {"app": "b"}}, "data": {"k": "away"}});
    let away = server.merge(&config_map_path("x"), away).await.expect(200);
    server
        .merge(&config_map_path("x"), json!({"data": {"k": "unseen"}}))
        .await
        .expect(200);
    let back = server
        .merge(
            &config_map_path("x"),
            json!({"metadata": {"labels": {"app": "a"}}}),
        )
        .await
        .expect(200);
    let stays = server
        .merge(&config_map_path("x"), json!({"data": {"k": "seen"}}))
        .await
        .expect(200);
    server.delete(&config_map_path("x")).await.expect(200);
    let deleted = server.server.revision();
    create_labelled(&server, "y", "b").await;
    server.delete(&config_map_path("y")).await.expect(200);
    let sentinel = create_labelled(&server, "z", "a").await;
    let events = watch.take(6).await;
    assert_eq!(
        summarize(&events),
        [
            ("ADDED", "x", created.rv()),
            ("DELETED", "x", away.rv()),
            ("ADDED", "x", back.rv()),
            ("MODIFIED", "x", stays.rv()),
            ("DELETED", "x", deleted),
            ("ADDED", "z", sentinel.rv()),
        ]
    );
    let left = &events[1].1;
    assert_eq!(
        (&left["metadata"]["labels"]["app"], &left["data"]["k"]),
        (&json!("a"), &json!("v"))
    );
    assert_eq!(events[2].1["data"]["k"], "unseen");
}

#[tokio::test]
async fn one_object_can_be_watched_by_name() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    for path in [
        format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db"),
        "/api/v1/watch/namespaces/default/configmaps/b".into(),
    ] {
        let mut watch = server.watch(&path).await;
        assert_eq!(watch.next_name().await, added("b"));
        server
            .merge(
                &config_map_path("a"),
                json!({"data": {"rv": server.server.revision().to_string()}}),
            )
            .await
            .expect(200);
        server
            .merge(
                &config_map_path("b"),
                json!({"data": {"rv": server.server.revision().to_string()}}),
            )
            .await
            .expect(200);
        assert_eq!(watch.next_name().await, ("MODIFIED".into(), "b".into()));
    }
    let got = server
        .get(&format!("{}?watch=1", config_map_path("b")))
        .await
        .expect(200);
    assert_eq!(
        (
            got.json["kind"].as_str(),
            got.json["metadata"]["name"].as_str()
        ),
        (Some("ConfigMap"), Some("b"))
    );
}

#[tokio::test]
async fn the_deprecated_watch_paths_work() {
    let server = Server::with_widgets().await;
    let from = server.server.revision();
    for (path, body, deprecated) in [
        (
            CONFIG_MAPS,
            config_map("a"),
            "/api/v1/watch/namespaces/default/configmaps",
        ),
        (CONFIG_MAPS, config_map("b"), "/api/v1/watch/configmaps"),
        (
            WIDGETS,
            widget("c"),
            "/apis/example.com/v1/watch/namespaces/default/widgets",
        ),
    ] {
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        let mut watch = server
            .watch(&format!(
                "{deprecated}?resourceVersion={}",
                server.server.revision()
            ))
            .await;
        server.post(path, body).await.expect(201);
        assert_eq!(watch.next_name().await, added(&name));
    }
    let mut watch = server
        .watch(&format!("/api/v1/watch/configmaps?resourceVersion={from}"))
        .await;
    assert_eq!(
        (watch.next_name().await, watch.next_name().await),
        (added("a"), added("b"))
    );
}

#[tokio::test]
async fn a_watch_covers_one_or_all_namespaces() {
    let server = Server::start();
    let other_namespace = "/api/v1/namespaces/kube-system/configmaps";
    let mut default_namespace = server.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let mut all = server.watch("/api/v1/configmaps?watch=1").await;
    server
        .post(other_namespace, config_map("a"))
        .await
        .expect(201);
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    assert_eq!(
        (all.next_name().await, all.next_name().await),
        (added("a"), added("b"))
    );
    assert_eq!(default_namespace.next_name().await, added("b"));
}

#[tokio::test]
async fn a_watch_is_an_uncompressed_stream_of_json_lines() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let headers = [("accept-encoding", "gzip")];
    let reply = server
        .send(
            "GET",
            &format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1"),
            &headers,
            "",
        )
        .await
        .expect(200);
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(reply.headers.get("content-encoding"), None);
    assert_eq!(reply.headers.get("content-length"), None);
    let line = reply.text.strip_suffix('\n').unwrap();
    let event: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (event.as_object().unwrap().len(), &event["type"]),
        (2, &json!("ADDED"))
    );
    assert_eq!(
        (&event["object"]["kind"], &event["object"]["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
}

#[tokio::test]
async fn a_watch_from_an_invalid_resource_version_is_a_server_error() {
    let server = Server::start();
    let rejected = server
        .get(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=x"))
        .await
        .expect(500);
    assert!(
        rejected.message().contains("ParseUint"),
        "{}",
        rejected.text
    );
}

#[tokio::test]
async fn a_watch_timeout_beyond_the_range_of_the_clock_is_accepted() {
    let server = Server::start();
    for seconds in [i64::MAX, i64::MAX / 2, 9_999_999_999] {
        let path =
            format!("/api/v1/namespaces?watch=1&allowWatchBookmarks=1&timeoutSeconds={seconds}");
        assert_eq!(
            server.watch(&path).await.next_name().await,
            added("default")
        );
    }
}

#[tokio::test]
async fn a_new_server_can_be_watched_from_revision_one() {
    let server = Server::start();
    let mut watch = server
        .watch("/api/v1/namespaces?watch=1&resourceVersion=1")
        .await;
    assert_eq!(watch.next_name().await, added("default"));
}

#[tokio::test]
async fn the_deletion_event_shows_the_object_with_its_last_finalizer() {
    let server = Server::with_widgets().await;
    let mut finalized = widget("w");
    finalized["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(WIDGETS, finalized).await.expect(201);
    let deleting = server.delete(&format!("{WIDGETS}/w")).await.expect(200);
    let mut watch = server
        .watch(&format!(
            "{WIDGETS}?watch=1&resourceVersion={}",
            deleting.rv()
        ))
        .await;
    let released = server
        .merge(
            &format!("{WIDGETS}/w"),
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .expect(200);
    assert_eq!(released.rv(), deleting.rv());
    let mut last = deleting.json;
    last["metadata"]["resourceVersion"] = server.server.revision().to_string().into();
    assert_eq!(watch.next().await.unwrap(), ("DELETED".into(), last));
}

#[tokio::test]
async fn a_watch_reports_creation_update_and_deletion() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    assert_eq!(created.json["spec"], json!({"color": "red", "replicas": 1}));
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(watch.next_name().await, ("ADDED".into(), "a".into()));
    server
        .merge(&format!("{WIDGETS}/a"), json!({"spec": {"color": "blue"}}))
        .await
        .expect(200);
    assert_eq!(watch.next_name().await, ("MODIFIED".into(), "a".into()));
    server.delete(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
    server.get(&format!("{WIDGETS}/a")).await.expect(404);
}
