//! What the tests on servers share: a cache that runs, a client that reads from it, kinds, and a reconciler that tells what it was asked for.

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
    testing::TestServer,
    workqueue::Key,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

/// A cache of one namespace, the test's own, and a client that reads from it.
pub(crate) struct World {
    pub(crate) cache: Cache,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), CacheError>>,
}

impl World {
    pub(crate) async fn new(env: &impl TestServer) -> anyhow::Result<Self> {
        Self::of(env.client()?, env.namespace("controller").await?)
    }

    /// What is read through this connection, of this namespace.
    pub(crate) fn of(connection: kube_client::Client, namespace: String) -> anyhow::Result<Self> {
        let namespaces = Namespaces::These(vec![namespace.as_str().into()]);
        let cache = Cache::new(connection.clone(), CacheOptions { namespaces, ..CacheOptions::default() })?;
        let client = Client::new(connection)?.with_cache(cache.clone());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(cache.clone().run_until(async { drop(stopped.await) }));
        Ok(Self { cache, client, namespace, stop, running })
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

    /// With a label `shop`.
    pub(crate) fn map(&self, name: &str, shop: &str) -> ConfigMap {
        serde_json::from_value(self.labelled(name, shop)).expect("a config map")
    }

    /// With a label `shop`.
    pub(crate) fn secret(&self, name: &str, shop: &str) -> Secret {
        serde_json::from_value(self.labelled(name, shop)).expect("a secret")
    }

    fn labelled(&self, name: &str, shop: &str) -> Value {
        json!({"metadata": {"namespace": self.namespace, "name": name, "labels": {"shop": shop}}})
    }

    /// Change something of it.
    pub(crate) async fn touch<K: StaticKind>(&self, name: &str) -> anyhow::Result<K> {
        let now = rand::random::<u64>().to_string();
        self.annotate(name, &json!({"touched": now})).await
    }

    pub(crate) async fn annotate<K: StaticKind>(&self, name: &str, annotations: &Value) -> anyhow::Result<K> {
        self.patch(name, json!({"metadata": {"annotations": annotations}})).await
    }

    pub(crate) async fn relabel<K: StaticKind>(&self, name: &str, shop: &str) -> anyhow::Result<K> {
        self.patch(name, json!({"metadata": {"labels": {"shop": shop}}})).await
    }

    pub(crate) async fn patch<K: StaticKind>(&self, name: &str, patch: Value) -> anyhow::Result<K> {
        Ok(self.client.patch(&self.key(name), &Patch::Merge(patch)).await?)
    }

    pub(crate) async fn delete<K: StaticKind>(&self, name: &str) -> anyhow::Result<()> {
        assert!(self.client.delete::<K>(&self.key(name)).await?, "{name} is there");
        Ok(())
    }
}

/// With a controller reference to its owner.
pub(crate) fn owned<K: KubeObject>(owner: &impl KubeObject, mut child: K) -> K {
    owner::set_controller(owner, &mut child).expect("it has no owner yet");
    child
}

/// Has a spec, in a namespace.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "controller.steersman.example", version = "v1", kind = "Shop", namespaced)]
pub(crate) struct ShopSpec {
    #[serde(default)]
    pub(crate) open: bool,
}

/// Has no namespace.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "controller.steersman.example", version = "v1", kind = "Mall")]
pub(crate) struct MallSpec {}

/// A controller that runs.
pub(crate) struct Started<R: Key = Request> {
    controller: Controller<R>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl<R: Key> Started<R> {
    pub(crate) fn new(built: Result<(Controller<R>, ControllerTask<R>), BuildError>) -> anyhow::Result<Self> {
        let (controller, task) = built?;
        Ok(Self { controller, running: tokio::spawn(task.run_until(std::future::pending())) })
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.controller.stop().await;
        self.ended().await
    }

    pub(crate) async fn ended(self) -> anyhow::Result<()> {
        self.running.await?
    }
}

impl<R: Key> Deref for Started<R> {
    type Target = Controller<R>;

    fn deref(&self) -> &Controller<R> {
        &self.controller
    }
}

/// What a reconciler was asked for, in order.
pub(crate) struct Runs<R = Request>(mpsc::UnboundedReceiver<(R, Context)>);

/// One that does nothing but tell.
pub(crate) fn recorder<R: Key>() -> (impl Reconciler<R>, Runs<R>) {
    recording(|_, _| async { Ok(Outcome::done()) })
}

/// One that tells when a run begins.
pub(crate) fn recording<R: Key, Fut>(
    reconcile: impl Fn(R, Context) -> Fut + Send + Sync + 'static,
) -> (impl Reconciler<R>, Runs<R>)
where
    Fut: Future<Output = Result<Outcome>> + Send + 'static,
{
    let (tell, told) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: R, cx: Context| {
        // A test that has ended does not listen.
        let _ = tell.send((request.clone(), cx.clone()));
        reconcile(request, cx)
    });
    (reconciler, Runs(told))
}

impl<R: Key> Runs<R> {
    pub(crate) async fn next(&mut self) -> (R, Context) {
        self.0.recv().await.expect("the controller runs")
    }

    /// The next one is of this.
    pub(crate) async fn expect(&mut self, request: &R) -> Context {
        let (next, cx) = self.next().await;
        assert_eq!(next, *request, "because of {:?}", cx.reasons());
        cx
    }

    /// The next one is of this, for this reason.
    pub(crate) async fn expect_because(&mut self, request: &R, reason: &str) {
        let cx = self.expect(request).await;
        assert!(cx.reasons().iter().any(|one| one.as_str() == reason), "{:?}, not {reason}", cx.reasons());
    }

    /// Asserts that the next two reconciles are those of `requests`, in any order, for this reason.
    ///
    /// A request that is added while its previous reconcile ends is queued behind the other one.
    pub(crate) async fn expect_both_because(&mut self, requests: [&R; 2], reason: &str) {
        let mut left = requests.to_vec();
        while !left.is_empty() {
            let (next, cx) = self.next().await;
            assert!(left.contains(&&next), "{next:?} because of {:?}", cx.reasons());
            assert!(cx.reasons().iter().any(|one| one.as_str() == reason), "{:?}, not {reason}", cx.reasons());
            left.retain(|request| **request != next);
        }
    }

    /// There was none meanwhile.
    pub(crate) fn expect_none(&mut self) {
        if let Ok((request, cx)) = self.0.try_recv() {
            panic!("{request:?} because of {:?}", cx.reasons());
        }
    }
}

/// What happened, in order, from wherever.
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Log<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn add(&self, one: T) {
        self.0.lock().expect("nobody panics with it").push(one);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("nobody panics with it").len()
    }

    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().expect("nobody panics with it"))
    }
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Wait for what must come soon; a test has its own limit.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
