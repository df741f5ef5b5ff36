//! Tests of deferral.
//!
//! A request is not reconciled before the cache shows the writes of its last reconcile.
//!
//! The watches are delayed, or blocked by a gate.

use super::{
    fixture::{Fixture, SharedVec, StartedController, owned, recording, until},
    watch_gate::WatchGate,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use std::time::Duration;
use steersman::{
    client::{Consistency, Patch},
    controller::Options,
    prelude::*,
    reconcile::Result,
    testing::{Embedded, Env, TestServer},
};
use tokio::time::Instant;

pub(crate) const LAG: Duration = Duration::from_secs(2);
pub(crate) const REQUEUE_INTERVAL: Duration = Duration::from_millis(100);

/// Creates a fixture whose watches are delayed by `lag`.
pub(crate) async fn lagging_fixture(
    env: &impl TestServer,
    lag: Duration,
) -> anyhow::Result<(Fixture, WatchGate)> {
    let gate = WatchGate::new(lag);
    Ok((
        Fixture::of(gate.wrap(env.client()?), env.namespace("deferral").await?)?,
        gate,
    ))
}

fn consistency(consistency: Consistency) -> Options {
    Options {
        consistency: Some(consistency),
        ..Options::default()
    }
}

/// Returns the number in a config map as the client reads it, or 0.
pub(crate) async fn number(client: &Client, map: &Request) -> Result<u64> {
    let map = client.get::<ConfigMap>(map).await?;
    let number = map.and_then(|map| map.data.as_ref()?.get("number")?.parse().ok());
    Ok(number.unwrap_or_default())
}

pub(crate) async fn set_number(client: &Client, map: &Request, number: u64) -> Result<()> {
    let patch = Patch::Merge(json!({"data": {"number": number.to_string()}}));
    client.patch::<ConfigMap>(map, &patch).await?;
    Ok(())
}

/// Each reconcile reads a number and writes the next one.
///
/// Returns the numbers that were read.
async fn run_counter(
    env: &impl TestServer,
    lag: Duration,
    options: Options,
) -> anyhow::Result<(Vec<u64>, Controller)> {
    let (fixture, _gate) = lagging_fixture(env, lag).await?;
    fixture.client.create(&fixture.map("count", "")).await?;
    let (client, count, read) = (
        fixture.client.clone(),
        fixture.key("count"),
        SharedVec::new(),
    );
    let (reconciler, _runs) = recording({
        let (count, read) = (count.clone(), read.clone());
        move |request: Request, _| {
            let (client, count, read) = (client.clone(), count.clone(), read.clone());
            async move {
                if request != count {
                    return Ok(Outcome::done());
                }
                let seen = number(&client, &count).await?;
                read.add(seen);
                set_number(&client, &count, seen + 1).await?;
                Ok(Outcome::requeue_after(REQUEUE_INTERVAL))
            }
        }
    });
    let builder = Controller::builder("counting")
        .cache(&fixture.cache)
        .for_::<ConfigMap>()
        .options(options);
    let counting = StartedController::new(builder.build(reconciler))?;
    until(|| read.len() >= 5).await;
    let controller = Controller::clone(&counting);
    counting.stop().await?;
    fixture.stop().await?;
    Ok((read.take(), controller))
}

steersman::env_test! {
    async fn the_next_reconcile_reads_the_writes_of_the_previous_one(env: Env) -> anyhow::Result<()> {
        let (read, controller) = run_counter(&env, Duration::from_millis(300), Options::default()).await?;
        assert_eq!(read[..5], [0, 1, 2, 3, 4]);
        assert!(controller.stats().deferred >= 4, "{:?}", controller.stats());
        assert_eq!(controller.stats().deferral_timeouts, 0);
        Ok(())
    }

    async fn a_reconcile_reads_its_own_writes(env: Env) -> anyhow::Result<()> {
        let (fixture, _gate) = lagging_fixture(&env, Duration::from_millis(300)).await?;
        fixture.client.create(&fixture.map("a", "")).await?;
        let (client, child) = (fixture.client.clone(), fixture.secret("a", ""));
        let (done, mut results) = tokio::sync::mpsc::unbounded_channel();
        let (reconciler, _runs) = recording(move |request: Request, _| {
            let (client, child, done) = (client.clone(), child.clone(), done.clone());
            async move {
                if request != ObjectKey::of(&child) {
                    return Ok(Outcome::done());
                }
                client.create(&child).await?;
                let created = client.get::<Secret>(&request).await?.is_some();
                let listed = client.list::<Secret>(&Query::default().namespace(request.namespace())).await?.len();
                client.delete::<Secret>(&request).await?;
                let deleted = client.get::<Secret>(&request).await?.is_none();
                done.send((created, listed, deleted))?;
                Ok(Outcome::done())
            }
        });
        let builder = Controller::builder("reading").cache(&fixture.cache).for_::<ConfigMap>().owns::<Secret>();
        let reading = StartedController::new(builder.build(reconciler))?;
        assert_eq!(results.recv().await, Some((true, 1, true)));
        reading.stop().await?;
        fixture.stop().await
    }

    async fn without_deferral_a_reconcile_reads_stale_objects(env: Env) -> anyhow::Result<()> {
        let options = consistency(Consistency::Ignore);
        let (read, controller) = run_counter(&env, Duration::from_secs(1), options).await?;
        assert_eq!(read[..2], [0, 0], "{read:?}");
        assert_eq!(controller.stats().deferred, 0);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn deferral_prevents_stale_reads_with_two_seconds_of_lag() -> anyhow::Result<()> {
    let started = Instant::now();
    let (read, controller) = run_counter(&Embedded::start()?, LAG, Options::default()).await?;
    assert_eq!(read, [0, 1, 2, 3, 4]);
    assert!(
        started.elapsed() < LAG * 6,
        "no wait after the observation: {:?}",
        started.elapsed()
    );
    let stats = controller.stats();
    assert_eq!(
        (stats.deferred, stats.deferral_timeouts, stats.errors),
        (4, 0, 0)
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn without_deferral_reads_are_stale_with_two_seconds_of_lag() -> anyhow::Result<()> {
    let (read, _) = run_counter(&Embedded::start()?, LAG, consistency(Consistency::Ignore)).await?;
    assert_eq!(read, [0; 5]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn blocking_reads_return_own_writes_without_deferral() -> anyhow::Result<()> {
    let options = consistency(Consistency::Block(Duration::from_secs(10)));
    let (read, controller) = run_counter(&Embedded::start()?, LAG, options.clone()).await?;
    assert_eq!(
        (&read[..5], controller.stats().deferred),
        (&[0, 1, 2, 3, 4][..], 0)
    );

    let (fixture, _gate) = lagging_fixture(&Embedded::start()?, LAG).await?;
    let map = ObjectKey::of(&fixture.client.create(&fixture.map("a", "")).await?);
    let client = fixture.client.clone();
    let (done, mut results) = tokio::sync::mpsc::unbounded_channel();
    let (reconciler, _runs) = recording(move |request, _| {
        let (client, done) = (client.clone(), done.clone());
        async move {
            let started = Instant::now();
            set_number(&client, &request, 7).await?;
            let stale = number(&client.consistency(Consistency::Ignore), &request).await?;
            done.send((stale, number(&client, &request).await?, started.elapsed()))?;
            Ok(Outcome::done())
        }
    });
    let builder = Controller::builder("blocking")
        .cache(&fixture.cache)
        .for_::<ConfigMap>();
    let blocking = StartedController::new(builder.options(options).build(reconciler))?;
    let (stale, current, elapsed) = results.recv().await.expect("the run starts");
    assert_eq!((stale, current), (0, 7), "{map}");
    assert!(
        LAG <= elapsed && elapsed < LAG + REQUEUE_INTERVAL,
        "{elapsed:?}"
    );
    blocking.stop().await?;
    fixture.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_waits_only_for_its_own_writes() -> anyhow::Result<()> {
    let (fixture, _gate) = lagging_fixture(&Embedded::start()?, LAG).await?;
    for name in ["a", "other"] {
        fixture.client.create(&fixture.map(name, "")).await?;
    }
    let (client, other) = (fixture.client.clone(), fixture.key("other"));
    let (done, mut results) = tokio::sync::mpsc::unbounded_channel();
    let (reconciler, _runs) = recording(move |request: Request, _| {
        let (client, other, done) = (client.clone(), other.clone(), done.clone());
        async move {
            if request == other || number(&client, &request).await? > 0 {
                return Ok(Outcome::done());
            }
            // Written by a task of its own, and so not by this reconcile.
            let write = {
                let (client, other) = (client.clone(), other.clone());
                async move { set_number(&client, &other, 7).await }
            };
            tokio::spawn(write).await??;
            let started = Instant::now();
            set_number(&client, &request, 7).await?;
            let before = (number(&client, &other).await?, started.elapsed());
            let own = (number(&client, &request).await?, started.elapsed());
            done.send((before, own))?;
            Ok(Outcome::done())
        }
    });
    let builder = Controller::builder("reading")
        .cache(&fixture.cache)
        .for_::<ConfigMap>();
    let reading = StartedController::new(builder.build(reconciler))?;
    let (before, (own, elapsed)) = results.recv().await.expect("the run starts");
    assert_eq!(
        before,
        (0, Duration::ZERO),
        "another object is read without waiting"
    );
    assert_eq!(own, 7);
    assert!(
        LAG <= elapsed && elapsed < LAG + REQUEUE_INTERVAL,
        "{elapsed:?}"
    );
    reading.stop().await?;
    fixture.stop().await
}

/// Counts the children that a controller creates while it sees none.
///
/// Their names are generated, so duplicates do not conflict.
async fn count_created_children(options: Options) -> anyhow::Result<usize> {
    let (fixture, _gate) = lagging_fixture(&Embedded::start()?, LAG).await?;
    let parent = fixture.client.create(&fixture.map("parent", "")).await?;
    let client = fixture.client.clone();
    let (reconciler, mut runs) = recording(move |_, _| {
        let (client, parent) = (client.clone(), parent.clone());
        async move {
            if client.list::<Secret>(&Query::default()).await?.is_empty() {
                let mut child = Secret::default();
                child.metadata.generate_name = Some("child-".into());
                child
                    .metadata
                    .namespace
                    .clone_from(&parent.metadata.namespace);
                client.create(&owned(&parent, child)).await?;
            }
            Ok(Outcome::requeue_after(REQUEUE_INTERVAL))
        }
    });
    let builder = Controller::builder("parents")
        .cache(&fixture.cache)
        .for_::<ConfigMap>()
        .owns::<Secret>();
    let parents = StartedController::new(builder.options(options).build(reconciler))?;
    for _ in 0..5 {
        runs.next().await;
    }
    parents.stop().await?;
    let count = fixture
        .client
        .live()
        .list::<Secret>(&Query::default().namespace(Some(&fixture.namespace)))
        .await?
        .len();
    fixture.stop().await?;
    Ok(count)
}

#[tokio::test(start_paused = true)]
async fn a_child_with_a_generated_name_is_created_once() -> anyhow::Result<()> {
    assert_eq!(count_created_children(Options::default()).await?, 1);
    assert_eq!(
        count_created_children(consistency(Consistency::Block(LAG * 2))).await?,
        1
    );
    assert_eq!(
        count_created_children(consistency(Consistency::Ignore)).await?,
        5,
        "without deferral each reconcile creates a child"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_next_reconcile_does_not_find_an_object_deleted_by_the_previous_one()
-> anyhow::Result<()> {
    for (options, expected) in [
        (Options::default(), ["deleted", "gone", "gone"]),
        (
            consistency(Consistency::Ignore),
            ["deleted", "deleted before", "deleted before"],
        ),
    ] {
        let (fixture, _gate) = lagging_fixture(&Embedded::start()?, LAG).await?;
        fixture.client.create(&fixture.map("a", "")).await?;
        fixture.client.create(&fixture.secret("a", "")).await?;
        let (client, log) = (fixture.client.clone(), SharedVec::new());
        let (reconciler, _runs) = recording({
            let log = log.clone();
            move |request, _| {
                let (client, log) = (client.clone(), log.clone());
                async move {
                    log.add(match client.get::<Secret>(&request).await? {
                        None => "gone",
                        Some(_) if client.delete::<Secret>(&request).await? => "deleted",
                        Some(_) => "deleted before",
                    });
                    Ok(Outcome::requeue_after(REQUEUE_INTERVAL))
                }
            }
        });
        let builder = Controller::builder("deleting")
            .cache(&fixture.cache)
            .for_::<ConfigMap>()
            .owns::<Secret>();
        let deleting = StartedController::new(builder.options(options).build(reconciler))?;
        until(|| log.len() >= 3).await;
        deleting.stop().await?;
        assert_eq!(log.take()[..3], expected);
        fixture.stop().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_deferred_request_does_not_count_for_its_group() -> anyhow::Result<()> {
    let (fixture, _gate) = lagging_fixture(&Embedded::start()?, LAG).await?;
    for name in ["one", "two"] {
        fixture.client.create(&fixture.map(name, "")).await?;
    }
    let (client, log) = (fixture.client.clone(), SharedVec::new());
    let (reconciler, _runs) = recording({
        let log = log.clone();
        move |request: Request, _| {
            let (client, log) = (client.clone(), log.clone());
            async move {
                let seen = number(&client, &request).await?;
                log.add(format!("{} {seen}", request.name()));
                set_number(&client, &request, seen + 1).await?;
                Ok(if seen == 0 {
                    Outcome::requeue_after(REQUEUE_INTERVAL)
                } else {
                    Outcome::done()
                })
            }
        }
    });
    let builder = Controller::builder("grouped")
        .cache(&fixture.cache)
        .for_::<ConfigMap>();
    let builder = builder.max_concurrent(2).max_per_group(1, |_: &Request| ());
    let started = Instant::now();
    let grouped = StartedController::new(builder.build(reconciler))?;
    until(|| log.len() >= 4).await;
    assert!(
        started.elapsed() < LAG * 3,
        "a deferred request does not block its group: {:?}",
        started.elapsed()
    );
    let (first, again) = log
        .take()
        .into_iter()
        .take(4)
        .partition::<Vec<_>, _>(|line| line.ends_with(" 0"));
    assert_eq!(
        (first.len(), again.len()),
        (2, 2),
        "{first:?}, then {again:?}"
    );
    grouped.stop().await?;
    fixture.stop().await
}
