//! A request that is held back: for how long, with what, and what is left of it.

use super::{
    deferral::{LAG, PACE, late, number, set_number},
    held::Gate,
    world::{Log, Started, World, recording, until},
};
use anyhow::bail;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use std::{
    future::pending,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use steersman::{
    controller::Options,
    prelude::*,
    testing::{Embedded, TestServer},
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

/// A controller of maps whose first run of each writes it, with watches that may be held.
struct Held {
    world: World,
    gate: Gate,
    maps: Started,
    runs: super::world::Runs,
}

impl Held {
    /// Maps of these names are there, and each was written once by the controller, and is not shown.
    async fn new(names: &[&str], options: Options) -> anyhow::Result<Self> {
        let (world, gate) = late(&Embedded::start()?, Duration::ZERO).await?;
        for name in names {
            world.client.create(&world.map(name, "")).await?;
        }
        let client = world.client.clone();
        let (reconciler, mut runs) = recording(move |request: Request, cx: Context| {
            let client = client.clone();
            async move {
                if cx.reasons().iter().any(|reason| reason.as_str() == "write") {
                    set_number(&client, &request, 1).await?;
                    if request.name() == "fails" {
                        bail!("after the write");
                    }
                }
                Ok(Outcome::done())
            }
        });
        let builder = Controller::builder("held").cache(&world.cache).for_::<ConfigMap>();
        let maps = Started::new(builder.options(options).build(reconciler))?;
        for _ in names {
            runs.next().await;
        }
        gate.hold();
        for name in names {
            let write = Add { reason: Some("write".into()), ..Add::default() };
            maps.queue().add_with(world.key(name), write);
            runs.next().await;
        }
        until(|| maps.queue().stats().running == 0).await;
        Ok(Self { world, gate, maps, runs })
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.gate.open();
        self.maps.stop().await?;
        self.world.stop().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_held_until_its_own_writes_are_shown_and_others_are_not() -> anyhow::Result<()> {
    let mut held = Held::new(&["a"], Options::default()).await?;
    let [a, b] = [held.world.key("a"), held.world.key("b")];
    held.maps.queue().add(a.clone());
    held.maps.queue().add(b.clone());
    held.runs.expect(&b).await;
    sleep(LAG).await;
    held.runs.expect_none();
    // Somebody else's write, of whatever it is, holds nothing back.
    let stranger = Client::new(held.world.client.kube().clone())?.with_cache(held.world.cache.clone());
    set_number(&stranger, &a, 2).await?;
    held.maps.queue().add(b.clone());
    held.runs.expect(&b).await;
    held.gate.open();
    held.runs.expect(&a).await;
    assert_eq!((held.maps.stats().deferred, held.maps.stats().deferral_timeouts), (1, 0));
    held.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_held_back_keeps_its_priority_its_reasons_and_its_attempts() -> anyhow::Result<()> {
    let mut held = Held::new(&["fails"], Options::default()).await?;
    let urgent = Add { priority: Some(Priority::HIGH), reason: Some("urgent".into()), ..Add::default() };
    sleep(PACE).await;
    held.maps.queue().add_with(held.world.key("fails"), urgent);
    held.maps.queue().add_with(held.world.key("fails"), Add { reason: Some("once more".into()), ..Add::default() });
    sleep(LAG).await;
    held.runs.expect_none();
    held.gate.open();
    let cx = held.runs.expect(&held.world.key("fails")).await;
    assert_eq!((cx.priority(), cx.attempt()), (Priority::HIGH, 2));
    let reasons: Vec<_> = cx.reasons().iter().map(reconcile::Reason::as_str).collect();
    assert!(reasons.contains(&"urgent") && reasons.contains(&"once more"), "{reasons:?}");
    held.stop().await
}

#[tokio::test(start_paused = true)]
async fn after_five_seconds_it_is_reconciled_all_the_same_and_that_is_counted() -> anyhow::Result<()> {
    let mut held = Held::new(&["a", "b"], Options::default()).await?;
    let (begun, a) = (Instant::now(), held.world.key("a"));
    let lazily = || Add { priority: Some(Priority::LOW), ..Add::default() };
    held.maps.queue().add_with(a.clone(), lazily());
    assert_eq!(held.runs.expect(&a).await.priority(), Priority::LOW);
    let waited = begun.elapsed();
    assert!(Duration::from_millis(4900) < waited && waited < Duration::from_millis(5100), "{waited:?}");
    assert_eq!(held.maps.stats().deferral_timeouts, 2, "of b, too, though nobody asked for it");
    held.maps.queue().add_with(a.clone(), lazily());
    held.runs.expect(&a).await;
    assert_eq!(begun.elapsed(), waited, "it is waited for once");
    held.stop().await
}

#[tokio::test(start_paused = true)]
async fn what_the_cache_leaves_out_holds_nothing_back() -> anyhow::Result<()> {
    let env = Embedded::start()?;
    let elsewhere = env.namespace("elsewhere").await?;
    let (world, gate) = late(&env, Duration::ZERO).await?;
    world.client.create(&world.map("a", "mine")).await?;
    let (client, namespace) = (world.client.clone(), world.namespace.clone());
    let next = AtomicU64::new(0);
    let (reconciler, mut runs) = recording(move |request: Request, _| {
        let (client, elsewhere, namespace) = (client.clone(), elsewhere.clone(), namespace.clone());
        let number = next.fetch_add(1, Relaxed);
        async move {
            let named = |namespace: &str, shop: &str| json!({"metadata": {"namespace": namespace, "name": format!("n{number}"), "labels": {"shop": shop}}});
            client.create::<ConfigMap>(&serde_json::from_value(named(&namespace, "other"))?).await?;
            client.create::<ConfigMap>(&serde_json::from_value(named(&elsewhere, "mine"))?).await?;
            client.create::<Secret>(&serde_json::from_value(named(&namespace, "mine"))?).await?;
            set_number(&client.dry_run(), &request, number).await?;
            let refused = client.create::<ConfigMap>(&serde_json::from_value(named("nowhere", "mine"))?).await;
            assert!(refused.is_err(), "there is no such namespace");
            Ok(Outcome::requeue_after(PACE))
        }
    });
    let mine = Select::<ConfigMap>::new().labels("shop=mine");
    let maps = Started::new(Controller::builder("maps").cache(&world.cache).for_with(mine).build(reconciler))?;
    runs.next().await;
    gate.hold();
    let begun = Instant::now();
    for _ in 0..10 {
        runs.expect(&world.key("a")).await;
    }
    assert!(begun.elapsed() < PACE * 11, "{:?}", begun.elapsed());
    assert_eq!((maps.stats().deferred, maps.stats().errors), (0, 0));
    gate.open();
    maps.stop().await?;
    world.stop().await
}

#[tokio::test(start_paused = true)]
async fn what_a_run_wrote_before_it_was_cut_off_the_next_one_reads() -> anyhow::Result<()> {
    let superseded = Options { cancel_superseded: Some(true), ..Options::default() };
    let too_long = Options { reconcile_timeout: Some(PACE), ..Options::default() };
    for options in [superseded, too_long] {
        let (world, _gate) = late(&Embedded::start()?, LAG).await?;
        world.client.create(&world.map("a", "")).await?;
        let (client, read) = (world.client.clone(), Log::new());
        let (reconciler, _runs) = recording({
            let read = read.clone();
            move |request: Request, _| {
                let (client, read) = (client.clone(), read.clone());
                async move {
                    let seen = number(&client, &request).await?;
                    read.add(seen);
                    set_number(&client, &request, seen + 1).await?;
                    pending().await
                }
            }
        });
        let builder = Controller::builder("cut off").cache(&world.cache).for_::<ConfigMap>();
        let cut_off = Started::new(builder.options(options).build(reconciler))?;
        for run in 1..=3 {
            until(|| read.len() >= run).await;
            cut_off.queue().add(world.key("a"));
        }
        assert_eq!(read.take()[..3], [0, 1, 2]);
        // A run that waits for ever is not waited for: it is dropped with who runs it.
        drop(cut_off);
        world.stop().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_what_was_held_back_when_the_controller_has_stopped() -> anyhow::Result<()> {
    let held = Held::new(&["a", "b"], Options::default()).await?;
    held.maps.queue().add(held.world.key("a"));
    let begun = Instant::now();
    let Held { world, gate, maps, .. } = held;
    maps.stop().await?;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    no_task_ends_later().await;
    gate.open();
    world.stop().await
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_run_that_wrote_while_the_controller_stopped() -> anyhow::Result<()> {
    let (world, gate) = late(&Embedded::start()?, Duration::ZERO).await?;
    world.client.create(&world.map("a", "")).await?;
    let client = world.client.clone();
    let (reconciler, mut runs) = recording(move |request: Request, cx: Context| {
        let client = client.clone();
        async move {
            cx.shutdown().await;
            set_number(&client, &request, 1).await?;
            Ok(Outcome::requeue())
        }
    });
    let maps = Started::new(Controller::builder("maps").cache(&world.cache).for_::<ConfigMap>().build(reconciler))?;
    runs.next().await;
    gate.hold();
    let stopping = Instant::now();
    let controller = Controller::clone(&maps);
    maps.stop().await?;
    assert_eq!((controller.stats().requeue, stopping.elapsed()), (1, Duration::ZERO));
    no_task_ends_later().await;
    gate.open();
    world.stop().await
}

/// The cache goes on; who waited for it does not.
async fn no_task_ends_later() {
    let alive = || Handle::current().metrics().num_alive_tasks();
    let now = alive();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(now, alive());
}
