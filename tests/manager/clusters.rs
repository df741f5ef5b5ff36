//! Other clusters: they come and go, and are on all pages meanwhile.

use crate::{
    lint::lint,
    support::{Running, builder, client, server, until},
};
use k8s_openapi::api::core::v1::ConfigMap;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    manager::{CheckReport, ManagerError, ManagerHandle, Probe},
    prelude::*,
    reconcile::ClusterRequest,
    source::Kind,
};
use steersman_apiserver::{ApiServer, Fault, RuleHandle};
use tokio::{sync::mpsc, time::Instant};
use tower::ServiceExt as _;

#[tokio::test(start_paused = true)]
async fn clusters_come_and_go_while_it_runs() -> anyhow::Result<()> {
    let (home, abroad) = (server(), server());
    let manager = builder(&home).build()?;
    let handle = manager.handle();
    let (tell, mut told) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: ClusterRequest, _| {
        tell.send(request.to_string()).expect("the test listens");
        std::future::ready(Ok(Outcome::done()))
    });
    let fleet = handle.controller("fleet").reconcile(reconciler)?;
    let running = Running::new(manager);
    handle.elected().await;

    let cluster = handle.add_cluster("abroad", client(&abroad))?;
    assert!(matches!(handle.add_cluster("abroad", client(&abroad)), Err(ManagerError::NameTaken(_))));
    let in_cluster = handler::in_cluster(cluster.name(), handler::object());
    let watch = fleet.watch(Kind::with_cache(&cluster.cache(), Select::<ConfigMap>::new(), in_cluster))?;
    watch.await_synced().await?;
    let map = serde_json::json!({"metadata": {"namespace": "default", "name": "a"}});
    cluster.client().create::<ConfigMap>(&serde_json::from_value(map)?).await?;
    assert_eq!(told.recv().await.as_deref(), Some("abroad: default/a"));

    cluster.remove().await;
    assert!(handle.cluster("abroad").is_none());
    until(|| fleet.watches().is_empty()).await;
    handle.add_cluster("abroad", client(&abroad))?;
    running.stop().await
}

async fn said(handle: &ManagerHandle, check: &str) -> Option<CheckReport> {
    handle.check(Probe::Ready).await.into_iter().find(|report| &*report.name == check)
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_on_readyz_and_in_metrics_until_it_is_removed() -> anyhow::Result<()> {
    let (home, abroad) = (server(), server());
    let manager = builder(&home).build()?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    let refused =
        ["list", "watch"].map(|verb| abroad.faults().add(Fault::on(&format!("{verb} configmaps")).status(403)));
    let cluster = handle.add_cluster("abroad", client(&abroad))?;
    assert!(matches!(handle.add_cluster("", client(&abroad)), Err(ManagerError::NameTaken(_))));
    let maps = cluster.cache().informer::<ConfigMap>()?;
    until(|| refused.iter().any(|rule| rule.hits() > 0)).await;
    let unready = said(&handle, "cache/abroad").await.and_then(|report| report.failure).unwrap_or_default();
    assert!(unready.starts_with("not synced: ConfigMap"), "{unready}");
    assert_eq!(said(&handle, "cache").await.and_then(|report| report.failure), None, "its own is another one");

    refused.iter().for_each(RuleHandle::remove);
    maps.await_synced().await?;
    assert_eq!(said(&handle, "cache/abroad").await.map(|report| report.failure), Some(None));
    let map = serde_json::json!({"metadata": {"namespace": "default", "name": "a"}});
    cluster.client().create::<ConfigMap>(&serde_json::from_value(map)?).await?;
    until(|| maps.stats().objects == 1).await;
    let own = handle.cache().informer::<ConfigMap>()?;
    own.await_synced().await?;
    let page = handle.metrics_page();
    lint(&page).unwrap_or_else(|problems| panic!("{problems:#?} in\n{page}"));
    for series in [
        r#"steersman_cache_objects{cluster="",group="",version="v1",kind="ConfigMap",scope=""} 0.0"#,
        r#"steersman_cache_objects{cluster="abroad",group="",version="v1",kind="ConfigMap",scope=""} 1.0"#,
        r#"rest_client_requests_total{code="201",method="POST",host=""} 1"#,
    ] {
        assert!(page.lines().any(|line| line == series), "{series} in\n{page}");
    }

    cluster.remove().await;
    assert_eq!(said(&handle, "cache/abroad").await, None);
    let page = handle.metrics_page();
    assert!(!page.contains("abroad") && page.contains("steersman_cache_objects"), "{page}");
    let counted = r#"rest_client_requests_total{code="201",method="POST",host=""} 1"#;
    assert!(page.lines().any(|line| line == counted), "a counter does not go back:\n{page}");
    running.stop().await
}

/// Fails after an hour of virtual time, so that a test does not hang if the manager has ended.
async fn soon<F: Future>(future: F) -> anyhow::Result<F::Output> {
    Ok(tokio::time::timeout(Duration::from_hours(1), future).await?)
}

/// A client of a server that refuses connections until `reachable` is set.
fn switched(server: &ApiServer, reachable: &Arc<AtomicBool>) -> kube::Client {
    let (service, reachable) = (server.service(), reachable.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, reachable) = (service.clone(), reachable.load(Relaxed));
        async move {
            if !reachable {
                return Err(tower::BoxError::from("connection refused"));
            }
            service.oneshot(request).await.map_err(Into::into)
        }
    });
    kube::Client::new(service, "default")
}

