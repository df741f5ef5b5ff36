//! Tests of additional clusters.
//!
//! Added and removed at run time, and shown on all pages.

use crate::{
    metrics_lint::lint,
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
async fn clusters_can_be_added_and_removed_while_the_manager_runs() -> anyhow::Result<()> {
    let (local, remote) = (server(), server());
    let manager = builder(&local).build()?;
    let handle = manager.handle();
    let (sender, mut reconciled) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: ClusterRequest, _| {
        sender.send(request.to_string()).expect("the test listens");
        std::future::ready(Ok(Outcome::done()))
    });
    let fleet = handle.controller("fleet").reconcile(reconciler)?;
    let running = Running::new(manager);
    handle.elected().await;

    let cluster = handle.add_cluster("abroad", client(&remote))?;
    assert!(matches!(
        handle.add_cluster("abroad", client(&remote)),
        Err(ManagerError::NameTaken(_))
    ));
    let in_cluster = handler::in_cluster(cluster.name(), handler::object());
    let watch = fleet.watch(Kind::with_cache(
        &cluster.cache(),
        Select::<ConfigMap>::new(),
        in_cluster,
    ))?;
    watch.await_synced().await?;
    let map = serde_json::json!({"metadata": {"namespace": "default", "name": "a"}});
    cluster
        .client()
        .create::<ConfigMap>(&serde_json::from_value(map)?)
        .await?;
    assert_eq!(
        reconciled.recv().await.as_deref(),
        Some("abroad: default/a")
    );

    cluster.remove().await;
    assert!(handle.cluster("abroad").is_none());
    until(|| fleet.watches().is_empty()).await;
    handle.add_cluster("abroad", client(&remote))?;
    running.stop().await
}

async fn check_report(handle: &ManagerHandle, check: &str) -> Option<CheckReport> {
    handle
        .check(Probe::Ready)
        .await
        .into_iter()
        .find(|report| &*report.name == check)
}

#[tokio::test(start_paused = true)]
async fn readyz_and_metrics_include_a_cluster_until_it_is_removed() -> anyhow::Result<()> {
    let (local, remote) = (server(), server());
    let manager = builder(&local).build()?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    let rejected = ["list", "watch"].map(|verb| {
        remote
            .faults()
            .add(Fault::on(&format!("{verb} configmaps")).status(403))
    });
    let cluster = handle.add_cluster("abroad", client(&remote))?;
    assert!(matches!(
        handle.add_cluster("", client(&remote)),
        Err(ManagerError::NameTaken(_))
    ));
    let maps = cluster.cache().informer::<ConfigMap>()?;
    until(|| rejected.iter().any(|rule| rule.hits() > 0)).await;
    let unready = check_report(&handle, "cache/abroad")
        .await
        .and_then(|report| report.failure)
        .unwrap_or_default();
    assert!(
        unready.starts_with("informers not synced: ConfigMap"),
        "{unready}"
    );
    assert_eq!(
        check_report(&handle, "cache")
            .await
            .and_then(|report| report.failure),
        None,
        "the check of the manager's own cache"
    );

    rejected.iter().for_each(RuleHandle::remove);
    maps.await_synced().await?;
    assert_eq!(
        check_report(&handle, "cache/abroad")
            .await
            .map(|report| report.failure),
        Some(None)
    );
    let map = serde_json::json!({"metadata": {"namespace": "default", "name": "a"}});
    cluster
        .client()
        .create::<ConfigMap>(&serde_json::from_value(map)?)
        .await?;
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
        assert!(
            page.lines().any(|line| line == series),
            "{series} in\n{page}"
        );
    }

    cluster.remove().await;
    assert_eq!(check_report(&handle, "cache/abroad").await, None);
    let page = handle.metrics_page();
    assert!(
        !page.contains("abroad") && page.contains("steersman_cache_objects"),
        "{page}"
    );
    let counted = r#"rest_client_requests_total{code="201",method="POST",host=""} 1"#;
    assert!(
        page.lines().any(|line| line == counted),
        "counters do not decrease:\n{page}"
    );
    running.stop().await
}

/// Awaits a future for at most an hour of virtual time.
///
/// Prevents a test from hanging if the manager has stopped.
async fn with_timeout<F: Future>(future: F) -> anyhow::Result<F::Output> {
    Ok(tokio::time::timeout(Duration::from_hours(1), future).await?)
}

