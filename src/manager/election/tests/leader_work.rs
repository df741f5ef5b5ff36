//! Writes and reconciles of a leader, during its term and after it.

use super::*;
use crate::{
    cache::Query,
    client::{Client as Ours, Error, Patch as Change},
    controller::Controller,
    object::ObjectKey,
    reconcile::{self, Outcome, Request},
};
use k8s_openapi::api::core::v1::ConfigMap;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use tokio::{
    sync::mpsc,
    time::{advance, sleep},
};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"namespace": "default", "name": name}, "data": {"door": "blue"}}),
    )
    .expect("a map")
}

#[tokio::test(start_paused = true)]
async fn every_write_is_rejected_after_the_deadline_and_no_read_is() {
    let fixture = Fixture::new();
    let client = Ours::new(fixture.client()).expect("a client");
    let leadership = leads(&fixture.elector("a")).await;
    let fence = leadership.fence();
    let key = ObjectKey::new("default", "colors");
    let made = fence
        .scope(client.create(&map("colors")))
        .await
        .expect("this process leads");
    advance(seconds(13.0)).await;
    fixture.server.journal().clear();
    let rejected = fence.scope(async {
        let owned = client.field_owner("test");
        let mut red = made.clone();
        red.data
            .get_or_insert_default()
            .insert("door".into(), "red".into());
        let pods = client.dynamic(&kube_core::GroupVersionKind::gvk("", "v1", "ConfigMap"));
        [
            client.create(&map("others")).await.map(drop),
            client.update(&made).await.map(drop),
            client
                .patch::<ConfigMap>(&key, &Change::Merge(json!({"data": {"door": "red"}})))
                .await
                .map(drop),
            client.patch_from(&made, &red).await.map(drop),
            owned.apply(&made).await.map(drop),
            client.delete::<ConfigMap>(&key).await.map(drop),
            client
                .delete_collection::<ConfigMap>(&Query::default().namespace(Some("default")))
                .await,
            client
                .subresource_of::<ConfigMap>(&key, "scale")
                .update(&json!({}))
                .await
                .map(drop),
            pods.delete(&key).await.map(drop),
            client.status().update(&made).await.map(drop),
        ]
    });
    for (number, rejected) in rejected.await.into_iter().enumerate() {
        let error = rejected.expect_err("its time is over");
        assert!(
            error.is_fenced() && matches!(error, Error::Fenced { .. }),
            "{number}: {error}"
        );
        let text = error.describe();
        assert!(
            text.contains("the lease has ended: this process no longer leads by Lease default/web"),
            "{text}"
        );
    }
    assert_eq!(fence.rejected_writes(), 10);
    assert!(
        fixture
            .server
            .journal()
            .entries()
            .iter()
            .all(|entry| entry.method == "GET")
    );
    assert_eq!(
        fence
            .scope(client.get::<ConfigMap>(&key))
            .await
            .expect("reads are free")
            .as_deref(),
        Some(&made)
    );
    assert!(
        client.create(&map("others")).await.is_ok(),
        "writes outside of the scope are not fenced"
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_in_flight_at_the_deadline_is_reported() {
    let fixture = Fixture::new();
    let client = Ours::new(fixture.client()).expect("a client");
    let elector = fixture.elector("a");
    let leadership = leads(&elector).await;
    let fence = leadership.fence();
    fixture.fault("POST configmaps -> delay 20s");
    let began = Instant::now();
    let error = fence
        .scope(client.create(&map("colors")))
        .await
        .expect_err("its time is over");
    assert!(
        error.is_fenced() && error.to_string().contains("may have been done"),
        "{error}"
    );
    assert_eq!(began.elapsed(), seconds(12.5));
    assert_eq!(
        (
            fence.late_writes(),
            elector.report().late_writes,
            elector.report().leading
        ),
        (1, 1, false)
    );
}

#[tokio::test(start_paused = true)]
async fn a_controller_passes_the_fencing_token_and_stops_at_the_deadline() {
    let fixture = Fixture::new();
    let leadership = leads(&fixture.elector("a")).await;
    let fence = leadership.fence();
    let (seen, mut runs) = mpsc::unbounded_channel();
    let inside = Arc::new(AtomicU64::new(0));
    let noted = inside.clone();
    let (controller, task) = Controller::builder("web")
        .build(reconcile::from_fn(move |request: Request, cx| {
            noted.store(Fence::current().map_or(0, |fence| fence.token()), Relaxed);
            let sent = seen.send((request, cx.fencing_token()));
            async move { sent.map(|()| Outcome::done()).map_err(Into::into) }
        }))
        .expect("a valid controller");
    let running = tokio::spawn({
        let fence = fence.clone();
        async move { fence.scope(task.run_until(pending())).await }
    });
    controller.queue().add(Request::new("default", "first"));
    let first = runs.recv().await.expect("the run starts");
    assert_eq!(
        first,
        (Request::new("default", "first"), Some(fence.token()))
    );
    assert_eq!(inside.load(Relaxed), fence.token());

    advance(seconds(13.0)).await;
    controller.queue().add(Request::new("default", "second"));
    sleep(seconds(60.0)).await;
    assert!(runs.try_recv().is_err(), "its time is over");
    assert_eq!(
        controller.queue().stats().parked,
        1,
        "the request is parked, not lost"
    );
    controller.stop().await;
    running.await.expect("no panic").expect("no error");
}
