//! Compile-time tests: futures can be spawned, handles can be shared.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::DynamicObject;
use std::future::pending;
use steersman::{
    builder::{BuildError, Builder, Primary},
    cache::{Index, InformerEvent},
    controller::{
        ControllerMetrics, ControllerReport, ControllerTask, Defaults, Options, ScopedWatch,
        WatchError,
    },
    controller::{WatchHandle, WatchState},
    handler::{Enqueue, Funcs},
    object::AnyKind,
    prelude::*,
    reconcile::ClusterRequest,
    reconcile::{Context, Result},
    source::{Channel, Kind, SourceContext, Watch},
    workqueue::Item,
};

fn assert_send_sync<T: Send + Sync + 'static>() {}
fn assert_send<T: Send + 'static>(_: T) {}

#[test]
fn handles_are_shared() {
    assert_send_sync::<Cache>();
    assert_send_sync::<Client>();
    assert_send_sync::<Channel>();
    assert_send_sync::<Channel<Secret>>();
    assert_send_sync::<Context>();
    assert_send_sync::<Controller>();
    assert_send_sync::<Controller<ClusterRequest>>();
    assert_send_sync::<ControllerMetrics>();
    assert_send_sync::<ControllerReport>();
    assert_send_sync::<ControllerTask<Request>>();
    assert_send_sync::<Defaults>();
    assert_send_sync::<Enqueue<Request>>();
    assert_send_sync::<Event<DynamicObject>>();
    assert_send_sync::<Event<AnyKind>>();
    assert_send_sync::<Funcs<Secret, Request>>();
    assert_send_sync::<Index<Secret, String>>();
    assert_send_sync::<Informer<Metadata<Secret>>>();
    assert_send_sync::<Item<Request>>();
    assert_send_sync::<Kind<Secret, Request>>();
    assert_send_sync::<InformerEvent<Secret>>();
    assert_send_sync::<Object<Secret>>();
    assert_send_sync::<Options>();
    assert_send_sync::<ScopedWatch>();
    assert_send_sync::<Select<Secret>>();
    assert_send_sync::<SourceContext>();
    assert_send_sync::<Watch<Secret>>();
    assert_send_sync::<WatchHandle>();
    assert_send_sync::<WatchState>();
    assert_send_sync::<WorkQueue<Request>>();
    assert_send_sync::<BuildError>();
    assert_send_sync::<WatchError>();
    assert_send_sync::<steersman::client::Error>();
}

/// Never called.
fn everything_spawns(
    cache: Cache,
    client: Client,
    builder: Builder<Request, Primary>,
    (controller, task): (Controller<ClusterRequest>, ControllerTask<ClusterRequest>),
    watch: WatchHandle,
) {
    assert_send(builder);
    assert_send(task.run_until(pending()));
    assert_send(cache.clone().run_until(pending()));
    assert_send({
        let controller = controller.clone();
        async move { controller.warm_up().await }
    });
    assert_send(async move {
        let in_eu = handler::in_cluster("eu", handler::owner::<ConfigMap>());
        let secrets = Select::<Metadata<Secret>>::new().filter(predicate::ResourceVersionChanged);
        let secrets = controller.watch(Kind::with_cache(&cache, secrets, in_eu))?;
        secrets.await_synced().await?;
        watch.stop().await;
        controller.stop().await;
        anyhow::Ok(())
    });
    assert_send(async move {
        let key = Request::new("a", "b");
        let map = client.get::<ConfigMap>(&key).await?;
        client
            .live()
            .status()
            .update(&*map.unwrap_or_default())
            .await?;
        client
            .dynamic(&GroupVersionKind::gvk("a", "b", "C"))
            .delete(&key)
            .await
    });
}

/// Reconciler that holds a value that is not `Sync` across an await.
struct NonSyncReconciler;

impl Reconciler for NonSyncReconciler {
    async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
        let cell = std::cell::Cell::new(request.name().len());
        cx.shutdown().await;
        cell.set(0);
        Ok(Outcome::done())
    }
}

#[tokio::test]
async fn a_controller_can_be_built_and_run_on_any_thread() -> anyhow::Result<()> {
    let _ = everything_spawns;
    let (controller, task) =
        tokio::task::spawn_blocking(|| Controller::builder("careful").build(NonSyncReconciler))
            .await??;
    let running = tokio::spawn(task.run_until(pending()));
    controller.queue().add(Request::new("a", "b"));
    while controller.queue().stats().running == 0 {
        tokio::task::yield_now().await;
    }
    controller.stop().await;
    running.await?
}
