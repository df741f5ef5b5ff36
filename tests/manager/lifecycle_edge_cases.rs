//! Regression tests: gates, clusters, leases and controllers at unusual times.

use crate::support::{Log, Running, builder, client, nothing, server, until};
use k8s_openapi::api::core::v1::ConfigMap;
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use steersman::{
    controller::Options,
    manager::{ManagerError, ManagerHandle, RunContext, Stage, election::LeaderElection},
};
use steersman_apiserver::Fault;
use tokio::time::{Instant, sleep, timeout};

#[tokio::test(start_paused = true)]
async fn a_gate_has_returned_even_if_its_context_is_kept() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let kept = Arc::new(OnceLock::new());
    let kept_context = kept.clone();
    manager.add(Stage::Gate, "gate", async move |cx: RunContext| {
        kept_context.set(cx).expect("once");
        Ok(())
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    timeout(Duration::from_mins(1), handle.elected()).await?;
    assert!(kept.get().is_some());
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn the_manager_waits_for_a_gate_that_a_gate_adds() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).build()?;
    let (handle, second_log) = (manager.handle(), log.clone());
    manager.add(Stage::Gate, "first", async move |_cx| {
        handle.add(Stage::Gate, "second", async move |_cx| {
            sleep(Duration::from_secs(5)).await;
            second_log.push("second passed");
            Ok(())
        })?;
        Ok(())
    })?;
    log.runnable(&manager, Stage::Leader, "leader");
    let running = Running::new(manager);
    until(|| log.all().len() == 2).await;
    assert_eq!(log.all(), ["second passed", "leader runs"]);
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_cluster_can_be_removed_before_the_start_without_a_leak() -> anyhow::Result<()> {
    let (home, abroad) = (server(), server());
    let manager = builder(&home).build()?;
    let cluster = manager.add_cluster("abroad", client(&abroad))?;
    timeout(Duration::from_secs(1), cluster.remove()).await?;
    manager.add_cluster("abroad", client(&abroad))?;
    let held = Arc::new(());
    let (alive, handle) = (Arc::downgrade(&held), manager.handle());
    handle.add_check(steersman::manager::Probe::Ready, "held", move || {
        let _ = &held;
        Ok(())
    });
    drop((manager, handle, cluster));
    until(|| alive.strong_count() == 0).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn losing_the_lease_during_the_stop_drops_the_leaders_work() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server)
        .grace_period(None)
        .leader_election("operator", "default")
        .build()?;
    manager.add(Stage::Leader, "work that does not end", async |_cx| {
        std::future::pending().await
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    server.faults().add(Fault::on("PUT leases").status(500));
    server.faults().add(Fault::on("PATCH leases").status(500));
    let begun = Instant::now();
    let error = running.stop().await.unwrap_err();
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    let Some(ManagerError::Several(errors)) = error.downcast_ref() else {
        panic!("{error}")
    };
    let [ManagerError::Lost(_), ManagerError::Dropped { left: kept }] = &errors[..] else {
        panic!("{error}")
    };
    assert_eq!(kept, &["work that does not end"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_not_released_if_work_of_the_leader_was_dropped() -> anyhow::Result<()> {
    let server = server();
    let election = LeaderElection {
        identity: "one".into(),
        ..LeaderElection::new("operator", "default")
    };
    let manager = builder(&server).leader_election_with(election).build()?;
    manager.add(Stage::Leader, "unresponsive", async |_cx| {
        std::future::pending().await
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    assert!(running.stop().await.is_err());
    let leases =
        kube::Api::<k8s_openapi::api::coordination::v1::Lease>::default_namespaced(client(&server));
    let holder = leases
        .get("operator")
        .await?
        .spec
        .and_then(|spec| spec.holder_identity);
    assert_eq!(holder.as_deref(), Some("one"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_controller_stopped_before_its_warm_up_does_not_stop_the_manager() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server)
        .leader_election("operator", "default")
        .build()?;
    let options = Options {
        warmup: Some(true),
        ..Options::default()
    };
    let controller = manager
        .controller("warm")
        .for_::<ConfigMap>()
        .options(options)
        .reconcile(nothing())?;
    controller.stop().await;
    let handle: ManagerHandle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    sleep(Duration::from_secs(5)).await;
    running.stop().await
}
