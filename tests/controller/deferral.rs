//! A request is not reconciled again before the cache shows what its last run has written. With watches that tell late, or not before they may.

use super::{
    held::Gate,
    world::{Log, Started, World, owned, recording, until},
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use std::time::Duration;
use steersman::{
    client::{Consistency, Patch},
    controller::Options,
    prelude::*,
    testing::{Embedded, Env, TestServer},
};
use tokio::time::Instant;

pub(crate) const LAG: Duration = Duration::from_secs(2);
pub(crate) const PACE: Duration = Duration::from_millis(100);

/// A world whose watches are late.
pub(crate) async fn late(env: &impl TestServer, lag: Duration) -> anyhow::Result<(World, Gate)> {
    let gate = Gate::new(lag);
    Ok((World::of(gate.before(env.client()?), env.namespace("deferral").await?)?, gate))
}

fn consistency(consistency: Consistency) -> Options {
    Options { consistency: Some(consistency), ..Options::default() }
}

/// The number in a map as it is read; none yet is 0.
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

/// Run after run reads a number and writes the next one: says what was read.
async fn counted(env: &impl TestServer, lag: Duration, options: Options) -> anyhow::Result<(Vec<u64>, Controller)> {
    let (world, _gate) = late(env, lag).await?;
    world.client.create(&world.map("count", "")).await?;
    let (client, count, read) = (world.client.clone(), world.key("count"), Log::new());
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
                Ok(Outcome::requeue_after(PACE))
            }
        }
    });
    let builder = Controller::builder("counting").cache(&world.cache).for_::<ConfigMap>().options(options);
    let counting = Started::new(builder.build(reconciler))?;
    until(|| read.len() >= 5).await;
    let controller = Controller::clone(&counting);
    counting.stop().await?;
    world.stop().await?;
    Ok((read.take(), controller))
}

