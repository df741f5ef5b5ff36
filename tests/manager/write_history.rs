//! History of writes, in the server's order.

use super::candidates::LEDGER;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api, Client,
    api::{PostParams, WatchParams},
};
use kube_core::WatchEvent;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet, time::timeout};

/// One write: its sender, fencing token and number within the token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Write {
    pub(crate) token: u64,
    pub(crate) number: u64,
}

impl Write {
    /// Parses a write from the data that a candidate sends.
    pub(crate) fn read(data: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            token: data.get("token")?.parse().ok()?,
            number: data.get("number")?.parse().ok()?,
        })
    }

    pub(crate) fn of_patch(body: &[u8]) -> Option<Self> {
        let patch: Value = serde_json::from_slice(body).ok()?;
        Self::read(&serde_json::from_value(patch["data"].clone()).ok()?)
    }
}

/// All versions of the ledger object, from a watch.
pub(crate) struct History {
    writes: watch::Receiver<Arc<Vec<Write>>>,
    _watching: JoinSet<()>,
}

impl History {
    /// Creates the ledger object and watches it.
    pub(crate) async fn begin(client: Client, namespace: &str) -> anyhow::Result<Self> {
        let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
        let ledger = serde_json::from_value(json!({"metadata": {"name": LEDGER}}))?;
        let made = maps.create(&PostParams::default(), &ledger).await?;
        let since = made.metadata.resource_version.unwrap_or_default();
        let only = WatchParams::default()
            .fields(&format!("metadata.name={LEDGER}"))
            .timeout(290);
        let mut events = maps.watch(&only, &since).await?.boxed();
        let (sender, writes) = watch::channel(Arc::default());
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            while let Ok(Some(WatchEvent::Modified(ledger))) = events.try_next().await {
                let write = ledger.data.as_ref().and_then(Write::read);
                sender.send_modify(|writes: &mut Arc<Vec<Write>>| {
                    Arc::make_mut(writes).extend(write);
                });
            }
        });
        Ok(Self {
            writes,
            _watching: watching,
        })
    }

    /// Waits until there are `many` writes with this token or a later one.
    pub(crate) async fn until_written(&self, token: u64, many: usize) -> anyhow::Result<()> {
        let mut writes = self.writes.clone();
        let enough = writes.wait_for(|writes| since(writes, token) >= many);
        timeout(Duration::from_mins(1), enough).await??;
        Ok(())
    }

    /// Waits for `many` further writes.
    pub(crate) async fn until_written_more(&self, token: u64, many: usize) -> anyhow::Result<()> {
        self.until_written(token, since(&self.writes(), token) + many)
            .await
    }

    pub(crate) fn writes(&self) -> Arc<Vec<Write>> {
        self.writes.borrow().clone()
    }
}

/// Counts the last writes with this token or a later one.
fn since(writes: &[Write], token: u64) -> usize {
    writes
        .iter()
        .rev()
        .take_while(|write| write.token >= token)
        .count()
}

/// Returns the writes with an older token than a write before them.
pub(crate) fn late_writes_in(writes: &[Write]) -> Vec<Write> {
    let mut newest = 0;
    let is_late = |write: &&Write| {
        newest = newest.max(write.token);
        write.token < newest
    };
    writes.iter().filter(is_late).cloned().collect()
}

#[test]
fn a_write_is_late_only_after_one_with_a_newer_token() {
    let of = |tokens: &[u64]| {
        tokens
            .iter()
            .map(|token| Write {
                token: *token,
                number: 1,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(late_writes_in(&of(&[3, 3, 5, 5, 9])), []);
    assert_eq!(late_writes_in(&of(&[3, 5, 3, 5, 4])), of(&[3, 4]));
}
