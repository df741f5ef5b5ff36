//! Embedded server that records the calls of a controller.

use serde_json::Value;
use std::collections::BTreeMap;
use steersman::{
    manager::{Manager, ManagerHandle},
    prelude::*,
};
use steersman_apiserver::{ApiServer, Journal, Options};
use tokio::{sync::oneshot, task::JoinHandle};

/// Namespace of all objects.
pub(crate) const NAMESPACE: &str = "default";

/// Embedded server that records calls.
pub(crate) struct Server(pub(crate) ApiServer);

impl Server {
    /// Creates a server with these CRDs, which records at most this number of calls.
    pub(crate) async fn new(
        definitions: impl IntoIterator<Item = Value>,
        calls: usize,
    ) -> anyhow::Result<Self> {
        let options = Options {
            journal: Journal::new(calls),
            ..Options::default()
        };
        let server = ApiServer::new(options)?;
        for definition in definitions {
            server
                .install(definition)
                .await
                .map_err(|failure| anyhow::anyhow!("{failure}"))?;
        }
        Ok(Self(server))
    }

    /// Creates a client without a cache.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(self.connect())?.namespace(NAMESPACE))
    }

    fn connect(&self) -> kube::Client {
        kube::Client::new(self.0.service(), NAMESPACE)
    }

    /// Starts a manager with the controller that `add` adds, and clears the recorded calls.
    pub(crate) fn start(
        &self,
        add: impl FnOnce(&Manager) -> anyhow::Result<()>,
    ) -> anyhow::Result<Running> {
        self.0.journal().clear();
        let manager = Manager::builder(self.connect()).build()?;
        add(&manager)?;
        let handle = manager.handle();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
        Ok(Running {
            manager: handle,
            stop,
            task,
        })
    }

    /// Returns the calls since the start.
    pub(crate) fn calls(&self) -> Calls {
        let mut calls = BTreeMap::new();
        for entry in self.0.journal().entries() {
            let suffix = if entry.subresource.is_empty() {
                String::new()
            } else {
                format!("/{}", entry.subresource)
            };
            *calls
                .entry(format!("{} {}{suffix}", entry.verb, entry.resource))
                .or_default() += 1;
        }
        Calls(calls)
    }
}

/// Number of calls by verb and resource, such as `patch clusters`.
///
/// Calls without a resource, such as discovery, are counted by verb.
pub(crate) struct Calls(BTreeMap<String, usize>);

impl Calls {
    /// Returns the number of calls: of each of `writes`, of reads of objects, and of all others.
    pub(crate) fn count(self, writes: &[&str]) -> Vec<usize> {
        let Self(mut calls) = self;
        let of_write = |write: &&str| calls.remove(*write).unwrap_or_default();
        let mut counts: Vec<usize> = writes.iter().map(of_write).collect();
        let (reads, others): (Vec<_>, Vec<_>) = calls
            .into_iter()
            .partition(|(call, _)| is_read_of_object(call));
        let sum = |calls: Vec<(String, usize)>| calls.iter().map(|(_, count)| count).sum::<usize>();
        counts.extend([reads, others].map(sum));
        counts
    }

    /// Returns the number of writes.
    pub(crate) fn writes(&self) -> usize {
        let verbs = ["create", "patch", "update", "delete"];
        let calls = self.0.iter();
        calls
            .filter(|(call, _)| verbs.iter().any(|verb| call.starts_with(verb)))
            .map(|(_, count)| count)
            .sum()
    }
}

/// Returns whether a call reads an object. Calls of discovery have no resource.
fn is_read_of_object(call: &str) -> bool {
    call.starts_with("get ") && !call.ends_with(' ')
}

/// Manager that runs a controller.
pub(crate) struct Running {
    pub(crate) manager: ManagerHandle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.task.await?
    }
}
