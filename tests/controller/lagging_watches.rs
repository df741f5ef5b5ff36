//! Tests of controllers whose watches lag behind by thousands of events.

use super::{
    fixture::{Fixture, Shop, StartedController, owned, recorder},
    support::until,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResourceExt;
use std::sync::{Mutex, mpsc};
use steersman::{
    prelude::*,
    testing::{Embedded, TestServer},
};

/// More events than an informer's log holds, so that older ones go to the backlog.
const EVENTS: usize = 4_096 + 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn owns_notifies_the_owner_of_a_child_that_was_created_and_deleted_while_the_watch_lagged()
-> anyhow::Result<()> {
    let server = Embedded::start()?;
    server.install([Shop::crd()]).await?;
    let fixture = Fixture::new(&server).await?;
    let (reconciler, mut runs) = recorder();
    let (is_blocked, blocked) = mpsc::channel();
    let (resume, resumed) = mpsc::channel::<()>();
    let resumed = Mutex::new(resumed);
    let children =
        Select::<ConfigMap>::new().filter(predicate::object(move |map: &Object<ConfigMap>| {
            if map.name() == "gate" {
                is_blocked.send(()).expect("the test waits");
                let _ = resumed.lock().expect("no panic").recv();
            }
            true
        }));
    let builder = Controller::builder("shops")
        .cache(&fixture.cache)
        .for_::<Shop>()
        .owns_with(children);
    let shops = StartedController::new(builder.build(reconciler))?;
    shops.warm_up().await?;
    let shop = fixture.client.create(&fixture.shop("a")).await?;
    runs.expect_because(&fixture.key("a"), "Shop created").await;

    fixture.client.create(&fixture.map("gate", "")).await?;
    tokio::task::spawn_blocking(move || blocked.recv()).await??;
    fixture
        .client
        .create(&owned(&shop, fixture.map("child", "")))
        .await?;
    fixture.delete::<ConfigMap>("child").await?;
    for _ in 0..EVENTS {
        fixture.touch::<ConfigMap>("gate").await?;
    }
    // The gate and the child are three more events.
    let informers = || {
        fixture
            .cache
            .informers()
            .into_iter()
            .filter(|informer| informer.gvk.kind == "ConfigMap")
    };
    until(|| informers().all(|informer| informer.stats.events >= EVENTS as u64 + 3)).await;
    let deletions = || {
        informers()
            .flat_map(|informer| informer.stats.handlers)
            .map(|it| it.deletions)
            .sum::<usize>()
    };
    assert_eq!(deletions(), 1);
    drop(resume);
    runs.expect_because(
        &fixture.key("a"),
        &format!("ConfigMap {}/child deleted", fixture.namespace),
    )
    .await;
    assert_eq!(deletions(), 0);
    shops.stop().await?;
    fixture.stop().await
}
