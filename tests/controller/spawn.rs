//! Everything that runs can be spawned, every handle can be shared: that this compiles is the test.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::DynamicObject;
use std::future::pending;
use steersman::{
    builder::{BuildError, Builder, Primary},
    cache::{Index, Notice},
    controller::{ControllerMetrics, ControllerReport, ControllerTask, Defaults, Options, ScopedWatch, WatchError},
    controller::{WatchHandle, WatchState},
    handler::{Enqueue, Funcs},
    object::AnyKind,
    prelude::*,
    reconcile::ClusterRequest,
    source::{Channel, Kind, SourceContext, Watch},
    workqueue::Item,
};

fn is_shared<T: Send + Sync + 'static>() {}
fn is_sent<T: Send + 'static>(_: T) {}

#[test]
fn handles_are_shared() {
    is_shared::<Cache>();
    is_shared::<Client>();
    is_shared::<Channel>();
    is_shared::<Channel<Secret>>();
    is_shared::<Context>();
    is_shared::<Controller>();
    is_shared::<Controller<ClusterRequest>>();
    is_shared::<ControllerMetrics>();
    is_shared::<ControllerReport>();
    is_shared::<ControllerTask<Request>>();
    is_shared::<Defaults>();
    is_shared::<Enqueue<Request>>();
    is_shared::<Event<DynamicObject>>();
    is_shared::<Event<AnyKind>>();
    is_shared::<Funcs<Secret, Request>>();
    is_shared::<Index<Secret, String>>();
    is_shared::<Informer<Metadata<Secret>>>();
    is_shared::<Item<Request>>();
    is_shared::<Kind<Secret, Request>>();
    is_shared::<Notice<Secret>>();
    is_shared::<Object<Secret>>();
    is_shared::<Options>();
    is_shared::<ScopedWatch>();
    is_shared::<Select<Secret>>();
    is_shared::<SourceContext>();
    is_shared::<Watch<Secret>>();
    is_shared::<WatchHandle>();
    is_shared::<WatchState>();
    is_shared::<WorkQueue<Request>>();
    is_shared::<BuildError>();
    is_shared::<WatchError>();
    is_shared::<steersman::client::Error>();
}

/// Never called.
fn everything_spawns(
    cache: Cache,
    client: Client,
    builder: Builder<Request, Primary>,
    (controller, task): (Controller<ClusterRequest>, ControllerTask<ClusterRequest>),
    watch: WatchHandle,
) {
    is_sent(builder);
    is_sent(task.run_until(pending()));
    is_sent(cache.clone().run_until(pending()));
    is_sent({
        let controller = controller.clone();
        async move { controller.warm_up().await }
    });
    is_sent(async move {
        let in_eu = handler::in_cluster("eu", handler::owner::<ConfigMap>());
        let secrets = Select::<Metadata<Secret>>::new().filter(predicate::ResourceVersionChanged);
        let secrets = controller.watch(Kind::with_cache(&cache, secrets, in_eu))?;
        secrets.await_synced().await?;
        watch.stop().await;
        controller.stop().await;
        anyhow::Ok(())
    });
    is_sent(async move {
        let key = Request::new("a", "b");
        let map = client.get::<ConfigMap>(&key).await?;
        client.live().status().update(&*map.unwrap_or_default()).await?;
        client.dynamic(&GroupVersionKind::gvk("a", "b", "C")).delete(&key).await
    });
}

/// A reconciler that is an `async fn`, with what is not `Sync` between its awaits.
struct Careful;

impl Reconciler for Careful {
    async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
        let cell = std::cell::Cell::new(request.name().len());
        cx.shutdown().await;
        cell.set(0);
        Ok(Outcome::done())
    }
}

#[tokio::test]
async fn a_controller_is_built_and_run_from_anywhere() -> anyhow::Result<()> {
    let _ = everything_spawns;
    let (controller, task) = tokio::task::spawn_blocking(|| Controller::builder("careful").build(Careful)).await??;
    let running = tokio::spawn(task.run_until(pending()));
    controller.queue().add(Request::new("a", "b"));
    while controller.queue().stats().running == 0 {
        tokio::task::yield_now().await;
    }
    controller.stop().await;
    running.await?
}
