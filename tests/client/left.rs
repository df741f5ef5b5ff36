//! Writes of objects that the informer's selectors leave out, or have left out since: nobody will tell the informer of them, and nobody waits for that.

use super::{
    held::Gate,
    support::{map, of},
};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::time::Duration;
use steersman::{
    cache::{Cache, Informer, Select},
    client::{Client, Consistency, Patch},
    object::ObjectKey,
    testing::{Env, TestServer},
};

/// Less than from one bookmark to the next, which would show anything.
const BOUND: Consistency = Consistency::Block(Duration::from_secs(20));

/// An informer of what is labelled `app=x`, behind a gate; who reads from it, and somebody else.
struct Scene {
    gate: Gate,
    informer: Informer<ConfigMap>,
    client: Client,
    other: Client,
    key: ObjectKey,
}

impl Scene {
    /// With an object that it has.
    async fn new(env: &Env) -> anyhow::Result<Self> {
        let namespace = env.namespace("left").await?;
        let gate = Gate::new(Duration::from_millis(20));
        let cache = Cache::new(gate.before(env.client()?), of(&[&namespace]))?;
        let other = Client::new(env.client()?)?;
        other.create(&map(&namespace, "x", "blue")).await?;
        let informer = cache.informer_of(Select::<ConfigMap>::new().labels("app=x"))?;
        let client = Client::new(env.client()?)?.with_cache(cache.clone()).consistency(BOUND);
        tokio::spawn(cache.run_until(std::future::pending()));
        informer.await_synced().await?;
        Ok(Self { gate, informer, client, other, key: ObjectKey::new(&namespace, "x") })
    }

    /// One of the same name that is outside.
    fn outside(&self) -> ConfigMap {
        let mut map = map(self.key.namespace().unwrap_or_default(), "x", "red");
        map.metadata.labels = None;
        map
    }

    async fn relabel(&self, client: &Client, app: &str) -> anyhow::Result<()> {
        client.patch::<ConfigMap>(&self.key, &Patch::Merge(json!({"metadata": {"labels": {"app": app}}}))).await?;
        Ok(())
    }

    async fn repaint(&self) -> anyhow::Result<()> {
        self.client.patch::<ConfigMap>(&self.key, &Patch::Merge(json!({"data": {"door": "red"}}))).await?;
        Ok(())
    }

    /// Everything that was written is shown, and nothing is left of it.
    async fn is_over(&self, is_there: bool) -> anyhow::Result<()> {
        self.gate.open();
        self.client.caught_up().await?;
        assert_eq!(self.informer.get(&self.key)?.is_some(), is_there);
        assert_eq!(self.informer.stats().own_writes.pending, 0);
        Ok(())
    }
}

steersman::env_test! {
    async fn what_is_written_after_an_object_left_the_selectors_is_not_waited_for(env: Env) -> anyhow::Result<()> {
        let scene = Scene::new(&env).await?;
        scene.gate.hold();
        scene.relabel(&scene.client, "done").await?;
        scene.repaint().await?;
        scene.is_over(false).await?;
        // Back again, and out and in: that is waited for.
        scene.gate.hold();
        for app in ["x", "done", "x"] {
            scene.relabel(&scene.client, app).await?;
        }
        scene.is_over(true).await?;
        scene.gate.hold();
        scene.relabel(&scene.other, "done").await?;
        scene.repaint().await?;
        scene.is_over(false).await
    }

    async fn a_delete_of_another_one_of_that_name_which_is_outside_is_not_waited_for(env: Env) -> anyhow::Result<()> {
        let scene = Scene::new(&env).await?;
        scene.gate.hold();
        scene.other.delete::<ConfigMap>(&scene.key).await?;
        scene.other.create(&scene.outside()).await?;
        assert!(scene.client.delete::<ConfigMap>(&scene.key).await?);
        scene.gate.open();
        scene.client.caught_up().await?;
        // And all of it by one client.
        scene.client.create(&map(scene.key.namespace().unwrap_or_default(), "x", "blue")).await?;
        scene.client.caught_up().await?;
        scene.gate.hold();
        scene.client.delete::<ConfigMap>(&scene.key).await?;
        scene.client.create(&scene.outside()).await?;
        scene.client.delete::<ConfigMap>(&scene.key).await?;
        scene.is_over(false).await
    }
}
