//! Tests of timeouts and rate limits of requests.

use super::{support::config_map, watch_gate::WatchGate};
use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    future::{BoxFuture, join_all},
    stream::{self, FuturesUnordered},
};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{Config, client::Body};
use kube_core::{DynamicObject, GroupVersionKind};
use serde_json::json;
use std::{
    future::pending,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use steersman::{
    cache::{Cache, CacheOptions, InformerState, Query, Select},
    client::{
        Client, Connection, ConnectionOptions, Consistency, Error, Patch, Rate, ResponseTimeout,
        Result,
    },
    object::ObjectKey,
};
use steersman_apiserver::{ApiServer, Options};
use tokio::{
    net::TcpListener,
    time::{Instant, sleep, timeout},
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Stalled = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Ends a test whose request has no limit.
const WEEK: Duration = Duration::from_hours(7 * 24);
const HEADERS: ResponseTimeout = ResponseTimeout::Headers(Duration::from_secs(65));
const BODY: ResponseTimeout = ResponseTimeout::Body(Duration::from_secs(30));

/// Treatment of a request that the server has executed.
#[derive(Clone, Copy)]
enum Answer {
    Complete,
    /// No response headers.
    Never,
    /// Response headers and no body.
    HeadersOnly,
    /// Four parts of the body, with this pause before each.
    Parts(Duration),
}

type Choose = dyn Fn(&Request<Body>) -> Answer + Send + Sync;

/// API server that stalls its responses.
#[derive(Clone)]
struct StallingServer {
    server: ApiServer,
    answer: Arc<Choose>,
}

impl StallingServer {
    fn new(answer: impl Fn(&Request<Body>) -> Answer + Send + Sync + 'static) -> Self {
        let server = ApiServer::new(Options::default()).expect("a server without data starts");
        Self {
            server,
            answer: Arc::new(answer),
        }
    }

    fn kube(&self) -> kube_client::Client {
        kube_client::Client::new(self.clone(), "default")
    }

    fn client(&self) -> Client {
        Client::new(self.kube())
            .expect("a ready client")
            .namespace("default")
    }
}

impl tower_service::Service<Request<Body>> for StallingServer {
    type Response = Stalled;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stalled, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = (self.answer)(&request);
        let response = self.server.service().call(request);
        Box::pin(async move {
            let (parts, body) = response.await?.into_parts();
            let body = match answer {
                Answer::Complete => body.map_err(Into::into).boxed_unsync(),
                Answer::Never => return pending().await,
                Answer::HeadersOnly => StreamBody::new(stream::pending()).boxed_unsync(),
                Answer::Parts(pause) => {
                    let whole = body.collect().await?.to_bytes();
                    let size = whole.len().div_ceil(4).max(1);
                    let parts: Vec<_> = whole.chunks(size).map(Bytes::copy_from_slice).collect();
                    let slow = stream::iter(parts).then(move |part| async move {
                        sleep(pause).await;
                        Ok(Frame::data(part))
                    });
                    StreamBody::new(slow).boxed_unsync()
                }
            };
            Ok(Response::from_parts(parts, body))
        })
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn config_map_kind() -> GroupVersionKind {
    GroupVersionKind::gvk("", "v1", "ConfigMap")
}

/// Sends every kind of read, one after the other.
async fn reads(client: &Client) -> Vec<Result<()>> {
    let dynamic = client.dynamic(&config_map_kind());
    vec![
        client.get::<ConfigMap>(&key("colors")).await.map(drop),
        client.list(&Query::<ConfigMap>::default()).await.map(drop),
        client
            .status()
            .get::<ConfigMap>(&key("colors"))
            .await
            .map(drop),
        client
            .subresource_of::<ConfigMap>(&key("colors"), "scale")
            .get::<serde_json::Value>()
            .await
            .map(drop),
        client.discover(&config_map_kind()).await.map(drop),
        dynamic.get(&key("colors")).await.map(drop),
        client
            .dry_run()
            .create(&config_map("default", "dry", "blue"))
            .await
            .map(drop),
    ]
}

/// Sends every kind of write, one after the other.
async fn writes(client: &Client) -> Vec<Result<()>> {
    let blue = config_map("default", "colors", "blue");
    let patch = Patch::Merge(json!({"data": {"color": "red"}}));
    vec![
        client.create(&blue).await.map(drop),
        client.update(&blue).await.map(drop),
        client
            .patch::<ConfigMap>(&key("colors"), &patch)
            .await
            .map(drop),
        client.field_owner("test").apply(&blue).await.map(drop),
        client.status().update(&blue).await.map(drop),
        client
            .subresource_of::<ConfigMap>(&key("colors"), "scale")
            .update(&json!({}))
            .await
            .map(drop),
        client.delete::<ConfigMap>(&key("colors")).await.map(drop),
        client
            .delete_collection(&Query::<ConfigMap>::default())
            .await,
    ]
}

/// Asserts that each request ended after exactly this time, with this timeout.
async fn assert_each_times_out(client: &Client, after: Duration, expected: ResponseTimeout) {
    let begun = Instant::now();
    let (reads, writes) = timeout(WEEK, async { (reads(client).await, writes(client).await) })
        .await
        .expect("no request waits for ever");
    assert_eq!(begun.elapsed(), after * (reads.len() + writes.len()) as u32);
    for (number, read) in reads.into_iter().enumerate() {
        assert!(
            matches!(read, Err(Error::Timeout(timeout)) if timeout == expected),
            "read {number}: {read:?}"
        );
    }
    for (number, write) in writes.into_iter().enumerate() {
        let error = write.expect_err("no response");
        assert!(
            error.is_timeout() && error.to_string().contains("may have been done"),
            "write {number}: {error}"
        );
        assert!(
            matches!(error, Error::WriteTimeout { timeout, .. } if timeout == expected),
            "write {number}: {error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_response_times_out_after_65_s() {
    let server = StallingServer::new(|_| Answer::Never);
    assert_each_times_out(&server.client(), Duration::from_secs(65), HEADERS).await;
}

#[tokio::test(start_paused = true)]
async fn a_response_without_a_body_times_out_after_30_s() {
    let server = StallingServer::new(|_| Answer::HeadersOnly);
    assert_each_times_out(&server.client(), Duration::from_secs(30), BODY).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_read_to_its_end() -> anyhow::Result<()> {
    let server = StallingServer::new(|_| Answer::Parts(Duration::from_secs(29)));
    let client = server.client();
    let begun = Instant::now();
    client
        .create(&config_map("default", "colors", "blue"))
        .await?;
    assert!(client.get::<ConfigMap>(&key("colors")).await?.is_some());
    assert_eq!(
        client
            .list(&Query::<ConfigMap>::default().labels("app")?)
            .await?
            .len(),
        1
    );
    assert!(client.discover(&config_map_kind()).await?.is_some());
    assert_eq!(begun.elapsed(), Duration::from_secs(4 * 4 * 29));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_request_times_out_in_the_middle_of_a_body() {
    let server = StallingServer::new(|_| Answer::Parts(Duration::from_secs(31)));
    let read = server.client().get::<ConfigMap>(&key("colors")).await;
    assert!(matches!(read, Err(Error::Timeout(BODY))), "{read:?}");
}

/// A page has 500 objects.
#[tokio::test(start_paused = true)]
async fn a_list_times_out_at_each_of_its_pages() -> anyhow::Result<()> {
    for (answer, limit, expected) in [
        (Answer::Never, 65, HEADERS),
        (Answer::HeadersOnly, 30, BODY),
    ] {
        let server = StallingServer::new(move |request| match request.uri().query() {
            Some(query) if query.contains("continue=") => answer,
            _ => Answer::Complete,
        });
        let client = server.client();
        for number in 0..501 {
            let name = format!("colors-{number}");
            client.create(&config_map("default", &name, "blue")).await?;
        }
        let begun = Instant::now();
        let listed = timeout(WEEK, client.list(&Query::<ConfigMap>::default())).await?;
        assert!(
            matches!(listed, Err(Error::Timeout(timeout)) if timeout == expected),
            "{listed:?}"
        );
        assert_eq!(begun.elapsed(), Duration::from_secs(limit));
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn connection_options_set_both_limits() -> anyhow::Result<()> {
    let options = ConnectionOptions {
        response_timeout: Duration::from_secs(3),
        body_timeout: Duration::from_secs(2),
        ..ConnectionOptions::default()
    };
    for (answer, after) in [
        (Answer::Never, options.response_timeout),
        (Answer::HeadersOnly, options.body_timeout),
    ] {
        let server = StallingServer::new(move |_| answer);
        let client = Client::new(Connection::from(server.kube()).with_options(options))?;
        let begun = Instant::now();
        let read = timeout(WEEK, client.get::<ConfigMap>(&key("colors"))).await?;
        assert!(matches!(read, Err(Error::Timeout(_))), "{read:?}");
        assert_eq!(begun.elapsed(), after);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn callers_that_wait_for_the_same_discovery_time_out_together() {
    let server = StallingServer::new(|_| Answer::Never);
    let client = server.client();
    let orders = client.dynamic(&GroupVersionKind::gvk(
        "client.steersman.example",
        "v1",
        "Order",
    ));
    let begun = Instant::now();
    let reads = join_all((0..8).map(|number| {
        let (orders, key) = (orders.clone(), key(&format!("order-{number}")));
        async move { orders.get(&key).await }
    }));
    let reads: Vec<Result<Option<Arc<DynamicObject>>>> = timeout(WEEK, reads)
        .await
        .expect("no request waits for ever");
    assert_eq!(begun.elapsed(), Duration::from_secs(65));
    assert!(
        reads
            .iter()
            .all(|read| matches!(read, Err(Error::Timeout(HEADERS)))),
        "{reads:?}"
    );
}

/// The API server executes the write, and its response is lost.
#[tokio::test(start_paused = true)]
async fn a_read_does_not_wait_for_a_write_that_timed_out() -> anyhow::Result<()> {
    let server = StallingServer::new(|request| match request.method() {
        &Method::POST | &Method::DELETE => Answer::Never,
        _ => Answer::Complete,
    });
    let gate = WatchGate::new(Duration::ZERO);
    let cache = Cache::new(gate.wrap(server.kube()), CacheOptions::default())?;
    let maps = cache.informer::<ConfigMap>()?;
    let running = tokio::spawn(cache.clone().run_until(pending()));
    maps.await_synced().await?;
    let client = server
        .client()
        .with_cache(cache)
        .consistency(Consistency::Block(Duration::from_hours(1)));

    for write in ["create", "delete"] {
        gate.hold();
        let error = match write {
            "create" => timeout(
                WEEK,
                client.create(&config_map("default", "colors", "blue")),
            )
            .await?
            .map(drop),
            _ => timeout(WEEK, client.delete::<ConfigMap>(&key("colors")))
                .await?
                .map(drop),
        }
        .expect_err("its response is lost");
        assert!(matches!(error, Error::WriteTimeout { .. }), "{error}");
        let begun = Instant::now();
        let exists_in_cache = client.get::<ConfigMap>(&key("colors")).await?.is_some();
        client.caught_up().await?;
        assert_eq!(
            (exists_in_cache, begun.elapsed()),
            (write == "delete", Duration::ZERO),
            "{write}"
        );
        assert_eq!(
            (
                maps.stats().own_writes.pending,
                maps.stats().own_writes.writes
            ),
            (0, 0)
        );
        // The watch reports the write later.
        gate.open();
        while maps.get(&key("colors"))?.is_some() != (write == "create") {
            sleep(Duration::from_secs(1)).await;
        }
    }
    running.abort();
    Ok(())
}

/// Both clients of a cache, and that of reads, are built from the configuration.
#[tokio::test]
async fn the_limits_hold_for_clients_built_from_a_configuration() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let config = Config::new(format!("http://{}", listener.local_addr()?).parse()?);
    let accepting = tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            connections.push(connection);
        }
    });
    let limit = Duration::from_millis(50);
    let options = ConnectionOptions {
        response_timeout: limit,
        ..ConnectionOptions::default()
    };
    let connection = Connection::from(config).with_options(options);
    let client = Client::new(connection.clone())?;
    let read = timeout(
        Duration::from_secs(30),
        client.get::<ConfigMap>(&key("colors")),
    )
    .await?;
    assert!(
        matches!(read, Err(Error::Timeout(ResponseTimeout::Headers(timeout))) if timeout == limit),
        "{read:?}"
    );

    let cache = Cache::new(connection, CacheOptions::default())?;
    let listed = cache.informer::<ConfigMap>()?;
    let discovered = cache.informer_of(Select::dynamic(GroupVersionKind::gvk(
        "apps",
        "v1",
        "Deployment",
    )))?;
    let running = tokio::spawn(cache.clone().run_until(pending()));
    let is_degraded = |state: InformerState| match state {
        InformerState::Degraded { error, .. } => error.contains("no response within 50ms"),
        _ => false,
    };
    let degraded = async {
        while !is_degraded(listed.state()) || !is_degraded(discovered.state()) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), degraded).await?;
    running.abort();
    accepting.abort();
    Ok(())
}

/// Creates a rate-limited connection to an API server that answers immediately.
fn limited(rate: Rate) -> (StallingServer, Connection) {
    let server = StallingServer::new(|_| Answer::Complete);
    let options = ConnectionOptions {
        rate_limit: Some(rate),
        ..ConnectionOptions::default()
    };
    let connection = Connection::from(server.kube()).with_options(options);
    (server, connection)
}

#[tokio::test(start_paused = true)]
async fn requests_over_the_rate_limit_wait_in_the_order_in_which_they_were_made()
-> anyhow::Result<()> {
    let (_, connection) = limited(Rate::per_second(10, 3));
    let client = Client::new(connection)?.namespace("default");
    let begun = Instant::now();
    let reads = (0..8).map(async |number| {
        client.get::<ConfigMap>(&key("colors")).await?;
        anyhow::Ok((number, begun.elapsed()))
    });
    let reads = reads.collect::<FuturesUnordered<_>>();
    let reads: Vec<_> = reads.try_collect().await?;
    let expected = [0, 0, 0, 100, 200, 300, 400, 500].map(Duration::from_millis);
    assert_eq!(reads, (0..8).zip(expected).collect::<Vec<_>>());

    // A burst is available again after a pause. Writes and reads share the limit.
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    for name in ["a", "b", "c"] {
        client.create(&config_map("default", name, "blue")).await?;
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    client.delete::<ConfigMap>(&key("a")).await?;
    assert_eq!(begun.elapsed(), Duration::from_millis(100));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn requests_have_no_rate_limit_by_default() -> anyhow::Result<()> {
    let client = StallingServer::new(|_| Answer::Complete).client();
    let begun = Instant::now();
    for _ in 0..1000 {
        client.get::<ConfigMap>(&key("colors")).await?;
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_the_rate_limit_is_not_part_of_the_response_timeout() -> anyhow::Result<()> {
    let (_, connection) = limited(Rate {
        burst: 1,
        every: Duration::from_hours(1),
    });
    let client = Client::new(connection)?;
    let begun = Instant::now();
    for _ in 0..2 {
        client.get::<ConfigMap>(&key("colors")).await?;
    }
    assert_eq!(begun.elapsed(), Duration::from_hours(1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_cache_and_a_client_of_one_connection_share_the_rate_limit() -> anyhow::Result<()> {
    let (_, connection) = limited(Rate {
        burst: 1,
        every: Duration::from_mins(1),
    });
    let client = Client::new(connection.clone())?;
    client.discover(&config_map_kind()).await?;
    let cache = Cache::new(connection, CacheOptions::default())?;
    let maps = cache.informer_of(Select::dynamic(config_map_kind()))?;
    let begun = Instant::now();
    let running = tokio::spawn(cache.clone().run_until(pending()));
    maps.await_synced().await?;
    assert!(begun.elapsed() >= Duration::from_mins(1), "discovery waits");
    running.abort();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn watches_are_exempt_from_the_rate_limit() -> anyhow::Result<()> {
    let (server, connection) = limited(Rate {
        burst: 1,
        every: Duration::from_hours(1),
    });
    Client::new(connection.clone())?
        .get::<ConfigMap>(&key("colors"))
        .await?;
    let cache = Cache::new(connection, CacheOptions::default())?;
    let maps = cache.informer::<ConfigMap>()?;
    let running = tokio::spawn(cache.clone().run_until(pending()));
    let begun = Instant::now();
    // A streaming list is a watch.
    maps.await_synced().await?;
    server
        .client()
        .create(&config_map("default", "colors", "blue"))
        .await?;
    while maps.get(&key("colors"))?.is_none() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(1));
    running.abort();
    Ok(())
}
