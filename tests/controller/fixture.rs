//! Helpers of the tests on servers: a cache, a client, kinds, and a reconciler.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};
use steersman::{
    builder::BuildError,
    cache::{CacheError, Namespaces},
    client::{Patch, owner},
    controller::ControllerTask,
    object::StaticKind,
    prelude::*,
    reconcile::{Context, Result},
    testing::TestServer,
    workqueue::Key,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// Cache of the test's namespace, and a client that reads from it.
pub(crate) struct Fixture {
    pub(crate) cache: Cache,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), CacheError>>,
}

impl Fixture {
    pub(crate) async fn new(env: &impl TestServer) -> anyhow::Result<Self> {
        Self::of(env.client()?, env.namespace("controller").await?)
    }

    /// Creates a fixture from a connection and a namespace.
    pub(crate) fn of(connection: kube_client::Client, namespace: String) -> anyhow::Result<Self> {
        let namespaces = Namespaces::List(vec![namespace.as_str().into()]);
        let cache = Cache::new(
            connection.clone(),
            CacheOptions {
                namespaces,
                ..CacheOptions::default()
            },
        )?;
        let client = Client::new(connection)?.with_cache(cache.clone());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(cache.clone().run_until(async { drop(stopped.await) }));
        Ok(Self {
            cache,
            client,
            namespace,
            stop,
            running,
        })
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        Ok(self.running.await??)
    }

    pub(crate) fn key(&self, name: &str) -> Request {
        Request::new(&self.namespace, name)
    }

    pub(crate) fn shop(&self, name: &str) -> Shop {
        let mut shop = Shop::new(name, ShopSpec { open: false });
        shop.metadata.namespace = Some(self.namespace.clone());
        shop
    }

    /// Returns a config map with a label `shop`.
    pub(crate) fn map(&self, name: &str, shop: &str) -> ConfigMap {
        serde_json::from_value(self.labelled(name, shop)).expect("a config map")
    }

    /// Returns a secret with a label `shop`.
    pub(crate) fn secret(&self, name: &str, shop: &str) -> Secret {
        serde_json::from_value(self.labelled(name, shop)).expect("a secret")
    }

    fn labelled(&self, name: &str, shop: &str) -> Value {
        json!({"metadata": {"namespace": self.namespace, "name": name, "labels": {"shop": shop}}})
    }

    /// Updates an annotation with a random value.
    pub(crate) async fn touch<K: StaticKind>(&self, name: &str) -> anyhow::Result<K> {
        let now = rand::random::<u64>().to_string();
        self.annotate(name, &json!({"touched": now})).await
    }

    pub(crate) async fn annotate<K: StaticKind>(
        &self,
        name: &str,
        annotations: &Value,
    ) -> anyhow::Result<K> {
        self.patch(name, json!({"metadata": {"annotations": annotations}}))
            .await
    }

    pub(crate) async fn relabel<K: StaticKind>(&self, name: &str, shop: &str) -> anyhow::Result<K> {
        self.patch(name, json!({"metadata": {"labels": {"shop": shop}}}))
            .await
    }

    pub(crate) async fn patch<K: StaticKind>(&self, name: &str, patch: Value) -> anyhow::Result<K> {
        Ok(self
            .client
            .patch(&self.key(name), &Patch::Merge(patch))
            .await?)
    }

    pub(crate) async fn delete<K: StaticKind>(&self, name: &str) -> anyhow::Result<()> {
        assert!(
            self.client.delete::<K>(&self.key(name)).await?,
            "{name} exists"
        );
        Ok(())
    }
}

/// Adds a controller reference to `owner`.
pub(crate) fn owned<K: KubeObject>(owner: &impl KubeObject, mut child: K) -> K {
    owner::set_controller(owner, &mut child).expect("the object has no owner");
    child
}

/// Namespaced custom resource with a spec.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "controller.steersman.example",
    version = "v1",
    kind = "Shop",
    namespaced
)]
pub(crate) struct ShopSpec {
    #[serde(default)]
    pub(crate) open: bool,
}

