//! Other clusters: they come and go, and are on all pages meanwhile.

use crate::{
    lint::lint,
    support::{Running, builder, client, server, until},
};
use k8s_openapi::api::core::v1::ConfigMap;
use steersman::{
    manager::{CheckReport, ManagerError, ManagerHandle, Probe},
    prelude::*,
    reconcile::ClusterRequest,
    source::Kind,
};
use steersman_apiserver::{Fault, RuleHandle};
use tokio::sync::mpsc;

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
