//! Reconcilers that are called with the object.

use super::world::{Shop, Started, World, until};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResourceExt, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use steersman::{
    handler::Enqueue,
    prelude::*,
    reconcile::{ObjectReconciler, by_object},
    testing::{Env, TestServer},
};
use tokio::sync::mpsc::{UnboundedSender, error::TryRecvError, unbounded_channel};

/// Sends name and `open` of each shop that it is called with.
struct Shops(UnboundedSender<(String, bool)>);

impl ObjectReconciler<Shop> for Shops {
    async fn reconcile(&self, shop: Arc<Shop>, _: &Context) -> Result<Outcome> {
        self.0.send((shop.name_any(), shop.spec.open))?;
        Ok(Outcome::done())
    }
}

/// Must not be called.
struct Never;

impl ObjectReconciler<ConfigMap> for Never {
    async fn reconcile(&self, object: Arc<ConfigMap>, _: &Context) -> Result<Outcome> {
        panic!("called with {}", object.name_any())
    }
}

steersman::env_test! {
    async fn by_object_passes_the_cached_object_and_skips_a_deleted_one(env: Env) -> anyhow::Result<()> {
        env.install([Shop::crd()]).await?;
        let world = World::new(&env).await?;
        let (sender, mut seen) = unbounded_channel();
        let builder = Controller::builder("shops").cache(&world.cache).for_::<Shop>();
        let shops = Started::new(builder.build(by_object::<Shop, _>(world.client.clone(), Shops(sender))))?;
        shops.warm_up().await?;

        world.client.create(&world.shop("a")).await?;
        assert_eq!(seen.recv().await, Some(("a".into(), false)));
        world.patch::<Shop>("a", json!({"spec": {"open": true}})).await?;
        assert_eq!(seen.recv().await, Some(("a".into(), true)));
        world.delete::<Shop>("a").await?;
        until(|| shops.stats().success == 3).await;
        assert_eq!(seen.try_recv(), Err(TryRecvError::Empty), "the object is gone");
        shops.stop().await?;
        world.stop().await
    }

    async fn by_object_fails_if_the_object_cannot_be_read(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        let key = world.key("a");
        let once = source::from_fn("once", move |queue: Enqueue<Request>, _| {
            queue.add(key);
            std::future::ready(Ok(()))
        });
        // The client reads from a cache without an informer of the kind.
        let reconciler = by_object::<ConfigMap, _>(world.client.clone(), Never);
        let maps = Started::new(Controller::builder("maps").watches_source(once).build(reconciler))?;
        until(|| maps.stats().errors > 0).await;
        assert_eq!((maps.stats().success, maps.stats().panics), (0, 0));
        maps.stop().await?;
        world.stop().await
    }
}
