//! Tests of reconcilers that are called with the object.

use super::fixture::{Fixture, Shop, StartedController, until};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResourceExt, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use steersman::{
    handler::Enqueue,
    prelude::*,
    reconcile::{Context, ObjectReconciler, Result, by_object},
    testing::{Env, TestServer},
};
use tokio::sync::mpsc::{UnboundedSender, error::TryRecvError, unbounded_channel};

/// Reconciler that sends name and `open` of each shop.
struct Shops(UnboundedSender<(String, bool)>);

impl ObjectReconciler<Shop> for Shops {
    async fn reconcile(&self, shop: Arc<Shop>, _: &Context) -> Result<Outcome> {
        self.0.send((shop.name_any(), shop.spec.open))?;
        Ok(Outcome::done())
    }
}

/// Reconciler that must not be called.
struct Never;

impl ObjectReconciler<ConfigMap> for Never {
    async fn reconcile(&self, object: Arc<ConfigMap>, _: &Context) -> Result<Outcome> {
        panic!("called with {}", object.name_any())
    }
}

steersman::env_test! {
    async fn by_object_passes_the_cached_object_and_skips_a_deleted_one(env: Env) -> anyhow::Result<()> {
        env.install([Shop::crd()]).await?;
        let fixture = Fixture::new(&env).await?;
        let (sender, mut seen) = unbounded_channel();
        let builder = Controller::builder("shops").cache(&fixture.cache).for_::<Shop>();
        let shops = StartedController::new(builder.build(by_object::<Shop, _>(fixture.client.clone(), Shops(sender))))?;
        shops.warm_up().await?;

        fixture.client.create(&fixture.shop("a")).await?;
        assert_eq!(seen.recv().await, Some(("a".into(), false)));
        fixture.patch::<Shop>("a", json!({"spec": {"open": true}})).await?;
        assert_eq!(seen.recv().await, Some(("a".into(), true)));
        fixture.delete::<Shop>("a").await?;
        until(|| shops.stats().success == 3).await;
        assert_eq!(seen.try_recv(), Err(TryRecvError::Empty), "the object is gone");
        shops.stop().await?;
        fixture.stop().await
    }

    async fn by_object_fails_if_the_object_cannot_be_read(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let key = fixture.key("a");
        let once = source::from_fn("once", move |queue: Enqueue<Request>, _| {
            queue.add(key);
            std::future::ready(Ok(()))
        });
        // The client reads from a cache without an informer of the kind.
        let reconciler = by_object::<ConfigMap, _>(fixture.client.clone(), Never);
        let maps = StartedController::new(Controller::builder("maps").watches_source(once).build(reconciler))?;
        until(|| maps.stats().errors > 0).await;
        assert_eq!((maps.stats().success, maps.stats().panics), (0, 0));
        maps.stop().await?;
        fixture.stop().await
    }
}
