//! Tests of the start order of runnables.

use crate::support::{Log, Running, builder, client, nothing, server, until};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use std::time::Duration;
use steersman::{
    cache::InformerState,
    controller::Options,
    manager::{ManagerError, Probe, RunContext, Stage},
    prelude::*,
};
use steersman_apiserver::Fault;
use tokio::{sync::mpsc, time::Instant};

const STAGES: [(Stage, &str); 5] = [
    (Stage::Leader, "leader"),
    (Stage::Controllers, "controllers"),
    (Stage::Other, "other"),
    (Stage::Cache, "feed"),
    (Stage::Server, "server"),
];

#[tokio::test(start_paused = true)]
async fn stages_start_in_order_and_stop_in_reverse() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).build()?;
    for (stage, name) in STAGES {
        log.runnable(&manager, stage, name);
    }
    let gate = log.clone();
    manager.add(Stage::Gate, "gate", async move |_cx| {
        tokio::time::sleep(Duration::from_secs(5)).await;
        gate.push("gate passed");
        Ok(())
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    until(|| log.all().len() == 6).await;
    running.stop().await?;
    let expected = [
        "server runs",
        "feed runs",
        "other runs",
        "gate passed",
        "controllers runs",
        "leader runs",
        "leader stops",
        "controllers stops",
        "other stops",
        "feed stops",
        "server stops",
    ];
    assert_eq!(log.all(), expected);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stage_starts_after_the_previous_one_is_ready() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).build()?;
    log.runnable(&manager, Stage::Other, "other");
    let slow = log.clone();
    manager.add(Stage::Server, "slow server", async move |cx: RunContext| {
        tokio::time::sleep(Duration::from_mins(1)).await;
        slow.push("server ready");
        cx.ready();
        cx.stopped().await;
        Ok(())
    })?;
    let running = Running::new(manager);
    until(|| log.all().len() == 2).await;
    assert_eq!(log.all(), ["server ready", "other runs"]);
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn no_reconcile_starts_before_every_gate_has_returned() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).build()?;
    for (name, needs_leader) in [("leading", true), ("always", false)] {
        let reconciled = log.clone();
        let reconciler = reconcile::from_fn(move |_: Request, _| {
            reconciled.push("reconciled");
            std::future::ready(Ok(Outcome::done()))
        });
        let options = Options {
            needs_leader: Some(needs_leader),
            ..Options::default()
        };
        let controller = manager
            .controller(name)
            .options(options)
            .reconcile(reconciler)?;
        controller.queue().add(Request::new("default", "a"));
    }
    let gate = log.clone();
    manager.add(Stage::Gate, "gate", async move |_cx| {
        tokio::time::sleep(Duration::from_secs(5)).await;
        gate.push("gate passed");
        Ok(())
    })?;
    let running = Running::new(manager);
    until(|| log.all().len() == 3).await;
    assert_eq!(log.all(), ["gate passed", "reconciled", "reconciled"]);
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn the_caches_of_all_clusters_sync_before_later_stages_start() -> anyhow::Result<()> {
    let (local, remote) = (server(), server());
    for (server, delay) in [(&local, 10), (&remote, 20)] {
        server
            .faults()
            .add(Fault::on("list configmaps").delay(Duration::from_secs(delay)));
        server
            .faults()
            .add(Fault::on("watch configmaps").delay(Duration::from_secs(delay)));
    }
    let manager = builder(&local).build()?;
    let cluster = manager.add_cluster("abroad", client(&remote))?;
    let informers = [
        manager.cache().informer::<ConfigMap>()?,
        cluster.cache().informer::<ConfigMap>()?,
    ];
    let (sender, mut is_synced) = mpsc::unbounded_channel();
    manager.add(Stage::Other, "reader", async move |_cx| {
        for informer in &informers {
            sender.send(informer.list(&Query::default()).is_ok())?;
        }
        Ok(())
    })?;
    let running = Running::new(manager);
    assert_eq!(
        (is_synced.recv().await, is_synced.recv().await),
        (Some(true), Some(true))
    );
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_fails_the_start_unless_it_is_optional() -> anyhow::Result<()> {
    let server = server();
    for verb in ["list", "watch"] {
        server
            .faults()
            .add(Fault::on(&format!("{verb} secrets")).status(403));
    }
    let manager = builder(&server).build()?;
    let optional = Select::<Secret>::new().optional();
    let _held = manager.cache().informer_of(optional.clone())?;
    manager
        .controller("a")
        .for_::<ConfigMap>()
        .watches_with(optional, handler::object())
        .reconcile(nothing())?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    running.stop().await?;

    let manager = builder(&server).build()?;
    manager
        .controller("b")
        .for_::<ConfigMap>()
        .watches::<Secret>(handler::object())
        .reconcile(nothing())?;
    let handle = manager.handle();
    let begun = Instant::now();
    let running = Running::new(manager);
    until(|| begun.elapsed() > Duration::from_secs(10)).await;
    let unready = handle.check(Probe::Ready).await;
    let of_cache = unready
        .iter()
        .find(|check| &*check.name == "cache")
        .and_then(|check| check.failure.clone());
    assert!(
        of_cache.is_some_and(|failure| failure.contains("Secret")),
        "{unready:?}"
    );
    let error = running
        .task
        .await?
        .expect_err("secrets are required")
        .to_string();
    assert!(
        error.contains("cache") && error.contains("Secret"),
        "{error}"
    );
    assert_eq!(begun.elapsed().as_secs(), 120);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_optional_informer_delays_the_start_until_its_first_response() -> anyhow::Result<()> {
    let server = server();
    server
        .faults()
        .add(Fault::on("watch secrets").delay(Duration::from_secs(20)));
    let manager = builder(&server).build()?;
    let held = manager
        .cache()
        .informer_of(Select::<Secret>::new().optional())?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    assert_eq!(held.state(), InformerState::Synced);
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn runnables_added_later_start_at_once_and_are_rejected_after_the_stop() -> anyhow::Result<()>
{
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).build()?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    for (stage, name) in STAGES {
        log.runnable(&handle, stage, name);
    }
    let late = log.clone();
    handle.add(Stage::Gate, "late gate", async move |_cx| {
        late.push("late gate");
        Ok(())
    })?;
    let controller = handle
        .controller("late")
        .for_::<ConfigMap>()
        .reconcile(nothing())?;
    until(|| log.all().len() == 6).await;
    assert_eq!(controller.watches().len(), 1);
    running.stop().await?;
    for (stage, name) in STAGES {
        let rejected = handle.add(stage, name, async |_cx| Ok(()));
        assert!(matches!(rejected, Err(ManagerError::Stopping(index)) if index == name));
    }
    assert!(
        handle
            .controller("too late")
            .for_::<ConfigMap>()
            .reconcile(nothing())
            .is_err()
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_controller_name_is_reserved_until_the_controller_has_stopped() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let handle = manager.handle();
    let first = handle.controller::<Request>("a").reconcile(nothing())?;
    let taken = handle
        .controller::<Request>("a")
        .reconcile(nothing())
        .unwrap_err();
    assert_eq!(
        taken.to_string(),
        "cannot add controller a: the manager already has one of this name; choose another name"
    );
    let running = Running::new(manager);
    handle.elected().await;
    first.stop().await;
    until(|| {
        handle
            .controller::<Request>("a")
            .reconcile(nothing())
            .is_ok()
    })
    .await;
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_manager_is_ready_when_it_has_started_and_all_checks_pass() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let handle = manager.handle();
    let failing = async || -> Vec<String> {
        let failing = handle
            .check(Probe::Ready)
            .await
            .into_iter()
            .filter(|check| check.failure.is_some());
        failing.map(|check| check.name.to_string()).collect()
    };
    let warm = handle.readiness("warm");
    assert_eq!(failing().await, ["started", "warm"]);
    let running = Running::new(manager);
    handle.elected().await;
    assert_eq!(failing().await, ["warm"]);
    warm.ready();
    assert!(failing().await.is_empty());
    warm.not_ready("cold");
    assert_eq!(failing().await, ["warm"]);
    drop(warm);
    assert!(failing().await.is_empty());
    handle.add_check(Probe::Ready, "panics", || panic!("asked"));
    assert_eq!(failing().await, ["panics"]);
    running.stop().await
}
