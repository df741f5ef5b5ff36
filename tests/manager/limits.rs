//! Tests of timeouts and rate limits of a manager's requests.

use crate::support::{Running, client, server};
use futures::stream;
use http::{Method, Response};
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    client::{Connection, ConnectionOptions, Error, Rate},
    manager::{
        Manager,
        election::{Elector, LeaderElection},
    },
    prelude::*,
};
use steersman_apiserver::{ApiServer, Fault};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tower::{BoxError, ServiceExt as _, service_fn};

const WEEK: Duration = Duration::from_hours(7 * 24);

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(serde_json::json!({"metadata": {"namespace": "default", "name": name}}))
        .expect("a map")
}

#[tokio::test(start_paused = true)]
async fn a_worker_continues_after_a_request_without_a_response() -> anyhow::Result<()> {
    let server = server();
    let manager = Manager::builder(client(&server)).build()?;
    let handle = manager.handle();
    let live = handle.client().live();
    for name in ["a", "b"] {
        live.create(&map(name)).await?;
    }
    let stalled = server
        .faults()
        .add(Fault::on("get configmaps").delay(WEEK).times(1));
    let (report, mut reconciled) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: Request, _| {
        let (live, report) = (live.clone(), report.clone());
        async move {
            let read = live.get::<ConfigMap>(&request).await;
            report.send((
                request.name().to_owned(),
                read.as_ref().map(drop).map_err(Error::is_timeout),
            ))?;
            Ok(read.map(|_| Outcome::done())?)
        }
    });
    handle
        .controller("maps")
        .for_::<ConfigMap>()
        .max_concurrent(1)
        .reconcile(reconciler)?;
    let begun = Instant::now();
    let running = Running::new(manager);
    let mut results = Vec::new();
    while results.len() < 3 {
        results.push(
            timeout(WEEK / 2, reconciled.recv())
                .await?
                .expect("the controller runs"),
        );
    }
    assert!(
        begun.elapsed() < Duration::from_secs(70),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!((results[0].1, stalled.hits()), (Err(true), 1));
    let first = results[0].0.clone();
    let other = if first == "a" { "b" } else { "a" };
    assert_eq!(
        results[1..],
        [(other.to_owned(), Ok(())), (first, Ok(()))],
        "the stalled one is retried"
    );
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_manager_and_its_clusters_take_connection_options() -> anyhow::Result<()> {
    let (home, abroad) = (server(), server());
    let limited = |server, seconds| {
        let response_timeout = Duration::from_secs(seconds);
        Connection::from(client(server)).with_options(ConnectionOptions {
            response_timeout,
            ..Default::default()
        })
    };
    let manager = Manager::builder(limited(&home, 3)).build()?;
    let cluster = manager.add_cluster("abroad", limited(&abroad, 7))?;
    for (server, client, seconds) in [(&home, manager.client(), 3), (&abroad, cluster.client(), 7)]
    {
        server.faults().add(Fault::on("get configmaps").delay(WEEK));
        let begun = Instant::now();
        let read = client
            .live()
            .get::<ConfigMap>(&ObjectKey::new("default", "a"))
            .await;
        assert!(read.is_err_and(|error| error.is_timeout()));
        assert_eq!(begun.elapsed(), Duration::from_secs(seconds));
    }
    Ok(())
}

/// One request per hour is allowed, and a reader waits for it all the time.
#[tokio::test(start_paused = true)]
async fn the_rate_limit_does_not_delay_leader_election() -> anyhow::Result<()> {
    let server = server();
    let options = ConnectionOptions {
        rate_limit: Some(Rate {
            burst: 1,
            every: Duration::from_hours(1),
        }),
        ..ConnectionOptions::default()
    };
    let connection = Connection::from(client(&server)).with_options(options);
    let manager = Manager::builder(connection)
        .leader_election_with(LeaderElection::new("operator", "default"))
        .build()?;
    let handle = manager.handle();
    let live = handle.client().live();
    live.get::<ConfigMap>(&ObjectKey::new("default", "a"))
        .await?;
    let waiting =
        tokio::spawn(async move { live.get::<ConfigMap>(&ObjectKey::new("default", "a")).await });
    let begun = Instant::now();
    let running = Running::new(manager);
    timeout(Duration::from_secs(1), handle.elected()).await?;
    tokio::time::sleep(Duration::from_mins(50)).await;
    assert!(!waiting.is_finished());
    assert!(!running.task.is_finished(), "the manager still leads");
    waiting.await??;
    assert_eq!(begun.elapsed(), Duration::from_hours(1));
    running.stop().await
}

/// Returns a client of the server that stalls the first response to this method.
///
/// The response is lost, or stops after its headers.
fn stalling(server: &ApiServer, method: Method, sends_headers: bool) -> kube::Client {
    let service = server.service();
    let stalled = Arc::new(AtomicBool::new(false));
    let service = service_fn(move |request: http::Request<Body>| {
        let stalls = *request.method() == method && !stalled.swap(true, Relaxed);
        let response = service.clone().oneshot(request);
        async move {
            let (head, body) = response.await?.into_parts();
            let body = match (stalls, sends_headers) {
                (false, _) => body.map_err(BoxError::from).boxed_unsync(),
                (true, false) => return pending().await,
                (true, true) => StreamBody::new(stream::pending()).boxed_unsync(),
            };
            Ok::<_, BoxError>(Response::from_parts(head, body))
        }
    });
    kube::Client::new(service, "default")
}

/// The timeout of a lease request is half of the renew deadline, 5 s.
#[tokio::test(start_paused = true)]
async fn an_elector_repeats_lease_requests_that_stall() -> anyhow::Result<()> {
    for sends_headers in [false, true] {
        for method in [Method::GET, Method::POST, Method::PUT] {
            let server = server();
            let client = stalling(&server, method.clone(), sends_headers);
            let elector = Elector::new(client, LeaderElection::new("operator", "default"))?;
            let begun = Instant::now();
            let mut leadership = timeout(WEEK, elector.acquire(pending()))
                .await?
                .expect("not stopped");
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "{method}: {:?}",
                begun.elapsed()
            );
            let minute = tokio::time::sleep(Duration::from_mins(1));
            leadership.hold(minute).await?;
            leadership.release().await?;
        }
    }
    Ok(())
}
