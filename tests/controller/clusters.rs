//! Tests of one controller over several clusters, each with its own cache.

use super::{
    fixture::{Fixture, SharedVec, StartedController, owned, recorder, recording, until},
    watch_gate::WatchGate,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use std::{collections::HashMap, sync::Arc, time::Duration};
use steersman::{
    client::Patch,
    controller::{WatchHandle, WatchState},
    prelude::*,
    reconcile::ClusterRequest,
    source::Kind,
    testing::{Embedded, TestServer},
};
use tokio::time::{Instant, sleep};

fn in_cluster(cluster: &str, request: Request) -> ClusterRequest {
    ClusterRequest {
        cluster: cluster.into(),
        request,
    }
}

/// Watches the config maps of a cluster and the secrets that they own.
fn join(
    fleet: &Controller<ClusterRequest>,
    name: &str,
    cluster: &Fixture,
) -> anyhow::Result<[WatchHandle; 2]> {
    let maps = handler::in_cluster(name, handler::object());
    let secrets = handler::in_cluster(name, handler::owner::<ConfigMap>());
    Ok([
        fleet.watch(Kind::with_cache(
            &cluster.cache,
            Select::<ConfigMap>::new(),
            maps,
        ))?,
        fleet.watch(Kind::with_cache(
            &cluster.cache,
            Select::<Secret>::new(),
            secrets,
        ))?,
    ])
}

#[tokio::test(start_paused = true)]
async fn the_same_name_in_two_clusters_is_two_requests() -> anyhow::Result<()> {
    let cluster = || Fixture::of(Embedded::start()?.client()?, "default".into());
    let [eu, us] = [cluster()?, cluster()?];
    let map = eu.client.create(&eu.map("a", "")).await?;
    us.client.create(&us.map("a", "")).await?;
    let (reconciler, mut runs) = recorder();
    let (controller, task) = Controller::builder("fleet").build(reconciler)?;
    let eu_watches = join(&controller, "eu", &eu)?;
    join(&controller, "us", &us)?;
    let running = tokio::spawn(task.run_until(std::future::pending()));

    let mut first = [runs.next().await.0, runs.next().await.0];
    first.sort_by_key(ToString::to_string);
    let [in_eu, in_us] = ["eu", "us"].map(|cluster| in_cluster(cluster, eu.key("a")));
    assert_eq!(first, [in_eu.clone(), in_us.clone()]);
    eu.client.create(&owned(&map, eu.secret("key", ""))).await?;
    runs.expect_because(&in_eu, "Secret default/key created")
        .await;
    us.touch::<ConfigMap>("a").await?;
    runs.expect_because(&in_us, "ConfigMap updated").await;

    // One cluster leaves: its events stop, those of the other continue.
    for watch in &eu_watches {
        watch.stop().await;
    }
    eu.touch::<ConfigMap>("a").await?;
    us.touch::<ConfigMap>("a").await?;
    runs.expect_because(&in_us, "ConfigMap updated").await;
    sleep(Duration::from_mins(1)).await;
    runs.expect_none();
    assert!(eu.cache.informers().is_empty() && us.cache.informers().len() == 2);
    eu.stop().await?;
    us.touch::<ConfigMap>("a").await?;
    runs.expect_because(&in_us, "ConfigMap updated").await;
    controller.stop().await;
    running.await??;
    us.stop().await
}

/// The end of one cache does not affect the other cluster.
#[tokio::test(start_paused = true)]
async fn a_lost_cluster_does_not_affect_the_other_and_can_return() -> anyhow::Result<()> {
    let [eu, us] = [Embedded::start()?, Embedded::start()?];
    let us_cluster = Fixture::new(&us).await?;
    let (reconciler, mut runs) = recorder();
    let fleet = StartedController::new(Controller::builder("fleet").build(reconciler))?;
    join(&fleet, "us", &us_cluster)?[0].await_synced().await?;
    for round in 0..3 {
        let eu_cluster = Fixture::new(&eu).await?;
        eu_cluster.client.create(&eu_cluster.map("a", "")).await?;
        let watches = join(&fleet, "eu", &eu_cluster)?;
        runs.expect(&in_cluster("eu", eu_cluster.key("a"))).await;
        eu_cluster.stop().await?;
        until(|| fleet.watches().len() == 2).await;
        assert!(
            watches
                .iter()
                .all(|watch| matches!(watch.state(), WatchState::Stopped))
        );
        let name = format!("m{round}");
        us_cluster.client.create(&us_cluster.map(&name, "")).await?;
        runs.expect(&in_cluster("us", us_cluster.key(&name))).await;
    }
    fleet.stop().await?;
    us_cluster.stop().await
}

/// Writes of a reconcile are awaited in the cache of each cluster.
#[tokio::test(start_paused = true)]
async fn a_request_is_deferred_until_every_cluster_has_observed_its_writes() -> anyhow::Result<()> {
    let lags = [
        ("eu", Duration::from_secs(1)),
        ("us", Duration::from_secs(3)),
    ];
    let mut clusters = HashMap::new();
    for (name, lag) in lags {
        let connection = WatchGate::new(lag).wrap(Embedded::start()?.client()?);
        let cluster = Fixture::of(connection, "default".into())?;
        cluster.client.create(&cluster.map("a", "")).await?;
        clusters.insert(name, cluster);
    }
    let clients: Arc<Vec<_>> = Arc::new(
        lags.iter()
            .map(|(name, _)| clusters[name].client.clone())
            .collect(),
    );
    let seen = SharedVec::new();
    let (reconciler, _runs) = recording({
        let seen = seen.clone();
        move |request: ClusterRequest, _| {
            let (clients, seen) = (clients.clone(), seen.clone());
            async move {
                let mut shown = Vec::new();
                for client in &*clients {
                    let map = client.get::<ConfigMap>(&request.request).await?;
                    shown.push(
                        map.and_then(|map| map.data.as_ref()?.get("number")?.parse().ok())
                            .unwrap_or(0_u64),
                    );
                }
                let next = shown[0] + 1;
                seen.add((shown, Instant::now()));
                for client in &*clients {
                    let patch = Patch::Merge(json!({"data": {"number": next.to_string()}}));
                    client.patch::<ConfigMap>(&request.request, &patch).await?;
                }
                Ok(Outcome::requeue_after(Duration::from_millis(100)))
            }
        }
    });
    let builder = Controller::builder("fleet");
    let own = handler::wrap(handler::object(), |request| in_cluster("all", request));
    let builder = builder.watches_source(Kind::with_cache(
        &clusters["eu"].cache,
        Select::<ConfigMap>::new(),
        own,
    ));
    // No source watches the other cluster. Its cache is only read.
    let us = clusters["us"].cache.informer::<ConfigMap>()?;
    us.await_synced().await?;
    let fleet = StartedController::new(builder.build(reconciler))?;
    until(|| seen.len() >= 3).await;
    let seen = seen.take();
    let (numbers, times): (Vec<_>, Vec<_>) = seen.into_iter().take(3).unzip();
    assert_eq!(numbers, [[0, 0], [1, 1], [2, 2]]);
    let (waited, slowest) = (times[2] - times[1], lags[1].1);
    assert!(
        slowest <= waited && waited < slowest + Duration::from_millis(200),
        "{waited:?}"
    );
    fleet.stop().await?;
    drop(us);
    for (_, cluster) in clusters {
        cluster.stop().await?;
    }
    Ok(())
}
