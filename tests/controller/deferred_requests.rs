//! Tests of deferred requests: duration, reasons, and cleanup.

use super::{
    deferral::{LAG, REQUEUE_INTERVAL, lagging_fixture, number, set_number},
    fixture::{Fixture, SharedVec, StartedController, recording, until},
    watch_gate::WatchGate,
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
    reconcile::Context,
    testing::{Embedded, TestServer},
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

/// Controller that writes each config map in its first reconcile.
///
/// Its watches can be blocked.
struct DeferralFixture {
    fixture: Fixture,
    gate: WatchGate,
    maps: StartedController,
    runs: super::fixture::RecordedReconciles,
}

impl DeferralFixture {
    /// Creates the config maps.
    ///
    /// The controller has written each of them once, and the cache does not show it yet.
    async fn new(names: &[&str], options: Options) -> anyhow::Result<Self> {
        let (fixture, gate) = lagging_fixture(&Embedded::start()?, Duration::ZERO).await?;
        for name in names {
            fixture.client.create(&fixture.map(name, "")).await?;
        }
        let client = fixture.client.clone();
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
        let builder = Controller::builder("held")
            .cache(&fixture.cache)
            .for_::<ConfigMap>();
        let maps = StartedController::new(builder.options(options).build(reconciler))?;
        for _ in names {
            runs.next().await;
        }
        gate.hold();
        for name in names {
            let write = Add {
                reason: Some("write".into()),
                ..Add::default()
            };
            maps.queue().add_with(fixture.key(name), write);
            runs.next().await;
        }
        until(|| maps.queue().stats().running == 0).await;
        Ok(Self {
            fixture,
            gate,
            maps,
            runs,
        })
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.gate.open();
        self.maps.stop().await?;
        self.fixture.stop().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_deferred_only_until_its_own_writes_are_observed() -> anyhow::Result<()> {
    let mut deferral = DeferralFixture::new(&["a"], Options::default()).await?;
    let [a, b] = [deferral.fixture.key("a"), deferral.fixture.key("b")];
    deferral.maps.queue().add(a.clone());
    deferral.maps.queue().add(b.clone());
    deferral.runs.expect(&b).await;
    sleep(LAG).await;
    deferral.runs.expect_none();
    // Writes of another client defer nothing.
    let other_client = Client::new(deferral.fixture.client.kube().clone())?
        .with_cache(deferral.fixture.cache.clone());
    set_number(&other_client, &a, 2).await?;
    deferral.maps.queue().add(b.clone());
    deferral.runs.expect(&b).await;
    deferral.gate.open();
    deferral.runs.expect(&a).await;
    assert_eq!(
        (
            deferral.maps.stats().deferred,
            deferral.maps.stats().deferral_timeouts
        ),
        (1, 0)
    );
    deferral.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_deferred_request_keeps_priority_reasons_and_attempts() -> anyhow::Result<()> {
    let mut deferral = DeferralFixture::new(&["fails"], Options::default()).await?;
    let urgent = Add {
        priority: Some(Priority::HIGH),
        reason: Some("urgent".into()),
        ..Add::default()
    };
    sleep(REQUEUE_INTERVAL).await;
    deferral
        .maps
        .queue()
        .add_with(deferral.fixture.key("fails"), urgent);
    deferral.maps.queue().add_with(
        deferral.fixture.key("fails"),
        Add {
            reason: Some("once more".into()),
            ..Add::default()
        },
    );
    sleep(LAG).await;
    deferral.runs.expect_none();
    deferral.gate.open();
    let cx = deferral.runs.expect(&deferral.fixture.key("fails")).await;
    assert_eq!((cx.priority(), cx.attempt()), (Priority::HIGH, 2));
    let reasons: Vec<_> = cx.reasons().iter().map(reconcile::Reason::as_str).collect();
    assert!(
        reasons.contains(&"urgent") && reasons.contains(&"once more"),
        "{reasons:?}"
    );
    deferral.stop().await
}

#[tokio::test(start_paused = true)]
async fn deferral_times_out_after_five_seconds() -> anyhow::Result<()> {
    let mut deferral = DeferralFixture::new(&["a", "b"], Options::default()).await?;
    let (started, a) = (Instant::now(), deferral.fixture.key("a"));
    let low_priority = || Add {
        priority: Some(Priority::LOW),
        ..Add::default()
    };
    deferral.maps.queue().add_with(a.clone(), low_priority());
    assert_eq!(deferral.runs.expect(&a).await.priority(), Priority::LOW);
    let waited = started.elapsed();
    assert!(
        Duration::from_millis(4900) < waited && waited < Duration::from_millis(5100),
        "{waited:?}"
    );
    assert_eq!(
        deferral.maps.stats().deferral_timeouts,
        2,
        "the deferral of b ends, too"
    );
    deferral.maps.queue().add_with(a.clone(), low_priority());
    deferral.runs.expect(&a).await;
    assert_eq!(
        started.elapsed(),
        waited,
        "a timed-out write is not awaited again"
    );
    deferral.stop().await
}

#[tokio::test(start_paused = true)]
async fn writes_outside_of_the_cache_do_not_defer() -> anyhow::Result<()> {
    let env = Embedded::start()?;
    let elsewhere = env.namespace("elsewhere").await?;
    let (fixture, gate) = lagging_fixture(&env, Duration::ZERO).await?;
    fixture.client.create(&fixture.map("a", "mine")).await?;
    let (client, namespace) = (fixture.client.clone(), fixture.namespace.clone());
    let next = AtomicU64::new(0);
    let (reconciler, mut runs) = recording(move |request: Request, _| {
        let (client, elsewhere, namespace) = (client.clone(), elsewhere.clone(), namespace.clone());
        let number = next.fetch_add(1, Relaxed);
        async move {
            let named = |namespace: &str, shop: &str| json!({"metadata": {"namespace": namespace, "name": format!("n{number}"), "labels": {"shop": shop}}});
            client
                .create::<ConfigMap>(&serde_json::from_value(named(&namespace, "other"))?)
                .await?;
            client
                .create::<ConfigMap>(&serde_json::from_value(named(&elsewhere, "mine"))?)
                .await?;
            client
                .create::<Secret>(&serde_json::from_value(named(&namespace, "mine"))?)
                .await?;
            set_number(&client.dry_run(), &request, number).await?;
            let rejected = client
                .create::<ConfigMap>(&serde_json::from_value(named("nowhere", "mine"))?)
                .await;
            assert!(rejected.is_err(), "there is no such namespace");
            Ok(Outcome::requeue_after(REQUEUE_INTERVAL))
        }
    });
    let mine = Select::<ConfigMap>::new().labels("shop=mine");
    let maps = StartedController::new(
        Controller::builder("maps")
            .cache(&fixture.cache)
            .for_with(mine)
            .build(reconciler),
    )?;
    runs.next().await;
    gate.hold();
    let started = Instant::now();
    for _ in 0..10 {
        runs.expect(&fixture.key("a")).await;
    }
    assert!(
        started.elapsed() < REQUEUE_INTERVAL * 11,
        "{:?}",
        started.elapsed()
    );
    assert_eq!((maps.stats().deferred, maps.stats().errors), (0, 0));
    gate.open();
    maps.stop().await?;
    fixture.stop().await
}

#[tokio::test(start_paused = true)]
async fn writes_of_a_dropped_reconcile_defer_the_next_one() -> anyhow::Result<()> {
    let superseded = Options {
        cancel_superseded: Some(true),
        ..Options::default()
    };
    let too_long = Options {
        reconcile_timeout: Some(REQUEUE_INTERVAL),
        ..Options::default()
    };
    for options in [superseded, too_long] {
        let (fixture, _gate) = lagging_fixture(&Embedded::start()?, LAG).await?;
        fixture.client.create(&fixture.map("a", "")).await?;
        let (client, read) = (fixture.client.clone(), SharedVec::new());
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
        let builder = Controller::builder("cut off")
            .cache(&fixture.cache)
            .for_::<ConfigMap>();
        let cut_off = StartedController::new(builder.options(options).build(reconciler))?;
        for run in 1..=3 {
            until(|| read.len() >= run).await;
            cut_off.queue().add(fixture.key("a"));
        }
        assert_eq!(read.take()[..3], [0, 1, 2]);
        // A reconcile that never ends is dropped with the controller.
        drop(cut_off);
        fixture.stop().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stopping_the_controller_drops_deferred_requests() -> anyhow::Result<()> {
    let deferral = DeferralFixture::new(&["a", "b"], Options::default()).await?;
    deferral.maps.queue().add(deferral.fixture.key("a"));
    let started = Instant::now();
    let DeferralFixture {
        fixture,
        gate,
        maps,
        ..
    } = deferral;
    maps.stop().await?;
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_no_task_ends_later().await;
    gate.open();
    fixture.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_write_during_shutdown_leaves_no_task() -> anyhow::Result<()> {
    let (fixture, gate) = lagging_fixture(&Embedded::start()?, Duration::ZERO).await?;
    fixture.client.create(&fixture.map("a", "")).await?;
    let client = fixture.client.clone();
    let (reconciler, mut runs) = recording(move |request: Request, cx: Context| {
        let client = client.clone();
        async move {
            cx.shutdown().await;
            set_number(&client, &request, 1).await?;
            Ok(Outcome::requeue())
        }
    });
    let maps = StartedController::new(
        Controller::builder("maps")
            .cache(&fixture.cache)
            .for_::<ConfigMap>()
            .build(reconciler),
    )?;
    runs.next().await;
    gate.hold();
    let stopping = Instant::now();
    let controller = Controller::clone(&maps);
    maps.stop().await?;
    assert_eq!(
        (controller.stats().requeue, stopping.elapsed()),
        (1, Duration::ZERO)
    );
    assert_no_task_ends_later().await;
    gate.open();
    fixture.stop().await
}

/// Asserts that no task is still waiting for the cache.
async fn assert_no_task_ends_later() {
    let alive = || Handle::current().metrics().num_alive_tasks();
    let now = alive();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(now, alive());
}
