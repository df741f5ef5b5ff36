//! Unit tests of a controller's parts: `cargo test --example test_style`
//!
//! They use paused time, a fake source and hand-made events, and need no API server.

#![cfg_attr(
    not(test),
    allow(dead_code, unused_imports, reason = "used by the tests only")
)]

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use std::{future::ready, time::Duration};
use steersman::{
    predicate::{GenerationChanged, Predicate},
    prelude::*,
    reconcile::Context,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

fn key(name: &str) -> Request {
    Request::new("default", name)
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_is_ready_at_its_time_after_urgent_keys() {
    let queue = WorkQueue::default();
    queue.add_after(key("later"), Duration::from_secs(5));
    queue.add(key("now"));
    queue.add_with(
        key("urgent"),
        Add {
            priority: Some(Priority::HIGH),
            ..Add::default()
        },
    );

    let start = Instant::now();
    for expected in ["urgent", "now", "later"] {
        let item = queue.get().await.unwrap();
        assert_eq!(*item, key(expected));
        item.finish(Outcome::done());
    }
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_failed_key_is_reconciled_again_after_the_others() -> anyhow::Result<()> {
    let (sender, mut reconciled) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: Request, cx: Context| {
        sender.send(request.clone()).unwrap();
        let fails = request.name() == "a" && cx.attempt() == 1;
        ready(if fails {
            Err(anyhow::anyhow!("fails once"))
        } else {
            Ok(Outcome::done())
        })
    });
    let fake = source::from_fn("fake", async |queue, cx| {
        for name in ["a", "b"] {
            queue.add(key(name));
        }
        cx.synced();
        cx.stopped().await;
        Ok(())
    });
    let (controller, task) = Controller::builder("test")
        .watches_source(fake)
        .build(reconciler)?;

    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(task.run_until(async { stopped.await.unwrap_or_default() }));
    for expected in ["a", "b", "a"] {
        assert_eq!(reconciled.recv().await, Some(key(expected)));
    }
    assert!(controller.queue().is_empty());
    drop(stop);
    running.await?
}

#[test]
fn generation_changed_drops_status_updates() {
    let pod = |generation| {
        let mut pod = Pod::default();
        pod.metadata.generation = Some(generation);
        pod
    };
    assert!(!GenerationChanged.accepts(&Event::<Pod>::update(pod(1), pod(1))));
    assert!(GenerationChanged.accepts(&Event::<Pod>::update(pod(1), pod(2))));
    assert!(GenerationChanged.accepts(&Event::<Pod>::delete(pod(1))));
}

#[tokio::test]
async fn a_config_map_enqueues_the_website_it_names() {
    let handler =
        handler::map(|map: &Object<ConfigMap>| map.meta().labels().get("website").map(key));
    let mut map = ConfigMap::default();
    map.metadata.labels = Some([("website".into(), "shop".into())].into());
    assert_eq!(
        handler::requests(&handler, Event::create(map)).await,
        [key("shop")]
    );
}

#[tokio::test]
async fn a_reconciler_is_called_without_a_controller() -> anyhow::Result<()> {
    let reconciler = reconcile::from_fn(|_: Request, _| ready(Ok(Outcome::done())));
    assert_eq!(
        reconciler.reconcile(key("a"), &Context::default()).await?,
        Outcome::done()
    );
    Ok(())
}

fn main() {
    println!("run the tests with `cargo test --example test_style`");
}
