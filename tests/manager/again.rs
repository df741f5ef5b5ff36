//! What a review has found: gates and clusters at odd moments, and a lease that is lost late.

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
async fn a_gate_that_leaves_its_context_behind_has_returned_all_the_same() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let left = Arc::new(OnceLock::new());
    let keeps = left.clone();
    manager.add(Stage::Gate, "gate", async move |cx: RunContext| {
        keeps.set(cx).expect("once");
        Ok(())
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    timeout(Duration::from_mins(1), handle.elected()).await?;
    assert!(left.get().is_some());
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_a_gate_adds_is_waited_for_too() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).build()?;
    let (handle, said) = (manager.handle(), log.clone());
    manager.add(Stage::Gate, "first", async move |_cx| {
        handle.add(Stage::Gate, "second", async move |_cx| {
            sleep(Duration::from_secs(5)).await;
            said.say("second passed");
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
async fn a_cluster_can_be_removed_before_the_start_and_keeps_nobody_alive() -> anyhow::Result<()> {
    let (home, abroad) = (server(), server());
    let manager = builder(&home).build()?;
    let cluster = manager.add_cluster("abroad", client(&abroad))?;
    timeout(Duration::from_secs(1), cluster.remove()).await?;
    manager.add_cluster("abroad", client(&abroad))?;
    let held = Arc::new(());
    let (alive, kept) = (Arc::downgrade(&held), manager.handle());
    kept.add_check(steersman::manager::Probe::Ready, "held", move || {
        let _ = &held;
        Ok(())
    });
    drop((manager, kept, cluster));
    until(|| alive.strong_count() == 0).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_while_it_stops_ends_the_leaders_work_before_another_can_lead() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).grace_period(None).leader_election("operator", "default").build()?;
    manager.add(Stage::Leader, "work that does not end", async |_cx| std::future::pending().await)?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    server.faults().add(Fault::on("PUT leases").status(500));
    server.faults().add(Fault::on("PATCH leases").status(500));
    let begun = Instant::now();
    let error = running.stop().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let Some(ManagerError::Several(errors)) = error.downcast_ref() else { panic!("{error}") };
    let [ManagerError::Lost(_), ManagerError::Dropped { left }] = &errors[..] else { panic!("{error}") };
    assert_eq!(left, &["work that does not end"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_left_to_run_out_if_something_of_the_leader_had_to_be_dropped() -> anyhow::Result<()> {
    let server = server();
    let election = LeaderElection { identity: "one".into(), ..LeaderElection::new("operator", "default") };
    let manager = builder(&server).leader_election_with(election).build()?;
    manager.add(Stage::Leader, "deaf one", async |_cx| std::future::pending().await)?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    assert!(running.stop().await.is_err());
    let leases = kube::Api::<k8s_openapi::api::coordination::v1::Lease>::default_namespaced(client(&server));
    let holder = leases.get("operator").await?.spec.and_then(|spec| spec.holder_identity);
    assert_eq!(holder.as_deref(), Some("one"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_stopped_before_it_is_warm_ends_nothing() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).leader_election("operator", "default").build()?;
    let options = Options { warmup: Some(true), ..Options::default() };
    let controller = manager.controller("warm").for_::<ConfigMap>().options(options).reconcile(nothing())?;
    controller.stop().await;
    let handle: ManagerHandle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    sleep(Duration::from_secs(5)).await;
    running.stop().await
}
