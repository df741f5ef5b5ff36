//! `wait_idle` returns when no request is in flight, the controllers have no work left and every
//! watcher has read its events.

use super::*;
use bytes::Bytes;
use futures::{FutureExt, SinkExt, StreamExt, channel::mpsc};
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use std::{convert::Infallible, time::Duration};
use steersman_apiserver::Options;
use tokio::time::{Instant, timeout};
use tower_service::Service as _;

/// Limit for `wait_idle`. Only a lost wake-up reaches it.
const LIMIT: Duration = Duration::from_secs(20);

/// Asserts that `wait_idle` does not return although the server changes nothing.
async fn assert_busy(server: &Server) {
    let waited = timeout(Duration::from_millis(50), server.server.wait_idle()).await;
    assert!(waited.is_err(), "wait_idle returned on a busy server");
}

async fn assert_becomes_idle(server: &Server) {
    timeout(LIMIT, server.server.wait_idle())
        .await
        .expect("wait_idle returns on an idle server");
}

#[tokio::test]
async fn an_unused_server_is_idle() {
    assert_becomes_idle(&Server::start()).await;
    assert_becomes_idle(&Server::with_options(Options {
        controllers: false,
        ..Options::default()
    }))
    .await;
}

#[tokio::test(start_paused = true)]
async fn wait_idle_waits_for_a_request_in_flight() {
    let server = Server::start();
    server
        .server
        .faults()
        .add("* configmaps -> delay 10s once".parse().unwrap());
    let start = Instant::now();
    let (reply, ()) = tokio::join!(server.get(CONFIG_MAPS), async {
        tokio::task::yield_now().await;
        server.server.wait_idle().await;
        assert_eq!(start.elapsed().as_secs(), 10);
    });
    reply.expect(200);
}

#[tokio::test]
async fn a_request_is_in_flight_once_its_body_is_complete() {
    let server = Server::start();
    server
        .server
        .faults()
        .add("POST configmaps -> delay 1s".parse().unwrap());
    let (mut sender, body) = mpsc::channel::<Bytes>(1);
    let body = StreamBody::new(body.map(|data| Ok::<_, Infallible>(Frame::data(data))));
    let request = Request::post(CONFIG_MAPS).body(body).unwrap();
    let call = tokio::spawn(server.server.service().call(request));
    tokio::task::yield_now().await;
    assert_becomes_idle(&server).await;
    sender
        .send(config_map("a").to_string().into())
        .await
        .unwrap();
    assert_becomes_idle(&server).await;
    drop(sender);
    tokio::task::yield_now().await;
    assert_busy(&server).await;
    assert_eq!(call.await.unwrap().unwrap().status(), 201);
    assert_becomes_idle(&server).await;
}

#[tokio::test]
async fn wait_idle_ignores_a_dropped_request() {
    let server = Server::start();
    server
        .server
        .faults()
        .add("* configmaps -> delay 1m".parse().unwrap());
    {
        let mut request = std::pin::pin!(server.get(CONFIG_MAPS));
        assert!(request.as_mut().now_or_never().is_none());
        assert_busy(&server).await;
    }
    assert_becomes_idle(&server).await;
}

#[tokio::test]
async fn wait_idle_waits_for_cascading_deletions() {
    let server = Server::with_widgets().await;
    let mut owner = server
        .post(CONFIG_MAPS, config_map("m0"))
        .await
        .expect(201)
        .json;
    for n in 1..30 {
        owner = server
            .post(CONFIG_MAPS, owned_config_map(&format!("m{n}"), &owner))
            .await
            .expect(201)
            .json;
    }
    server
        .delete(&format!("{CONFIG_MAPS}/m0"))
        .await
        .expect(200);
    assert_becomes_idle(&server).await;
    assert!(server.get(CONFIG_MAPS).await.names().is_empty());

    server
        .post("/api/v1/namespaces", json!({"metadata": {"name": "n"}}))
        .await
        .expect(201);
    for n in 0..30 {
        server
            .post(
                "/api/v1/namespaces/n/configmaps",
                config_map(&format!("m{n}")),
            )
            .await
            .expect(201);
    }
    server.delete("/api/v1/namespaces/n").await.expect(200);
    assert_becomes_idle(&server).await;
    server.get("/api/v1/namespaces/n").await.expect(404);
}

#[tokio::test]
async fn wait_idle_waits_until_a_watcher_polls_after_its_last_event() {
    let server = Server::with_widgets().await;
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_becomes_idle(&server).await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    assert_busy(&server).await;
    watch.next().await.unwrap();
    assert!(watch.next().now_or_never().is_none());
    assert_becomes_idle(&server).await;
    // Changes of other kinds do not make the watcher busy.
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    assert_becomes_idle(&server).await;
    server.post(WIDGETS, widget("b")).await.expect(201);
    assert_busy(&server).await;
    drop(watch);
    assert_becomes_idle(&server).await;
}

#[tokio::test]
async fn wait_idle_waits_for_the_initial_events_of_a_watch() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    server.server.wait_idle().await;
    // After compaction the object is only in the initial events, in the server and in its fork.
    server.server.compact();
    for server in [server.clone(), Server::new(server.server.fork())] {
        assert_becomes_idle(&server).await;
        let mut watch = server.watch(&format!("{WIDGETS}?watch=1")).await;
        assert_busy(&server).await;
        watch.next().await.unwrap();
        assert!(watch.next().now_or_never().is_none());
        assert_becomes_idle(&server).await;
    }
    let bookmark = "/api/v1/secrets?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
    let _watch = server.watch(bookmark).await;
    assert_busy(&server).await;
}

#[tokio::test]
async fn wait_idle_waits_for_watchers_of_a_deleted_crd() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let mut watch = server
        .watch(&format!(
            "{WIDGETS}?watch=1&resourceVersion={}",
            server.server.revision()
        ))
        .await;
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    server.delete(definition).await.expect(200);
    while server.get(definition).await.code == 200 {
        tokio::task::yield_now().await;
    }
    assert_busy(&server).await;
    // A new CRD of the same name does not change that.
    server.server.install(widgets()).await.unwrap();
    assert_busy(&server).await;
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
    assert_busy(&server).await;
    assert!(watch.next().await.is_none());
    assert_becomes_idle(&server).await;
}

#[tokio::test]
async fn wait_idle_waits_until_an_expired_watcher_has_read_its_error() {
    let server = Server::with_options(Options {
        history: 1,
        ..Options::default()
    });
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    for name in ["a", "b", "c"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    server.server.compact();
    assert_busy(&server).await;
    assert_eq!(watch.next().await.unwrap().0, "ERROR");
    assert!(watch.next().await.is_none());
    assert_becomes_idle(&server).await;
}

#[tokio::test]
async fn wait_idle_ignores_a_watch_from_a_future_resource_version() {
    let server = Server::start();
    let _watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=9999"))
        .await;
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    assert_becomes_idle(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_continuous_backlog_ends_at_its_timeout() {
    let server = Server::start();
    let mut watch = server
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&timeoutSeconds=5&resourceVersion=1"
        ))
        .await;
    let start = Instant::now();
    let mut n = 0;
    loop {
        n += 1;
        server
            .post(CONFIG_MAPS, config_map(&format!("m{n}")))
            .await
            .expect(201);
        tokio::time::advance(Duration::from_millis(100)).await;
        if watch.next().await.is_none() {
            break;
        }
        assert!(start.elapsed() < Duration::from_mins(1));
    }
    assert!((45..60).contains(&n), "{n}");
}