/// Cluster-scoped custom resource.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "controller.steersman.example", version = "v1", kind = "Mall")]
pub(crate) struct MallSpec {}

/// Running controller.
pub(crate) struct StartedController<R: Key = Request> {
    controller: Controller<R>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl<R: Key> StartedController<R> {
    pub(crate) fn new(
        built: Result<(Controller<R>, ControllerTask<R>), BuildError>,
    ) -> anyhow::Result<Self> {
        let (controller, task) = built?;
        Ok(Self {
            controller,
            running: tokio::spawn(task.run_until(std::future::pending())),
        })
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.controller.stop().await;
        self.ended().await
    }

    pub(crate) async fn ended(self) -> anyhow::Result<()> {
        self.running.await?
    }
}

impl<R: Key> Deref for StartedController<R> {
    type Target = Controller<R>;

    fn deref(&self) -> &Controller<R> {
        &self.controller
    }
}

/// Reconciles in order, with their contexts.
pub(crate) struct RecordedReconciles<R = Request>(mpsc::UnboundedReceiver<(R, Context)>);

/// Creates a reconciler that only records its calls.
pub(crate) fn recorder<R: Key>() -> (impl Reconciler<R>, RecordedReconciles<R>) {
    recording(|_, _| async { Ok(Outcome::done()) })
}

/// Creates a reconciler that records each call before it calls `reconcile`.
pub(crate) fn recording<R: Key, Fut>(
    reconcile: impl Fn(R, Context) -> Fut + Send + Sync + 'static,
) -> (impl Reconciler<R>, RecordedReconciles<R>)
where
    Fut: Future<Output = Result<Outcome>> + Send + 'static,
{
    let (sender, receiver) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: R, cx: Context| {
        // Fails after the test has ended, which is fine.
        let _ = sender.send((request.clone(), cx.clone()));
        reconcile(request, cx)
    });
    (reconciler, RecordedReconciles(receiver))
}

impl<R: Key> RecordedReconciles<R> {
    pub(crate) async fn next(&mut self) -> (R, Context) {
        self.0.recv().await.expect("the controller runs")
    }

    /// Asserts that the next reconcile is of `request`.
    pub(crate) async fn expect(&mut self, request: &R) -> Context {
        let (next, cx) = self.next().await;
        assert_eq!(next, *request, "because of {:?}", cx.reasons());
        cx
    }

    /// Asserts that the next reconcile is of `request`, for this reason.
    pub(crate) async fn expect_because(&mut self, request: &R, reason: &str) {
        let cx = self.expect(request).await;
        assert!(
            cx.reasons().iter().any(|one| one.as_str() == reason),
            "{:?}, not {reason}",
            cx.reasons()
        );
    }

    /// Asserts that the next two reconciles are of `requests`, in any order.
    ///
    /// Both have this reason. A request that is added while its previous reconcile ends is queued
    /// behind the other one.
    pub(crate) async fn expect_both_with_reasons(&mut self, requests: [&R; 2], reason: &str) {
        let mut left = requests.to_vec();
        while !left.is_empty() {
            let (next, cx) = self.next().await;
            assert!(
                left.contains(&&next),
                "{next:?} because of {:?}",
                cx.reasons()
            );
            assert!(
                cx.reasons().iter().any(|one| one.as_str() == reason),
                "{:?}, not {reason}",
                cx.reasons()
            );
            left.retain(|request| **request != next);
        }
    }

    /// Asserts that there was no reconcile since the last call.
    pub(crate) fn expect_none(&mut self) {
        if let Ok((request, cx)) = self.0.try_recv() {
            panic!("{request:?} because of {:?}", cx.reasons());
        }
    }
}

/// Shared record of values in order.
pub(crate) struct SharedVec<T>(Arc<Mutex<Vec<T>>>);

impl<T> SharedVec<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn add(&self, one: T) {
        self.0.lock().expect("not poisoned").push(one);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("not poisoned").len()
    }

    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().expect("not poisoned"))
    }
}

impl<T> Clone for SharedVec<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Waits until `holds` returns true. The test has its own timeout.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
