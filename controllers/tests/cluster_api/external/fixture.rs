//! A manager with a controller that records its requests, and an object tracker.

use super::Provider;
use parking_lot::Mutex;
use std::{collections::BTreeSet, sync::Arc};
use steersman::{
    cache::InformerReport,
    controller::WatchHandle,
    manager::ManagerHandle,
    prelude::*,
    reconcile::from_fn,
    testing::{Env, TestServer, eventually},
};
use steersman_controllers::external::{ObjectTracker, ObjectTrackerBuilder};
use tokio::{sync::oneshot, task::JoinHandle};

pub(super) struct Fixture {
    pub(super) manager: ManagerHandle,
    pub(super) controller: Controller,
    pub(super) tracker: ObjectTracker,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Fixture {
    pub(super) fn start(env: &Env) -> anyhow::Result<Self> {
        Self::start_with(env, |builder| builder)
    }

    /// Starts a manager. `configure` changes the tracker.
    pub(super) fn start_with(
        env: &Env,
        configure: impl FnOnce(ObjectTrackerBuilder) -> ObjectTrackerBuilder,
    ) -> anyhow::Result<Self> {
        let manager = Manager::builder(env.client()?).build()?;
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let recorded = requests.clone();
        let reconciler = from_fn(move |request: Request, _cx| {
            recorded.lock().push(request);
            async { Ok(Outcome::done()) }
        });
        let controller = manager.controller("recorder").reconcile(reconciler)?;
        let tracker = ObjectTracker::builder()
            .controller(&controller)
            .cache(&manager.cache())
            .resolver(&manager.client())
            .span(tracing::info_span!("external"));
        let tracker = configure(tracker).build()?;
        let (handle, (stop, stopped)) = (manager.handle(), oneshot::channel());
        let running = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
        Ok(Self {
            manager: handle,
            controller,
            tracker,
            requests,
            stop,
            running,
        })
    }

    /// Watches the kind of a provider in a version. Each object is reconciled itself.
    pub(super) fn watch(&self, provider: &Provider, version: &str) -> anyhow::Result<WatchHandle> {
        Ok(self
            .tracker
            .watch(&provider.kind(version), handler::object(), ())?)
    }

    /// Waits until these objects of a provider, and no others, were reconciled. Forgets them.
    pub(super) async fn until_reconciled(&self, provider: &Provider, names: &[&str]) {
        let keys: Vec<_> = names.iter().map(|name| provider.key(name)).collect();
        self.until_requested(&keys).await;
    }

    /// Waits until these requests, and no others, were reconciled. Forgets them.
    pub(super) async fn until_requested(&self, expected: &[Request]) {
        let expected: BTreeSet<_> = expected.iter().map(ToString::to_string).collect();
        let reconciled = || -> BTreeSet<_> {
            let requests = self.requests.lock();
            requests.iter().map(ToString::to_string).collect()
        };
        let done = eventually(async || {
            let all = reconciled().is_superset(&expected);
            Ok::<_, anyhow::Error>(all.then_some(()))
        });
        done.await.expect("the condition has no errors");
        assert_eq!(reconciled(), expected);
        self.requests.lock().clear();
    }

    /// Returns the informers of a provider's kind.
    pub(super) fn informers(&self, provider: &Provider) -> Vec<InformerReport> {
        let mut all = self.manager.cache().informers();
        all.retain(|informer| informer.gvk.group == provider.group);
        all
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.running.await?
    }
}
