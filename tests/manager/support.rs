//! Helpers of the manager tests.

use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use steersman::{
    manager::{Manager, ManagerBuilder, ManagerHandle, RunContext, Stage},
    prelude::*,
};
use steersman_apiserver::{ApiServer, Options};
use tokio::{sync::oneshot, task::JoinHandle};

pub(crate) fn server() -> ApiServer {
    ApiServer::new(Options::default()).expect("a server without data starts")
}

pub(crate) fn client(server: &ApiServer) -> kube::Client {
    kube::Client::new(server.service(), "default")
}

pub(crate) fn builder(server: &ApiServer) -> ManagerBuilder {
    Manager::builder(client(server))
}

/// Messages in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn push(&self, message: impl Into<String>) {
        self.0.lock().push(message.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Adds a runnable that logs when it runs and when it stops.
    pub(crate) fn runnable(&self, manager: &ManagerHandle, stage: Stage, name: &'static str) {
        let log = self.clone();
        let run = async move |cx: RunContext| {
            log.push(format!("{name} runs"));
            cx.ready();
            cx.stopped().await;
            log.push(format!("{name} stops"));
            Ok(())
        };
        manager
            .add(stage, name, run)
            .expect("the manager is not stopping");
    }
}

/// Running manager.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    pub(crate) task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub(crate) fn new(manager: Manager) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        Self {
            stop: Some(stop),
            task: tokio::spawn(manager.run_until(async { drop(stopped.await) })),
        }
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.stop.take());
        self.task.await.expect("no panic")
    }
}

/// Waits until `holds` returns true.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns a reconciler that does nothing.
pub(crate) fn nothing<R: steersman::workqueue::Key>() -> impl Reconciler<R> {
    reconcile::from_fn(|_: R, _| std::future::ready(Ok(Outcome::done())))
}
