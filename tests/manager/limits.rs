//! Time limits of requests, as a manager applies them.

use crate::support::{Running, client, server};
use k8s_openapi::api::core::v1::ConfigMap;
use std::time::Duration;
use steersman::{
    client::{Connection, ConnectionOptions, Error},
    manager::Manager,
    prelude::*,
};
use steersman_apiserver::Fault;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

const WEEK: Duration = Duration::from_hours(7 * 24);

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(serde_json::json!({"metadata": {"namespace": "default", "name": name}})).expect("a map")
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
    let stalled = server.faults().add(Fault::on("get configmaps").delay(WEEK).times(1));
    let (report, mut reconciled) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: Request, _| {
        let (live, report) = (live.clone(), report.clone());
        async move {
            let read = live.get::<ConfigMap>(&request).await;
            report.send((request.name().to_owned(), read.as_ref().map(drop).map_err(Error::is_timeout)))?;
            Ok(read.map(|_| Outcome::done())?)
        }
    });
    handle.controller("maps").for_::<ConfigMap>().max_concurrent(1).reconcile(reconciler)?;
    let begun = Instant::now();
    let running = Running::new(manager);
    let mut results = Vec::new();
    while results.len() < 3 {
        results.push(timeout(WEEK / 2, reconciled.recv()).await?.expect("the controller runs"));
    }
    assert!(begun.elapsed() < Duration::from_secs(70), "{:?}", begun.elapsed());
    assert_eq!((results[0].1, stalled.hits()), (Err(true), 1));
    let first = results[0].0.clone();
    let other = if first == "a" { "b" } else { "a" };
    assert_eq!(results[1..], [(other.to_owned(), Ok(())), (first, Ok(()))], "the stalled one is retried");
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_manager_and_its_clusters_take_connection_options() -> anyhow::Result<()> {
    let (home, abroad) = (server(), server());
    let limited = |server, seconds| {
        let response_timeout = Duration::from_secs(seconds);
        Connection::from(client(server)).with_options(ConnectionOptions { response_timeout, ..Default::default() })
    };
    let manager = Manager::builder(limited(&home, 3)).build()?;
    let cluster = manager.add_cluster("abroad", limited(&abroad, 7))?;
    for (server, client, seconds) in [(&home, manager.client(), 3), (&abroad, cluster.client(), 7)] {
        server.faults().add(Fault::on("get configmaps").delay(WEEK));
        let begun = Instant::now();
        let read = client.live().get::<ConfigMap>(&ObjectKey::new("default", "a")).await;
        assert!(read.is_err_and(|error| error.is_timeout()));
        assert_eq!(begun.elapsed(), Duration::from_secs(seconds));
    }
    Ok(())
}
