//! Watches: from a revision on, nothing lost, nothing twice, nothing else.

use crate::support::*;
use serde_json::{Value, json};

fn map(name: &str) -> String {
    format!("{CONFIG_MAPS}/{name}")
}

fn watch_from(rv: u64) -> String {
    format!("{CONFIG_MAPS}?watch=1&resourceVersion={rv}")
}

fn added(name: &str) -> (String, String) {
    ("ADDED".into(), name.into())
}

async fn labelled(server: &Server, name: &str, app: &str) -> Reply {
    let mut object = config_map(name);
    object["metadata"]["labels"] = json!({"app": app});
    server.post(CONFIG_MAPS, object).await.expect(201)
}

fn shape(events: &[(String, Value)]) -> Vec<(&str, &str, u64)> {
    events
        .iter()
        .map(|(kind, object)| (kind.as_str(), object["metadata"]["name"].as_str().unwrap_or_default(), rv(object)))
        .collect()
}

/// Case 9.
#[tokio::test]
async fn what_happened_before_the_watch_but_after_the_list_is_told() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("before")).await.expect(201);
    let list = server.get(CONFIG_MAPS).await;
    let made = server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let changed = server.merge(&map("a"), json!({"data": {"k": "w"}})).await.expect(200);
    server.delete(&map("a")).await.expect(200);
    let gone = server.server.revision();
    let events = server.watch(&watch_from(list.rv())).await.take(3).await;
    assert_eq!(shape(&events), [("ADDED", "a", made.rv()), ("MODIFIED", "a", changed.rv()), ("DELETED", "a", gone)]);
    assert_eq!((&events[0].1, &events[1].1), (&made.json, &changed.json));
    assert!(gone > changed.rv());
    let mut last = changed.json;
    last["metadata"]["resourceVersion"] = gone.to_string().into();
    assert_eq!(events[2].1, last);
}

/// Case 10.
#[tokio::test]
async fn a_deletion_between_list_and_watch_is_told() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let list = server.get(CONFIG_MAPS).await;
    assert_eq!(list.names(), ["a"]);
    server.delete(&map("a")).await.expect(200);
    let mut watch = server.watch(&watch_from(list.rv())).await;
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
}

/// Case 11.
#[tokio::test]
async fn a_watch_from_nowhere_begins_with_what_is_there() {
    let server = Server::start();
    for name in ["b", "a", "gone"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    server.delete(&map("gone")).await.expect(200);
    let changed = server.merge(&map("b"), json!({"data": {"k": "w"}})).await.expect(200);
    for query in ["watch=1", "watch=true", "watch", "watch=1&resourceVersion=0", "watch=1&resourceVersion="] {
        let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(watch.next_name().await, added("a"));
        let (kind, object) = watch.next().await.unwrap();
        assert_eq!((kind.as_str(), &object), ("ADDED", &changed.json));
        let name = format!("live-{}", server.server.revision());
        let live = server.post(CONFIG_MAPS, config_map(&name)).await.expect(201);
        assert_eq!(watch.next().await.unwrap(), ("ADDED".into(), live.json));
        server.delete(&map(&name)).await.expect(200);
        assert_eq!(watch.next_name().await, ("DELETED".into(), name));
    }
}

#[tokio::test]
async fn a_watch_without_initial_events_begins_now() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    assert_eq!(watch.next_name().await, added("b"));
}

/// Case 12.
#[tokio::test]
async fn who_leaves_the_selection_is_deleted_and_who_enters_is_added() {
    let server = Server::start();
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1&labelSelector=app%3Da")).await;
    let made = labelled(&server, "x", "a").await;
    let away = json!({"metadata": {"labels": {"app": "b"}}, "data": {"k": "away"}});
    let away = server.merge(&map("x"), away).await.expect(200);
    server.merge(&map("x"), json!({"data": {"k": "unseen"}})).await.expect(200);
    let back = server.merge(&map("x"), json!({"metadata": {"labels": {"app": "a"}}})).await.expect(200);
    let stays = server.merge(&map("x"), json!({"data": {"k": "seen"}})).await.expect(200);
    server.delete(&map("x")).await.expect(200);
    let gone = server.server.revision();
    labelled(&server, "y", "b").await;
    server.delete(&map("y")).await.expect(200);
    let sentinel = labelled(&server, "z", "a").await;
    let events = watch.take(6).await;
    assert_eq!(
        shape(&events),
        [
            ("ADDED", "x", made.rv()),
            ("DELETED", "x", away.rv()),
            ("ADDED", "x", back.rv()),
            ("MODIFIED", "x", stays.rv()),
            ("DELETED", "x", gone),
            ("ADDED", "z", sentinel.rv()),
        ]
    );
    let left = &events[1].1;
    assert_eq!((&left["metadata"]["labels"]["app"], &left["data"]["k"]), (&json!("a"), &json!("v")));
    assert_eq!(events[2].1["data"]["k"], "unseen");
}