async fn create_map(client: &Client) -> anyhow::Result<()> {
    let map = serde_json::json!({"metadata": {"namespace": "default", "name": "a"}});
    client.create::<ConfigMap>(&serde_json::from_value(map)?).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_cluster_is_a_state_and_the_manager_runs_on() -> anyhow::Result<()> {
    let [home, near, far] = [server(), server(), server()];
    let reachable = Arc::new(AtomicBool::new(false));
    let manager = builder(&home).build()?;
    let handle = manager.handle();
    let (tell, mut told) = mpsc::unbounded_channel();
    let at_home = {
        let tell = tell.clone();
        reconcile::from_fn(move |request: Request, _| {
            tell.send(format!("home: {request}")).expect("the test listens");
            std::future::ready(Ok(Outcome::done()))
        })
    };
    handle.controller("home").for_::<ConfigMap>().reconcile(at_home)?;
    let in_fleet = reconcile::from_fn(move |request: ClusterRequest, _| {
        tell.send(request.to_string()).expect("the test listens");
        std::future::ready(Ok(Outcome::done()))
    });
    let mut fleet = handle.controller("fleet");
    for (name, connection) in [("near", client(&near)), ("far", switched(&far, &reachable))] {
        let cluster = handle.add_cluster(name, connection)?;
        let in_cluster = handler::in_cluster(name, handler::object());
        fleet = fleet.watches_source(Kind::with_cache(&cluster.cache(), Select::<ConfigMap>::new(), in_cluster));
    }
    fleet.reconcile(in_fleet)?;
    let running = Running::new(manager);
    soon(handle.elected()).await?;

    // Neither the manager nor other controllers wait.
    let begun = Instant::now();
    create_map(&handle.client()).await?;
    assert_eq!(soon(told.recv()).await?.as_deref(), Some("home: default/a"));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // The controller that watches the cluster starts without it.
    create_map(&handle.cluster("near").expect("it was added").client()).await?;
    assert_eq!(soon(told.recv()).await?.as_deref(), Some("near: default/a"));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());

    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!running.task.is_finished());
    let failure = said(&handle, "cache/far").await.and_then(|report| report.failure).unwrap_or_default();
    assert!(failure.starts_with("not synced: ConfigMap") && failure.contains("connection refused"), "{failure}");
    let synced = |cluster: &str, value: &str| {
        let series = format!(r#"steersman_cache_synced{{cluster="{cluster}",group="","#);
        let page = handle.metrics_page();
        assert!(page.lines().any(|line| line.starts_with(&series) && line.ends_with(value)), "{series} in\n{page}");
    };
    synced("near", " 1.0");
    synced("far", " 0.0");
    assert!(handle.check(Probe::Health).await.iter().all(|report| report.failure.is_none()));

    reachable.store(true, Relaxed);
    create_map(&handle.cluster("far").expect("it was added").client()).await?;
    assert_eq!(soon(told.recv()).await?.as_deref(), Some("far: default/a"));
    assert_eq!(said(&handle, "cache/far").await.map(|report| report.failure), Some(None));
    synced("far", " 1.0");
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_never_answers_delays_the_start_and_does_not_fail_it() -> anyhow::Result<()> {
    let home = server();
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>()
    });
    let manager = builder(&home).build()?;
    let handle = manager.handle();
    let cluster = handle.add_cluster("far", kube::Client::new(silent, "default"))?;
    let (tell, mut told) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: ClusterRequest, _| {
        tell.send(request.to_string()).expect("the test listens");
        std::future::ready(Ok(Outcome::done()))
    });
    let in_cluster = handler::in_cluster("far", handler::object());
    let watch = Kind::with_cache(&cluster.cache(), Select::<ConfigMap>::new(), in_cluster);
    let fleet = handle.controller("fleet").watches_source(watch).reconcile(reconciler)?;
    fleet.queue().add(ClusterRequest { cluster: "other".into(), request: Request::new("default", "a") });
    let begun = Instant::now();
    let running = Running::new(manager);
    assert_eq!(soon(told.recv()).await?.as_deref(), Some("other: default/a"));
    // Two minutes for the start of the manager, and two for that of the controller.
    assert!(begun.elapsed() <= Duration::from_secs(241), "{:?}", begun.elapsed());
    assert!(said(&handle, "cache/far").await.is_some_and(|report| report.failure.is_some()));
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn removing_a_cluster_that_never_synced_leaves_the_manager_running() -> anyhow::Result<()> {
    let [home, far] = [server(), server()];
    let manager = builder(&home).build()?;
    let handle = manager.handle();
    let cluster = handle.add_cluster("far", switched(&far, &Arc::default()))?;
    let (tell, mut told) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: ClusterRequest, _| {
        tell.send(request.to_string()).expect("the test listens");
        std::future::ready(Ok(Outcome::done()))
    });
    let in_cluster = handler::in_cluster("far", handler::object());
    let watch = Kind::with_cache(&cluster.cache(), Select::<ConfigMap>::new(), in_cluster);
    let fleet = handle.controller("fleet").watches_source(watch).reconcile(reconciler)?;
    let running = Running::new(manager);
    soon(handle.elected()).await?;
    cluster.remove().await;
    fleet.queue().add(ClusterRequest { cluster: "other".into(), request: Request::new("default", "a") });
    assert_eq!(soon(told.recv()).await?.as_deref(), Some("other: default/a"));
    running.stop().await
}