/// Returns a client of a server that refuses connections until `reachable` is set.
fn switchable_client(server: &ApiServer, reachable: &Arc<AtomicBool>) -> kube::Client {
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
    client
        .create::<ConfigMap>(&serde_json::from_value(map)?)
        .await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_cluster_does_not_stop_the_manager() -> anyhow::Result<()> {
    let [local, near, far] = [server(), server(), server()];
    let reachable = Arc::new(AtomicBool::new(false));
    let manager = builder(&local).build()?;
    let handle = manager.handle();
    let (sender, mut reconciled) = mpsc::unbounded_channel();
    let at_home = {
        let sender = sender.clone();
        reconcile::from_fn(move |request: Request, _| {
            sender
                .send(format!("home: {request}"))
                .expect("the test listens");
            std::future::ready(Ok(Outcome::done()))
        })
    };
    handle
        .controller("home")
        .for_::<ConfigMap>()
        .reconcile(at_home)?;
    let in_fleet = reconcile::from_fn(move |request: ClusterRequest, _| {
        sender.send(request.to_string()).expect("the test listens");
        std::future::ready(Ok(Outcome::done()))
    });
    let mut fleet = handle.controller("fleet");
    for (name, connection) in [
        ("near", client(&near)),
        ("far", switchable_client(&far, &reachable)),
    ] {
        let cluster = handle.add_cluster(name, connection)?;
        let in_cluster = handler::in_cluster(name, handler::object());
        fleet = fleet.watches_source(Kind::with_cache(
            &cluster.cache(),
            Select::<ConfigMap>::new(),
            in_cluster,
        ));
    }
    fleet.reconcile(in_fleet)?;
    let running = Running::new(manager);
    with_timeout(handle.elected()).await?;

    // Neither the manager nor other controllers wait.
    let begun = Instant::now();
    create_map(&handle.client()).await?;
    assert_eq!(
        with_timeout(reconciled.recv()).await?.as_deref(),
        Some("home: default/a")
    );
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    // The controller that watches the cluster starts without it.
    create_map(
        &handle
            .cluster("near")
            .expect("the cluster was added")
            .client(),
    )
    .await?;
    assert_eq!(
        with_timeout(reconciled.recv()).await?.as_deref(),
        Some("near: default/a")
    );
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );

    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!running.task.is_finished());
    let failure = check_report(&handle, "cache/far")
        .await
        .and_then(|report| report.failure)
        .unwrap_or_default();
    assert!(
        failure.starts_with("informers not synced: ConfigMap")
            && failure.contains("connection refused"),
        "{failure}"
    );
    let synced = |cluster: &str, value: &str| {
        let series = format!(r#"steersman_cache_synced{{cluster="{cluster}",group="","#);
        let page = handle.metrics_page();
        assert!(
            page.lines()
                .any(|line| line.starts_with(&series) && line.ends_with(value)),
            "{series} in\n{page}"
        );
    };
    synced("near", " 1.0");
    synced("far", " 0.0");
    assert!(
        handle
            .check(Probe::Health)
            .await
            .iter()
            .all(|report| report.failure.is_none())
    );

    reachable.store(true, Relaxed);
    create_map(
        &handle
            .cluster("far")
            .expect("the cluster was added")
            .client(),
    )
    .await?;
    assert_eq!(
        with_timeout(reconciled.recv()).await?.as_deref(),
        Some("far: default/a")
    );
    assert_eq!(
        check_report(&handle, "cache/far")
            .await
            .map(|report| report.failure),
        Some(None)
    );
    synced("far", " 1.0");
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_never_responds_delays_the_start_without_failing_it() -> anyhow::Result<()> {
    let local = server();
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>()
    });
    let manager = builder(&local).build()?;
    let handle = manager.handle();
    let cluster = handle.add_cluster("far", kube::Client::new(silent, "default"))?;
    let (sender, mut reconciled) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: ClusterRequest, _| {
        sender.send(request.to_string()).expect("the test listens");
        std::future::ready(Ok(Outcome::done()))
    });
    let in_cluster = handler::in_cluster("far", handler::object());
    let watch = Kind::with_cache(&cluster.cache(), Select::<ConfigMap>::new(), in_cluster);
    let fleet = handle
        .controller("fleet")
        .watches_source(watch)
        .reconcile(reconciler)?;
    fleet.queue().add(ClusterRequest {
        cluster: "other".into(),
        request: Request::new("default", "a"),
    });
    let begun = Instant::now();
    let running = Running::new(manager);
    assert_eq!(
        with_timeout(reconciled.recv()).await?.as_deref(),
        Some("other: default/a")
    );
    // Two minutes for the start of the manager, and two for the start of the controller.
    assert!(
        begun.elapsed() <= Duration::from_secs(241),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        check_report(&handle, "cache/far")
            .await
            .is_some_and(|report| report.failure.is_some())
    );
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn removing_a_cluster_that_never_synced_leaves_the_manager_running() -> anyhow::Result<()> {
    let [local, far] = [server(), server()];
    let manager = builder(&local).build()?;
    let handle = manager.handle();
    let cluster = handle.add_cluster("far", switchable_client(&far, &Arc::default()))?;
    let (sender, mut reconciled) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: ClusterRequest, _| {
        sender.send(request.to_string()).expect("the test listens");
        std::future::ready(Ok(Outcome::done()))
    });
    let in_cluster = handler::in_cluster("far", handler::object());
    let watch = Kind::with_cache(&cluster.cache(), Select::<ConfigMap>::new(), in_cluster);
    let fleet = handle
        .controller("fleet")
        .watches_source(watch)
        .reconcile(reconciler)?;
    let running = Running::new(manager);
    with_timeout(handle.elected()).await?;
    cluster.remove().await;
    fleet.queue().add(ClusterRequest {
        cluster: "other".into(),
        request: Request::new("default", "a"),
    });
    assert_eq!(
        with_timeout(reconciled.recv()).await?.as_deref(),
        Some("other: default/a")
    );
    running.stop().await
}
