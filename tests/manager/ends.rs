//! How it ends. Catalogue row 57.

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

/// One that does not care.
async fn deaf(_cx: RunContext) -> anyhow::Result<()> {
    pending().await
}

#[tokio::test(start_paused = true)]
async fn who_does_not_stop_within_the_grace_period_is_dropped_and_named() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    manager.add(Stage::Other, "deaf one", deaf)?;
    manager.add(Stage::Leader, "deaf leader", deaf)?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    let begun = Instant::now();
    let error = running.stop().await.unwrap_err();
    assert_eq!(begun.elapsed().as_secs(), 31, "the grace period, and a moment for the stages that were kept waiting");
    assert_eq!(error.to_string(), "not stopped within the grace period of 30 s, and dropped: deaf leader, deaf one");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn without_a_grace_period_nothing_is_waited_for_and_nothing_is_said() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).grace_period(Some(Duration::ZERO)).build()?;
    manager.add(Stage::Other, "deaf one", deaf)?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    let begun = Instant::now();
    running.stop().await?;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn with_an_infinite_one_everything_is() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).grace_period(None).build()?;
    let slow = log.clone();
    manager.add(Stage::Other, "slow one", async move |cx: RunContext| {
        cx.stopped().await;
        tokio::time::sleep(Duration::from_hours(24)).await;
        slow.say("done");
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
async fn who_fails_or_panics_ends_it_and_is_named() -> anyhow::Result<()> {
    for panics in [false, true] {
        let (server, log) = (server(), Log::default());
        let manager = builder(&server).build()?;
        log.runnable(&manager, Stage::Server, "server");
        manager.add(Stage::Leader, "bad one", async move |_cx| {
            assert!(!panics, "no luck");
            Err(anyhow::anyhow!("no luck"))
        })?;
        let error = manager.run_until(pending()).await.unwrap_err();
        let expected = if panics { "bad one: panicked: no luck" } else { "bad one: no luck" };
        assert_eq!(error.to_string(), expected);
        assert_eq!(log.all(), ["server runs", "server stops"], "the others end in order");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn that_it_failed_and_that_it_did_not_stop_are_both_said() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    manager.add(Stage::Other, "deaf one", deaf)?;
    manager.add(Stage::Leader, "bad one", async |_cx| Err(anyhow::anyhow!("no luck")))?;
    let error = manager.run_until(pending()).await.unwrap_err();
    let Some(ManagerError::Several(errors)) = error.downcast_ref() else { panic!("{error}") };
    assert!(matches!(&errors[..], [ManagerError::Failed { .. }, ManagerError::Grace { .. }]), "{error}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn who_returns_without_an_error_ends_nothing() -> anyhow::Result<()> {
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
async fn told_to_stop_while_it_starts_it_stops() -> anyhow::Result<()> {
    let server = server();
    for verb in ["list", "watch"] {
        server.faults().add(Fault::on(&format!("{verb} configmaps")).status(403));
    }
    let manager = builder(&server).build()?;
    manager.controller("a").for_::<ConfigMap>().reconcile(nothing())?;
    let log = Log::default();
    log.runnable(&manager, Stage::Leader, "leader");
    let begun = Instant::now();
    let running = Running::new(manager);
    tokio::time::sleep(Duration::from_secs(5)).await;
    running.stop().await?;
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert!(log.all().is_empty(), "its stage never came");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn all_who_have_failed_are_named_also_if_it_was_told_to_stop_just_then() -> anyhow::Result<()> {
    let server = server();
    for told in [false, true] {
        let manager = builder(&server).build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        manager.add(Stage::Server, "one", async |_cx| Err(anyhow::anyhow!("no luck")))?;
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
            if !told {
                pending::<()>().await;
            }
        };
        let error = manager.run_until(until).await.unwrap_err();
        assert_eq!(error.to_string(), "one: no luck; then two: bad luck; then three: not saved", "{told}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn that_something_was_cancelled_is_no_error_in_who_was_told_to_stop_and_one_in_others() -> anyhow::Result<()> {
    let server = server();
    for told in [true, false] {
        let manager = builder(&server).build()?;
        manager.add(Stage::Leader, "waits for a task", async move |cx: RunContext| {
            let task = tokio::spawn(pending::<()>());
            if told {
                cx.stopped().await;
            }
            task.abort();
            task.await.context("of its own")
        })?;
        let handle = manager.handle();
        manager.add(Stage::Leader, "adds too late", async move |cx: RunContext| {
            cx.stopped().await;
            handle.add(Stage::Server, "late", async |_cx| Ok(()))?;
            Ok(())
        })?;
        let handle = manager.handle();
        let running = Running::new(manager);
        if told {
            handle.elected().await;
            running.stop().await?;
        } else {
            let error = running.task.await?.unwrap_err();
            assert!(error.to_string().starts_with("waits for a task: of its own: task "), "{error}");
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn while_it_stops_nothing_is_added_to_any_stage() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = builder(&server).build()?;
    let (handle, said) = (manager.handle(), log.clone());
    manager.add(Stage::Leader, "adds", async move |cx: RunContext| {
        cx.stopped().await;
        for stage in [Stage::Server, Stage::Cache, Stage::Other, Stage::Gate, Stage::Controllers, Stage::Leader] {
            let refused = handle.add(stage, "late", async |_cx| panic!("it runs")).unwrap_err();
            said.say(refused.to_string());
        }
        let refused = handle.add_cluster("abroad", handle.client().kube().clone()).unwrap_err();
        said.say(refused.to_string());
        anyhow::ensure!(handle.cluster("abroad").is_none());
        Ok(())
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    running.stop().await?;
    let refused = |who: &str| format!("the manager is stopping: {who} was not added");
    let expected = [vec![refused("late"); 6], vec![refused("cache of cluster abroad")]].concat();
    assert_eq!(log.all(), expected);
    Ok(())
}

#[tokio::test]
async fn dropped_while_it_runs_or_before_nothing_of_it_is_left() -> anyhow::Result<()> {
    let server = server();
    let before = Handle::current().metrics().num_alive_tasks();
    for runs in [false, true] {
        let manager = builder(&server).build()?;
        let handle = manager.handle();
        let held = Arc::new(());
        let (alive, kept) = (Arc::downgrade(&held), handle.clone());
        manager.add(Stage::Leader, "one that owns its manager", async move |cx: RunContext| {
            let _both = (held, kept);
            cx.stopped().await;
            Ok(())
        })?;
        if runs {
            let running = Running::new(manager);
            handle.elected().await;
            running.task.abort();
            assert!(running.task.await.unwrap_err().is_cancelled());
        } else {
            drop(manager);
        }
        drop(handle);
        until(|| alive.strong_count() == 0 && Handle::current().metrics().num_alive_tasks() <= before).await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_stops_is_not_ready_any_more() -> anyhow::Result<()> {
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
        checks.into_iter().find(|check| &*check.name == "started").and_then(|check| check.failure)
    };
    assert_eq!(unready().await, None);
    let stopped = tokio::spawn(running.stop());
    stopping.await?;
    assert!(unready().await.is_some_and(|why| why.contains("stopping")));
    stopped.await?
}