steersman::env_test! {
    async fn what_a_run_has_written_the_next_one_reads(env: Env) -> anyhow::Result<()> {
        let (read, controller) = counted(&env, Duration::from_millis(300), Options::default()).await?;
        assert_eq!(read[..5], [0, 1, 2, 3, 4]);
        assert!(controller.stats().deferred >= 4, "{:?}", controller.stats());
        assert_eq!(controller.stats().deferral_timeouts, 0);
        Ok(())
    }

    async fn a_reconcile_reads_what_it_wrote(env: Env) -> anyhow::Result<()> {
        let (world, _gate) = late(&env, Duration::from_millis(300)).await?;
        world.client.create(&world.map("a", "")).await?;
        let (client, child) = (world.client.clone(), world.secret("a", ""));
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
        let builder = Controller::builder("reading").cache(&world.cache).for_::<ConfigMap>().owns::<Secret>();
        let reading = Started::new(builder.build(reconciler))?;
        assert_eq!(results.recv().await, Some((true, 1, true)));
        reading.stop().await?;
        world.stop().await
    }

    async fn without_deferral_it_reads_what_was_before(env: Env) -> anyhow::Result<()> {
        let options = consistency(Consistency::Ignore);
        let (read, controller) = counted(&env, Duration::from_secs(1), options).await?;
        assert_eq!(read[..2], [0, 0], "{read:?}");
        assert_eq!(controller.stats().deferred, 0);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn with_two_seconds_of_lag_a_run_never_sees_what_was_before_its_own_write() -> anyhow::Result<()> {
    let begun = Instant::now();
    let (read, controller) = counted(&Embedded::start()?, LAG, Options::default()).await?;
    assert_eq!(read, [0, 1, 2, 3, 4]);
    assert!(begun.elapsed() < LAG * 6, "as soon as it is shown: {:?}", begun.elapsed());
    let stats = controller.stats();
    assert_eq!((stats.deferred, stats.deferral_timeouts, stats.errors), (4, 0, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn with_two_seconds_of_lag_and_deferral_off_it_does() -> anyhow::Result<()> {
    let (read, _) = counted(&Embedded::start()?, LAG, consistency(Consistency::Ignore)).await?;
    assert_eq!(read, [0; 5]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reads_may_wait_instead_and_then_a_run_reads_its_own_writes() -> anyhow::Result<()> {
    let options = consistency(Consistency::Block(Duration::from_secs(10)));
    let (read, controller) = counted(&Embedded::start()?, LAG, options.clone()).await?;
    assert_eq!((&read[..5], controller.stats().deferred), (&[0, 1, 2, 3, 4][..], 0));

    let (world, _gate) = late(&Embedded::start()?, LAG).await?;
    let map = ObjectKey::of(&world.client.create(&world.map("a", "")).await?);
    let client = world.client.clone();
    let (done, mut results) = tokio::sync::mpsc::unbounded_channel();
    let (reconciler, _runs) = recording(move |request, _| {
        let (client, done) = (client.clone(), done.clone());
        async move {
            let begun = Instant::now();
            set_number(&client, &request, 7).await?;
            let hasty = number(&client.consistency(Consistency::Ignore), &request).await?;
            done.send((hasty, number(&client, &request).await?, begun.elapsed()))?;
            Ok(Outcome::done())
        }
    });
    let builder = Controller::builder("blocking").cache(&world.cache).for_::<ConfigMap>();
    let blocking = Started::new(builder.options(options).build(reconciler))?;
    let (hasty, patient, took) = results.recv().await.expect("it runs");
    assert_eq!((hasty, patient), (0, 7), "{map}");
    assert!(LAG <= took && took < LAG + PACE, "{took:?}");
    blocking.stop().await?;
    world.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_waits_only_for_what_it_wrote_itself() -> anyhow::Result<()> {
    let (world, _gate) = late(&Embedded::start()?, LAG).await?;
    for name in ["a", "other"] {
        world.client.create(&world.map(name, "")).await?;
    }
    let (client, other) = (world.client.clone(), world.key("other"));
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
            let begun = Instant::now();
            set_number(&client, &request, 7).await?;
            let before = (number(&client, &other).await?, begun.elapsed());
            let own = (number(&client, &request).await?, begun.elapsed());
            done.send((before, own))?;
            Ok(Outcome::done())
        }
    });
    let builder = Controller::builder("reading").cache(&world.cache).for_::<ConfigMap>();
    let reading = Started::new(builder.build(reconciler))?;
    let (before, (own, took)) = results.recv().await.expect("it runs");
    assert_eq!(before, (0, Duration::ZERO), "another object is read as it is");
    assert_eq!(own, 7);
    assert!(LAG <= took && took < LAG + PACE, "{took:?}");
    reading.stop().await?;
    world.stop().await
}

/// What a controller does that makes what it does not see: children without a name, until there is one.
async fn children(options: Options) -> anyhow::Result<usize> {
    let (world, _gate) = late(&Embedded::start()?, LAG).await?;
    let parent = world.client.create(&world.map("parent", "")).await?;
    let client = world.client.clone();
    let (reconciler, mut runs) = recording(move |_, _| {
        let (client, parent) = (client.clone(), parent.clone());
        async move {
            if client.list::<Secret>(&Query::default()).await?.is_empty() {
                let mut child = Secret::default();
                child.metadata.generate_name = Some("child-".into());
                child.metadata.namespace.clone_from(&parent.metadata.namespace);
                client.create(&owned(&parent, child)).await?;
            }
            Ok(Outcome::requeue_after(PACE))
        }
    });
    let builder = Controller::builder("parents").cache(&world.cache).for_::<ConfigMap>().owns::<Secret>();
    let parents = Started::new(builder.options(options).build(reconciler))?;
    for _ in 0..5 {
        runs.next().await;
    }
    parents.stop().await?;
    let made = world.client.live().list::<Secret>(&Query::default().namespace(Some(&world.namespace))).await?.len();
    world.stop().await?;
    Ok(made)
}

#[tokio::test(start_paused = true)]
async fn a_child_without_a_name_is_made_once() -> anyhow::Result<()> {
    assert_eq!(children(Options::default()).await?, 1);
    assert_eq!(children(consistency(Consistency::Block(LAG * 2))).await?, 1);
    assert_eq!(children(consistency(Consistency::Ignore)).await?, 5, "if nothing is held back, each run makes one");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_a_run_has_deleted_the_next_one_does_not_find() -> anyhow::Result<()> {
    for (options, expected) in [
        (Options::default(), ["deleted", "gone", "gone"]),
        (consistency(Consistency::Ignore), ["deleted", "deleted before", "deleted before"]),
    ] {
        let (world, _gate) = late(&Embedded::start()?, LAG).await?;
        world.client.create(&world.map("a", "")).await?;
        world.client.create(&world.secret("a", "")).await?;
        let (client, did) = (world.client.clone(), Log::new());
        let (reconciler, _runs) = recording({
            let did = did.clone();
            move |request, _| {
                let (client, did) = (client.clone(), did.clone());
                async move {
                    did.add(match client.get::<Secret>(&request).await? {
                        None => "gone",
                        Some(_) if client.delete::<Secret>(&request).await? => "deleted",
                        Some(_) => "deleted before",
                    });
                    Ok(Outcome::requeue_after(PACE))
                }
            }
        });
        let builder = Controller::builder("deleting").cache(&world.cache).for_::<ConfigMap>().owns::<Secret>();
        let deleting = Started::new(builder.options(options).build(reconciler))?;
        until(|| did.len() >= 3).await;
        deleting.stop().await?;
        assert_eq!(did.take()[..3], expected);
        world.stop().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn who_is_held_back_takes_no_place_of_its_group() -> anyhow::Result<()> {
    let (world, _gate) = late(&Embedded::start()?, LAG).await?;
    for name in ["one", "two"] {
        world.client.create(&world.map(name, "")).await?;
    }
    let (client, did) = (world.client.clone(), Log::new());
    let (reconciler, _runs) = recording({
        let did = did.clone();
        move |request: Request, _| {
            let (client, did) = (client.clone(), did.clone());
            async move {
                let seen = number(&client, &request).await?;
                did.add(format!("{} {seen}", request.name()));
                set_number(&client, &request, seen + 1).await?;
                Ok(if seen == 0 { Outcome::requeue_after(PACE) } else { Outcome::done() })
            }
        }
    });
    let builder = Controller::builder("grouped").cache(&world.cache).for_::<ConfigMap>();
    let builder = builder.max_concurrent(2).max_per_group(1, |_: &Request| ());
    let begun = Instant::now();
    let grouped = Started::new(builder.build(reconciler))?;
    until(|| did.len() >= 4).await;
    assert!(
        begun.elapsed() < LAG * 3,
        "the second does not wait for what the first has written: {:?}",
        begun.elapsed()
    );
    let (first, again) = did.take().into_iter().take(4).partition::<Vec<_>, _>(|line| line.ends_with(" 0"));
    assert_eq!((first.len(), again.len()), (2, 2), "{first:?}, then {again:?}");
    grouped.stop().await?;
    world.stop().await
}
