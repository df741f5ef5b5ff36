//! Tests of the ways in which a manager ends.

use crate::support::{Log, Running, builder, nothing, server, until};
use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use std::{future::pending, sync::Arc, time::Duration};
use steersman::manager::{ManagerError, Probe, RunContext, Stage};
use steersman_apiserver::Fault;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, sleep},
};

/// Runnable that ignores the stop request.
async fn ignore_stop(_cx: RunContext) -> anyhow::Result<()> {
    pending().await
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_exceeds_the_grace_period_is_dropped_and_named() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    manager.add(Stage::Other, "unresponsive", ignore_stop)?;
    manager.add(Stage::Leader, "unresponsive leader", ignore_stop)?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    let begun = Instant::now();
    let error = running.stop().await.unwrap_err();
    assert_eq!(
        begun.elapsed().as_secs(),
        31,
        "the grace period and one second for the waiting stages"
    );
    assert_eq!(
        error.to_string(),
        "tasks dropped after the grace period of 30 s: unresponsive leader, unresponsive"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_of_zero_drops_runnables_without_an_error() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server)
        .grace_period(Some(Duration::ZERO))
        .build()?;
    manager.add(Stage::Other, "unresponsive", ignore_stop)?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    let begun = Instant::now();
    running.stop().await?;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn without_a_grace_period_the_manager_waits_for_all_runnables() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).grace_period(None).build()?;
    let slow = log.clone();
    manager.add(Stage::Other, "slow one", async move |cx: RunContext| {
        cx.stopped().await;
        tokio::time::sleep(Duration::from_hours(24)).await;
        slow.push("done");
        Ok(())
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    running.stop().await?;
    assert_eq!(log.all(), ["done"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_fails_or_panics_stops_the_manager_and_is_named() -> anyhow::Result<()> {
    for panics in [false, true] {
        let (server, log) = (server(), Log::default());
        let manager = builder(&server).build()?;
        log.runnable(&manager, Stage::Server, "server");
        manager.add(Stage::Leader, "bad one", async move |_cx| {
            assert!(!panics, "no luck");
            Err(anyhow::anyhow!("no luck"))
        })?;
        let error = manager.run_until(pending()).await.unwrap_err();
        let expected = if panics {
            "bad one: panicked: no luck"
        } else {
            "bad one: no luck"
        };
        assert_eq!(error.to_string(), expected);
        assert_eq!(
            log.all(),
            ["server runs", "server stops"],
            "the others stop in order"
        );
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_error_names_failed_and_dropped_runnables() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    manager.add(Stage::Other, "unresponsive", ignore_stop)?;
    manager.add(Stage::Leader, "bad one", async |_cx| {
        Err(anyhow::anyhow!("no luck"))
    })?;
    let error = manager.run_until(pending()).await.unwrap_err();
    let Some(ManagerError::Several(errors)) = error.downcast_ref() else {
        panic!("{error}")
    };
    assert!(
        matches!(
            &errors[..],
            [ManagerError::Failed { .. }, ManagerError::Grace { .. }]
        ),
        "{error}"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_returns_ok_does_not_stop_the_manager() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).build()?;
    manager.add(Stage::Leader, "short one", async |_cx| Ok(()))?;
    log.runnable(&manager, Stage::Leader, "long one");
    let running = Running::new(manager);
    until(|| !log.all().is_empty()).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!running.task.is_finished());
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_manager_can_be_stopped_while_it_starts() -> anyhow::Result<()> {
    let server = server();
    for verb in ["list", "watch"] {
        server
            .faults()
            .add(Fault::on(&format!("{verb} configmaps")).status(403));
    }
    let manager = builder(&server).build()?;
    manager
        .controller("a")
        .for_::<ConfigMap>()
        .reconcile(nothing())?;
    let log = Log::default();
    log.runnable(&manager, Stage::Leader, "leader");
    let begun = Instant::now();
    let running = Running::new(manager);
    tokio::time::sleep(Duration::from_secs(5)).await;
    running.stop().await?;
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert!(log.all().is_empty(), "the stage did not start");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn all_failed_runnables_are_named_even_during_a_stop() -> anyhow::Result<()> {
    let server = server();
    for is_stopping in [false, true] {
        let manager = builder(&server).build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        manager.add(Stage::Server, "one", async |_cx| {
            Err(anyhow::anyhow!("no luck"))
        })?;
        manager.add(Stage::Server, "two", async move |_cx| {
            drop(stop);
            Err(anyhow::anyhow!("bad luck"))
        })?;
        manager.add(Stage::Server, "three", async |cx: RunContext| {
            cx.stopped().await;
            Err(anyhow::anyhow!("not saved"))
        })?;
        let until = async move {
            drop(stopped.await);
            if !is_stopping {
                pending::<()>().await;
            }
        };
        let error = manager.run_until(until).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "one: no luck; then two: bad luck; then three: not saved",
            "{is_stopping}"
        );
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_is_an_error_only_before_the_stop() -> anyhow::Result<()> {
    let server = server();
    for is_stopping in [true, false] {
        let manager = builder(&server).build()?;
        manager.add(
            Stage::Leader,
            "waits for a task",
            async move |cx: RunContext| {
                let task = tokio::spawn(pending::<()>());
                if is_stopping {
                    cx.stopped().await;
                }
                task.abort();
                task.await.context("own task")
            },
        )?;
        let handle = manager.handle();
        manager.add(
            Stage::Leader,
            "adds too late",
            async move |cx: RunContext| {
                cx.stopped().await;
                handle.add(Stage::Server, "late", async |_cx| Ok(()))?;
                Ok(())
            },
        )?;
        let handle = manager.handle();
        let running = Running::new(manager);
        if is_stopping {
            handle.elected().await;
            running.stop().await?;
        } else {
            let error = running.task.await?.unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("waits for a task: own task: task "),
                "{error}"
            );
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn nothing_can_be_added_while_the_manager_stops() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).build()?;
    let (handle, log_clone) = (manager.handle(), log.clone());
    manager.add(Stage::Leader, "adds", async move |cx: RunContext| {
        cx.stopped().await;
        for stage in [
            Stage::Server,
            Stage::Cache,
            Stage::Other,
            Stage::Gate,
            Stage::Controllers,
            Stage::Leader,
        ] {
            let rejected = handle
                .add(stage, "late", async |_cx| panic!("it runs"))
                .unwrap_err();
            log_clone.push(rejected.to_string());
        }
        let rejected = handle
            .add_cluster("abroad", handle.client().kube().clone())
            .unwrap_err();
        log_clone.push(rejected.to_string());
        anyhow::ensure!(handle.cluster("abroad").is_none());
        Ok(())
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    running.stop().await?;
    let rejected = |index: &str| format!("cannot add {index}: the manager is stopping");
    let expected = [
        vec![rejected("late"); 6],
        vec![rejected("cache of cluster abroad")],
    ]
    .concat();
    assert_eq!(log.all(), expected);
    Ok(())
}

#[tokio::test]
async fn dropping_a_manager_leaves_no_tasks() -> anyhow::Result<()> {
    let server = server();
    let before = Handle::current().metrics().num_alive_tasks();
    for runs in [false, true] {
        let manager = builder(&server).build()?;
        let handle = manager.handle();
        let held = Arc::new(());
        let (alive, kept) = (Arc::downgrade(&held), handle.clone());
        manager.add(
            Stage::Leader,
            "owns its manager",
            async move |cx: RunContext| {
                let _both = (held, kept);
                cx.stopped().await;
                Ok(())
            },
        )?;
        if runs {
            let running = Running::new(manager);
            handle.elected().await;
            running.task.abort();
            assert!(running.task.await.unwrap_err().is_cancelled());
        } else {
            drop(manager);
        }
        drop(handle);
        until(|| {
            alive.strong_count() == 0 && Handle::current().metrics().num_alive_tasks() <= before
        })
        .await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stopping_manager_is_not_ready() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let (tell, stopping) = oneshot::channel();
    manager.add(Stage::Leader, "slow one", async move |cx: RunContext| {
        cx.stopped().await;
        let _ = tell.send(());
        sleep(Duration::from_secs(10)).await;
        Ok(())
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    let unready = async || {
        let checks = handle.check(Probe::Ready).await;
        checks
            .into_iter()
            .find(|check| &*check.name == "started")
            .and_then(|check| check.failure)
    };
    assert_eq!(unready().await, None);
    let stopped = tokio::spawn(running.stop());
    stopping.await?;
    assert!(unready().await.is_some_and(|why| why.contains("stopping")));
    stopped.await?
}