#[tokio::test]
async fn one_object_is_watched_by_its_name() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    for path in [
        format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db"),
        "/api/v1/watch/namespaces/default/configmaps/b".into(),
    ] {
        let mut watch = server.watch(&path).await;
        assert_eq!(watch.next_name().await, added("b"));
        server.merge(&map("a"), json!({"data": {"rv": server.server.revision().to_string()}})).await.expect(200);
        server.merge(&map("b"), json!({"data": {"rv": server.server.revision().to_string()}})).await.expect(200);
        assert_eq!(watch.next_name().await, ("MODIFIED".into(), "b".into()));
    }
    let got = server.get(&format!("{}?watch=1", map("b"))).await.expect(200);
    assert_eq!((got.json["kind"].as_str(), got.json["metadata"]["name"].as_str()), (Some("ConfigMap"), Some("b")));
}

#[tokio::test]
async fn the_old_path_of_a_watch_watches() {
    let server = Server::with_widgets().await;
    let from = server.server.revision();
    for (path, body, old) in [
        (CONFIG_MAPS, config_map("a"), "/api/v1/watch/namespaces/default/configmaps"),
        (CONFIG_MAPS, config_map("b"), "/api/v1/watch/configmaps"),
        (WIDGETS, widget("c"), "/apis/example.com/v1/watch/namespaces/default/widgets"),
    ] {
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        let mut watch = server.watch(&format!("{old}?resourceVersion={}", server.server.revision())).await;
        server.post(path, body).await.expect(201);
        assert_eq!(watch.next_name().await, added(&name));
    }
    let mut watch = server.watch(&format!("/api/v1/watch/configmaps?resourceVersion={from}")).await;
    assert_eq!((watch.next_name().await, watch.next_name().await), (added("a"), added("b")));
}

#[tokio::test]
async fn a_watch_is_of_its_namespace_or_of_all() {
    let server = Server::start();
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    let mut here = server.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let mut all = server.watch("/api/v1/configmaps?watch=1").await;
    server.post(elsewhere, config_map("a")).await.expect(201);
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    assert_eq!((all.next_name().await, all.next_name().await), (added("a"), added("b")));
    assert_eq!(here.next_name().await, added("b"));
}

#[tokio::test]
async fn a_watch_is_a_stream_of_lines_that_is_never_compressed() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let headers = [("accept-encoding", "gzip")];
    let reply = server.send("GET", &format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1"), &headers, "").await.expect(200);
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(reply.headers.get("content-encoding"), None);
    assert_eq!(reply.headers.get("content-length"), None);
    let line = reply.text.strip_suffix('\n').unwrap();
    let event: Value = serde_json::from_str(line).unwrap();
    assert_eq!((event.as_object().unwrap().len(), &event["type"]), (2, &json!("ADDED")));
    assert_eq!((&event["object"]["kind"], &event["object"]["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
}

#[tokio::test]
async fn a_watch_from_garbage_is_an_error_of_the_server() {
    let server = Server::start();
    let refused = server.get(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=x")).await.expect(500);
    assert!(refused.message().contains("ParseUint"), "{}", refused.text);
}

#[tokio::test]
async fn a_watch_that_is_to_end_later_than_the_clock_can_count_does_not_end() {
    let server = Server::start();
    for seconds in [i64::MAX, i64::MAX / 2, 9_999_999_999] {
        let path = format!("/api/v1/namespaces?watch=1&allowWatchBookmarks=1&timeoutSeconds={seconds}");
        assert_eq!(server.watch(&path).await.next_name().await, added("default"));
    }
}

#[tokio::test]
async fn a_fresh_server_can_be_watched_from_its_beginning() {
    let server = Server::start();
    let mut watch = server.watch("/api/v1/namespaces?watch=1&resourceVersion=1").await;
    assert_eq!(watch.next_name().await, added("default"));
}

#[tokio::test]
async fn what_a_finalizer_held_is_deleted_as_it_was_held() {
    let server = Server::with_widgets().await;
    let mut held = widget("w");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(WIDGETS, held).await.expect(201);
    let marked = server.delete(&format!("{WIDGETS}/w")).await.expect(200);
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", marked.rv())).await;
    let released = server.merge(&format!("{WIDGETS}/w"), json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(released.rv(), marked.rv());
    let mut last = marked.json;
    last["metadata"]["resourceVersion"] = server.server.revision().to_string().into();
    assert_eq!(watch.next().await.unwrap(), ("DELETED".into(), last));
}
