//! `wait_idle`: nothing is being done, nothing is left to do, and everybody has been told.

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

/// Far longer than anything takes here.
const LONG: Duration = Duration::from_secs(20);

/// Nothing changes any more, and still it is not idle.
async fn stays_busy(server: &Server) {
    let waited = timeout(Duration::from_millis(50), server.server.wait_idle()).await;
    assert!(waited.is_err(), "it is not idle, and said it is");
}

async fn becomes_idle(server: &Server) {
    timeout(LONG, server.server.wait_idle()).await.expect("it is idle, and did not say so");
}

#[tokio::test]
async fn a_server_that_nobody_uses_is_idle() {
    becomes_idle(&Server::start()).await;
    becomes_idle(&Server::with(Options { controllers: false, ..Options::default() })).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_in_flight_is_waited_for() {
    let server = Server::start();
    server.server.faults().add("* configmaps -> delay 10s once".parse().unwrap());
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
    server.server.faults().add("POST configmaps -> delay 1s".parse().unwrap());
    let (mut sender, body) = mpsc::channel::<Bytes>(1);
    let body = StreamBody::new(body.map(|data| Ok::<_, Infallible>(Frame::data(data))));
    let request = Request::post(CONFIG_MAPS).body(body).unwrap();
    let call = tokio::spawn(server.server.service().call(request));
    tokio::task::yield_now().await;
    becomes_idle(&server).await;
    sender.send(config_map("a").to_string().into()).await.unwrap();
    becomes_idle(&server).await;
    drop(sender);
    tokio::task::yield_now().await;
    stays_busy(&server).await;
    assert_eq!(call.await.unwrap().unwrap().status(), 201);
    becomes_idle(&server).await;
}

#[tokio::test]
async fn a_request_that_is_given_up_is_not_waited_for() {
    let server = Server::start();
    server.server.faults().add("* configmaps -> delay 1m".parse().unwrap());
    {
        let mut request = std::pin::pin!(server.get(CONFIG_MAPS));
        assert!(request.as_mut().now_or_never().is_none());
        stays_busy(&server).await;
    }
    becomes_idle(&server).await;
}

#[tokio::test]
async fn controllers_are_waited_for_until_nothing_is_left() {
    let server = Server::with_widgets().await;
    let mut owner = server.post(CONFIG_MAPS, config_map("m0")).await.expect(201).json;
    for n in 1..30 {
        owner = server.post(CONFIG_MAPS, owned(&format!("m{n}"), &owner)).await.expect(201).json;
    }
    server.delete(&format!("{CONFIG_MAPS}/m0")).await.expect(200);
    becomes_idle(&server).await;
    assert!(server.get(CONFIG_MAPS).await.names().is_empty());

    server.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.expect(201);
    for n in 0..30 {
        server.post("/api/v1/namespaces/n/configmaps", config_map(&format!("m{n}"))).await.expect(201);
    }
    server.delete("/api/v1/namespaces/n").await.expect(200);
    becomes_idle(&server).await;
    server.get("/api/v1/namespaces/n").await.expect(404);
}

#[tokio::test]
async fn a_watcher_is_waited_for_until_it_comes_back_for_more() {
    let server = Server::with_widgets().await;
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1")).await;
    becomes_idle(&server).await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    stays_busy(&server).await;
    watch.next().await.unwrap();
    assert!(watch.next().now_or_never().is_none());
    becomes_idle(&server).await;
    // What does not concern the watcher is no reason to wait for it.
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    becomes_idle(&server).await;
    server.post(WIDGETS, widget("b")).await.expect(201);
    stays_busy(&server).await;
    drop(watch);
    becomes_idle(&server).await;
}

#[tokio::test]
async fn what_a_watch_begins_with_has_to_be_read_too() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    server.server.wait_idle().await;
    // No change is left that could tell of the object: neither in the server nor in its fork.
    server.server.compact();
    for server in [server.clone(), Server::of(server.server.fork())] {
        becomes_idle(&server).await;
        let mut watch = server.watch(&format!("{WIDGETS}?watch=1")).await;
        stays_busy(&server).await;
        watch.next().await.unwrap();
        assert!(watch.next().now_or_never().is_none());
        becomes_idle(&server).await;
    }
    let bookmark =
        "/api/v1/secrets?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
    let _watch = server.watch(bookmark).await;
    stays_busy(&server).await;
}

#[tokio::test]
async fn watchers_of_what_is_gone_have_to_be_told() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", server.server.revision())).await;
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    server.delete(definition).await.expect(200);
    while server.get(definition).await.code == 200 {
        tokio::task::yield_now().await;
    }
    stays_busy(&server).await;
    // Not even when there is a resource of that name again.
    server.server.install(widgets()).await.unwrap();
    stays_busy(&server).await;
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
    stays_busy(&server).await;
    assert!(watch.next().await.is_none());
    becomes_idle(&server).await;
}

#[tokio::test]
async fn a_watcher_that_expired_has_to_be_told() {
    let server = Server::with(Options { history: 1, ..Options::default() });
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    for name in ["a", "b", "c"] {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    server.server.compact();
    stays_busy(&server).await;
    assert_eq!(watch.next().await.unwrap().0, "ERROR");
    assert!(watch.next().await.is_none());
    becomes_idle(&server).await;
}

#[tokio::test]
async fn a_watch_of_the_future_has_been_told_everything() {
    let server = Server::start();
    let _watch = server.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=9999")).await;
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    becomes_idle(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_in_time_even_if_there_is_always_more() {
    let server = Server::start();
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=5&resourceVersion=1")).await;
    let start = Instant::now();
    let mut n = 0;
    loop {
        n += 1;
        server.post(CONFIG_MAPS, config_map(&format!("m{n}"))).await.expect(201);
        tokio::time::advance(Duration::from_millis(100)).await;
        if watch.next().await.is_none() {
            break;
        }
        assert!(start.elapsed() < Duration::from_mins(1));
    }
    assert!((45..60).contains(&n), "{n}");
}
